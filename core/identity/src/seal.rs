//! Encrypting what browsers carry (AES-256-GCM, NIST SP 800-38D).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

/// How many random bytes a sealed text needs.
pub const NONCE_BYTES: usize = 12;
/// The longest sealed text that is looked at, in bytes: what a browser keeps in a cookie, and what fits into a redirect.
const MAX_SEALED_BYTES: usize = 4_096;
/// The longest sealed text that only the store keeps, in bytes: tokens of providers may be long.
pub const MAX_STORED_BYTES: usize = 49_152;

/// What a sealed text is for: each purpose has a key of its own, so that none opens what was sealed for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// An edge sends a browser to where people log in.
    LoginRequest,
    /// The browser comes back with this.
    Grant,
    /// Ties a login that has begun to the browser that began it.
    Binding,
    /// The login at one socket.
    SocketCookie,
    /// The login at the place where people log in.
    SignOn,
    /// A login at a provider that has begun.
    ProviderLogin,
    /// A login with a password that has begun here.
    LocalLogin,
    /// What a program on a person's machine exchanges for a token.
    ClientCode,
    /// What such a program shows afterwards.
    ClientToken,
    /// A secret that the store keeps.
    StoredSecret,
    /// A form that a page of ours was made with.
    Form,
    /// An edge sends a browser to where a login ends.
    Logout,
    /// What a provider gave with a login, which the store keeps.
    ProviderTokens,
    /// A browser comes back from where it logged out at a provider.
    LoggedOut,
}

impl Purpose {
    const ALL: [Self; 14] = [
        Self::LoginRequest,
        Self::Grant,
        Self::Binding,
        Self::SocketCookie,
        Self::SignOn,
        Self::ProviderLogin,
        Self::LocalLogin,
        Self::ClientCode,
        Self::ClientToken,
        Self::StoredSecret,
        Self::Form,
        Self::Logout,
        Self::ProviderTokens,
        Self::LoggedOut,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::LoginRequest => "login-request",
            Self::Grant => "grant",
            Self::Binding => "binding",
            Self::SocketCookie => "socket-cookie",
            Self::SignOn => "sign-on",
            Self::ProviderLogin => "provider-login",
            Self::LocalLogin => "local-login",
            Self::ClientCode => "client-code",
            Self::ClientToken => "client-token",
            Self::StoredSecret => "stored-secret",
            Self::Form => "form",
            Self::Logout => "logout",
            Self::ProviderTokens => "provider-tokens",
            Self::LoggedOut => "logged-out",
        }
    }

    fn max_bytes(self) -> usize {
        if self == Self::ProviderTokens { MAX_STORED_BYTES } else { MAX_SEALED_BYTES }
    }
}

/// Seals and opens. All edges of an installation and its control have the same.
pub struct Sealer {
    keys: Vec<LessSafeKey>,
}

impl Sealer {
    /// A sealer for this secret of 256 random bits.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        let key = |purpose: Purpose| {
            let mut hash = Sha256::new();
            hash.update(b"sallyport sealed texts for ");
            hash.update(purpose.label());
            hash.update(b"\0");
            hash.update(secret);
            let key: [u8; 32] = hash.finalize().into();
            UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
        };
        Self { keys: Purpose::ALL.into_iter().filter_map(key).collect() }
    }

    /// The value as a text of letters, digits, `-` and `_`. The nonce must never be used twice: random is good for the
    /// some billion texts of one installation.
    #[must_use]
    pub fn seal(&self, purpose: Purpose, value: &impl Serialize, nonce: [u8; NONCE_BYTES]) -> Option<String> {
        let mut sealed = serde_json::to_vec(value).ok()?;
        let tag = self
            .key(purpose)?
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose.label()), &mut sealed)
            .ok()?;
        let text = [&nonce[..], &sealed, tag.as_ref()].concat();
        Some(URL_SAFE_NO_PAD.encode(text))
    }

    /// The value of a text that was sealed for this purpose.
    #[must_use]
    pub fn open<T: DeserializeOwned>(&self, purpose: Purpose, text: &str) -> Option<T> {
        if text.len() > purpose.max_bytes() {
            return None;
        }
        let mut sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_BYTES)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let value = self.key(purpose)?.open_in_place(nonce, Aad::from(purpose.label()), sealed).ok()?;
        serde_json::from_slice(value).ok()
    }

    fn key(&self, purpose: Purpose) -> Option<&LessSafeKey> {
        let index = Purpose::ALL.iter().position(|other| *other == purpose)?;
        self.keys.get(index)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_for_its_purpose_and_by_its_own_sealer_alone() {
        let (ours, again, foreign) = (Sealer::new([1; 32]), Sealer::new([1; 32]), Sealer::new([2; 32]));
        let text = ours.seal(Purpose::Grant, &("ann", 7), [3; 12]).unwrap();
        assert_eq!(again.open::<(String, i32)>(Purpose::Grant, &text), Some(("ann".to_owned(), 7)));
        assert_eq!(foreign.open::<(String, i32)>(Purpose::Grant, &text), None);
        for purpose in Purpose::ALL.into_iter().filter(|purpose| *purpose != Purpose::Grant) {
            assert_eq!(ours.open::<(String, i32)>(purpose, &text), None, "{purpose:?}");
        }
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
        assert!(!text.contains("ann"));
    }

    #[test]
    fn what_was_changed_or_is_nonsense_does_not_open() {
        let sealer = Sealer::new([1; 32]);
        let text = sealer.seal(Purpose::SocketCookie, &"ann", [3; 12]).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last character may carry bits that mean nothing; base64 refuses those by itself.
            assert_eq!(sealer.open::<String>(Purpose::SocketCookie, &changed), None, "{at}");
        }
        for nonsense in ["", "AAAA", "!", &"A".repeat(15), &"A".repeat(5_000), &text[1..], &format!("{text}A")] {
            assert_eq!(sealer.open::<String>(Purpose::SocketCookie, nonsense), None, "{nonsense:.20}");
        }
    }
}
