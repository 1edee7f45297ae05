//! URLs with parameters.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986 section 2.3.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The parameters as `application/x-www-form-urlencoded`.
pub(crate) fn form(parameters: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    pairs.join("&")
}

/// Encodes the text as a value of a parameter.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The URL with additional parameters.
#[must_use]
pub fn with_query(address: &str, parameters: &[(&str, &str)]) -> String {
    let sign = match address.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    format!("{address}{sign}{}", form(parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_cannot_become_others() {
        let address = with_query("https://a.test/x", &[("a", "b&c=d"), ("e", "\u{fc} +/?#")]);
        assert_eq!(address, "https://a.test/x?a=b%26c%3Dd&e=%C3%BC%20%2B%2F%3F%23");
        assert_eq!(with_query("https://a.test/x?p=1", &[("a", "b")]), "https://a.test/x?p=1&a=b");
        assert_eq!(with_query("https://a.test/x?", &[("a", "b")]), "https://a.test/x?a=b");
    }
}
