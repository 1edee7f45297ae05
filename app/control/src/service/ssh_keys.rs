//! The public keys with which stock ssh clients log in.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use http::StatusCode;
use sallyport_api::{AuditCertificate, SshCertificate};
use sallyport_bus::ssh_login_name;
use sallyport_model::{AccountId, DisplayName, SshLogin, SshTunnelLogin, Tunnel};
use sallyport_ssh::{SignError, VALID_AHEAD};
use sallyport_store::{Position, SshKey};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// Longer keys are refused unread, in bytes: RSA of 16,384 bits has fewer than 3,000.
const MAX_KEY_BYTES: usize = 16_384;
/// The shortest RSA key, in bits (NIST SP 800-131A).
const MIN_RSA_BITS: usize = 2_048;
/// The longest RSA key, in bits: longer ones only cost time.
const MAX_RSA_BITS: usize = 16_384;

/// Why a text is no usable public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("it is longer than {MAX_KEY_BYTES} bytes")]
    TooLong,
    #[error("it has several lines: give one public key, as in a .pub file")]
    Lines,
    #[error("this is a private key, which must stay secret: give the public key, in the file that ends in .pub")]
    Private,
    #[error("it begins with options or with no known type: give a line such as `ssh-ed25519 AAAA... you@laptop`")]
    Form,
    #[error("keys of type {0} are not taken: use ssh-ed25519, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384 or ssh-rsa")]
    Type(String),
    #[error("its second part is not the base64 of a key of the type in its first: it may have been cut")]
    Damaged,
    #[error(
        "it is an RSA key of {0} bits: make one of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, or better an Ed25519 key"
    )]
    RsaBits(usize),
}

/// A checked public key in OpenSSH's form (RFC 4253 section 6.6; authorized_keys in sshd(8)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicKeyText {
    /// The key as it is stored: type, base64, comment.
    pub(crate) line: String,
    /// `SHA256:` and the hash in base64, as ssh-keygen shows it.
    pub(crate) fingerprint: String,
    /// What its maker called it.
    pub(crate) comment: Option<String>,
}

/// Reads the encoding of RFC 4251 section 5.
struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    fn string(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.0 = rest;
        Some(value)
    }

    /// How many bits a non-negative number has.
    fn number_bits(&mut self) -> Option<usize> {
        let bytes = self.string()?;
        let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
        let significant = bytes.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &bytes[at..]);
        let top = significant.first().map_or(0, |first| first.leading_zeros() as usize);
        (!negative).then(|| (significant.len() * 8).saturating_sub(top))
    }
}

impl PublicKeyText {
    /// Reads a key.
    pub(crate) fn read(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong);
        }
        if text.contains("PRIVATE KEY") {
            return Err(KeyError::Private);
        }
        if text.contains(['\n', '\r']) {
            return Err(KeyError::Lines);
        }
        let mut words = text.split([' ', '\t']).filter(|word| !word.is_empty());
        let kind = words.next().ok_or(KeyError::Form)?;
        let encoded = words.next().ok_or(KeyError::Form)?;
        let comment = words.collect::<Vec<_>>().join(" ");
        if comment.chars().any(char::is_control) {
            return Err(KeyError::Form);
        }
        let blob = check(kind, encoded)?;
        // A comment that could not be a name is dropped.
        let comment = comment.parse::<DisplayName>().ok().map(String::from);
        let line = [Some(kind), Some(encoded), comment.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let fingerprint = format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)));
        Ok(Self { line, fingerprint, comment })
    }
}

/// The key's bytes, if they are a key of this type.
fn check(kind: &str, encoded: &str) -> Result<Vec<u8>, KeyError> {
    // The curve, and the length of a point, which begins with 4 if uncompressed (SEC 1 section 2.3.3).
    let point = match kind {
        "ssh-ed25519" | "ssh-rsa" => None,
        "ecdsa-sha2-nistp256" => Some(("nistp256", 65)),
        "ecdsa-sha2-nistp384" => Some(("nistp384", 97)),
        known if ["ssh-", "sk-", "ecdsa-"].iter().any(|start| known.starts_with(start)) => {
            return Err(KeyError::Type(known.chars().filter(|c| c.is_ascii_graphic()).take(64).collect()));
        }
        _ => return Err(KeyError::Form),
    };
    let blob = STANDARD.decode(encoded).map_err(|_| KeyError::Damaged)?;
    let mut wire = Wire(&blob);
    if wire.string() != Some(kind.as_bytes()) {
        return Err(KeyError::Damaged);
    }
    let is_whole = match (kind, point) {
        (_, Some((curve, length))) => {
            wire.string() == Some(curve.as_bytes())
                && wire.string().is_some_and(|point| point.len() == length && point[0] == 4)
        }
        ("ssh-ed25519", None) => wire.string().is_some_and(|key| key.len() == 32),
        _ => {
            let exponent = wire.number_bits().ok_or(KeyError::Damaged)?;
            let modulus = wire.number_bits().ok_or(KeyError::Damaged)?;
            if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&modulus) {
                return Err(KeyError::RsaBits(modulus));
            }
            (2..=64).contains(&exponent)
        }
    };
    if is_whole && wire.0.is_empty() { Ok(blob) } else { Err(KeyError::Damaged) }
}

