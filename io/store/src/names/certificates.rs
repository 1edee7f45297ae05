//! Certificates for names: ordered at an ACME server, or imported. One row for each first name.
//!
//! A process that works at an order holds a lease on its row. The lease has a number that grows with every holder
//! (fencing): a former holder that comes back late changes nothing.

use sallyport_model::{AccountId, CertificateId, DomainName};

use super::wanted::WantedCertificate;
use crate::{
    cluster::controls::HolderId,
    db::{
        Store,
        error::StoreError,
        row::{self, DbRow},
        sql,
    },
};

/// Bound on the certificates of an installation.
pub const MAX_CERTIFICATES: usize = 100_000;

/// The origin of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateSource {
    /// Ordered at an ACME server.
    Acme,
    /// Imported by a person.
    Imported,
}

impl CertificateSource {
    /// The source as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acme => "acme",
            Self::Imported => "imported",
        }
    }
}

impl std::str::FromStr for CertificateSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "acme" => Ok(Self::Acme),
            "imported" => Ok(Self::Imported),
            other => Err(format!("{other:?} is not a source of certificates")),
        }
    }
}

/// How many certificates are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CertificateCounts {
    /// Not issued yet.
    pub waiting: i64,
    /// Not valid any more.
    pub expired: i64,
    /// Valid, and their renewal has failed.
    pub failing: i64,
    /// Valid.
    pub valid: i64,
    /// In any state, with an order that has failed.
    pub problems: i64,
}

/// A certificate, issued or still to be ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCertificate {
    /// Its id.
    pub id: CertificateId,
    /// Its organisation; `None` for names of the installation.
    pub organisation: Option<AccountId>,
    /// Its names.
    pub names: Vec<DomainName>,
    /// Where it comes from.
    pub source: CertificateSource,
    /// The chain and the sealed key, once issued.
    pub issued: Option<IssuedChain>,
    /// The order in progress: the sealed key of its request, and its address at the ACME server, once known.
    pub order: Option<PendingOrder>,
    /// The state of the schedule, as its owner writes it; empty for a new row.
    pub schedule: String,
    /// When the next step is due, in seconds since 1970.
    pub due_at: i64,
    /// The reason why the last step failed, a sentence.
    pub problem: Option<String>,
    /// When the row was made.
    pub created_at: i64,
}

/// An issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedChain {
    /// The chain in PEM.
    pub chain: String,
    /// The private key in PEM, sealed.
    pub sealed_key: String,
    /// When its validity begins, in seconds since 1970.
    pub not_before: i64,
    /// When its validity ends.
    pub not_after: i64,
}

/// An order in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingOrder {
    /// The private key of the request in PEM, sealed.
    pub sealed_key: String,
    /// The directory of the ACME server.
    pub directory: String,
    /// The address of the order, once the ACME server has made it.
    pub url: Option<String>,
}

/// A lease on a row: the number of its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateLease {
    /// The row.
    pub id: CertificateId,
    /// The number; it grows with every holder.
    pub fence: i64,
}

impl Store {
    /// All certificates.
    ///
    /// # Errors
    /// The database fails.
    pub async fn certificates(&self) -> Result<Vec<StoredCertificate>, StoreError> {
        let rows = sql::query("SELECT * FROM certificates ORDER BY name").fetch_all(&self.reader).await?;
        rows.iter().map(certificate).collect()
    }

    /// The numbers of certificates by state.
    ///
    /// # Errors
    /// The database fails.
    pub async fn count_certificates(&self, now: i64) -> Result<CertificateCounts, StoreError> {
        let row = sql::query(
            "SELECT COUNT(*) FILTER (WHERE chain IS NULL) AS waiting,
                    COUNT(*) FILTER (WHERE chain IS NOT NULL AND not_after <= $1) AS expired,
                    COUNT(*) FILTER (WHERE chain IS NOT NULL AND not_after > $1 AND problem IS NOT NULL) AS failing,
                    COUNT(*) FILTER (WHERE chain IS NOT NULL AND not_after > $1 AND problem IS NULL) AS valid,
                    COUNT(*) FILTER (WHERE problem IS NOT NULL) AS problems
             FROM certificates",
        )
        .bind(now)
        .fetch_one(&self.reader)
        .await?;
        Ok(CertificateCounts {
            waiting: row.try_get("waiting")?,
            expired: row.try_get("expired")?,
            failing: row.try_get("failing")?,
            valid: row.try_get("valid")?,
            problems: row.try_get("problems")?,
        })
    }

    /// The certificates of an organisation; `None` for those of the installation.
    ///
    /// # Errors
    /// The database fails.
    pub async fn certificates_of(&self, organisation: Option<AccountId>) -> Result<Vec<StoredCertificate>, StoreError> {
        let mut all = self.certificates().await?;
        all.retain(|row| row.organisation == organisation);
        Ok(all)
    }

