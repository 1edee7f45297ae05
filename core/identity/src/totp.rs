//! Time-based one-time codes (RFC 6238 over RFC 4226): SHA-1, six digits, thirty seconds, the parameters that every
//! authenticator supports.

use aws_lc_rs::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use subtle::ConstantTimeEq as _;

/// Digits of a code.
pub const TOTP_DIGITS: u32 = 6;
/// Validity of a code, in seconds.
pub const TOTP_STEP_SECONDS: i64 = 30;
/// Accepted steps before and after the current one (RFC 6238 section 5.2): phone clocks drift, and typing takes time.
pub const TOTP_WINDOW_STEPS: i64 = 1;
/// Length of a secret in bytes (RFC 4226 section 4, R6: 160 bits).
pub const TOTP_SECRET_BYTES: usize = 20;

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The code of a step, as a number below 10^[`TOTP_DIGITS`] (RFC 4226 section 5.3).
#[must_use]
pub fn totp(secret: &[u8], step: i64) -> u32 {
    let tag = sign(&Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret), &step.to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag.last().copied().unwrap_or_default() & 0xf);
    let word = tag.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).unwrap_or_default();
    (u32::from_be_bytes(word) & 0x7fff_ffff) % 10_u32.pow(TOTP_DIGITS)
}

/// The step of a code that is valid at `now` (seconds since 1970) and later than step `used`: a code is accepted once
/// (RFC 6238 section 5.2). Spaces in the code are ignored.
#[must_use]
pub fn totp_step_of(secret: &[u8], code: &str, used: i64, now: i64) -> Option<i64> {
    let digits: String = code.chars().filter(|c| *c != ' ').collect();
    if digits.len() != TOTP_DIGITS as usize || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let current = now.div_euclid(TOTP_STEP_SECONDS);
    let mut found = None;
    // All are compared, so that the timing does not reveal the step.
    for step in current - TOTP_WINDOW_STEPS..=current + TOTP_WINDOW_STEPS {
        let right = format!("{:0width$}", totp(secret, step), width = TOTP_DIGITS as usize);
        if bool::from(right.as_bytes().ct_eq(digits.as_bytes())) && step > used {
            found = Some(step);
        }
    }
    found
}

/// Base32 (RFC 4648 section 6) without padding, as typed into an authenticator.
#[must_use]
pub fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let mut block = [0; 8];
        block[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(block);
        for n in 0..(chunk.len() * 8).div_ceil(5) {
            let at = (bits >> (35 - 5 * n)) & 31;
            text.push(char::from(BASE32[at as usize]));
        }
    }
    text
}

/// The `otpauth:` URI for a QR code: secret, issuer and account.
#[must_use]
pub fn otpauth_uri(secret: &[u8], issuer: &str, account: &str) -> String {
    let (issuer, account, secret) = (encoded(issuer), encoded(account), base32(secret));
    format!("otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits=6&period=30")
}

/// Percent-encodes a text (RFC 3986 section 2.1).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8; 20] = b"12345678901234567890";

    /// RFC 6238 appendix B, the last six of the eight digits there; RFC 4226 appendix D.
    #[test]
    fn codes_are_those_of_the_rfcs() {
        for (time, code) in [
            (59, 287_082),
            (1_111_111_109, 81_804),
            (1_111_111_111, 50_471),
            (1_234_567_890, 5_924),
            (2_000_000_000, 279_037),
            (20_000_000_000, 353_130),
        ] {
            assert_eq!(totp(SECRET, time / TOTP_STEP_SECONDS), code, "{time}");
        }
        let counted = [755_224, 287_082, 359_152, 969_429, 338_314, 254_676, 287_922, 162_583, 399_871, 520_489];
        for (step, code) in (0..).zip(counted) {
            assert_eq!(totp(SECRET, step), code, "{step}");
        }
    }

    #[test]
    fn a_code_is_good_for_its_moment_and_once() {
        let code = "081804";
        let step = 1_111_111_109 / 30;
        for (now, is_good) in [
            (step * 30 - 31, false),
            (step * 30 - 30, true),
            (step * 30, true),
            (step * 30 + 59, true),
            (step * 30 + 60, false),
        ] {
            assert_eq!(totp_step_of(SECRET, code, 0, now), is_good.then_some(step), "{now}");
        }
        assert_eq!(totp_step_of(SECRET, "081 804", step - 1, step * 30), Some(step));
        assert_eq!(totp_step_of(SECRET, code, step, step * 30), None, "it was used");
        assert_eq!(totp_step_of(SECRET, code, step + 1, step * 30), None, "a later one was used");
        for bad in ["", "81804", "0818040", "08180x", "\u{660}81804", "-81804", "+81804"] {
            assert_eq!(totp_step_of(SECRET, bad, 0, step * 30), None, "{bad:?}");
        }
    }

    #[test]
    fn secrets_are_written_as_authenticators_read_them() {
        // RFC 4648 section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), text, "{bytes}");
        }
        assert_eq!(
            otpauth_uri(SECRET, "shop & co", "ann+x@example.com"),
            "otpauth://totp/shop%20%26%20co:ann%2Bx@example.com?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
             &issuer=shop%20%26%20co&algorithm=SHA1&digits=6&period=30"
        );
    }
}
