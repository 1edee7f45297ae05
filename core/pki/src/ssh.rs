//! SSH certificates (PROTOCOL.certkeys of OpenSSH), and the ssh authority of an organisation.

use signature::Signer;
use ssh_key::{
    LineEnding, PrivateKey, PublicKey, Signature,
    certificate::{Builder, CertType},
    private::{Ed25519Keypair, KeypairData},
    public::KeyData,
};

/// Time before its creation from which a certificate is valid, in seconds, for machines with slow clocks.
pub const SSH_BACKDATE_SECONDS: u64 = 300;
/// Validity of a user certificate after its creation, in seconds.
pub const SSH_USER_SECONDS: u64 = 300;
/// Validity of a host certificate after its creation, in seconds: 90 days.
pub const SSH_HOST_SECONDS: u64 = 90 * 86_400;
/// A principal of every person's certificate, in addition to the e-mail address.
pub const SIGNED_PRINCIPAL: &str = "sallyport_ssh_signed";
/// The principal for servers that were configured for mysocket.
pub const MYSOCKET_PRINCIPAL: &str = "mysocket_ssh_signed";
/// The longest principal, in bytes.
const MAX_PRINCIPAL_BYTES: usize = 255;
/// The longest forced command, in bytes.
pub const MAX_FORCE_COMMAND_BYTES: usize = 1_024;

/// The possible extensions of a user certificate (sshd(8), ssh-keygen(1) `-O`), in the order of certificates.
pub const SSH_EXTENSIONS: [&str; 5] =
    ["permit-X11-forwarding", "permit-agent-forwarding", "permit-port-forwarding", "permit-pty", "permit-user-rc"];
/// The default extensions.
pub const DEFAULT_SSH_EXTENSIONS: [&str; 3] = ["permit-agent-forwarding", "permit-port-forwarding", "permit-pty"];

/// The subject and permissions of a certificate.
#[derive(Debug, Clone, Copy)]
pub struct SshSubject<'a> {
    /// Whether it is a host certificate.
    pub is_host: bool,
    /// The key id, which servers log.
    pub key_id: &'a str,
    /// The principals, at least one: a certificate without any is valid for everybody.
    pub principals: &'a [&'a str],
    /// The extensions for a user, from [`SSH_EXTENSIONS`].
    pub extensions: &'a [&'a str],
    /// The forced command for a user, if any.
    pub force_command: Option<&'a str>,
    /// Start of its validity, in seconds since 1970.
    pub valid_after: u64,
    /// End of its validity, in seconds since 1970.
    pub valid_before: u64,
}

/// Reason why a key was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SshSignError {
    /// The line is no public key.
    #[error("the text is not a usable public key: {0}")]
    Key(ssh_key::Error),
    /// A principal is empty, too long, or has special characters.
    #[error("{0:?} cannot be a principal of a certificate")]
    Principal(String),
    /// A forced command is malformed.
    #[error("the forced command must be one line of 1 to {MAX_FORCE_COMMAND_BYTES} bytes")]
    Command,
    /// An unknown extension.
    #[error("{name:?} is not an extension of a user certificate: expected one of {}", SSH_EXTENSIONS.join(", "))]
    Extension {
        /// The name.
        name: String,
    },
    /// The certificate could not be created.
    #[error("cannot create the certificate: {0}")]
    Make(ssh_key::Error),
}

/// Signs a public key (a line as in a `.pub` file) for this subject; returns a line as in a `-cert.pub` file, without a
/// line end. Serial number and nonce must be random.
///
/// # Errors
/// The line is no public key, or the subject is invalid.
pub fn sign_ssh_key(
    authority: &PrivateKey,
    public_key: &str,
    subject: &SshSubject<'_>,
    serial: u64,
    nonce: [u8; 16],
) -> Result<String, SshSignError> {
    let key = PublicKey::from_openssh(public_key).map_err(SshSignError::Key)?;
    if subject.principals.is_empty() {
        return Err(SshSignError::Principal(String::new()));
    }
    // ssh-keygen, sshd and their lists of principals treat commas and white space as separators, and `!` and `*` as
    // patterns.
    let is_name = |name: &&str| {
        (1..=MAX_PRINCIPAL_BYTES).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !b",\"'!*?\\#".contains(&byte))
    };
    if let Some(bad) = subject.principals.iter().find(|name| !is_name(name)) {
        return Err(SshSignError::Principal(bad.chars().take(80).collect()));
    }
    if subject.key_id.is_empty() || subject.key_id.len() > 1_024 || subject.key_id.chars().any(char::is_control) {
        return Err(SshSignError::Principal(subject.key_id.chars().take(80).collect()));
    }
    if let Some(bad) = subject.extensions.iter().find(|name| !SSH_EXTENSIONS.contains(*name)) {
        return Err(SshSignError::Extension { name: bad.chars().take(80).collect() });
    }
    let is_command = |command: &str| {
        (1..=MAX_FORCE_COMMAND_BYTES).contains(&command.len()) && !command.chars().any(char::is_control)
    };
    if subject.force_command.is_some_and(|command| !is_command(command)) {
        return Err(SshSignError::Command);
    }
    let make = || {
        let mut builder = Builder::new(nonce, &key, subject.valid_after, subject.valid_before)?;
        let kind = if subject.is_host { CertType::Host } else { CertType::User };
        builder.cert_type(kind)?.serial(serial)?.key_id(subject.key_id)?;
        for principal in subject.principals {
            builder.valid_principal(*principal)?;
        }
        if let Some(command) = subject.force_command {
            builder.critical_option("force-command", command)?;
        }
        // Sorted by name, as the format requires.
        for extension in SSH_EXTENSIONS.iter().filter(|known| subject.extensions.contains(known)) {
            builder.extension(*extension, "")?;
        }
        builder.sign(&Signing(authority))?.to_openssh()
    };
    make().map(|line| line.trim_end().to_owned()).map_err(SshSignError::Make)
}