impl App {
    /// Checks a key to be added; `field` names the input in errors.
    pub(crate) fn new_ssh_key(&self, field: &str, text: &str, name: Option<DisplayName>) -> Result<SshKey, ApiError> {
        let key = PublicKeyText::read(text).map_err(|error| ApiError::field(field, error))?;
        let name = name.map(String::from).or(key.comment).unwrap_or_else(|| "ssh key".to_owned());
        Ok(SshKey {
            id: uuid::Builder::from_random_bytes(random::bytes()?).into_uuid().into_bytes(),
            name,
            public_key: key.line,
            fingerprint: key.fingerprint,
            created_at: self.clock.now().unix_seconds,
        })
    }

    /// Adds a key to the account; edges have it when this returns.
    pub(crate) async fn add_ssh_key(
        &self,
        account: AccountId,
        text: &str,
        name: Option<DisplayName>,
    ) -> Result<SshKey, ApiError> {
        self.limits.create(account, self.clock.now().monotonic)?;
        let key = self.new_ssh_key("public_key", text, name)?;
        self.store.create_ssh_key(account, &key).await?;
        self.publish_ssh_keys(account).await?;
        audit::set_target(&key.fingerprint);
        tracing::info!(%account, fingerprint = %key.fingerprint, "ssh key added");
        Ok(key)
    }

    /// Removes a key from the account; edges know it when this returns.
    pub(crate) async fn remove_ssh_key(&self, account: AccountId, id: Uuid) -> Result<(), ApiError> {
        if !self.store.delete_ssh_key(account, id.into_bytes()).await? {
            return Err(ApiError::not_found("ssh key"));
        }
        self.publish_ssh_keys(account).await?;
        tracing::info!(%account, key = %id, "ssh key removed");
        Ok(())
    }

