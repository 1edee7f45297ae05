//! Consent forms, codes and tokens of programs. Pure: time and random numbers are arguments.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sallyport_model::{AccountId, LoginSessionId, SocketId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How long a consent page is valid, in seconds.
const FORM_SECONDS: i64 = 600;
/// How long a code is valid, in seconds.
const CODE_SECONDS: i64 = 60;
/// The tolerated jump of the clock, in seconds.
const LEEWAY_SECONDS: i64 = 60;
/// How many characters a code challenge has (RFC 7636 section 4.2, S256).
pub(super) const CHALLENGE_CHARS: usize = 43;

/// What a person agrees to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ConsentPurpose {
    /// A code goes to a program of this machine.
    Code { redirect_uri: String, state: String, challenge: String },
    /// A short token goes to one of the original programs on this machine.
    Mysocket { port: u16 },
    /// The program that shows this code logs in.
    Device { user_code: String },
}

/// The contents of a consent form: the person's session, the socket, the purpose, and the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Consent {
    pub(super) session: LoginSessionId,
    pub(super) socket: SocketId,
    #[serde(rename = "wish")]
    pub(super) purpose: ConsentPurpose,
    pub(super) at: i64,
}

/// A code that a program exchanges for a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Code {
    pub(super) id: [u8; 16],
    pub(super) session: LoginSessionId,
    pub(super) socket: SocketId,
    pub(super) redirect_uri: String,
    pub(super) challenge: String,
    pub(super) at: i64,
}

/// The token of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    pub(super) session: LoginSessionId,
    pub(super) organisation: AccountId,
    pub(super) at: i64,
}

fn is_fresh(at: i64, now: i64, seconds: i64) -> bool {
    at <= now.saturating_add(LEEWAY_SECONDS) && now <= at.saturating_add(seconds)
}

impl Consent {
    pub(super) fn is_fresh(&self, now: i64) -> bool {
        is_fresh(self.at, now, FORM_SECONDS)
    }
}

impl Code {
    /// Until when its use must be remembered, in seconds since 1970, with the tolerated jump of the clock.
    pub(super) fn ends_at(&self) -> i64 {
        self.at.saturating_add(CODE_SECONDS + LEEWAY_SECONDS)
    }

    /// Whether the code may be exchanged with this verifier and address. The caller checks that it is unused.
    pub(super) fn is_for(&self, verifier: &str, redirect_uri: &str, now: i64) -> bool {
        let is_verifier = (43..=128).contains(&verifier.len())
            && verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        is_verifier
            && URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == self.challenge
            && self.redirect_uri == redirect_uri
            && is_fresh(self.at, now, CODE_SECONDS)
    }
}

/// Whether the text can be a code challenge.
pub(super) fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_CHARS && URL_SAFE_NO_PAD.decode(text).is_ok_and(|hash| hash.len() == 32)
}

/// Whether this is an address of the person's own machine (RFC 8252 section 7.3). Only literal addresses count, because
/// `localhost` depends on the machine's resolver.
pub(super) fn is_loopback(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://127.0.0.1:").or_else(|| uri.strip_prefix("http://[::1]:")) else {
        return false;
    };
    let (port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_port = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    uri.len() <= 200
        && is_port
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    /// Of the verifier: RFC 7636 appendix B.
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn code(id: u8) -> Code {
        Code {
            id: [id; 16],
            session: LoginSessionId::from_random([1; 16]),
            socket: SocketId::from_random([2; 16]),
            redirect_uri: "http://127.0.0.1:4000/callback".to_owned(),
            challenge: CHALLENGE.to_owned(),
            at: NOW,
        }
    }

    #[test]
    fn a_code_is_for_its_program_its_address_and_its_minute() {
        let address = "http://127.0.0.1:4000/callback";
        assert!(code(1).is_for(VERIFIER, address, NOW) && code(1).is_for(VERIFIER, address, NOW + 60));
        assert!(!code(1).is_for(VERIFIER, address, NOW + 61) && !code(1).is_for(VERIFIER, address, NOW - 61));
        for (verifier, redirect) in [
            ("", address),
            (CHALLENGE, address),
            (&VERIFIER[1..], address),
            (VERIFIER, "http://127.0.0.1:4001/callback"),
            (VERIFIER, ""),
        ] {
            assert!(!code(1).is_for(verifier, redirect, NOW), "{verifier} {redirect}");
        }
    }

    #[test]
    fn only_the_persons_own_machine_gets_a_code() {
        for good in ["http://127.0.0.1:4000/callback", "http://127.0.0.1:1", "http://[::1]:65535/a/b-c"] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            "https://127.0.0.1:4000/",
            "http://127.0.0.1/",
            "http://127.0.0.1:0/",
            "http://127.0.0.1:+80/",
            "http://127.0.0.1:70000/",
            "http://localhost:4000/",
            "http://127.0.0.1:4000@evil.test/",
            "http://127.0.0.1:4000.evil.test/",
            "http://127.0.0.1.evil.test:4000/",
            "http://127.0.0.1:4000/?a=b",
            "http://127.0.0.1:4000/#x",
            "http://127.0.0.1:4000\\@evil.test",
            "http://evil.test/http://127.0.0.1:4000/",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn challenges_have_one_form() {
        assert!(is_challenge(CHALLENGE));
        for bad in ["", VERIFIER.get(..42).unwrap(), &format!("{CHALLENGE}A"), &CHALLENGE.replace('-', "+")] {
            assert!(!is_challenge(bad), "{bad}");
        }
    }
}
