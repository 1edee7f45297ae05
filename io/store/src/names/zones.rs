//! Zones of the name server, their records and their keys.

use sallyport_model::{AccountId, ServedZone, ZoneId, ZoneKey, ZoneRecord, ZoneRecordId};

use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbConnection, DbRow},
    sql,
    write::Write,
};

/// Bound on the zones of an organisation.
pub const MAX_ZONES_PER_ORGANISATION: usize = 100;
/// Bound on the records of a zone.
pub const MAX_RECORDS_PER_ZONE: usize = 10_000;

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredZone {
    /// Its id.
    pub id: ZoneId,
    /// Its organisation; `None` for the zone of the installation.
    pub organisation: Option<AccountId>,
    /// Its name, in lower case without a final dot.
    pub apex: String,
    /// The serial number.
    pub serial: u32,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
}

/// A record of a zone with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredZoneRecord {
    /// Its id.
    pub id: ZoneRecordId,
    /// Its content.
    pub record: ZoneRecord,
}

impl Store {
    /// Makes a zone with its first key.
    ///
    /// # Errors
    /// [`StoreError::ZoneTaken`], [`StoreError::Limit`], or a failure of the database.
    pub async fn create_zone(&self, zone: &StoredZone, keys: &[ZoneKey]) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let taken = sql::query_scalar::<i64>("SELECT count(*) FROM zones WHERE apex = $1").bind(&zone.apex);
        if taken.fetch_one(write.sql()).await? > 0 {
            return Err(StoreError::ZoneTaken { name: zone.apex.clone() });
        }
        if let Some(organisation) = zone.organisation {
            let (count, what) =
                ("SELECT count(*) FROM zones WHERE organisation = $1", "zones for one organisation: remove some first");
            write.require_room(count, organisation.as_bytes(), MAX_ZONES_PER_ORGANISATION, what).await?;
        }
        sql::query("INSERT INTO zones (id, organisation, apex, serial, created_at) VALUES ($1, $2, $3, $4, $5)")
            .bind(zone.id.as_bytes().as_slice())
            .bind(zone.organisation.as_ref().map(|organisation| organisation.as_bytes().as_slice()))
            .bind(&zone.apex)
            .bind(i64::from(zone.serial))
            .bind(zone.created_at)
            .execute(write.sql())
            .await?;
        put_keys(&mut write, zone.id, keys).await?;
        write.commit().await
    }

    /// All zones, by name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn zones(&self) -> Result<Vec<StoredZone>, StoreError> {
        let rows = sql::query("SELECT * FROM zones ORDER BY apex").fetch_all(&self.reader).await?;
        rows.iter().map(zone).collect()
    }

    /// The zone with this name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn zone(&self, apex: &str) -> Result<Option<StoredZone>, StoreError> {
        let found = sql::query("SELECT * FROM zones WHERE apex = $1").bind(apex).fetch_optional(&self.reader).await?;
        found.as_ref().map(zone).transpose()
    }

    /// The zone with its records and keys, without name servers; `None` if it is gone.
    ///
    /// # Errors
    /// The database fails.
    pub async fn whole_zone(&self, id: ZoneId) -> Result<Option<(StoredZone, ServedZone)>, StoreError> {
        let mut read = self.read().await?;
        let found = sql::query("SELECT * FROM zones WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&mut *read)
            .await?;
        let Some(found) = found.as_ref().map(zone).transpose()? else { return Ok(None) };
        let records = records(&mut read, id).await?.into_iter().map(|one| one.record).collect();
        let keys = keys(&mut read, id).await?;
        let served =
            ServedZone { id, apex: found.apex.clone(), serial: found.serial, name_servers: Vec::new(), records, keys };
        Ok(Some((found, served)))
    }

    /// The records of a zone, in the order in which they were added.
    ///
    /// # Errors
    /// The database fails.
    pub async fn zone_records(&self, id: ZoneId) -> Result<Vec<StoredZoneRecord>, StoreError> {
        let mut read = self.read().await?;
        records(&mut read, id).await
    }

    /// Changes a zone: adds and removes records, and replaces its keys if some are given. `check` gets the zone as it
    /// would be. Returns whether the zone exists.
    ///
    /// # Errors
    /// [`StoreError::Limit`], an error of `check`, or a failure of the database; nothing is changed then.
    pub async fn change_zone<E: From<StoreError>>(
        &self,
        id: ZoneId,
        (added, removed): (&[StoredZoneRecord], &[ZoneRecordId]),
        new_keys: Option<&[ZoneKey]>,
        now: i64,
        check: impl FnOnce(ServedZone) -> Result<(), E> + Send,
    ) -> Result<bool, E> {
        let mut write = self.write().await?;
        let found = sql::query("SELECT * FROM zones WHERE id = $1").bind(id.as_bytes().as_slice());
        let found = found.fetch_optional(write.sql()).await.map_err(StoreError::from)?;
        let Some(found) = found.as_ref().map(zone).transpose()? else { return Ok(false) };
        for gone in removed {
            let delete = sql::query("DELETE FROM zone_records WHERE id = $1 AND zone = $2");
            let delete = delete.bind(gone.as_bytes().as_slice()).bind(id.as_bytes().as_slice());
            delete.execute(write.sql()).await.map_err(StoreError::from)?;
        }
        let (count, what) = ("SELECT count(*) FROM zone_records WHERE zone = $1", "records for one zone");
        for new in added {
            write.require_room(count, id.as_bytes(), MAX_RECORDS_PER_ZONE, what).await?;
            put_record(&mut write, id, new).await?;
        }
        if let Some(new_keys) = new_keys {
            sql::query("DELETE FROM zone_keys WHERE zone = $1")
                .bind(id.as_bytes().as_slice())
                .execute(write.sql())
                .await
                .map_err(StoreError::from)?;
            put_keys(&mut write, id, new_keys).await?;
        }
        // Secondaries compare serial numbers: the time of the change, or one more than before.
        let serial = u32::try_from(now).unwrap_or(u32::MAX).max(found.serial.saturating_add(1));
        sql::query("UPDATE zones SET serial = $2 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(i64::from(serial))
            .execute(write.sql())
            .await
            .map_err(StoreError::from)?;
        let served = ServedZone {
            id,
            apex: found.apex,
            serial,
            name_servers: Vec::new(),
            records: records(write.sql(), id).await?.into_iter().map(|one| one.record).collect(),
            keys: keys(write.sql(), id).await?,
        };
        check(served)?;
        write.commit().await?;
        Ok(true)
    }

    /// Removes a zone. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_zone(&self, id: ZoneId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done =
            sql::query("DELETE FROM zones WHERE id = $1").bind(id.as_bytes().as_slice()).execute(write.sql()).await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}

async fn put_record(write: &mut Write, zone: ZoneId, new: &StoredZoneRecord) -> Result<(), StoreError> {
    sql::query(
        "INSERT INTO zone_records (id, zone, position, name, record_type, ttl, value)
         SELECT $1, $2, coalesce(max(position), 0) + 1, $3, $4, $5, $6 FROM zone_records WHERE zone = $2",
    )
    .bind(new.id.as_bytes().as_slice())
    .bind(zone.as_bytes().as_slice())
    .bind(&new.record.name)
    .bind(&new.record.record_type)
    .bind(i64::from(new.record.ttl))
    .bind(&new.record.value)
    .execute(write.sql())
    .await?;
    Ok(())
}

async fn put_keys(write: &mut Write, zone: ZoneId, keys: &[ZoneKey]) -> Result<(), StoreError> {
    for (position, key) in (1_i64..).zip(keys) {
        sql::query("INSERT INTO zone_keys (zone, position, key) VALUES ($1, $2, $3)")
            .bind(zone.as_bytes().as_slice())
            .bind(position)
            .bind(row::json(key)?)
            .execute(write.sql())
            .await?;
    }
    Ok(())
}

async fn records(read: &mut DbConnection, id: ZoneId) -> Result<Vec<StoredZoneRecord>, StoreError> {
    let rows = sql::query("SELECT * FROM zone_records WHERE zone = $1 ORDER BY position")
        .bind(id.as_bytes().as_slice())
        .fetch_all(read)
        .await?;
    let record = |found: &DbRow| {
        let ttl: i64 = found.try_get("ttl")?;
        Ok(StoredZoneRecord {
            id: ZoneRecordId::from_bytes(row::bytes(found, "id")?),
            record: ZoneRecord {
                name: found.try_get("name")?,
                record_type: found.try_get("record_type")?,
                ttl: u32::try_from(ttl).map_err(|error| row::damaged("ttl", error))?,
                value: found.try_get("value")?,
            },
        })
    };
    rows.iter().map(record).collect()
}

async fn keys(read: &mut DbConnection, id: ZoneId) -> Result<Vec<ZoneKey>, StoreError> {
    let rows = sql::query("SELECT key FROM zone_keys WHERE zone = $1 ORDER BY position")
        .bind(id.as_bytes().as_slice())
        .fetch_all(read)
        .await?;
    rows.iter().map(|found| row::from_json(found, "key")).collect()
}

fn zone(found: &DbRow) -> Result<StoredZone, StoreError> {
    let serial: i64 = found.try_get("serial")?;
    Ok(StoredZone {
        id: ZoneId::from_bytes(row::bytes(found, "id")?),
        organisation: row::optional_bytes(found, "organisation")?.map(AccountId::from_bytes),
        apex: found.try_get("apex")?,
        serial: u32::try_from(serial).map_err(|error| row::damaged("serial", error))?,
        created_at: found.try_get("created_at")?,
    })
}
