//! The directory of a CA: what it says, and which of its URLs may be called.

use http::Uri;
use sallyport_model::is_loopback_host;
use serde_json::Value;
use time::OffsetDateTime;

use crate::{AcmeError, DirectoryConfig, error::harmless, http::Http};

/// Bound on a URL of a CA, in bytes.
const MAX_URL_BYTES: usize = 2_048;
/// What a directory must have (RFC 8555, section 7.1.1).
const REQUIRED: [&str; 3] = ["newNonce", "newAccount", "newOrder"];
/// What a directory may have.
const OPTIONAL: [&str; 4] = ["newAuthz", "revokeCert", "keyChange", "renewalInfo"];

/// How many names in CAA records are taken from a directory, and how long they are, in bytes.
const MAX_CAA_IDENTITIES: usize = 16;
const MAX_CAA_IDENTITY_BYTES: usize = 253;

/// What the directory of a CA says before there is an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The clock of the CA; `None` if its answer has none.
    pub clock: Option<OffsetDateTime>,
    /// The names of the CA in CAA records; empty if it names none (RFC 8555, section 7.1.1).
    pub caa_identities: Vec<String>,
}

impl Directory {
    /// Fetches the directory.
    ///
    /// # Errors
    /// The configuration cannot be used, or the call fails: see [`AcmeError`].
    pub async fn fetch(config: &DirectoryConfig) -> Result<Self, AcmeError> {
        let (clock, body) = Http::of(config).await?.directory().await?;
        let directory: Value = serde_json::from_slice(&body).unwrap_or_default();
        let named = directory["meta"]["caaIdentities"].as_array().cloned().unwrap_or_default();
        let is_name = |name: &&str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            !name.is_empty() && name.len() <= MAX_CAA_IDENTITY_BYTES && name.bytes().all(is_part)
        };
        let names = named.iter().filter_map(Value::as_str).filter(is_name);
        Ok(Self { clock, caa_identities: names.take(MAX_CAA_IDENTITIES).map(str::to_owned).collect() })
    }
}

/// The URL, if requests may go there: `https`, or `http` to this machine where that is allowed.
pub(crate) fn check_url(url: &str, is_http_allowed: bool) -> Option<Uri> {
    if url.len() > MAX_URL_BYTES || url.contains('#') {
        return None;
    }
    let uri: Uri = url.parse().ok()?;
    let has_user = uri.authority()?.as_str().contains('@');
    let is_secure = match uri.scheme_str()? {
        "https" => true,
        "http" => is_http_allowed && is_loopback_host(uri.host()?),
        _ => false,
    };
    (is_secure && !has_user).then_some(uri)
}

/// Checks the answer of a directory before the ACME library reads it: the library calls the URLs unseen.
pub(crate) fn check_directory(body: &[u8], is_http_allowed: bool) -> Result<(), AcmeError> {
    let not_json = |_| AcmeError::malformed("its directory is not a JSON object");
    let directory: serde_json::Map<String, Value> = serde_json::from_slice(body).map_err(not_json)?;
    for name in REQUIRED {
        if !directory.contains_key(name) {
            return Err(AcmeError::malformed(format!("its directory has no {name}: is this the URL of a directory?")));
        }
    }
    for name in REQUIRED.into_iter().chain(OPTIONAL) {
        let is_good = match directory.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(url)) => check_url(url, is_http_allowed).is_some(),
            Some(_) => false,
        };
        if !is_good {
            let found = harmless(&directory[name].to_string());
            return Err(AcmeError::malformed(format!("{name} of its directory is not an https URL: {found}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_this_machine_are_called() {
        for good in ["https://a.test/dir", "https://a.test:14000/x?y=1", "https://[::1]:1/"] {
            assert!(check_url(good, false).is_some(), "{good}");
        }
        assert!(check_url("http://127.0.0.1:1/dir", true).is_some());
        for bad in [
            "http://127.0.0.1:1/dir",
            "http://a.test/",
            "ftp://a.test/",
            "/dir",
            "",
            "https://u@a.test/",
            "https://a.test/#x",
            "https://a .test/",
            &format!("https://a.test/{}", "x".repeat(MAX_URL_BYTES)),
        ] {
            assert!(check_url(bad, false).is_none(), "{bad}");
        }
        assert!(check_url("http://a.test/", true).is_none());
    }

    #[test]
    fn a_directory_has_urls() {
        let good = r#"{"newNonce":"https://a.test/n","newAccount":"https://a.test/a","newOrder":"https://a.test/o",
            "renewalInfo":null,"meta":{"profiles":{"x":"y"}},"aRandomKey":"not a URL"}"#;
        check_directory(good.as_bytes(), false).unwrap();
        for (from, to) in [
            ("https://a.test/n", "no url"),
            ("https://a.test/n", ""),
            ("https://a.test/o", "http://a.test/o"),
            ("\"https://a.test/a\"", "7"),
            ("newOrder", "new"),
            ("{", "["),
            ("null", "\"http://127.0.0.1/\""),
        ] {
            let bad = good.replacen(from, to, 1);
            assert!(matches!(check_directory(bad.as_bytes(), false), Err(AcmeError::Malformed { .. })), "{bad}");
        }
    }
}
