//! Names of domains on the command line.

use std::net::Ipv6Addr;

/// Parses the name of a domain: refuses a URL, and a name with a port. The API checks everything else.
///
/// # Errors
/// A sentence with what was expected.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    // The API has a sentence of its own for an address.
    let is_address = text.starts_with('[') || text.parse::<Ipv6Addr>().is_ok();
    if text.contains('/') || (text.contains(':') && !is_address) {
        return Err("expected a domain name alone, such as app.example.org".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    const SAYS: &str = "expected a domain name alone, such as app.example.org";

    #[test]
    fn a_url_and_a_port_are_no_part_of_a_name() {
        for bad in ["https://app.example.org", "app.example.org:443", "app.example.org/", "192.0.2.1:80"] {
            assert_eq!(parse(bad), Err(SAYS.to_owned()), "{bad}");
        }
        for other in ["app.example.org", "*.example.org", "off", "", "192.0.2.1", "2001:db8::1", "[2001:db8::1]:443"] {
            assert_eq!(parse(other).as_deref(), Ok(other));
        }
    }

    #[test]
    fn every_command_with_a_domain_says_so() {
        for line in [
            "domain add https://app.example.org",
            "domain show app.example.org:443",
            "domain check https://app.example.org/x",
            "domain rm app.example.org:443",
            "socket create --domain a.example.org,https://app.example.org",
            "socket edit web --domain app.example.org:443",
        ] {
            let error = Cli::try_parse_from(std::iter::once("sallyport").chain(line.split(' '))).err().unwrap();
            assert!(error.to_string().contains(SAYS) && error.exit_code() == 2, "{line}: {error}");
        }
    }
}
