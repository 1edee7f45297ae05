//! The certificate authorities of organisations, and their issued certificates.

use sallyport_model::{AccountId, SocketId};

use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// Time that a certificate is stored after its end, in seconds: 90 days.
pub(crate) const REMEMBER_CERTIFICATES_SECONDS: i64 = 90 * 86_400;
/// Bound on listed certificates.
pub const MAX_LISTED_CERTIFICATES: u32 = 1_000;

/// The purpose of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthorityKind {
    /// Client certificates of TLS.
    ClientTls,
    /// Ssh certificates of persons and hosts.
    Ssh,
}

impl AuthorityKind {
    /// Its name, in the store and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientTls => "client-tls",
            Self::Ssh => "ssh",
        }
    }
}

impl std::str::FromStr for AuthorityKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::ClientTls, Self::Ssh].into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is not a kind of authority"))
    }
}

/// An authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAuthority {
    /// The organisation of the authority.
    pub organisation: AccountId,
    /// Its purpose.
    pub kind: AuthorityKind,
    /// The public part: a certificate in DER, or the line of an ssh key.
    pub certificate: Vec<u8>,
    /// Its private key, encrypted with a key outside of the database.
    pub secret: Vec<u8>,
    /// Settings of issuance, as JSON.
    pub settings: String,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
}

/// An issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The organisation of the authority that signed the certificate.
    pub organisation: AccountId,
    /// The kind of the authority.
    pub kind: AuthorityKind,
    /// Its serial number, big-endian.
    pub serial: Vec<u8>,
    /// The socket that it is for, if any.
    pub socket: Option<SocketId>,
    /// The subject of the certificate.
    pub subject: String,
    /// Start of its validity, in seconds since 1970.
    pub not_before: i64,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
}

impl Store {
    /// Stores an authority, unless the organisation has one of the kind; returns the stored one.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the organisation does not exist, or a failure of the database.
    pub async fn keep_authority(&self, new: &StoredAuthority) -> Result<StoredAuthority, StoreError> {
        let mut write = self.write().await?;
        sql::query(
            "INSERT INTO authorities (organisation, kind, certificate, secret, settings, created_at)
             SELECT id, $2, $3, $4, $5, $6 FROM accounts WHERE id = $1 ON CONFLICT DO NOTHING",
        )
        .bind(new.organisation.as_bytes().as_slice())
        .bind(new.kind.as_str())
        .bind(new.certificate.as_slice())
        .bind(new.secret.as_slice())
        .bind(&new.settings)
        .bind(new.created_at)
        .execute(write.sql())
        .await?;
        let found = sql::query("SELECT * FROM authorities WHERE organisation = $1 AND kind = $2")
            .bind(new.organisation.as_bytes().as_slice())
            .bind(new.kind.as_str())
            .fetch_optional(write.sql())
            .await?;
        let kept = authority(&found.ok_or(StoreError::Gone)?)?;
        write.commit().await?;
        Ok(kept)
    }

    /// The organisation's authority of this kind, if it has one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn authority(
        &self,
        organisation: AccountId,
        kind: AuthorityKind,
    ) -> Result<Option<StoredAuthority>, StoreError> {
        let found = sql::query("SELECT * FROM authorities WHERE organisation = $1 AND kind = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(kind.as_str())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(authority).transpose()
    }

    /// Changes the settings of the organisation's authority of this kind. Returns whether it exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn set_authority_settings(
        &self,
        organisation: AccountId,
        kind: AuthorityKind,
        settings: &str,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let updated = sql::query("UPDATE authorities SET settings = $3 WHERE organisation = $1 AND kind = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(kind.as_str())
            .bind(settings)
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(updated.rows_affected() > 0)
    }

    /// The public parts of all authorities of all organisations; secrets are left out.
    ///
    /// # Errors
    /// The database fails.
    pub async fn authorities(&self) -> Result<Vec<StoredAuthority>, StoreError> {
        let rows =
            sql::query("SELECT organisation, kind, certificate, $1 AS secret, settings, created_at FROM authorities")
                .bind(&[][..])
                .fetch_all(&self.reader)
                .await?;
        rows.iter().map(authority).collect()
    }

    /// Records an issued certificate.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the organisation does not exist, or a failure of the database; the certificate must not
    /// be handed out then.
    pub async fn record_certificate(&self, issued: &IssuedCertificate) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let inserted = sql::query(
            "INSERT INTO issued_certificates (organisation, kind, serial, socket, subject, not_before, not_after)
             SELECT id, $2, $3, $4, $5, $6, $7 FROM accounts WHERE id = $1",
        )
        .bind(issued.organisation.as_bytes().as_slice())
        .bind(issued.kind.as_str())
        .bind(issued.serial.as_slice())
        .bind(issued.socket.as_ref().map(|socket| socket.as_bytes().as_slice()))
        .bind(&issued.subject)
        .bind(issued.not_before)
        .bind(issued.not_after)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.commit().await
    }

    /// The organisation's certificates, sorted by their end, latest first; at most [`MAX_LISTED_CERTIFICATES`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn issued_certificates(&self, organisation: AccountId) -> Result<Vec<IssuedCertificate>, StoreError> {
        let rows = sql::query(
            "SELECT * FROM issued_certificates WHERE organisation = $1 ORDER BY not_after DESC, serial LIMIT $2",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(MAX_LISTED_CERTIFICATES)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(issued).collect()
    }
}

fn authority(found: &DbRow) -> Result<StoredAuthority, StoreError> {
    Ok(StoredAuthority {
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        kind: row::parsed(found, "kind")?,
        certificate: found.try_get("certificate")?,
        secret: found.try_get("secret")?,
        settings: found.try_get("settings")?,
        created_at: found.try_get("created_at")?,
    })
}

fn issued(found: &DbRow) -> Result<IssuedCertificate, StoreError> {
    let socket: Option<Vec<u8>> = found.try_get("socket")?;
    Ok(IssuedCertificate {
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        kind: row::parsed(found, "kind")?,
        serial: found.try_get("serial")?,
        socket: socket.and_then(|bytes| bytes.try_into().ok()).map(SocketId::from_bytes),
        subject: found.try_get("subject")?,
        not_before: found.try_get("not_before")?,
        not_after: found.try_get("not_after")?,
    })
}
