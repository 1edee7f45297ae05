//! The supported algorithms by name, in the order of preference.
//!
//! No SHA-1, no CBC, no finite-field groups, no MAC-then-encrypt, no compression.

use crate::{
    cipher::{Cipher, Mac},
    error::{Error, Result},
};

/// A key agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// The hybrid of ML-KEM-768 and X25519.
    MlKem768X25519,
    X25519,
    P256,
    P384,
    P521,
}

/// Key exchanges (RFC 8731, RFC 5656; ML-KEM by draft-ietf-sshm-mlkem-hybrid-kex).
pub(crate) const KEY_EXCHANGES: [(&str, Method); 6] = [
    ("mlkem768x25519-sha256", Method::MlKem768X25519),
    ("curve25519-sha256", Method::X25519),
    ("curve25519-sha256@libssh.org", Method::X25519),
    ("ecdh-sha2-nistp256", Method::P256),
    ("ecdh-sha2-nistp384", Method::P384),
    ("ecdh-sha2-nistp521", Method::P521),
];
/// Ciphers. Counter mode is for clients without AEAD, such as Paramiko before 3.5.
pub(crate) const CIPHERS: [(&str, Cipher); 5] = [
    ("chacha20-poly1305@openssh.com", Cipher::ChaCha20Poly1305),
    ("aes256-gcm@openssh.com", Cipher::Aes256Gcm),
    ("aes128-gcm@openssh.com", Cipher::Aes128Gcm),
    ("aes256-ctr", Cipher::Aes256Ctr),
    ("aes128-ctr", Cipher::Aes128Ctr),
];
/// MACs for counter mode: only encrypt-then-MAC (PROTOCOL of OpenSSH, section 1.1).
pub(crate) const MACS: [(&str, Mac); 2] =
    [("hmac-sha2-256-etm@openssh.com", Mac::Sha256), ("hmac-sha2-512-etm@openssh.com", Mac::Sha512)];
/// Compressions.
pub(crate) const COMPRESSIONS: [(&str, ()); 1] = [("none", ())];
/// Announces support of EXT_INFO (RFC 8308 section 2.1) and strict key exchange (PROTOCOL of OpenSSH, section 1.10).
pub(crate) const SERVER_MARKS: &str = "ext-info-s,kex-strict-s-v00@openssh.com";
/// Announces that the client accepts EXT_INFO.
pub(crate) const EXT_INFO_CLIENT: &str = "ext-info-c";
/// Announces that the client supports strict key exchange.
pub(crate) const STRICT_CLIENT: &str = "kex-strict-c-v00@openssh.com";
/// The signature algorithms for users (`server-sig-algs`, RFC 8308 section 3.1).
pub(crate) const USER_SIGNATURES: &str = "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,\
                                          sk-ssh-ed25519@openssh.com,sk-ecdsa-sha2-nistp256@openssh.com,rsa-sha2-512,\
                                          rsa-sha2-256";

/// The meaning of a user's algorithm name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserAlgorithm {
    /// The name at the head of the key's or certificate's blob.
    pub(crate) blob: &'static str,
    /// The name at the start of the signature.
    pub(crate) signature: &'static str,
    pub(crate) is_certificate: bool,
    pub(crate) uses_sha1: bool,
}

/// Name, blob, signature; certificates have `cert` in the name.
const USER_ALGORITHMS: [(&str, &str, &str); 18] = [
    ("ssh-ed25519", "ssh-ed25519", "ssh-ed25519"),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"),
    ("ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384"),
    ("ecdsa-sha2-nistp521", "ecdsa-sha2-nistp521", "ecdsa-sha2-nistp521"),
    ("sk-ssh-ed25519@openssh.com", "sk-ssh-ed25519@openssh.com", "sk-ssh-ed25519@openssh.com"),
    ("sk-ecdsa-sha2-nistp256@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"),
    ("rsa-sha2-512", "ssh-rsa", "rsa-sha2-512"),
    ("rsa-sha2-256", "ssh-rsa", "rsa-sha2-256"),
    ("ssh-rsa", "ssh-rsa", "ssh-rsa"),
    ("ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519"),
    ("ecdsa-sha2-nistp256-cert-v01@openssh.com", "ecdsa-sha2-nistp256-cert-v01@openssh.com", "ecdsa-sha2-nistp256"),
    ("ecdsa-sha2-nistp384-cert-v01@openssh.com", "ecdsa-sha2-nistp384-cert-v01@openssh.com", "ecdsa-sha2-nistp384"),
    ("ecdsa-sha2-nistp521-cert-v01@openssh.com", "ecdsa-sha2-nistp521-cert-v01@openssh.com", "ecdsa-sha2-nistp521"),
    ("sk-ssh-ed25519-cert-v01@openssh.com", "sk-ssh-ed25519-cert-v01@openssh.com", "sk-ssh-ed25519@openssh.com"),
    (
        "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
        "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    ),
    ("rsa-sha2-512-cert-v01@openssh.com", "ssh-rsa-cert-v01@openssh.com", "rsa-sha2-512"),
    ("rsa-sha2-256-cert-v01@openssh.com", "ssh-rsa-cert-v01@openssh.com", "rsa-sha2-256"),
    ("ssh-rsa-cert-v01@openssh.com", "ssh-rsa-cert-v01@openssh.com", "ssh-rsa"),
];

/// The meaning of this name; `None` if it is not supported.
pub(crate) fn user_algorithm(name: &str) -> Option<UserAlgorithm> {
    let (_, blob, signature) = USER_ALGORITHMS.iter().find(|(known, ..)| *known == name)?;
    Some(UserAlgorithm {
        blob,
        signature,
        is_certificate: blob.ends_with("-cert-v01@openssh.com"),
        uses_sha1: *signature == "ssh-rsa",
    })
}

/// The names as a list for KEXINIT.
pub(crate) fn names<T>(list: &[(&str, T)]) -> String {
    list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}

/// The client's first name that the server supports (RFC 4253 section 7.1).
pub(crate) fn choose<T: Copy>(client: &str, server: &[(&str, T)], kind: &'static str) -> Result<T> {
    let find = |wanted: &str| server.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    client.split(',').find_map(find).ok_or(Error::NothingInCommon(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_order_counts() {
        assert_eq!(choose("x,aes128-ctr,aes256-gcm@openssh.com", &CIPHERS, "cipher"), Ok(Cipher::Aes128Ctr));
        assert_eq!(choose("x,y", &CIPHERS, "cipher"), Err(Error::NothingInCommon("cipher")));
        assert!(choose("", &CIPHERS, "cipher").is_err());
    }

    #[test]
    fn signatures_of_users_are_known_by_their_names() {
        for name in USER_SIGNATURES.split(',') {
            let found = user_algorithm(name).unwrap();
            assert!(found.signature == name && !found.uses_sha1 && !found.is_certificate, "{name}");
        }
        assert!(user_algorithm("ssh-rsa").unwrap().uses_sha1);
        assert!(user_algorithm("ssh-rsa-cert-v01@openssh.com").unwrap().uses_sha1);
        assert!(user_algorithm("rsa-sha2-256-cert-v01@openssh.com").unwrap().is_certificate);
        assert_eq!(user_algorithm("ssh-dss"), None);
    }
}
