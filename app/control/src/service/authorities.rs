//! The certificate authorities of organisations: made at their first use, stored encrypted, published to edges.

use sallyport_identity::{NONCE_BYTES, Purpose};
use sallyport_model::{AccountId, SocketSettings, SocketType};
use sallyport_pki::{
    ClientAuthority, DEFAULT_SSH_EXTENSIONS, KeyPair, MAX_FORCE_COMMAND_BYTES, PKCS_ECDSA_P256_SHA256, SSH_EXTENSIONS,
    SshAuthority,
};
use sallyport_store::{AuthorityKind, StoredAuthority};
use serde::{Deserialize, Serialize};

use crate::{clock::date, problem::ApiError, security::random, state::App};

/// A sealed private key with its authority: a key that is moved to another row does not open.
#[derive(Serialize, Deserialize)]
struct SealedKey {
    authority: (AccountId, String),
    key: String,
}

/// The settings of certificates for persons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SshOptions {
    #[serde(default = "usual_extensions")]
    pub(crate) extensions: Vec<String>,
    #[serde(default)]
    pub(crate) force_command: Option<String>,
    #[serde(default)]
    pub(crate) mysocket_principal: bool,
}

fn usual_extensions() -> Vec<String> {
    DEFAULT_SSH_EXTENSIONS.map(str::to_owned).to_vec()
}

impl SshOptions {
    /// Refuses settings that no certificate can have.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        for (n, extension) in self.extensions.iter().enumerate() {
            let field = format!("extensions[{n}]");
            if !SSH_EXTENSIONS.contains(&extension.as_str()) {
                let known = SSH_EXTENSIONS.join(", ");
                return Err(ApiError::field(&field, format!("there is no such extension; known are {known}")));
            }
            if self.extensions[..n].contains(extension) {
                return Err(ApiError::field(&field, "it is given twice"));
            }
        }
        let is_command = |command: &String| {
            (1..=MAX_FORCE_COMMAND_BYTES).contains(&command.len()) && !command.chars().any(char::is_control)
        };
        if self.force_command.as_ref().is_some_and(|command| !is_command(command)) {
            let detail = format!("it is one line of 1 to {MAX_FORCE_COMMAND_BYTES} bytes");
            return Err(ApiError::field("force_command", detail));
        }
        Ok(())
    }
}

impl App {
    /// Makes the authorities that a socket with these settings needs, unless they exist.
    pub(crate) async fn need_authorities(
        &self,
        organisation: AccountId,
        socket_type: SocketType,
        settings: &SocketSettings,
    ) -> Result<(), ApiError> {
        if settings.identity.is_none() {
            return Ok(());
        }
        let known = self.authorities.of(organisation);
        if socket_type == SocketType::Tls && known.client_tls.is_none() {
            self.authority(organisation, AuthorityKind::ClientTls).await?;
        }
        if known.ssh.is_none() {
            self.authority(organisation, AuthorityKind::Ssh).await?;
        }
        Ok(())
    }

    /// The organisation's authority for client certificates.
    pub(crate) async fn client_authority(&self, organisation: AccountId) -> Result<ClientAuthority, ApiError> {
        let stored = self.authority(organisation, AuthorityKind::ClientTls).await?;
        let key = self.authority_key(&stored)?;
        ClientAuthority::from_der(&stored.certificate, &key).map_err(ApiError::internal)
    }

    /// The organisation's authority for ssh keys, with its public key line and the settings of its certificates.
    pub(crate) async fn ssh_authority(
        &self,
        organisation: AccountId,
    ) -> Result<(SshAuthority, String, SshOptions), ApiError> {
        let stored = self.authority(organisation, AuthorityKind::Ssh).await?;
        let key = self.authority_key(&stored)?;
        let authority = SshAuthority::from_openssh(&key).map_err(ApiError::internal)?;
        let line = authority.public_line().map_err(ApiError::internal)?;
        let options = serde_json::from_str(&stored.settings).map_err(ApiError::internal)?;
        Ok((authority, line, options))
    }

    /// The stored authority, made if there is none.
    async fn authority(&self, organisation: AccountId, kind: AuthorityKind) -> Result<StoredAuthority, ApiError> {
        if let Some(stored) = self.store.authority(organisation, kind).await? {
            self.authorities.insert(&stored);
            return Ok(stored);
        }
        let now = self.clock.now().unix_seconds;
        let (certificate, secret) = match kind {
            AuthorityKind::ClientTls => {
                let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(ApiError::internal)?;
                let label = format!("Sallyport clients at {}", self.config.domain);
                let made = ClientAuthority::create(&label, key, date(now), random::bytes()?);
                let made = made.map_err(ApiError::internal)?;
                (made.certificate_der().to_vec(), made.key_pem())
            }
            AuthorityKind::Ssh => {
                let comment = format!("sallyport-{}", organisation.uuid().simple());
                let made = SshAuthority::from_seed(&random::bytes()?, &comment).map_err(ApiError::internal)?;
                let line = made.public_line().map_err(ApiError::internal)?;
                (line.into_bytes(), made.private_openssh().map_err(ApiError::internal)?)
            }
        };
        let nonce: [u8; NONCE_BYTES] = random::bytes()?;
        let kept = SealedKey { authority: (organisation, kind.as_str().to_owned()), key: secret };
        let sealed = self.sealer.seal(Purpose::StoredSecret, &kept, nonce);
        let sealed = sealed.ok_or_else(|| ApiError::internal("the key of an authority cannot be sealed"))?;
        let new = StoredAuthority {
            organisation,
            kind,
            certificate,
            secret: sealed.into_bytes(),
            settings: "{}".to_owned(),
            created_at: now,
        };
        let kept = self.store.keep_authority(&new).await?;
        self.authorities.insert(&kept);
        if kept == new {
            tracing::info!(target: "audit", event = "authority-made", %organisation, kind = kind.as_str());
        }
        Ok(kept)
    }

    fn authority_key(&self, stored: &StoredAuthority) -> Result<String, ApiError> {
        let text = std::str::from_utf8(&stored.secret).map_err(ApiError::internal)?;
        let kept: Option<SealedKey> = self.sealer.open(Purpose::StoredSecret, text);
        let own = kept.filter(|kept| kept.authority == (stored.organisation, stored.kind.as_str().to_owned()));
        own.map(|kept| kept.key).ok_or_else(|| {
            ApiError::internal(format_args!(
                "the key of the {} authority of {} cannot be opened: restore the file {} that it was made with",
                stored.kind.as_str(),
                stored.organisation,
                crate::security::secrets::TOKEN_KEY_FILE
            ))
        })
    }
}