/// An authority's signing key. All are Ed25519, so other kinds are not linked.
struct Signing<'a>(&'a PrivateKey);

impl Signer<Signature> for Signing<'_> {
    fn try_sign(&self, message: &[u8]) -> Result<Signature, signature::Error> {
        match self.0.key_data() {
            KeypairData::Ed25519(pair) => pair.try_sign(message),
            _ => Err(ssh_key::Error::AlgorithmUnsupported { algorithm: self.0.algorithm() }.into()),
        }
    }
}

impl From<&Signing<'_>> for KeyData {
    fn from(signing: &Signing<'_>) -> Self {
        signing.0.public_key().key_data().clone()
    }
}

/// The subject of a person's certificate.
#[derive(Debug, Clone, Copy)]
pub struct SshPerson<'a> {
    /// The verified e-mail address: the certificate's key id, and a principal.
    pub email: &'a str,
    /// Whether to add the principal for servers that were configured for mysocket.
    pub for_mysocket: bool,
    /// The extensions, from [`SSH_EXTENSIONS`].
    pub extensions: &'a [&'a str],
    /// The forced command, if any.
    pub force_command: Option<&'a str>,
}

/// Signs ssh keys of an organisation's persons and hosts.
pub struct SshAuthority {
    key: PrivateKey,
}

impl SshAuthority {
    /// Derives the authority's Ed25519 key from this seed of 256 random bits; the comment names the owner.
    ///
    /// # Errors
    /// The comment is invalid.
    pub fn from_seed(seed: &[u8; 32], comment: &str) -> Result<Self, SshSignError> {
        let key = PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(seed)), comment.to_owned());
        key.map(|key| Self { key }).map_err(SshSignError::Make)
    }

    /// The authority's public key as one line, for `TrustedUserCAKeys`, and after `@cert-authority` in `known_hosts`.
    ///
    /// # Errors
    /// The key cannot be encoded; does not happen with keys created here.
    pub fn public_line(&self) -> Result<String, SshSignError> {
        self.key.public_key().to_openssh().map(|line| line.trim_end().to_owned()).map_err(SshSignError::Make)
    }

    /// Signs a person's certificate, valid for some minutes around `now`, in seconds since 1970.
    ///
    /// # Errors
    /// See [`sign_ssh_key`].
    pub fn sign_person(
        &self,
        public_key: &str,
        person: SshPerson<'_>,
        now: u64,
        serial: u64,
        nonce: [u8; 16],
    ) -> Result<String, SshSignError> {
        let all = [person.email, SIGNED_PRINCIPAL, MYSOCKET_PRINCIPAL];
        let subject = SshSubject {
            is_host: false,
            key_id: person.email,
            principals: if person.for_mysocket { &all } else { &all[..2] },
            extensions: person.extensions,
            force_command: person.force_command,
            valid_after: now.saturating_sub(SSH_BACKDATE_SECONDS),
            valid_before: now.saturating_add(SSH_USER_SECONDS),
        };
        sign_ssh_key(&self.key, public_key, &subject, serial, nonce)
    }

    /// Signs a host certificate for these names, valid from an hour before `now` (seconds since 1970), for 90 days.
    ///
    /// # Errors
    /// See [`sign_ssh_key`].
    pub fn sign_host(
        &self,
        public_key: &str,
        names: &[&str],
        now: u64,
        serial: u64,
        nonce: [u8; 16],
    ) -> Result<String, SshSignError> {
        let subject = SshSubject {
            is_host: true,
            key_id: names.first().copied().unwrap_or_default(),
            principals: names,
            extensions: &[],
            force_command: None,
            valid_after: now.saturating_sub(3_600),
            valid_before: now.saturating_add(SSH_HOST_SECONDS),
        };
        sign_ssh_key(&self.key, public_key, &subject, serial, nonce)
    }

    /// The private key in OpenSSH's format. Must be kept secret.
    ///
    /// # Errors
    /// The key cannot be encoded; does not happen with keys created here.
    pub fn private_openssh(&self) -> Result<String, SshSignError> {
        self.key.to_openssh(LineEnding::LF).map(|text| text.to_string()).map_err(SshSignError::Make)
    }

    /// Loads an authority from its private key in OpenSSH's format.
    ///
    /// # Errors
    /// The text is no private key.
    pub fn from_openssh(text: &str) -> Result<Self, SshSignError> {
        PrivateKey::from_openssh(text).map(|key| Self { key }).map_err(SshSignError::Key)
    }
}