    /// A certificate with which a key logs in for one tunnel of the account alone; `field` names the input in errors.
    pub(crate) fn sign_ssh_key(
        &self,
        account: AccountId,
        tunnel: &Tunnel,
        field: &str,
        text: &str,
    ) -> Result<SshCertificate, ApiError> {
        let Some(authority) = &self.config.ssh_authority else {
            let detail = "this server takes no ssh clients, so there is nothing to log in to with a certificate";
            return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "not-offered", detail));
        };
        let now = self.clock.now();
        self.limits.create(account, now.monotonic)?;
        let key = PublicKeyText::read(text).map_err(|error| ApiError::field(field, error))?;
        let login = SshTunnelLogin { account, socket: tunnel.socket, tunnel: tunnel.id };
        let user = ssh_login_name(account);
        let seconds = u64::try_from(now.unix_seconds).unwrap_or_default();
        let certificate =
            authority.sign(&key.line, &user, &login.to_string(), seconds).map_err(|error| match error {
                SignError::Key(_) => ApiError::field(field, KeyError::Damaged),
                error => ApiError::internal(error),
            })?;
        tracing::info!(%account, tunnel = %tunnel.id, fingerprint = %key.fingerprint, "ssh key signed for a tunnel");
        let valid_until = date(now.unix_seconds.saturating_add_unsigned(VALID_AHEAD.as_secs()));
        let issued = AuditCertificate {
            identity: user.clone(),
            socket: self.routes.get(tunnel.socket).map(|route| self.dns_name(&route.name)),
            certificate_type: "ssh-tunnel".to_owned(),
            serial: key.fingerprint,
            not_after: valid_until,
            client: None,
        };
        self.audit_certificate(account, issued);
        Ok(SshCertificate { certificate, user, forward_port: tunnel.forward_port, valid_until })
    }

    /// Publishes the account's keys, as the store has them now, to edges.
    pub(crate) async fn publish_ssh_keys(&self, account: AccountId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        let keys = self.store.ssh_keys(account, Position::MIN, u32::MAX).await?;
        if keys.is_empty() {
            self.ssh_logins.remove(account);
        } else {
            let keys = keys.into_iter().map(|(_, key)| key.public_key).collect();
            self.ssh_logins.put(SshLogin { account, keys });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    fn line(kind: &str, parts: &[&[u8]]) -> String {
        let blob = [vec![string(kind.as_bytes())], parts.iter().map(|part| string(part)).collect()].concat().concat();
        format!("{kind} {}", STANDARD.encode(blob))
    }

    fn rsa(bits: usize) -> String {
        let mut modulus = vec![0xff; bits / 8];
        modulus.insert(0, 0);
        line("ssh-rsa", &[&[1, 0, 1], &modulus])
    }

    #[test]
    fn the_fingerprint_is_the_one_that_ssh_shows() {
        let key = PublicKeyText::read(&format!("  {ED25519}\n")).unwrap();
        assert_eq!((key.line.as_str(), key.comment.as_deref()), (ED25519, Some("ann@laptop")));
        assert_eq!(key.fingerprint, "SHA256:T7SvZ2cslqpPj6nKzitCBHHlpVF3r3MvLwmFL0fk0IE");
        let other = PublicKeyText::read(&format!("{} other comment", ED25519.rsplit_once(' ').unwrap().0)).unwrap();
        assert_eq!(other.fingerprint, key.fingerprint, "the comment is not part of the key");
        let turned = PublicKeyText::read(&format!("{ED25519}\u{202e}")).unwrap();
        assert_eq!((turned.comment, turned.line.as_str()), (None, ED25519.rsplit_once(' ').unwrap().0));
    }

    #[test]
    fn keys_of_every_good_type_are_read() {
        let point = |length: usize| [vec![4], vec![7; length - 1]].concat();
        for text in [
            line("ssh-ed25519", &[&[7; 32]]),
            line("ecdsa-sha2-nistp256", &[b"nistp256", &point(65)]),
            line("ecdsa-sha2-nistp384", &[b"nistp384", &point(97)]),
            rsa(2_048),
            rsa(16_384),
        ] {
            let key = PublicKeyText::read(&format!("{text}\tmy  key")).unwrap_or_else(|e| panic!("{e}: {text:.60}"));
            assert_eq!((key.line, key.comment.as_deref()), (format!("{text} my key"), Some("my key")));
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        let cut = &ED25519[..ED25519.len() - 14];
        let relabelled = ED25519.replacen("ssh-ed25519", "ssh-rsa", 1);
        let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----";
        for (text, error) in [
            (String::new(), KeyError::Form),
            ("ssh-ed25519".into(), KeyError::Form),
            (format!("command=\"rm\" {ED25519}"), KeyError::Form),
            (format!("no-pty {ED25519}"), KeyError::Form),
            (format!("{ED25519}\n{ED25519}"), KeyError::Lines),
            (format!("{ED25519}\u{7}"), KeyError::Form),
            (private.into(), KeyError::Private),
            (line("ssh-dss", &[b"x"]), KeyError::Type("ssh-dss".into())),
            (line("sk-ssh-ed25519@openssh.com", &[b"x"]), KeyError::Type("sk-ssh-ed25519@openssh.com".into())),
            (line("ecdsa-sha2-nistp521", &[b"x"]), KeyError::Type("ecdsa-sha2-nistp521".into())),
            (cut.into(), KeyError::Damaged),
            (relabelled, KeyError::Damaged),
            ("ssh-ed25519 !!!!".into(), KeyError::Damaged),
            (line("ssh-ed25519", &[&[7; 31]]), KeyError::Damaged),
            (line("ssh-ed25519", &[&[7; 32], b"more"]), KeyError::Damaged),
            (line("ecdsa-sha2-nistp256", &[b"nistp384", &[4; 65]]), KeyError::Damaged),
            (line("ecdsa-sha2-nistp256", &[b"nistp256", &[2; 65]]), KeyError::Damaged),
            (line("ssh-rsa", &[&[1, 0, 1], &[0xff; 256]]), KeyError::Damaged),
            (rsa(1_024), KeyError::RsaBits(1_024)),
            (rsa(16_392), KeyError::RsaBits(16_392)),
            ("x".repeat(20_000), KeyError::TooLong),
        ] {
            assert_eq!(PublicKeyText::read(&text), Err(error), "{text:.80}");
        }
    }
}
