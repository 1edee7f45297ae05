//! Options for the identity of clients.

use clap::Args;
use sallyport_api::Socket;
use sallyport_client::PolicyRef;
use sallyport_model::{EmailDomain, IdentitySettings, PersonEmail, ProviderName};

use super::settings::listed;
use crate::failure::Failure;

/// The identity setting of a socket.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Access control")]
pub(crate) struct IdentityArgs {
    /// Require a login of clients that the socket or one of its policies allows
    #[arg(long, conflicts_with = "no_cloudauth")]
    cloudauth: bool,
    /// Require no login
    #[arg(long)]
    no_cloudauth: bool,
    /// The e-mail addresses that --cloudauth admits; off: none
    #[arg(long, value_name = "EMAIL", value_delimiter = ',')]
    allowed_email_addresses: Option<Vec<String>>,
    /// The domains of e-mail addresses that --cloudauth admits; off: none
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',')]
    allowed_email_domains: Option<Vec<String>>,
    /// The identity providers of the organisation to accept; off: all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    identity_provider: Option<Vec<String>>,
    /// The lifetime of a login in minutes, after which the provider is asked again [default: 720]
    #[arg(long, value_name = "MINUTES")]
    session_minutes: Option<u32>,
}

/// The policies of a new socket.
#[derive(Debug, Default, Args)]
pub(crate) struct PoliciesArg {
    /// Policies of the socket, by name: see `sallyport policy`
    #[arg(long = "policy", value_name = "POLICY", value_delimiter = ',', help_heading = "Access control")]
    policies: Vec<PolicyRef>,
}

impl PoliciesArg {
    /// Their names or ids.
    pub(crate) fn get(&self) -> Option<Vec<String>> {
        let names: Vec<_> = self.policies.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then_some(names)
    }
}

fn entries<T: std::str::FromStr<Err: std::fmt::Display>>(
    given: Option<Vec<String>>,
    now: Vec<T>,
) -> Result<Vec<T>, Failure> {
    let Some(given) = given else { return Ok(now) };
    let texts = listed(given);
    texts.iter().map(|text| text.trim().parse().map_err(|error: T::Err| Failure::usage(error.to_string()))).collect()
}

impl IdentityArgs {
    fn has_details(&self) -> bool {
        self.allowed_email_addresses.is_some()
            || self.allowed_email_domains.is_some()
            || self.identity_provider.is_some()
            || self.session_minutes.is_some()
    }

    /// Whether the change depends on the present settings.
    pub(crate) fn needs_current(&self) -> bool {
        self.cloudauth || self.has_details()
    }

    /// The settings after the change, where `now` is the present ones; `None` if they stay.
    ///
    /// # Errors
    /// Invalid entries, and options that have no effect without `--cloudauth`.
    pub(crate) fn change(self, now: Option<IdentitySettings>) -> Result<Option<Option<IdentitySettings>>, Failure> {
        if self.no_cloudauth {
            if self.has_details() {
                return Err(Failure::usage("--no-cloudauth requires no login, so options of logins have no effect")
                    .next("leave out --no-cloudauth, or the lists, the provider and the minutes"));
            }
            return Ok(Some(None));
        }
        if !self.cloudauth && !self.has_details() {
            return Ok(None);
        }
        if !self.cloudauth && now.is_none() {
            return Err(Failure::usage("the socket requires no login, so options of logins have no effect")
                .next("add --cloudauth"));
        }
        let now = now.unwrap_or_default();
        let email_addresses: Vec<PersonEmail> = entries(self.allowed_email_addresses, now.email_addresses)?;
        let email_domains: Vec<EmailDomain> = entries(self.allowed_email_domains, now.email_domains)?;
        let providers: Vec<ProviderName> = entries(self.identity_provider, now.providers)?;
        let session_minutes = self.session_minutes.unwrap_or(now.session_minutes);
        Ok(Some(Some(IdentitySettings { email_addresses, email_domains, providers, session_minutes, ..now })))
    }
}

/// The admitted clients, for people.
pub(crate) fn show(socket: &Socket) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let joined = |all: Vec<&str>| all.join(", ");
    if let Some(identity) = &socket.identity {
        rows.push(("login", format!("required, again after {} minutes", identity.session_minutes)));
        let emails = joined(identity.email_addresses.iter().map(PersonEmail::as_str).collect());
        let domains = joined(identity.email_domains.iter().map(EmailDomain::as_str).collect());
        let providers = joined(identity.providers.iter().map(ProviderName::as_str).collect());
        for (title, entries) in [("allowed people", emails), ("allowed domains", domains), ("providers", providers)] {
            if !entries.is_empty() {
                rows.push((title, entries));
            }
        }
    }
    if !socket.policies.is_empty() {
        rows.push(("policies", socket.policies.join(", ")));
    }
    rows
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        identity: IdentityArgs,
        #[command(flatten)]
        policies: PoliciesArg,
    }

    fn line(text: &str) -> Line {
        let words = std::iter::once("x").chain(text.split(' ').filter(|word| !word.is_empty()));
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn lists_are_set_kept_and_emptied() {
        let new = line("--cloudauth --allowed-email-domains MyCorp.com --allowed-email-addresses a@x.org,b@x.org");
        let set = new.identity.change(None).unwrap().unwrap().unwrap();
        assert_eq!(set.email_domains[0].as_str(), "mycorp.com");
        assert_eq!((set.email_addresses.len(), set.session_minutes), (2, 720));
        let more = line("--session-minutes 30 --allowed-email-addresses off --identity-provider google");
        assert!(more.identity.needs_current());
        let changed = more.identity.change(Some(set.clone())).unwrap().unwrap().unwrap();
        assert!(changed.email_addresses.is_empty() && changed.email_domains == set.email_domains);
        assert_eq!((changed.session_minutes, changed.providers[0].as_str()), (30, "google"));
        assert_eq!(line("--cloudauth").identity.change(Some(set.clone())).unwrap(), Some(Some(set.clone())));
        assert_eq!(line("--no-cloudauth").identity.change(Some(set)).unwrap(), Some(None));
        assert_eq!(line("").identity.change(None).unwrap(), None);
        assert_eq!(line("--policy staff,night").policies.get().unwrap(), ["staff", "night"]);
        assert_eq!(line("").policies.get(), None);
    }

    #[test]
    fn errors_are_reported() {
        for (text, says) in [
            ("--allowed-email-domains x.org", "requires no login"),
            ("--no-cloudauth --session-minutes 5", "have no effect"),
            ("--cloudauth --allowed-email-domains *", "is no domain"),
            ("--cloudauth --allowed-email-addresses ann", "is no e-mail address"),
        ] {
            let failure = line(text).identity.change(None).unwrap_err();
            assert!(failure.message.contains(says), "{text}: {}", failure.message);
        }
        assert!(Line::try_parse_from(["x", "--cloudauth", "--no-cloudauth"]).is_err());
        assert!(Line::try_parse_from(["x", "--policy", "../x"]).is_err());
    }
}
