//! What a CA wants to see, and the trait of those who show it.

use std::pin::Pin;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sallyport_acme_schedule::ChallengeKind;
use sha2::{Digest as _, Sha256};

/// The protocol (ALPN) of a TLS connection that checks a TLS-ALPN-01 challenge (RFC 8737, section 6.2).
pub const TLS_ALPN_PROTOCOL: &[u8] = b"acme-tls/1";
/// Bound on a token, in bytes. RFC 8555 demands 128 bits, which are 22 bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 128;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A challenge to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The name, without `*.`.
    pub name: String,
    /// Whether the wildcard of the name is to be proven.
    pub is_wildcard: bool,
    /// Its kind.
    pub kind: ChallengeKind,
    /// The CA's token: letters, digits, `-` and `_`.
    pub token: String,
    /// The token with the thumbprint of the account's key.
    pub key_authorization: String,
}

impl Challenge {
    /// The path that an HTTP-01 challenge is asked for. The answer is the key authorization.
    #[must_use]
    pub fn http_path(&self) -> String {
        format!("/.well-known/acme-challenge/{}", self.token)
    }

    /// The name of the TXT record of a DNS-01 challenge, without a dot at the end.
    #[must_use]
    pub fn dns_name(&self) -> String {
        format!("_acme-challenge.{}", self.name)
    }

    /// The text of the TXT record of a DNS-01 challenge.
    #[must_use]
    pub fn dns_value(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.tls_alpn_digest())
    }

    /// The digest in the `acmeIdentifier` extension of the certificate of a TLS-ALPN-01 challenge.
    #[must_use]
    pub fn tls_alpn_digest(&self) -> [u8; 32] {
        Sha256::digest(self.key_authorization.as_bytes()).into()
    }
}

/// Answers challenges. All edges of an installation have to give the answer, whichever the CA reaches.
///
/// A name and its wildcard have the same TXT record with different texts. Both texts are then to be seen at once, and
/// each is taken away on its own.
pub trait Solver: Send + Sync {
    /// Makes the answer visible. The CA is told when the future has completed.
    ///
    /// # Errors
    /// One sentence with the reason why it cannot be made visible.
    fn present<'a>(&'a self, challenge: &'a Challenge) -> BoxFuture<'a, Result<(), String>>;

    /// Takes the answer away. It may never have become visible.
    fn remove<'a>(&'a self, challenge: &'a Challenge) -> BoxFuture<'a, ()>;

    /// Stores the URL of a new order, before anything else is done with it. A later process passes the URL as
    /// [`CertificateRequest::order_url`](crate::CertificateRequest::order_url) with the same signing request.
    ///
    /// # Errors
    /// One sentence with the reason why it cannot be stored. The order then ends.
    fn order_created<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let _ = url;
        Box::pin(async { Ok(()) })
    }
}

/// Whether a CA's token can stand in a path and a record.
pub(crate) fn is_token(token: &str) -> bool {
    //= RFC 8555 section 8.3
    // It MUST NOT contain any characters outside the base64url alphabet and MUST NOT include base64 padding
    // characters ("=").
    (1..=MAX_TOKEN_BYTES).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_are_those_of_the_rfc() {
        let challenge = Challenge {
            name: "example.org".to_owned(),
            is_wildcard: true,
            kind: ChallengeKind::Dns01,
            token: "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA".to_owned(),
            key_authorization:
                "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0.9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI".to_owned(),
        };
        assert_eq!(challenge.http_path(), "/.well-known/acme-challenge/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA");
        assert_eq!(challenge.dns_name(), "_acme-challenge.example.org");
        assert_eq!(challenge.dns_value().len(), 43);
        assert_eq!(challenge.dns_value(), BASE64_URL_SAFE_NO_PAD.encode(challenge.tls_alpn_digest()));
    }

    #[test]
    fn a_token_is_base64url() {
        for good in ["a", "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA", "_-"] {
            assert!(is_token(good), "{good}");
        }
        for bad in ["", "a=", "../x", "a b", "a\r\nb", "ä", &"x".repeat(MAX_TOKEN_BYTES + 1)] {
            assert!(!is_token(bad), "{bad}");
        }
    }
}
