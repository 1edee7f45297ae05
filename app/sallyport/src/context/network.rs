//! How this machine reaches others: through which proxy, if any.

use std::str::FromStr;

use sallyport_net::{Outbound, Proxy, ProxyEnvironment, ProxyError};

use crate::failure::Failure;

/// The value of `--proxy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxyChoice {
    /// No proxy, whatever the environment has.
    None,
    /// Through this one.
    Through(Proxy),
}

impl FromStr for ProxyChoice {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Through) }
    }
}

/// The ways out of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Network {
    choice: Option<ProxyChoice>,
    environment: ProxyEnvironment,
}

impl Network {
    /// The chosen proxy, else the one in the environment.
    ///
    /// # Errors
    /// A variable of the environment names no proxy.
    pub(crate) fn new(choice: Option<ProxyChoice>) -> Result<Self, Failure> {
        let environment = match choice {
            Some(_) => ProxyEnvironment::default(),
            None => ProxyEnvironment::read()
                .map_err(|error| Failure::usage(error.to_string()).next("correct it, or give --proxy none"))?,
        };
        Ok(Self { choice, environment })
    }

    /// The way to this host and port.
    pub(crate) fn to(&self, host: &str, port: u16) -> Outbound {
        let proxy = match &self.choice {
            Some(ProxyChoice::None) => None,
            Some(ProxyChoice::Through(proxy)) => Some(proxy.clone()),
            None => self.environment.proxy_for(host, port).cloned(),
        };
        Outbound { proxy, ..Outbound::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_goes_before_the_environment() {
        let environment = ProxyEnvironment::read_from(|name| (name == "ALL_PROXY").then(|| "http://a:1".to_owned()));
        let network = |choice: Option<&str>| Network {
            choice: choice.map(|text| text.parse().unwrap()),
            environment: environment.clone().unwrap(),
        };
        let host = |choice, to| network(choice).to(to, 443).proxy.map(|proxy| proxy.host);
        assert_eq!(host(None, "x.example").as_deref(), Some("a"));
        assert_eq!(host(None, "api.localhost"), None);
        assert_eq!(host(Some("none"), "x.example"), None);
        assert_eq!(host(Some("socks5://b"), "api.localhost").as_deref(), Some("b"));
    }
}
