//! Which names an organisation may add.

use sallyport_model::{DomainName, DomainNameError};
use unicode_security::MixedScript as _;

/// Reason why a name cannot be added as a domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// The text is not a domain name.
    #[error(transparent)]
    Form(#[from] DomainNameError),
    /// The text is an address of the web, or has a port.
    #[error("a domain name stands without a scheme, a port and a path, such as app.example.com")]
    WebAddress,
    /// A label mixes scripts, as in names that imitate another one (Unicode Technical Standard 39 section 5.1).
    #[error("the label {0:?} mixes letters of several scripts, as names do that imitate another one")]
    MixedScripts(String),
    /// The name cannot be written in ASCII (RFC 5891).
    #[error("{0:?} is not a valid international domain name")]
    International(String),
    /// The name is the installation's domain, or below it.
    #[error("{name} belongs to this installation: sockets get their names below {domain} by themselves")]
    OwnDomain {
        /// The name.
        name: String,
        /// The domain of the installation.
        domain: String,
    },
    /// The wildcard covers the installation's domain.
    #[error("{name} would cover {domain}, which belongs to this installation: add names one by one")]
    CoversOwnDomain {
        /// The wildcard.
        name: String,
        /// The domain of the installation.
        domain: String,
    },
    /// Other organisations have names directly below this one.
    #[error("{0} is a public suffix, below which anybody registers names: add a name below it")]
    PublicSuffix(String),
}

/// Reads a domain name as a person writes it: any case, a final dot, letters of any one script.
///
/// # Errors
/// The text is no domain name, imitates one, or is a name that no organisation can have.
pub fn parse_domain(text: &str, own_domain: &str) -> Result<DomainName, DomainError> {
    let text = text.trim();
    let has_port = text.split_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    if text.contains('/') || (has_port && !text.ends_with(':')) {
        return Err(DomainError::WebAddress);
    }
    let (wildcard, base) = match text.strip_prefix("*.") {
        Some(base) => ("*.", base),
        None => ("", text),
    };
    let name: DomainName =
        if base.is_ascii() { text.parse()? } else { format!("{wildcard}{}", ascii(base)?).parse()? };
    for label in name.base().split('.').filter(|label| label.starts_with("xn--")) {
        let (unicode, result) = idna::domain_to_unicode(label);
        if result.is_err() {
            return Err(DomainError::International(label.to_owned()));
        }
        refuse_mixed(&unicode)?;
    }
    let is_own = name.base() == own_domain || name.base().strip_suffix(own_domain).is_some_and(|at| at.ends_with('.'));
    if is_own {
        return Err(DomainError::OwnDomain { name: name.to_string(), domain: own_domain.to_owned() });
    }
    if name.covers(own_domain) {
        return Err(DomainError::CoversOwnDomain { name: name.to_string(), domain: own_domain.to_owned() });
    }
    if registrable(name.base()).is_none() {
        return Err(DomainError::PublicSuffix(name.base().to_owned()));
    }
    Ok(name)
}

/// The name that is registered at a registry: `example.co.uk` for `a.b.example.co.uk`. `None` for a public suffix.
#[must_use]
pub fn registrable(name: &str) -> Option<&str> {
    psl::domain_str(name)
}

fn ascii(base: &str) -> Result<String, DomainError> {
    base.split(['.', '。']).filter(|label| !label.is_ascii()).try_for_each(refuse_mixed)?;
    let wrong = || DomainError::International(base.chars().take(64).collect());
    // These are not shown, and the mapping of international names drops them.
    if base.chars().any(|c| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')) {
        return Err(wrong());
    }
    idna::domain_to_ascii_strict(base).map_err(|_| wrong())
}

fn refuse_mixed(label: &str) -> Result<(), DomainError> {
    if label.is_single_script() { Ok(()) } else { Err(DomainError::MixedScripts(label.chars().take(64).collect())) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        parse_domain(text, "tunnels.example.com").map(|name| name.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_read_as_people_write_them() {
        for (text, name) in [
            ("App.Example.ORG.", "app.example.org"),
            ("*.example.org", "*.example.org"),
            ("bücher.example.org", "xn--bcher-kva.example.org"),
            ("*.BÜCHER.example.org", "*.xn--bcher-kva.example.org"),
            ("example.co.uk", "example.co.uk"),
            ("пример.example.org", "xn--e1afmkfd.example.org"),
            ("notmytunnels.example.com", "notmytunnels.example.com"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn names_that_nobody_can_have_are_refused_with_a_sentence() {
        for (text, says) in [
            ("tunnels.example.com", "belongs to this installation"),
            ("a.b.Tunnels.example.com", "belongs to this installation"),
            ("*.tunnels.example.com", "belongs to this installation"),
            ("*.example.com", "would cover tunnels.example.com"),
            ("http://example.org", "without a scheme"),
            ("example.org:443", "without a scheme"),
            ("ex\u{ad}mple.org", "is not a valid international domain name"),
            ("co.uk", "public suffix"),
            ("*.co.uk", "public suffix"),
            ("github.io", "public suffix"),
            ("192.0.2.7", "an IP address"),
            ("2001:db8::7", "an IP address"),
            ("*.*.example.org", "only for the whole first label"),
            ("org", "two labels or more"),
            // A Cyrillic letter among Latin ones, written in either form.
            ("p\u{430}ypal.example.org", "mixes letters of several scripts"),
            ("xn--pypal-4ve.example.org", "mixes letters of several scripts"),
            ("xn--a.example.org", "not a valid international"),
            (&format!("{}.example.org", "ü".repeat(80)), "not a valid international"),
            (&format!("{}example.org", "abcdefgh.".repeat(28)), "at most 253"),
            ("a b.example.org", "only letters"),
            ("", "1 to 63 characters"),
        ] {
            assert!(parse(text).is_err_and(|error| error.contains(says)), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn the_registered_name_is_the_one_below_the_public_suffix() {
        assert_eq!(registrable("a.b.example.co.uk"), Some("example.co.uk"));
        assert_eq!(registrable("co.uk"), None);
    }

    proptest! {
        #[test]
        fn a_name_that_was_accepted_is_accepted_again(text in "\\PC{0,40}\\.example\\.org") {
            if let Ok(name) = parse_domain(&text, "localhost") {
                prop_assert_eq!(parse_domain(name.as_str(), "localhost"), Ok(name.clone()));
            }
        }
    }
}
