//! Options for public certificates, and for domains of organisations.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use sallyport_acme::{ChallengeKind, DirectoryConfig, ExternalAccount};
use sallyport_control::{AcmeConfig, ChosenLabels};
use sallyport_model::{Email, MAX_LABEL_BYTES};
use sallyport_resolver::Resolver;

use crate::{args::server::is_of_this_machine, failure::Failure};

/// The directory of Let's Encrypt.
pub(crate) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The name of Let's Encrypt in CAA records.
const LETS_ENCRYPT_IDENTITY: &str = "letsencrypt.org";
/// The port of the name service.
const DNS_PORT: u16 = 53;
/// The longest file of an option that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1_024;

/// Options for certificates of an ACME server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Public certificates")]
pub(crate) struct AcmeArgs {
    /// Get certificates that browsers trust from an ACME server, as the owner of this e-mail address. This agrees to the
    /// terms of the server. Ports 80 and 443 must be reachable
    #[arg(long, value_name = "EMAIL", env = "SALLYPORT_ACME")]
    pub(crate) acme: Option<Email>,
    /// The directory of the ACME server [default: Let's Encrypt]
    #[arg(long, value_name = "URL", env = "SALLYPORT_ACME_DIRECTORY", requires = "acme")]
    pub(crate) acme_directory: Option<String>,
    /// The root certificates of the ACME server in PEM, in place of the system's
    #[arg(long, value_name = "FILE", env = "SALLYPORT_ACME_ROOT", requires = "acme")]
    pub(crate) acme_root: Option<PathBuf>,
    /// A file with the id and the key of an account at the authority's site, where the authority demands one (EAB)
    #[arg(long, value_name = "FILE", env = "SALLYPORT_ACME_EAB_FILE", requires = "acme")]
    pub(crate) acme_eab_file: Option<PathBuf>,
    /// The profile of certificates, such as shortlived
    #[arg(long, value_name = "NAME", env = "SALLYPORT_ACME_PROFILE", requires = "acme")]
    pub(crate) acme_profile: Option<String>,
    /// The directory of a second ACME server, for when the first fails
    #[arg(long, value_name = "URL", env = "SALLYPORT_ACME_FALLBACK", requires = "acme")]
    pub(crate) acme_fallback: Option<String>,
    /// The file of --acme-eab-file for the second server
    #[arg(long, value_name = "FILE", env = "SALLYPORT_ACME_FALLBACK_EAB_FILE", requires = "acme_fallback")]
    pub(crate) acme_fallback_eab_file: Option<PathBuf>,
    /// How the ACME server verifies names: http-01, tls-alpn-01, or both [default: both]
    #[arg(long, value_name = "KIND", value_delimiter = ',', requires = "acme", value_parser = challenge)]
    pub(crate) acme_challenges: Vec<ChallengeKind>,
    /// The most orders that begin in a minute, in the long run
    #[arg(long, value_name = "COUNT", default_value_t = 240, requires = "acme")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=6_000))]
    pub(crate) acme_rate: u32,
}

/// Options for lookups.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ResolverArgs {
    /// The name servers that look up the records of domains: ADDR or ADDR:PORT [default: the system's]
    #[arg(long, value_name = "ADDR", env = "SALLYPORT_RESOLVER", value_delimiter = ',', value_parser = server)]
    pub(crate) resolver: Vec<SocketAddr>,
}

