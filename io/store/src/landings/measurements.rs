//! Measurements of the catchment: one runs at a time, and the last ones are kept.

use crate::db::{Store, error::StoreError, sql};

/// The most measurements that are kept. Another one takes the place of the oldest.
pub const MAX_MEASUREMENTS: usize = 32;
/// After this time without a beat, a measurement counts as lost with its control, in seconds.
pub const MEASUREMENT_LOST_SECONDS: i64 = 60;

/// A measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMeasurement {
    /// The id.
    pub id: String,
    /// The start, in seconds since 1970.
    pub started_at: i64,
    /// When its control last wrote it, in seconds since 1970.
    pub beat_at: i64,
    /// Whether it has ended.
    pub is_done: bool,
    /// What its control says of it, as JSON.
    pub state: String,
}

impl Store {
    /// Begins a measurement, if none runs. Returns the id of the one that runs, if any.
    ///
    /// # Errors
    /// The database fails.
    pub async fn begin_measurement(&self, new: &StoredMeasurement) -> Result<Option<String>, StoreError> {
        let mut write = self.write().await?;
        let running = sql::query_scalar::<String>(
            "SELECT id FROM catchment_measurements WHERE is_done = 0 AND beat_at > $1 ORDER BY id LIMIT 1",
        )
        .bind(new.started_at - MEASUREMENT_LOST_SECONDS)
        .fetch_optional(write.sql())
        .await?;
        if running.is_some() {
            return Ok(running);
        }
        sql::query(
            "INSERT INTO catchment_measurements (id, started_at, beat_at, is_done, state) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(&new.id)
        .bind(new.started_at)
        .bind(new.beat_at)
        .bind(new.is_done)
        .bind(&new.state)
        .execute(write.sql())
        .await?;
        sql::query(
            "DELETE FROM catchment_measurements WHERE id NOT IN
                 (SELECT id FROM catchment_measurements ORDER BY started_at DESC, id DESC LIMIT $1)",
        )
        .bind(MAX_MEASUREMENTS as i64)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(None)
    }

    /// Writes the state of a measurement.
    ///
    /// # Errors
    /// The database fails.
    pub async fn put_measurement(&self, changed: &StoredMeasurement) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE catchment_measurements SET beat_at = $1, is_done = $2, state = $3 WHERE id = $4")
            .bind(changed.beat_at)
            .bind(changed.is_done)
            .bind(&changed.state)
            .bind(&changed.id)
            .execute(write.sql())
            .await?;
        write.commit().await
    }

    /// The last measurements, the newest first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn measurements(&self) -> Result<Vec<StoredMeasurement>, StoreError> {
        let rows = sql::query("SELECT * FROM catchment_measurements ORDER BY started_at DESC, id DESC")
            .fetch_all(&self.reader)
            .await?;
        let measurement = |found: &crate::db::row::DbRow| {
            Ok(StoredMeasurement {
                id: found.try_get("id")?,
                started_at: found.try_get("started_at")?,
                beat_at: found.try_get("beat_at")?,
                is_done: found.try_get::<i64>("is_done")? != 0,
                state: found.try_get("state")?,
            })
        };
        rows.iter().map(measurement).collect()
    }
}
