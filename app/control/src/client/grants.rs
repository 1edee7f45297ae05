//! What travels: consent forms, codes, tokens. Pure: time and random numbers are arguments.

use std::collections::{HashMap, VecDeque};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sallyport_model::{AccountId, LoginSessionId, SocketId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Secrets,
    signed_token::{SignedTokens, TokenError, TokenKind},
};

/// How long a person may look at a consent page, in seconds.
const FORM_SECONDS: i64 = 600;
/// How long a code is good, in seconds.
const CODE_SECONDS: i64 = 60;
/// How far the clock may have jumped since something was made, in seconds.
const LEEWAY_SECONDS: i64 = 60;
/// How many used codes are remembered. Who makes more within their life makes them good once only by PKCE.
const MAX_USED_CODES: usize = 16_384;
/// How many characters a code challenge has (RFC 7636 section 4.2, S256).
pub(super) const CHALLENGE_CHARS: usize = 43;

/// What a person agrees to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wish {
    /// A code goes to a program of this machine.
    Code { redirect_uri: String, state: String, challenge: String },
    /// A short token goes to one of the original programs on this machine.
    Mysocket { port: u16 },
    /// The program that shows this code logs in.
    Device { user_code: String },
}

/// The form of a consent page: what the person saw, who it was, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Consent {
    pub(super) session: LoginSessionId,
    pub(super) socket: SocketId,
    pub(super) wish: Wish,
    pub(super) at: i64,
}

/// What a program exchanges for a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Code {
    pub(super) id: [u8; 16],
    pub(super) session: LoginSessionId,
    pub(super) socket: SocketId,
    pub(super) redirect_uri: String,
    pub(super) challenge: String,
    pub(super) at: i64,
}

/// What a program shows.
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
    /// Whether it is exchanged for who knows this verifier, at this address. Whether it was used is for the caller to know.
    pub(super) fn is_for(&self, verifier: &str, redirect_uri: &str, now: i64) -> bool {
        let is_verifier = (43..=128).contains(&verifier.len())
            && verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        is_verifier
            && URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == self.challenge
            && self.redirect_uri == redirect_uri
            && is_fresh(self.at, now, CODE_SECONDS)
    }
}

/// The codes that were used, as long as they would be good.
#[derive(Debug, Default)]
pub(super) struct UsedCodes {
    until: HashMap<[u8; 16], i64>,
    order: VecDeque<[u8; 16]>,
}

impl UsedCodes {
    /// Whether the code is used for the first time.
    pub(super) fn take(&mut self, code: &Code, now: i64) -> bool {
        let is_over = |until: Option<&i64>| until.is_none_or(|until| *until < now);
        while self
            .order
            .front()
            .is_some_and(|oldest| self.until.len() >= MAX_USED_CODES || is_over(self.until.get(oldest)))
        {
            if let Some(oldest) = self.order.pop_front() {
                self.until.remove(&oldest);
            }
        }
        // Clocks may be set back by less than this while it is remembered.
        let until = code.at.saturating_add(CODE_SECONDS + LEEWAY_SECONDS);
        if self.until.insert(code.id, until).is_some() {
            return false;
        }
        self.order.push_back(code.id);
        true
    }
}

/// Whether the text can be a code challenge.
pub(super) fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_CHARS && URL_SAFE_NO_PAD.decode(text).is_ok_and(|hash| hash.len() == 32)
}

/// Whether this is an address of the person's own machine (RFC 8252 section 7.3): a literal one, since what `localhost`
/// means is for the machine's name service to say.
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

/// The token that goes to the original programs: a JSON Web Token for minutes and for one socket, since it travels in an
/// address of the browser.
pub(crate) struct MysocketClientTokens(SignedTokens);

const MYSOCKET: TokenKind =
    TokenKind { name: "mysocket-client+jwt", audience: "sallyport-mysocket-client", lifetime_seconds: 300 };

/// What it says; these programs read it unverified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MysocketClient {
    pub(crate) user_email: String,
    pub(crate) socket_dns: String,
    pub(crate) socket_port: u16,
}

impl MysocketClientTokens {
    pub(crate) fn new(secrets: &Secrets, domain: &str) -> Self {
        Self(SignedTokens::new(secrets, domain, MYSOCKET))
    }

    pub(crate) fn issue(
        &self,
        session: LoginSessionId,
        says: &MysocketClient,
        now: i64,
    ) -> Result<String, jsonwebtoken::errors::Error> {
        self.0.issue(*session.as_bytes(), says, now).map(|(token, _)| token)
    }

    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<(LoginSessionId, MysocketClient), TokenError> {
        let (session, says) = self.0.verify(token, now)?;
        Ok((LoginSessionId::from_bytes(session), says))
    }
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
    fn a_code_is_used_once_and_the_memory_is_bounded() {
        let mut used = UsedCodes::default();
        assert!(used.take(&code(1), NOW) && !used.take(&code(1), NOW));
        assert!(used.take(&code(2), NOW + 100) && !used.take(&code(1), NOW + 100));
        for n in 0..MAX_USED_CODES + 10 {
            let mut id = [9; 16];
            id[..8].copy_from_slice(&(n as u64).to_be_bytes());
            assert!(used.take(&Code { id, ..code(3) }, NOW));
        }
        assert!(used.until.len() <= MAX_USED_CODES && used.order.len() <= MAX_USED_CODES);
        assert!(used.take(&Code { at: NOW + 1_000, ..code(4) }, NOW + 1_000));
        assert_eq!((used.until.len(), used.order.len()), (1, 1), "what is over is forgotten");
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