impl ResolverArgs {
    /// The resolver for domains. A machine without a name service has none.
    ///
    /// # Errors
    /// The given name servers cannot be used.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Resolver>> {
        match Resolver::new(&self.resolver) {
            Ok(resolver) => Ok(Some(resolver)),
            Err(error) if self.resolver.is_empty() => {
                tracing::warn!(%error, "domains cannot be verified");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Options for domains and names.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Names")]
pub(crate) struct NameArgs {
    #[command(flatten)]
    pub(crate) resolver: ResolverArgs,
    /// Let owners choose the first label of their sockets' names (`socket create --name-label shop`)
    #[arg(long, env = "SALLYPORT_CHOOSE_LABELS")]
    pub(crate) choose_labels: bool,
    /// Labels that no socket gets
    #[arg(long, value_name = "LABEL", env = "SALLYPORT_RESERVE_LABELS", value_delimiter = ',', value_parser = label)]
    pub(crate) reserve_labels: Vec<String>,
}

/// The ports to which public authorities connect (RFC 8555 section 8.3, RFC 8737 section 3).
pub(crate) const ACME_PORTS: [u16; 2] = [443, 80];

impl AcmeArgs {
    /// The URL of the directory of the ACME server.
    pub(crate) fn directory(&self) -> &str {
        self.acme_directory.as_deref().unwrap_or(LETS_ENCRYPT)
    }

    /// Whether the authority is the public one.
    pub(crate) fn is_public(&self) -> bool {
        self.acme.is_some() && self.acme_directory.is_none()
    }

    /// The ACME servers; `None` without `--acme`.
    ///
    /// # Errors
    /// A file cannot be read, or no authority signs for the domain.
    pub(crate) fn config(&self, domain: &str) -> anyhow::Result<Option<AcmeConfig>> {
        let Some(email) = &self.acme else { return Ok(None) };
        let is_public = self.is_public();
        if is_public && (is_of_this_machine(domain) || !domain.contains('.')) {
            let message = format!("no public authority signs certificates for {domain}");
            return Err(Failure::usage(message).next("give a domain of your own, such as --domain example.com").into());
        }
        let url = self.directory().to_owned();
        let primary = DirectoryConfig {
            roots_pem: self.acme_root.as_deref().map(read).transpose()?,
            contact: Some(email.to_string()),
            profile: self.acme_profile.clone(),
            external_account: external_account(self.acme_eab_file.as_deref())?,
            url,
        };
        let fallback = match &self.acme_fallback {
            Some(url) => Some(DirectoryConfig {
                url: url.clone(),
                contact: Some(email.to_string()),
                external_account: external_account(self.acme_fallback_eab_file.as_deref())?,
                roots_pem: primary.roots_pem.clone(),
                ..DirectoryConfig::default()
            }),
            None => None,
        };
        let mut config = AcmeConfig { primary, fallback, ..AcmeConfig::default() };
        // With a second authority, a record that names either one is enough.
        if is_public && config.fallback.is_none() {
            config.identities = vec![LETS_ENCRYPT_IDENTITY.to_owned()];
        }
        if !self.acme_challenges.is_empty() {
            config.challenges.clone_from(&self.acme_challenges);
        }
        config.max_orders_per_minute = self.acme_rate;
        Ok(Some(config))
    }
}

impl NameArgs {
    /// The labels that owners may choose.
    pub(crate) fn labels(&self) -> ChosenLabels {
        ChosenLabels { are_allowed: self.choose_labels, reserved: self.reserve_labels.clone() }
    }
}

/// The text of a small file.
pub(crate) fn read(path: &std::path::Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

fn external_account(path: Option<&std::path::Path>) -> anyhow::Result<Option<ExternalAccount>> {
    let Some(path) = path else { return Ok(None) };
    let account = ExternalAccount::parse(&read(path)?);
    account.map(Some).with_context(|| format!("{} cannot be used", path.display()))
}

fn challenge(text: &str) -> Result<ChallengeKind, String> {
    match text {
        "http-01" => Ok(ChallengeKind::Http01),
        "tls-alpn-01" => Ok(ChallengeKind::TlsAlpn01),
        _ => Err("expected http-01 or tls-alpn-01".to_owned()),
    }
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    let address = address.or_else(|| text.parse().ok().map(|ip| SocketAddr::new(ip, DNS_PORT)));
    address.ok_or_else(|| "expected the address of a name server, such as 192.0.2.53 or [2001:db8::53]:5353".to_owned())
}

fn label(text: &str) -> Result<String, String> {
    let label = text.to_ascii_lowercase();
    let is_label = (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_label { Ok(label) } else { Err("expected a label of letters, digits and hyphens, such as shop".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme(line: &[&str], domain: &str) -> anyhow::Result<Option<AcmeConfig>> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            acme: AcmeArgs,
        }
        <Line as clap::Parser>::try_parse_from([&["up"], line].concat())?.acme.config(domain)
    }

    #[test]
    fn the_authority_is_lets_encrypt_unless_another_one_is_given() {
        assert!(acme(&[], "example.com").unwrap().is_none());
        let config = acme(&["--acme", "ann@example.com"], "t.example.com").unwrap().unwrap();
        assert_eq!((config.primary.url.as_str(), config.identities.len()), (LETS_ENCRYPT, 1));
        let own = ["--acme", "ann@example.com", "--acme-directory", "https://ca.example/dir"];
        let config = acme(&own, "t.localhost").unwrap().unwrap();
        assert!(config.primary.url == "https://ca.example/dir" && config.identities.is_empty());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_sentence() {
        let refused = |line: &[&str], domain| acme(line, domain).unwrap_err().to_string();
        assert!(refused(&["--acme", "ann@example.com"], "localhost").contains("no public authority signs"));
        assert!(refused(&["--acme-profile", "x"], "example.com").contains("--acme <EMAIL>"));
        assert!(refused(&["--acme", "ann"], "example.com").contains("e-mail"));
        let missing = ["--acme", "ann@example.com", "--acme-root", "/none.pem"];
        assert!(refused(&missing, "example.com").contains("cannot read /none.pem"));
        assert!(refused(&["--acme", "a@b.example", "--acme-challenges", "dns"], "b.example").contains("http-01"));
    }

    #[test]
    fn a_name_server_has_port_53_unless_another_one_is_given() {
        assert_eq!(server("192.0.2.53").unwrap(), "192.0.2.53:53".parse().unwrap());
        assert_eq!(server("[2001:db8::53]:5353").unwrap().port(), 5353);
        assert!(server("dns.example").unwrap_err().contains("192.0.2.53"));
        assert!(label("a.b").is_err() && label("Shop").unwrap() == "shop");
    }
}
