//! The rows of the catchment.

use std::{collections::BTreeMap, time::Duration};

use sallyport_catchment::{MAX_ROWS, Row};

use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// The most rows in one statement.
const ROWS_AT_ONCE: usize = 64;
/// The most rows in one transaction, so that other writers get their turn.
const ROWS_IN_TRANSACTION: usize = 2_048;
/// The columns of a row.
const COLUMNS: usize = 8;

impl Store {
    /// All rows of the catchment, in no order.
    ///
    /// # Errors
    /// The database fails.
    pub async fn catchment(&self) -> Result<Vec<Row>, StoreError> {
        let rows = sql::query("SELECT * FROM catchment").fetch_all(&self.reader).await?;
        rows.iter().map(from_db).collect()
    }

    /// Writes rows: each replaces the one of the same network, site and source, unless that is newer. Too many rows in
    /// the table are removed, the oldest first.
    ///
    /// # Errors
    /// The database fails. Some of the rows may be written then, and the call can be repeated.
    pub async fn put_catchment(&self, rows: &[Row]) -> Result<(), StoreError> {
        // One statement must not change a row twice.
        let mut newest: BTreeMap<_, &Row> = BTreeMap::new();
        for row in rows {
            let known = newest.entry((row.prefix, &row.site, row.source)).or_insert(row);
            if row.seen >= known.seen {
                *known = row;
            }
        }
        let rows: Vec<&Row> = newest.into_values().collect();
        for together in rows.chunks(ROWS_IN_TRANSACTION) {
            let mut write = self.write().await?;
            for few in together.chunks(ROWS_AT_ONCE) {
                put(&mut write, few).await?;
            }
            trim(&mut write).await?;
            write.commit().await?;
        }
        Ok(())
    }
}

async fn put(write: &mut Write, rows: &[&Row]) -> Result<(), StoreError> {
    let places = (0..rows.len()).map(|at| {
        let numbers = (1..=COLUMNS).map(|column| format!("${}", at * COLUMNS + column));
        format!("({})", numbers.collect::<Vec<_>>().join(", "))
    });
    let text = format!(
        "INSERT INTO catchment (prefix, site, source, as_number, country, round_trip_us, requests, seen) VALUES {}
         ON CONFLICT (prefix, site, source) DO UPDATE SET
             as_number = coalesce(excluded.as_number, catchment.as_number),
             country = coalesce(excluded.country, catchment.country),
             round_trip_us = excluded.round_trip_us, requests = excluded.requests, seen = excluded.seen
         WHERE excluded.seen >= catchment.seen",
        places.collect::<Vec<_>>().join(", ")
    );
    let mut statement = sql::text(text);
    for row in rows {
        let us = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        statement = statement
            .bind(row.prefix.to_string())
            .bind(row.site.as_str())
            .bind(row.source.as_str())
            .bind(row.system)
            .bind(row.country.map(|country| country.to_string()))
            .bind(row.round_trip.map(us))
            .bind(i64::try_from(row.requests).unwrap_or(i64::MAX))
            .bind(row.seen);
    }
    statement.execute(write.sql()).await?;
    Ok(())
}

async fn trim(write: &mut Write) -> Result<(), StoreError> {
    let there: i64 = sql::query_scalar("SELECT count(*) FROM catchment").fetch_one(write.sql()).await?;
    let more = there - MAX_ROWS as i64;
    if more > 0 {
        sql::query("DELETE FROM catchment WHERE rowid IN (SELECT rowid FROM catchment ORDER BY seen, rowid LIMIT $1)")
            .bind(more)
            .execute(write.sql())
            .await?;
    }
    Ok(())
}

fn from_db(found: &DbRow) -> Result<Row, StoreError> {
    let unsigned = |value: i64, column| u64::try_from(value).map_err(|error| row::damaged(column, error));
    let system: Option<i64> = found.try_get("as_number")?;
    let country: Option<&str> = found.try_get("country")?;
    let round_trip: Option<i64> = found.try_get("round_trip_us")?;
    Ok(Row {
        prefix: row::parsed(found, "prefix")?,
        system: system.map(u32::try_from).transpose().map_err(|error| row::damaged("as_number", error))?,
        country: country.map(str::parse).transpose().map_err(|error| row::damaged("country", error))?,
        site: row::parsed(found, "site")?,
        round_trip: round_trip.map(|us| unsigned(us, "round_trip_us").map(Duration::from_micros)).transpose()?,
        requests: unsigned(found.try_get("requests")?, "requests")?,
        source: row::parsed(found, "source")?,
        seen: found.try_get("seen")?,
    })
}
