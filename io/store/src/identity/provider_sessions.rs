//! The provider's part of a login: its session id, and the tokens for later checks.

use sallyport_model::{AccountId, LoginSession, LoginSessionId, Person, ProviderId};

use super::{
    person_sessions,
    providers::{self, StoredProvider},
};
use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// Bound on provider checks claimed at once.
pub const MAX_CLAIMED_CHECKS: u32 = 256;
/// Time after which a claimed check without a result is claimed again, in seconds.
const CLAIM_SECONDS: i64 = 120;

/// A new login at a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct NewProviderSession {
    /// The provider.
    pub provider: ProviderId,
    /// The provider's session id (`sid`), where the provider gives one.
    pub sid: Option<String>,
    /// The tokens for checks at the provider, sealed by the caller.
    pub tokens: Option<String>,
    /// The time of the first check, in seconds since 1970 (UTC); `None`: never.
    pub check_at: Option<i64>,
}

/// A login that is due for a check at its provider.
#[derive(Clone)]
pub struct DueCheck {
    /// The login.
    pub session: LoginSession,
    /// The provider.
    pub provider: StoredProvider,
    /// As in [`NewProviderSession`].
    pub tokens: String,
    /// The number of failed checks in a row.
    pub failures: u32,
}

/// The logins that a logout of a provider means.
#[derive(Debug, Clone, Copy)]
pub struct LogoutSubject<'a> {
    /// The logins of this subject at the provider.
    pub subject: Option<&'a str>,
    /// The login with this session id, and the subject's logins without a session id.
    pub sid: Option<&'a str>,
}

pub(crate) async fn insert(
    write: &mut Write,
    session: &LoginSession,
    there: &NewProviderSession,
) -> Result<(), StoreError> {
    sql::query(
        "INSERT INTO provider_sessions (session, organisation, provider, subject, sid, tokens, check_at)
         SELECT $1, $2, id, $4, $5, $6, $7 FROM providers WHERE id = $3",
    )
    .bind(session.id.as_bytes().as_slice())
    .bind(session.organisation.as_bytes().as_slice())
    .bind(there.provider.as_bytes().as_slice())
    .bind(session.person.subject.as_str())
    .bind(there.sid.as_deref())
    .bind(there.tokens.as_deref().map(str::as_bytes))
    .bind(there.check_at)
    .execute(write.sql())
    .await?;
    Ok(())
}

