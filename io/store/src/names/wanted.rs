//! The rows of certificates that follow the wanted names, and former certificates that come back with their names.

use std::collections::HashMap;

use sallyport_model::{AccountId, CertificateId, DomainName};

use super::certificates::{CertificateSource, IssuedChain, MAX_CERTIFICATES, StoredCertificate};
use crate::db::{
    Store,
    error::StoreError,
    row,
    sql::{self, DbConnection},
    write::Write,
};

/// A wanted certificate, for [`Store::want_certificates`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCertificate {
    /// The id of a new row.
    pub id: CertificateId,
    /// Its organisation; `None` for names of the installation.
    pub organisation: Option<AccountId>,
    /// Its names; the first identifies the row.
    pub names: Vec<DomainName>,
}

impl WantedCertificate {
    fn is_row(&self, row: &StoredCertificate) -> bool {
        row.names == self.names && row.organisation == self.organisation
    }

    /// Whether the wanted certificate is for all names of the row.
    fn covers(&self, row: &StoredCertificate) -> bool {
        row.names.iter().all(|name| self.names.iter().any(|own| own == name || own.covers(name.as_str())))
    }
}

/// What [`Store::want_certificates`] changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedChanges {
    /// The ids of removed rows.
    pub removed: Vec<CertificateId>,
    /// The ids of new rows that have a certificate, because their names were wanted before.
    pub restored: Vec<CertificateId>,
}

/// The certificate of a name that was wanted before.
struct Former {
    issued: IssuedChain,
    schedule: String,
}

impl Store {
    /// Makes rows for the wanted names that have none, due at once, and removes ordered rows that are no longer wanted.
    /// Imported certificates stay.
    ///
    /// The certificate of a removed row is kept until its end. It comes back when the same organisation wants the same
    /// names, so that a socket that comes and goes needs one order. A row of other names or of another organisation
    /// never gets it.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database.
    pub async fn want_certificates(&self, wanted: &[WantedCertificate], now: i64) -> Result<WantedChanges, StoreError> {
        let all = self.certificates().await?;
        let (gone, new) = differences(&all, wanted);
        let mut changes = WantedChanges { removed: gone.iter().map(|row| row.id).collect(), restored: Vec::new() };
        if gone.is_empty() && new.is_empty() {
            return Ok(changes);
        }
        let mut write = self.write().await?;
        sql::query("DELETE FROM former_certificates WHERE not_after <= $1").bind(now).execute(write.sql()).await?;
        for row in &gone {
            keep_former(&mut write, row, now).await?;
            sql::query("DELETE FROM certificates WHERE id = $1 AND source = 'acme'")
                .bind(row.id.as_bytes().as_slice())
                .execute(write.sql())
                .await?;
        }
        let count = sql::query_scalar::<i64>("SELECT count(*) FROM certificates").fetch_one(write.sql()).await?;
        let room = MAX_CERTIFICATES.saturating_sub(usize::try_from(count).unwrap_or_default());
        let has_room = new.len() <= room;
        for one in new.into_iter().take(room) {
            if insert_row(&mut write, one, now).await? {
                changes.restored.push(one.id);
            }
        }
        write.commit().await?;
        if has_room {
            Ok(changes)
        } else {
            Err(StoreError::Limit { what: "certificates in one installation", max: MAX_CERTIFICATES })
        }
    }
}

/// The rows that are no longer wanted, and the wanted certificates that have no row.
fn differences<'a>(
    all: &'a [StoredCertificate],
    wanted: &'a [WantedCertificate],
) -> (Vec<&'a StoredCertificate>, Vec<&'a WantedCertificate>) {
    let rows: HashMap<_, _> = all.iter().map(|row| (row.names.first(), row)).collect();
    let by_name: HashMap<_, _> = wanted.iter().map(|one| (one.names.first(), one)).collect();
    let is_wanted = |row: &StoredCertificate| by_name.get(&row.names.first()).is_some_and(|one| one.is_row(row));
    // A certificate stays until another one that covers its names is issued.
    let is_issued = |one: &WantedCertificate| {
        rows.get(&one.names.first()).is_some_and(|row| one.is_row(row) && row.issued.is_some())
    };
    let is_awaited =
        |row: &StoredCertificate| row.issued.is_some() && wanted.iter().any(|one| one.covers(row) && !is_issued(one));
    let is_gone =
        |row: &&StoredCertificate| row.source == CertificateSource::Acme && !is_wanted(row) && !is_awaited(row);
    let is_there = |one: &&WantedCertificate| {
        let row = rows.get(&one.names.first());
        row.is_some_and(|row| row.source == CertificateSource::Imported || one.is_row(row))
    };
    (all.iter().filter(is_gone).collect(), wanted.iter().filter(|one| !is_there(one)).collect())
}

