//! Which control leads in what only one of them does.
//!
//! A leader counts beats in its row. Another control takes over when the beats stop, with a greater term. Nobody
//! compares clocks: a control waits for as long as it sees the same beat.

use super::controls::HolderId;
use crate::db::{Store, error::StoreError, row, sql};

/// The leader of a task, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredLeader {
    /// The control.
    pub holder: HolderId,
    /// Number of the leadership; a later one has a greater number.
    pub term: i64,
    /// A counter that grows while the control leads.
    pub beat: i64,
}

impl Store {
    /// The leader of a task, if there was ever one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn leader(&self, task: &str) -> Result<Option<StoredLeader>, StoreError> {
        let found = sql::query("SELECT holder, term, beat FROM leaders WHERE task = $1")
            .bind(task)
            .fetch_optional(&self.reader)
            .await?;
        let leader = |found: &row::DbRow| {
            Ok(StoredLeader {
                holder: row::bytes(found, "holder")?,
                term: found.try_get("term")?,
                beat: found.try_get("beat")?,
            })
        };
        found.as_ref().map(leader).transpose()
    }

    /// Takes the lead, if the row is still as it was seen. Returns the new term; `None` if another one was faster.
    ///
    /// # Errors
    /// The database fails.
    pub async fn take_lead(
        &self,
        task: &str,
        holder: HolderId,
        seen: Option<StoredLeader>,
    ) -> Result<Option<i64>, StoreError> {
        let mut write = self.write().await?;
        let term = seen.map_or(0, |seen| seen.term) + 1;
        let done =
            match seen {
                None => {
                    sql::query(
                        "INSERT INTO leaders (task, holder, term, beat) VALUES ($1, $2, $3, 1) ON CONFLICT DO NOTHING",
                    )
                    .bind(task)
                    .bind(holder.as_slice())
                    .bind(term)
                    .execute(write.sql())
                    .await?
                }
                Some(seen) => sql::query(
                    "UPDATE leaders SET holder = $2, term = $3, beat = 1 WHERE task = $1 AND term = $4 AND beat = $5",
                )
                .bind(task)
                .bind(holder.as_slice())
                .bind(term)
                .bind(seen.term)
                .bind(seen.beat)
                .execute(write.sql())
                .await?,
            };
        write.commit().await?;
        Ok((done.rows_affected() > 0).then_some(term))
    }

    /// Counts a beat of the leader of this term. Returns whether it still leads.
    ///
    /// # Errors
    /// The database fails.
    pub async fn keep_lead(&self, task: &str, holder: HolderId, term: i64) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done = sql::query("UPDATE leaders SET beat = beat + 1 WHERE task = $1 AND holder = $2 AND term = $3")
            .bind(task)
            .bind(holder.as_slice())
            .bind(term)
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }

    /// Replaces the term of a leader by a greater one. Returns whether it still led.
    ///
    /// # Errors
    /// The database fails.
    pub async fn raise_term(&self, task: &str, holder: HolderId, term: i64, raised: i64) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done = sql::query("UPDATE leaders SET term = $4, beat = 1 WHERE task = $1 AND holder = $2 AND term = $3")
            .bind(task)
            .bind(holder.as_slice())
            .bind(term)
            .bind(raised)
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }

    /// What the leaders of a task left to the next one: empty at first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn legacy(&self, task: &str) -> Result<String, StoreError> {
        let found =
            sql::query("SELECT legacy FROM leaders WHERE task = $1").bind(task).fetch_optional(&self.reader).await?;
        Ok(found.as_ref().map(|found| found.try_get("legacy")).transpose()?.unwrap_or_default())
    }

    /// Sets what the leader of this term leaves to the next one. Counts as a beat, so nobody takes the lead with an
    /// older legacy. Returns whether it still leads.
    ///
    /// # Errors
    /// The database fails.
    pub async fn set_legacy(&self, task: &str, holder: HolderId, term: i64, legacy: &str) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done =
            sql::query("UPDATE leaders SET legacy = $4, beat = beat + 1 WHERE task = $1 AND holder = $2 AND term = $3")
                .bind(task)
                .bind(holder.as_slice())
                .bind(term)
                .bind(legacy)
                .execute(write.sql())
                .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}