impl Store {
    /// Ends the logins that a provider's logout selects; returns the ended ones.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_provider_sessions(
        &self,
        organisation: AccountId,
        provider: ProviderId,
        of: LogoutSubject<'_>,
    ) -> Result<Vec<LoginSession>, StoreError> {
        let mut write = self.write().await?;
        // A login without a known session id may be the one meant.
        let rows = sql::query(
            "SELECT person_sessions.* FROM person_sessions JOIN provider_sessions ON session = id
             WHERE provider_sessions.organisation = $1 AND provider = $2 AND ($3 IS NULL OR subject = $3)
                 AND ($4 IS NULL OR sid = $4 OR (sid IS NULL AND $3 IS NOT NULL))",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(provider.as_bytes().as_slice())
        .bind(of.subject)
        .bind(of.sid)
        .fetch_all(write.sql())
        .await?;
        let ended = rows.iter().map(person_sessions::session).collect::<Result<Vec<_>, _>>()?;
        for session in &ended {
            let delete = sql::query("DELETE FROM person_sessions WHERE id = $1").bind(session.id.as_bytes().as_slice());
            delete.execute(write.sql()).await?;
        }
        write.commit().await?;
        Ok(ended)
    }

    /// Claims the due provider checks, at most [`MAX_CLAIMED_CHECKS`]. No other control claims them for two minutes.
    ///
    /// # Errors
    /// The database fails.
    pub async fn claim_provider_checks(&self, now: i64) -> Result<Vec<DueCheck>, StoreError> {
        let due = "SELECT count(*) FROM provider_sessions WHERE check_at <= $1";
        if sql::query_scalar::<i64>(due).bind(now).fetch_one(&self.reader).await? == 0 {
            return Ok(Vec::new());
        }
        let mut write = self.write().await?;
        let claimed = sql::query(
            "UPDATE provider_sessions SET check_at = $2
             WHERE check_at <= $1 AND session IN (
                 SELECT session FROM provider_sessions WHERE check_at <= $1 ORDER BY check_at LIMIT $3)
             RETURNING session",
        )
        .bind(now)
        .bind(now.saturating_add(CLAIM_SECONDS))
        .bind(MAX_CLAIMED_CHECKS)
        .fetch_all(write.sql())
        .await?;
        let mut checks = Vec::with_capacity(claimed.len());
        for found in &claimed {
            let id: [u8; 16] = row::bytes(found, "session")?;
            let found = sql::query(
                "SELECT person_sessions.*, tokens, failures, provider FROM person_sessions
                 JOIN provider_sessions ON session = id WHERE id = $1 AND expires_at > $2 AND tokens IS NOT NULL",
            )
            .bind(id.as_slice())
            .bind(now)
            .fetch_optional(write.sql())
            .await?;
            let provider_id = found.as_ref().map(|found| row::bytes::<16>(found, "provider")).transpose()?;
            let of_provider = sql::query("SELECT * FROM providers WHERE id = $1")
                .bind(provider_id.as_ref().map(<[u8; 16]>::as_slice))
                .fetch_optional(write.sql())
                .await?;
            match (found, of_provider) {
                (Some(found), Some(provider)) => checks.push(due_check(&found, &provider)?),
                _ => {
                    let never = sql::query("UPDATE provider_sessions SET check_at = NULL WHERE session = $1");
                    never.bind(id.as_slice()).execute(write.sql()).await?;
                }
            }
        }
        write.commit().await?;
        Ok(checks)
    }

    /// Records the result of a provider check: the time of the next one, the number of consecutive failures, and new
    /// tokens, if any.
    ///
    /// # Errors
    /// The database fails.
    pub async fn record_provider_check(
        &self,
        session: LoginSessionId,
        check_at: Option<i64>,
        failures: u32,
        tokens: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query(
            "UPDATE provider_sessions SET check_at = $2, failures = $3, tokens = coalesce($4, tokens) \
             WHERE session = $1",
        )
        .bind(session.as_bytes().as_slice())
        .bind(check_at)
        .bind(failures)
        .bind(tokens.map(str::as_bytes))
        .execute(write.sql())
        .await?;
        write.commit().await
    }

    /// The provider's tokens of a login, sealed by the caller.
    ///
    /// # Errors
    /// The database fails.
    pub async fn provider_tokens(&self, session: LoginSessionId) -> Result<Option<String>, StoreError> {
        let found = sql::query("SELECT tokens FROM provider_sessions WHERE session = $1 AND tokens IS NOT NULL")
            .bind(session.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(tokens).transpose()
    }

    /// Replaces the person of a login by the provider's current data. Returns whether the login exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn describe_person_session(&self, id: LoginSessionId, person: &Person) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let updated = sql::query("UPDATE person_sessions SET person = $2, email = $3 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(row::json(person)?)
            .bind(person.email.as_str())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(updated.rows_affected() > 0)
    }
}

fn tokens(found: &DbRow) -> Result<String, StoreError> {
    let bytes: Vec<u8> = found.try_get("tokens")?;
    String::from_utf8(bytes).map_err(|error| row::damaged("tokens", error))
}

fn due_check(found: &DbRow, provider: &DbRow) -> Result<DueCheck, StoreError> {
    let failures: i64 = found.try_get("failures")?;
    Ok(DueCheck {
        session: person_sessions::session(found)?,
        provider: providers::provider(provider)?,
        tokens: tokens(found)?,
        failures: u32::try_from(failures).unwrap_or(u32::MAX),
    })
}