    /// The certificate with this id.
    ///
    /// # Errors
    /// The database fails.
    pub async fn certificate(&self, id: CertificateId) -> Result<Option<StoredCertificate>, StoreError> {
        let found = sql::query("SELECT * FROM certificates WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(certificate).transpose()
    }

    /// The ordered certificates whose next step is due and that nobody else works at. Organisations take turns, so that
    /// the many names of one do not delay the others; of each, the longest due comes first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn due_certificates(
        &self,
        holder: HolderId,
        now: i64,
        limit: u32,
    ) -> Result<Vec<StoredCertificate>, StoreError> {
        let rows = sql::query(
            "SELECT * FROM (
                 SELECT *, row_number() OVER (PARTITION BY organisation ORDER BY due_at, name) AS turn
                 FROM certificates
                 WHERE source = 'acme' AND due_at <= $1 AND (holder IS NULL OR holder = $2 OR held_until <= $1)
             ) AS due ORDER BY turn, due_at, name LIMIT $3",
        )
        .bind(now)
        .bind(Vec::from(holder))
        .bind(limit)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(certificate).collect()
    }

    /// Takes the lease on a row until a time. `None` if another holder has it, or the row is gone.
    ///
    /// # Errors
    /// The database fails.
    pub async fn lease_certificate(
        &self,
        id: CertificateId,
        holder: HolderId,
        now: i64,
        until: i64,
    ) -> Result<Option<CertificateLease>, StoreError> {
        let mut write = self.write().await?;
        let taken = sql::query(
            "UPDATE certificates SET holder = $2, held_until = $4, fence = fence + 1
             WHERE id = $1 AND (holder IS NULL OR holder = $2 OR held_until <= $3)",
        )
        .bind(id.as_bytes().as_slice())
        .bind(Vec::from(holder))
        .bind(now)
        .bind(until)
        .execute(write.sql())
        .await?;
        if taken.rows_affected() == 0 {
            return Ok(None);
        }
        let fence: i64 = sql::query_scalar("SELECT fence FROM certificates WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_one(write.sql())
            .await?;
        write.commit().await?;
        Ok(Some(CertificateLease { id, fence }))
    }

    /// Prolongs a lease. Returns whether this holder still has it.
    ///
    /// # Errors
    /// The database fails.
    pub async fn prolong_certificate_lease(&self, lease: CertificateLease, until: i64) -> Result<bool, StoreError> {
        self.change_certificate(
            sql::query("UPDATE certificates SET held_until = $3 WHERE id = $1 AND fence = $2")
                .bind(lease.id.as_bytes().as_slice())
                .bind(lease.fence)
                .bind(until),
        )
        .await
    }

    /// Notes the order in progress, or that there is none. Returns whether this holder still has the lease.
    ///
    /// # Errors
    /// The database fails.
    pub async fn set_certificate_order(
        &self,
        lease: CertificateLease,
        order: Option<&PendingOrder>,
    ) -> Result<bool, StoreError> {
        self.change_certificate(
            sql::query(
                "UPDATE certificates SET order_key = $3, order_url = $4, order_directory = $5
                 WHERE id = $1 AND fence = $2",
            )
            .bind(lease.id.as_bytes().as_slice())
            .bind(lease.fence)
            .bind(order.map(|order| order.sealed_key.as_str()))
            .bind(order.and_then(|order| order.url.as_deref()))
            .bind(order.map(|order| order.directory.as_str())),
        )
        .await
    }

    /// Ends the work at a row: stores the issued certificate, if there is one, and the state of the schedule; gives the
    /// lease back. Returns whether this holder still had the lease; if not, nothing is changed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_certificate_step(
        &self,
        lease: CertificateLease,
        issued: Option<&IssuedChain>,
        (schedule, due_at, problem): (&str, i64, Option<&str>),
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        if let Some(issued) = issued {
            sql::query(
                "UPDATE certificates SET chain = $3, sealed_key = $4, not_before = $5, not_after = $6,
                                         order_key = NULL, order_url = NULL
                 WHERE id = $1 AND fence = $2",
            )
            .bind(lease.id.as_bytes().as_slice())
            .bind(lease.fence)
            .bind(&issued.chain)
            .bind(&issued.sealed_key)
            .bind(issued.not_before)
            .bind(issued.not_after)
            .execute(write.sql())
            .await?;
        }
        let done = sql::query(
            "UPDATE certificates SET schedule = $3, due_at = $4, problem = $5, holder = NULL, held_until = NULL
             WHERE id = $1 AND fence = $2",
        )
        .bind(lease.id.as_bytes().as_slice())
        .bind(lease.fence)
        .bind(schedule)
        .bind(due_at)
        .bind(problem)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }

    /// Makes the next step of a row due now, with this state of the schedule. Returns whether the row exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn hasten_certificate(&self, id: CertificateId, schedule: &str, now: i64) -> Result<bool, StoreError> {
        self.change_certificate(
            sql::query("UPDATE certificates SET schedule = $2, due_at = $3 WHERE id = $1 AND source = 'acme'")
                .bind(id.as_bytes().as_slice())
                .bind(schedule)
                .bind(now),
        )
        .await
    }

    /// Makes the next look at a name's certificate due now, if it waits to be issued. Its schedule still says whether an
    /// order may begin.
    ///
    /// # Errors
    /// The database fails.
    pub async fn look_at_certificate(&self, name: &DomainName, now: i64) -> Result<bool, StoreError> {
        self.change_certificate(
            sql::query(
                "UPDATE certificates SET due_at = $2
                 WHERE name = $1 AND source = 'acme' AND chain IS NULL AND due_at > $2",
            )
            .bind(name.as_str())
            .bind(now),
        )
        .await
    }

    /// Removes imported certificates of other organisations that are for this name, which an organisation has proved.
    /// Returns their ids.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_imports_of_others(
        &self,
        organisation: AccountId,
        name: &DomainName,
    ) -> Result<Vec<CertificateId>, StoreError> {
        let mut removed = Vec::new();
        for row in self.certificates().await? {
            let is_foreign = row.source == CertificateSource::Imported && row.organisation != Some(organisation);
            if is_foreign && row.names.contains(name) && self.delete_certificate(row.id).await? {
                removed.push(row.id);
            }
        }
        Ok(removed)
    }

    /// Stores an imported certificate in the place of the row with its first name.
    ///
    /// # Errors
    /// [`StoreError::DomainTaken`] if the row is another organisation's, or a failure of the database.
    pub async fn import_certificate(
        &self,
        new: &WantedCertificate,
        issued: &IssuedChain,
        now: i64,
    ) -> Result<CertificateId, StoreError> {
        let Some(first) = new.names.first() else { return Err(StoreError::Gone) };
        let mut write = self.write().await?;
        let found = sql::query("SELECT * FROM certificates WHERE name = $1").bind(first.as_str());
        let found = found.fetch_optional(write.sql()).await?.as_ref().map(certificate).transpose()?;
        if found.is_some_and(|known| known.organisation != new.organisation) {
            return Err(StoreError::DomainTaken { name: first.to_string(), by: "another organisation" });
        }
        sql::query(
            "INSERT INTO certificates (id, organisation, name, names, source, due_at, created_at)
             VALUES ($1, $2, $3, $4, 'imported', $5, $5)
             ON CONFLICT (name) DO UPDATE SET source = 'imported', names = excluded.names,
                 organisation = excluded.organisation, fence = certificates.fence + 1, holder = NULL,
                 held_until = NULL, order_key = NULL, order_url = NULL, problem = NULL",
        )
        .bind(new.id.as_bytes().as_slice())
        .bind(new.organisation.as_ref().map(|organisation| organisation.as_bytes().as_slice()))
        .bind(first.as_str())
        .bind(row::json(&new.names)?)
        .bind(now)
        .execute(write.sql())
        .await?;
        sql::query(
            "UPDATE certificates SET chain = $2, sealed_key = $3, not_before = $4, not_after = $5 WHERE name = $1",
        )
        .bind(first.as_str())
        .bind(&issued.chain)
        .bind(&issued.sealed_key)
        .bind(issued.not_before)
        .bind(issued.not_after)
        .execute(write.sql())
        .await?;
        let found = sql::query("SELECT id FROM certificates WHERE name = $1").bind(first.as_str());
        let id = CertificateId::from_bytes(row::bytes(&found.fetch_one(write.sql()).await?, "id")?);
        write.commit().await?;
        Ok(id)
    }

    /// Removes a certificate. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_certificate(&self, id: CertificateId) -> Result<bool, StoreError> {
        let delete = sql::query("DELETE FROM certificates WHERE id = $1").bind(id.as_bytes().as_slice());
        self.change_certificate(delete).await
    }

    /// Runs a statement about one row. Returns whether it found the row.
    async fn change_certificate(&self, statement: sql::Query) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done = statement.execute(write.sql()).await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}

fn certificate(found: &DbRow) -> Result<StoredCertificate, StoreError> {
    let chain: Option<String> = found.try_get("chain")?;
    let issued = match chain {
        Some(chain) => Some(IssuedChain {
            chain,
            sealed_key: found.try_get("sealed_key")?,
            not_before: found.try_get("not_before")?,
            not_after: found.try_get("not_after")?,
        }),
        None => None,
    };
    let order_key: Option<String> = found.try_get("order_key")?;
    let order = match order_key {
        Some(sealed_key) => Some(PendingOrder {
            sealed_key,
            directory: found.try_get::<Option<String>>("order_directory")?.unwrap_or_default(),
            url: found.try_get("order_url")?,
        }),
        None => None,
    };
    Ok(StoredCertificate {
        id: CertificateId::from_bytes(row::bytes(found, "id")?),
        organisation: row::optional_bytes(found, "organisation")?.map(AccountId::from_bytes),
        names: row::from_json(found, "names")?,
        source: row::parsed(found, "source")?,
        issued,
        order,
        schedule: found.try_get("schedule")?,
        due_at: found.try_get("due_at")?,
        problem: found.try_get("problem")?,
        created_at: found.try_get("created_at")?,
    })
}
