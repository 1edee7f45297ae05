//! The authority for user certificates (PROTOCOL.certkeys of OpenSSH): created once, stored beside the host keys.

use std::{path::Path, sync::Arc, time::Duration};

use sallyport_pki::{SshSignError, SshSubject, sign_ssh_key};
use sallyport_ssh_proto::{
    proof,
    ssh_key::{self, Algorithm, Certificate, Fingerprint, HashAlg, PrivateKey, PublicKey, certificate::CertType},
};

use crate::{HostKeyError, host_keys};

/// The authority's key file in the data directory.
pub const USER_AUTHORITY_FILE: &str = "ssh_user_authority_key";
/// Time before its creation from which a certificate is valid, for machines with slow clocks.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(300);
/// Time after its creation until which a certificate is valid.
pub const VALID_AHEAD: Duration = Duration::from_secs(300);
/// Permissions of a certificate. This server offers nothing else anyway, but other servers read them too.
const EXTENSIONS: [&str; 2] = ["permit-port-forwarding", "permit-pty"];

/// Signs user keys for a short time, and verifies its certificates. Clones share the key.
#[derive(Clone)]
pub struct UserAuthority {
    key: Arc<PrivateKey>,
    fingerprint: Fingerprint,
}

/// Verifies the certificates of an authority. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedAuthority {
    fingerprint: Fingerprint,
}

impl TrustedAuthority {
    /// Creates a verifier from this public key, as in a `.pub` file.
    ///
    /// # Errors
    /// The line is no public key.
    pub fn from_public_key(line: &str) -> Result<Self, SignError> {
        let key = PublicKey::from_openssh(line).map_err(SignError::Key)?;
        Ok(Self { fingerprint: key.fingerprint(HashAlg::Sha256) })
    }

    /// The key id of a certificate that this authority has signed for only this user and that is valid at `now`, in
    /// seconds since 1970.
    #[must_use]
    pub fn vouches_for<'a>(&self, certificate: &'a Certificate, user: &str, now: u64) -> Option<&'a str> {
        // A certificate without principals would be valid for every user.
        let is_for_user = matches!(certificate.valid_principals(), [principal] if principal == user);
        let is_good = is_for_user
            && certificate.cert_type() == CertType::User
            && certificate.critical_options().is_empty()
            && (certificate.valid_after()..certificate.valid_before()).contains(&now)
            && certificate.signature_key().fingerprint(HashAlg::Sha256) == self.fingerprint
            && proof::is_certified(certificate);
        is_good.then(|| certificate.key_id())
    }
}

/// Reason why a key was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The line is no public key.
    #[error("the text is not a usable public key: {0}")]
    Key(ssh_key::Error),
    /// The certificate could not be created.
    #[error(transparent)]
    Make(SshSignError),
    /// The operating system gives no random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(getrandom::Error),
}

impl UserAuthority {
    /// Reads the authority's Ed25519 key from this directory, or creates it, readable by its owner only. The directory
    /// must exist. Two processes must not call this at once for one directory.
    ///
    /// The file cannot be read or written, has open permissions, or is no such key.
    /// The file cannot be read or written, others may read it, or it is no such key.
    pub fn open_or_create(dir: &Path) -> Result<Self, HostKeyError> {
        let key = host_keys::open_or_create(&dir.join(USER_AUTHORITY_FILE), Algorithm::Ed25519)?;
        let fingerprint = key.public_key().fingerprint(HashAlg::Sha256);
        Ok(Self { key: Arc::new(key), fingerprint })
    }

    /// Signs a certificate for this key (a line as in a `.pub` file) and this one user. It is valid from
    /// [`MAX_CLOCK_DIFFERENCE`] before `now` until [`VALID_AHEAD`] after it (seconds since 1970). Returns a line as in
    /// a `-cert.pub` file, without a line end.
    ///
    /// # Errors
    /// The line is no public key.
    pub fn sign(&self, public_key: &str, user: &str, key_id: &str, now: u64) -> Result<String, SignError> {
        let (mut nonce, mut serial) = ([0; 16], [0; 8]);
        getrandom::fill(&mut nonce).and_then(|()| getrandom::fill(&mut serial)).map_err(SignError::Random)?;
        let subject = SshSubject {
            is_host: false,
            key_id,
            principals: &[user],
            extensions: &EXTENSIONS,
            force_command: None,
            valid_after: now.saturating_sub(MAX_CLOCK_DIFFERENCE.as_secs()),
            valid_before: now.saturating_add(VALID_AHEAD.as_secs()),
        };
        sign_ssh_key(&self.key, public_key, &subject, u64::from_be_bytes(serial), nonce).map_err(|error| match error {
            SshSignError::Key(error) => SignError::Key(error),
            error => SignError::Make(error),
        })
    }

