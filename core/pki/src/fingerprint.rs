//! Fingerprints of certificates, for comparison by people and pinning by programs.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

/// SHA-256 of a certificate in DER. Shown as `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// The text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a fingerprint: expected sha256: and 64 hex digits, as `sallyport up` prints it")]
pub struct FingerprintError {
    /// The text, cut to 100 characters.
    pub text: String,
}

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    #[must_use]
    pub fn of_der(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// The 32 bytes of the hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 8 hex digits, for display; too short to pin.
    #[must_use]
    pub fn short(&self) -> String {
        hex(&self.0[..4])
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Parses the common forms: with or without `sha256:`, in upper or lower case, with or without colons or spaces,
    /// also openssl's `sha256 Fingerprint=AA:BB:...`.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let error = || FingerprintError { text: text.chars().take(100).collect() };
        let lower = text.trim().to_ascii_lowercase();
        let digits =
            lower.strip_prefix("sha256 fingerprint=").or_else(|| lower.strip_prefix("sha256:")).unwrap_or(&lower);
        let digits: Vec<u8> = digits.bytes().filter(|byte| !matches!(byte, b':' | b' ')).collect();
        if digits.len() != 64 {
            return Err(error());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(pair[0]).ok_or_else(error)? << 4 | digit(pair[1]).ok_or_else(error)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_spelling_reads_as_the_same_fingerprint() {
        let fingerprint = Fingerprint::of_der(b"a certificate");
        let shown = fingerprint.to_string();
        let digits = shown.strip_prefix("sha256:").unwrap().to_owned();
        let colons = digits
            .to_uppercase()
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8(pair.to_vec()).unwrap())
            .collect::<Vec<_>>()
            .join(":");
        for spelling in [
            shown.clone(),
            shown.to_uppercase(),
            digits.clone(),
            format!("SHA256:{colons}"),
            format!("sha256 Fingerprint={colons}"),
            format!("  {colons}\n"),
        ] {
            assert_eq!(spelling.parse::<Fingerprint>(), Ok(fingerprint), "{spelling}");
        }
        assert_eq!(shown.len(), "sha256:".len() + 64);
        assert!(digits.starts_with(&fingerprint.short()));
    }

    #[test]
    fn anything_else_is_refused_with_what_was_given() {
        let digits = "ab".repeat(32);
        for bad in ["", "sha256:", "sha1:abcd", &digits[1..], &format!("{digits}ab"), &digits.replace('a', "g"), "é"] {
            let error = bad.parse::<Fingerprint>().unwrap_err();
            assert!(error.to_string().contains("is not a fingerprint"), "{error}");
        }
        assert_eq!("é".repeat(500).parse::<Fingerprint>().unwrap_err().text.chars().count(), 100);
    }
}