impl std::fmt::Debug for SshAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fingerprint = self.key.fingerprint(ssh_key::HashAlg::Sha256).to_string();
        f.debug_struct("SshAuthority").field("fingerprint", &fingerprint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ssh_key::Certificate;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";

    fn authority() -> SshAuthority {
        SshAuthority::from_seed(&[7; 32], "sallyport").unwrap()
    }

    fn ann() -> SshPerson<'static> {
        SshPerson {
            email: "ann@example.com",
            for_mysocket: false,
            extensions: &DEFAULT_SSH_EXTENSIONS,
            force_command: None,
        }
    }

    #[test]
    fn a_person_gets_minutes_and_no_names_of_others() {
        let authority = authority();
        let line = authority.sign_person(KEY, ann(), NOW, 42, [9; 16]).unwrap();
        let certificate = Certificate::from_openssh(&line).unwrap();
        assert_eq!(certificate.valid_principals(), ["ann@example.com", "sallyport_ssh_signed"]);
        assert_eq!((certificate.key_id(), certificate.serial()), ("ann@example.com", 42));
        assert_eq!(certificate.cert_type(), CertType::User);
        let ca = authority.key.public_key().fingerprint(ssh_key::HashAlg::Sha256);
        for (at, is_good) in [(NOW - 301, false), (NOW - 300, true), (NOW + 299, true), (NOW + 300, false)] {
            assert_eq!(certificate.validate_at(at, [&ca]).is_ok(), is_good, "{at}");
        }
        let names: Vec<_> = certificate.extensions().keys().map(String::as_str).collect();
        assert_eq!(names, DEFAULT_SSH_EXTENSIONS);
        let forced = SshPerson { for_mysocket: true, extensions: &[], force_command: Some("/bin/date"), ..ann() };
        let certificate = authority.sign_person(KEY, forced, NOW, 42, [9; 16]).unwrap();
        let certificate = Certificate::from_openssh(&certificate).unwrap();
        assert_eq!(certificate.valid_principals().last().map(String::as_str), Some("mysocket_ssh_signed"));
        assert_eq!(certificate.critical_options().get("force-command").map(String::as_str), Some("/bin/date"));
        assert!(certificate.extensions().is_empty());
    }

    #[test]
    fn no_address_becomes_two_principals_or_a_pattern() {
        for email in [
            "",
            "root,ann@example.com",
            "ann@example.com\nroot",
            "ann@example.com root",
            "ann@example.com\0",
            "*@example.com",
            "!ann@example.com",
            "\"ann\"@example.com",
            "#ann@example.com",
            "\u{e4}nn@example.com",
            &format!("{}@example.com", "a".repeat(300)),
        ] {
            let refused = authority().sign_person(KEY, SshPerson { email, ..ann() }, NOW, 1, [9; 16]);
            assert!(matches!(refused, Err(SshSignError::Principal(_))), "{email:?}: {refused:?}");
        }
    }

    #[test]
    fn commands_extensions_and_keys_are_checked() {
        let sign = |key: &str, person: SshPerson<'_>| authority().sign_person(key, person, NOW, 1, [9; 16]);
        for command in ["", "a\nb", "a\0", &"x".repeat(2_000)] {
            let refused = sign(KEY, SshPerson { force_command: Some(command), ..ann() });
            assert!(matches!(refused, Err(SshSignError::Command)), "{command:.20?}");
        }
        let unknown = sign(KEY, SshPerson { extensions: &["permit-everything"], ..ann() });
        assert!(matches!(unknown, Err(SshSignError::Extension { .. })));
        for key in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa !!!!"] {
            assert!(matches!(sign(key, ann()), Err(SshSignError::Key(_))), "{key}");
        }
    }

    #[test]
    fn a_host_is_no_user_and_the_key_is_kept() {
        let line = authority().sign_host(KEY, &["calm-bay-1000.example.com"], NOW, 1, [9; 16]).unwrap();
        let certificate = Certificate::from_openssh(&line).unwrap();
        assert_eq!(certificate.cert_type(), CertType::Host);
        assert!(certificate.extensions().is_empty());
        assert_eq!(certificate.valid_before(), NOW + SSH_HOST_SECONDS);
        assert!(authority().sign_host(KEY, &[], NOW, 1, [9; 16]).is_err(), "no names would be all names");
        let again = SshAuthority::from_openssh(&authority().private_openssh().unwrap()).unwrap();
        assert_eq!(again.public_line().unwrap(), authority().public_line().unwrap());
        assert!(!format!("{again:?}").contains("PRIVATE"));
    }
}