    /// A verifier of its certificates.
    #[must_use]
    pub fn trusted(&self) -> TrustedAuthority {
        TrustedAuthority { fingerprint: self.fingerprint }
    }

    /// The authority's public key, as in a `.pub` file.
    pub fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }
}

impl std::fmt::Debug for UserAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserAuthority").field("fingerprint", &self.fingerprint.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use russh::keys::ssh_key::certificate::Builder;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";

    #[test]
    fn it_vouches_for_its_own_certificates_in_their_time_and_for_their_user_alone() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = UserAuthority::open_or_create(dir.path()).unwrap();
        let foreign = UserAuthority::open_or_create(elsewhere.path()).unwrap();
        let line = ours.sign(KEY, "ann", "a key", NOW).unwrap();
        let certificate = Certificate::from_openssh(&line).unwrap();
        assert_eq!(certificate.public_key(), PublicKey::from_openssh(KEY).unwrap().key_data());
        for (now, is_good) in
            [(NOW - 301, false), (NOW - 300, true), (NOW, true), (NOW + 299, true), (NOW + 300, false), (0, false)]
        {
            assert_eq!(ours.trusted().vouches_for(&certificate, "ann", now), is_good.then_some("a key"), "{now}");
        }
        for user in ["bob", "", "an", "annn"] {
            assert_eq!(ours.trusted().vouches_for(&certificate, user, NOW), None, "{user}");
        }
        assert_eq!(foreign.trusted().vouches_for(&certificate, "ann", NOW), None);
        let again = Certificate::from_openssh(&ours.sign(KEY, "ann", "a key", NOW).unwrap()).unwrap();
        assert_ne!((again.serial(), again.nonce()), (certificate.serial(), certificate.nonce()));
        let reopened = UserAuthority::open_or_create(dir.path()).unwrap();
        assert_eq!(reopened.trusted().vouches_for(&certificate, "ann", NOW), Some("a key"), "the key is kept");
    }

    #[test]
    fn it_vouches_for_nothing_that_it_would_not_make() {
        let dir = tempfile::tempdir().unwrap();
        let ours = UserAuthority::open_or_create(dir.path()).unwrap();
        let subject = PublicKey::from_openssh(KEY).unwrap();
        let made = |change: fn(&mut Builder)| {
            let mut builder = Builder::new([7; 16], &subject, NOW - 10, NOW + 10).unwrap();
            builder.key_id("a key").unwrap();
            change(&mut builder);
            builder.sign(ours.key.as_ref()).unwrap()
        };
        let good = made(|builder| drop(builder.cert_type(CertType::User).unwrap().valid_principal("ann")));
        assert_eq!(ours.trusted().vouches_for(&good, "ann", NOW), Some("a key"));
        for bad in [
            made(|builder| drop(builder.cert_type(CertType::Host).unwrap().valid_principal("ann"))),
            made(|builder| drop(builder.cert_type(CertType::User).unwrap().all_principals_valid())),
            made(|builder| {
                builder
                    .cert_type(CertType::User)
                    .unwrap()
                    .valid_principal("ann")
                    .unwrap()
                    .valid_principal("bob")
                    .unwrap();
            }),
            made(|builder| {
                let builder = builder.cert_type(CertType::User).unwrap().valid_principal("ann").unwrap();
                builder.critical_option("force-command", "true").unwrap();
            }),
        ] {
            assert_eq!(ours.trusted().vouches_for(&bad, "ann", NOW), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_public_key_is_not_signed() {
        let dir = tempfile::tempdir().unwrap();
        let ours = UserAuthority::open_or_create(dir.path()).unwrap();
        for text in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa !!!!"] {
            assert!(matches!(ours.sign(text, "ann", "a key", NOW), Err(SignError::Key(_))), "{text}");
        }
    }
}