/// Keeps the certificate of a row that is removed, unless it has ended or too many are kept.
async fn keep_former(write: &mut Write, row: &StoredCertificate, now: i64) -> Result<(), StoreError> {
    let (Some(issued), Some(first)) = (row.issued.as_ref().filter(|issued| issued.not_after > now), row.names.first())
    else {
        return Ok(());
    };
    take_former(write.sql(), first).await?;
    let count = sql::query_scalar::<i64>("SELECT count(*) FROM former_certificates").fetch_one(write.sql()).await?;
    if usize::try_from(count).is_ok_and(|count| count >= MAX_CERTIFICATES) {
        return Ok(());
    }
    sql::query(
        "INSERT INTO former_certificates (name, organisation, names, chain, sealed_key, not_before, not_after, schedule)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(first.as_str())
    .bind(row.organisation.as_ref().map(|organisation| organisation.as_bytes().as_slice()))
    .bind(row::json(&row.names)?)
    .bind(&issued.chain)
    .bind(&issued.sealed_key)
    .bind(issued.not_before)
    .bind(issued.not_after)
    .bind(&row.schedule)
    .execute(write.sql())
    .await?;
    Ok(())
}

/// Takes the former certificate with this first name, whoever had it, with its organisation and names.
async fn take_former(
    sql: &mut DbConnection,
    first: &DomainName,
) -> Result<Option<(Option<AccountId>, Vec<DomainName>, Former)>, StoreError> {
    let found = sql::query("SELECT * FROM former_certificates WHERE name = $1").bind(first.as_str());
    let Some(found) = found.fetch_optional(&mut *sql).await? else { return Ok(None) };
    sql::query("DELETE FROM former_certificates WHERE name = $1").bind(first.as_str()).execute(sql).await?;
    let issued = IssuedChain {
        chain: found.try_get("chain")?,
        sealed_key: found.try_get("sealed_key")?,
        not_before: found.try_get("not_before")?,
        not_after: found.try_get("not_after")?,
    };
    let organisation = row::optional_bytes(&found, "organisation")?.map(AccountId::from_bytes);
    let former = Former { issued, schedule: found.try_get("schedule")? };
    Ok(Some((organisation, row::from_json(&found, "names")?, former)))
}

/// Inserts the row of a wanted certificate. Returns whether it has its former certificate.
async fn insert_row(write: &mut Write, one: &WantedCertificate, now: i64) -> Result<bool, StoreError> {
    let Some(first) = one.names.first() else { return Ok(false) };
    let former = take_former(write.sql(), first).await?;
    let former = former.filter(|(owner, names, _)| *owner == one.organisation && *names == one.names);
    let former = former.map(|(_, _, former)| former);
    let issued = former.as_ref().map(|former| &former.issued);
    let done = sql::query(
        "INSERT INTO certificates (id, organisation, name, names, source, due_at, created_at,
                                   chain, sealed_key, not_before, not_after, schedule)
         VALUES ($1, $2, $3, $4, 'acme', $5, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
    )
    .bind(one.id.as_bytes().as_slice())
    .bind(one.organisation.as_ref().map(|organisation| organisation.as_bytes().as_slice()))
    .bind(first.as_str())
    .bind(row::json(&one.names)?)
    .bind(now)
    .bind(issued.map(|issued| issued.chain.as_str()))
    .bind(issued.map(|issued| issued.sealed_key.as_str()))
    .bind(issued.map(|issued| issued.not_before))
    .bind(issued.map(|issued| issued.not_after))
    .bind(former.as_ref().map_or("", |former| former.schedule.as_str()))
    .execute(write.sql())
    .await?;
    Ok(former.is_some() && done.rows_affected() > 0)
}
