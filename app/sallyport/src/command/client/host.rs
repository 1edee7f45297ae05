//! The socket of a client command.

use std::str::FromStr;

use clap::Args;

/// Suffixes of the name in ssh configurations, which match hosts by them.
const SUFFIXES: [&str; 2] = [".sallyport", ".mysocket-dummy"];

/// The socket, and how to log in.
#[derive(Debug, Clone, Args)]
pub(super) struct HostArgs {
    /// The socket: its name with its domain, such as wandering-shape-7752.example.com, and its port when it differs
    /// from the server's
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(super) host: Host,
    /// Log in with a browser on another machine: prints a code to type there
    #[arg(long, env = "SALLYPORT_NO_BROWSER", value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) no_browser: bool,
}

/// A socket by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// The DNS name.
    pub(super) name: String,
    /// The port, when one is given.
    pub(super) port: Option<u16>,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            let shown: String = text.chars().take(80).collect();
            format!("{shown:?} is no name of a socket such as wandering-shape-7752.example.com")
        };
        let text_without = |text: &str| {
            let text = text.trim_end_matches('.').to_ascii_lowercase();
            SUFFIXES.iter().find_map(|suffix| text.strip_suffix(suffix)).unwrap_or(&text).to_owned()
        };
        let (name, port) = match text.rsplit_once(':') {
            None => (text, None),
            Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(refuse)?)),
        };
        let name = text_without(name);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
        };
        if name.len() > 253 || !name.contains('.') || !name.split('.').all(is_label) {
            return Err(refuse());
        }
        Ok(Self { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_named_as_ssh_may_name_it() {
        let host = |text: &str| text.parse::<Host>();
        let plain = Host { name: "calm-bay-1000.example.com".to_owned(), port: None };
        for text in [
            "calm-bay-1000.example.com",
            "Calm-Bay-1000.example.com.",
            "calm-bay-1000.example.com.sallyport",
            "calm-bay-1000.example.com.mysocket-dummy",
        ] {
            assert_eq!(host(text).unwrap(), plain, "{text}");
        }
        assert_eq!(host("calm-bay-1000.example.com:8443").unwrap(), Host { port: Some(8443), ..plain.clone() });
        assert_eq!(host("calm-bay-1000.example.com.sallyport:8443").unwrap().port, Some(8443));
        for bad in [
            "",
            "calm-bay-1000",
            "a b.example.com",
            "a..b",
            "-oProxyCommand=x.y",
            "a.b:0",
            "a.b:x",
            "a.b:70000",
            "a/b.c",
        ] {
            assert!(host(bad).unwrap_err().contains("is no name of a socket"), "{bad}");
        }
    }
}
