//! Signatures of webhook requests, by which the receiver authenticates the sender.

use std::fmt::Write as _;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

/// The value of the header `Sallyport-Signature`: `t=SECONDS,v1=HEX`, of which `HEX` is the HMAC-SHA-256 (RFC 2104) of
/// the seconds since 1970, a dot and the body.
#[must_use]
pub fn hook_signature(secret: &[u8], at: i64, body: &[u8]) -> String {
    let signed = [at.to_string().as_bytes(), b".", body].concat();
    let tag = sign(&Key::new(HMAC_SHA256, secret), &signed);
    tag.as_ref().iter().fold(format!("t={at},v1="), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_of_the_time_and_the_body() {
        // printf '1800000000.{}' | openssl dgst -sha256 -hmac secret
        let signature = hook_signature(b"secret", 1_800_000_000, b"{}");
        assert_eq!(signature, "t=1800000000,v1=bb7079132825ac793cea8c013c1dd24d926b9b02132245b10588d9e5c0df70d7");
        assert_ne!(hook_signature(b"secret", 1_800_000_001, b"{}"), signature);
        assert_ne!(hook_signature(b"other", 1_800_000_000, b"{}"), signature);
    }
}
