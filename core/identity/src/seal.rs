//! Sealing of texts that browsers carry (AES-256-GCM, NIST SP 800-38D).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

/// Nonce length of a sealed text, in bytes.
pub const NONCE_BYTES: usize = 12;
/// The longest accepted sealed text, in bytes: the limit for cookies and redirects.
const MAX_SEALED_BYTES: usize = 4_096;
/// The longest sealed text in the store, in bytes: tokens of providers may be long.
pub const MAX_STORED_BYTES: usize = 49_152;

/// The purpose of a sealed text. Each purpose has a key of its own, so that no text opens for another purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// An edge's request for a login, carried to the login host.
    LoginRequest,
    /// The answer, carried back to the socket.
    Grant,
    /// Binds a started login to the browser that started it.
    Binding,
    /// The login at one socket.
    SocketCookie,
    /// The login at the login host.
    SignOn,
    /// A started login at a provider.
    ProviderLogin,
    /// A started login with a local password.
    LocalLogin,
    /// A code that a program on a person's machine exchanges for a token.
    ClientCode,
    /// The token of such a program.
    ClientToken,
    /// A secret in the store.
    StoredSecret,
    /// The anti-forgery token of a form.
    Form,
    /// An edge's request for a logout, carried to the login host.
    Logout,
    /// Tokens of a provider, in the store.
    ProviderTokens,
    /// The return from a logout at a provider.
    LoggedOut,
    /// The private key of a served certificate, in the store and on the way to edges.
    CertificateKey,
    /// The key of an account at an ACME server, in the store.
    AcmeAccount,
    /// The private key of a zone, in the store and on the way to edges.
    ZoneKey,
    /// The password of a BGP session, in the store and on the way to edges.
    RouterPassword,
}

impl Purpose {
    const ALL: [Self; 18] = [
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
        Self::CertificateKey,
        Self::AcmeAccount,
        Self::ZoneKey,
        Self::RouterPassword,
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
            Self::CertificateKey => "certificate-key",
            Self::AcmeAccount => "acme-account",
            Self::ZoneKey => "zone-key",
            Self::RouterPassword => "router-password",
        }
    }

    fn max_bytes(self) -> usize {
        match self {
            Self::ProviderTokens | Self::CertificateKey | Self::AcmeAccount => MAX_STORED_BYTES,
            _ => MAX_SEALED_BYTES,
        }
    }
}

/// Seals and opens texts. All edges of an installation and its control have the same secret.
pub struct Sealer {
    keys: Vec<LessSafeKey>,
}

impl Sealer {
    /// A sealer with this secret of 256 random bits.
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

    /// Seals the value as a text of letters, digits, `-` and `_`. A nonce must never repeat: random nonces suffice for
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

    /// Opens a text that was sealed for this purpose.
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
            // The last character may carry unused bits; base64 rejects those by itself.
            assert_eq!(sealer.open::<String>(Purpose::SocketCookie, &changed), None, "{at}");
        }
        for nonsense in ["", "AAAA", "!", &"A".repeat(15), &"A".repeat(5_000), &text[1..], &format!("{text}A")] {
            assert_eq!(sealer.open::<String>(Purpose::SocketCookie, nonsense), None, "{nonsense:.20}");
        }
    }
}
