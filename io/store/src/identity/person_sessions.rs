//! Login sessions of persons at sockets that require an identity.

use sallyport_model::{AccountId, LoginSession, LoginSessionId, Person, PersonEmail, ProviderName};

use super::provider_sessions::{self, NewProviderSession};
use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// Bound on the logins of one address at an organisation; the oldest end first.
pub const MAX_SESSIONS_PER_PERSON: usize = 50;
/// Bound on the logins of an organisation; the oldest end first.
pub const MAX_SESSIONS_PER_ORGANISATION: usize = 20_000;

impl Store {
    /// Starts a login; returns those that ended to make room for it.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the organisation does not exist, or a failure of the database.
    pub async fn begin_person_session(&self, session: &LoginSession) -> Result<Vec<LoginSessionId>, StoreError> {
        self.begin_provider_session(session, None).await
    }

    /// Like [`Store::begin_person_session`], for a login at a provider.
    ///
    /// # Errors
    /// As [`Store::begin_person_session`].
    pub async fn begin_provider_session(
        &self,
        session: &LoginSession,
        there: Option<&NewProviderSession>,
    ) -> Result<Vec<LoginSessionId>, StoreError> {
        let mut write = self.write().await?;
        let inserted = sql::query(
            "INSERT INTO person_sessions (id, organisation, email, person, authenticated_at, expires_at)
             SELECT $1, id, $3, $4, $5, $6 FROM accounts WHERE id = $2",
        )
        .bind(session.id.as_bytes().as_slice())
        .bind(session.organisation.as_bytes().as_slice())
        .bind(session.person.email.as_str())
        .bind(row::json(&session.person)?)
        .bind(session.authenticated_at)
        .bind(session.expires_at)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        let ended = sql::query(
            "DELETE FROM person_sessions WHERE id IN (
                 SELECT id FROM (SELECT id FROM person_sessions WHERE organisation = $1 AND email = $2
                                 ORDER BY authenticated_at DESC, rowid DESC LIMIT 1000000 OFFSET $3) AS of_person
                 UNION ALL
                 SELECT id FROM (SELECT id FROM person_sessions WHERE organisation = $1
                                 ORDER BY authenticated_at DESC, rowid DESC LIMIT 1000000 OFFSET $4) AS of_all)
             RETURNING id",
        )
        .bind(session.organisation.as_bytes().as_slice())
        .bind(session.person.email.as_str())
        .bind(MAX_SESSIONS_PER_PERSON as i64)
        .bind(MAX_SESSIONS_PER_ORGANISATION as i64)
        .fetch_all(write.sql())
        .await?;
        let ended = ids(&ended)?;
        if let Some(there) = there {
            provider_sessions::insert(&mut write, session, there).await?;
        }
        write.commit().await?;
        Ok(ended)
    }

    /// Every active login.
    ///
    /// # Errors
    /// The database fails.
    pub async fn all_person_sessions(&self, now: i64) -> Result<Vec<LoginSession>, StoreError> {
        let rows =
            sql::query("SELECT * FROM person_sessions WHERE expires_at > $1").bind(now).fetch_all(&self.reader).await?;
        rows.iter().map(session).collect()
    }

    /// The login, unless it has ended.
    ///
    /// # Errors
    /// The database fails.
    pub async fn person_session(&self, id: LoginSessionId, now: i64) -> Result<Option<LoginSession>, StoreError> {
        let found = sql::query("SELECT * FROM person_sessions WHERE id = $1 AND expires_at > $2")
            .bind(id.as_bytes().as_slice())
            .bind(now)
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(session).transpose()
    }

    /// The organisation's active logins after a position, in the order of their starts, with their positions; of one
    /// address or of all.
    ///
    /// # Errors
    /// The database fails.
    pub async fn person_sessions(
        &self,
        organisation: AccountId,
        now: i64,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, LoginSession)>, StoreError> {
        let rows = sql::query(
            "SELECT rowid AS position, * FROM person_sessions
             WHERE organisation = $1 AND expires_at > $2 AND rowid > $3 ORDER BY rowid LIMIT $4",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(now)
        .bind(after)
        .bind(limit)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, session(found)?))).collect()
    }

    /// Ends logins of an organisation, selected by id, address and provider; `None` matches all. Returns the ended
    /// ones.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_person_sessions(
        &self,
        organisation: AccountId,
        id: Option<LoginSessionId>,
        email: Option<&PersonEmail>,
        provider: Option<&ProviderName>,
    ) -> Result<Vec<LoginSessionId>, StoreError> {
        let mut write = self.write().await?;
        let rows = sql::query(
            "SELECT id, person FROM person_sessions
             WHERE organisation = $1 AND ($2 IS NULL OR id = $2) AND ($3 IS NULL OR email = $3) ORDER BY rowid",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(id.as_ref().map(|id| id.as_bytes().as_slice()))
        .bind(email.map(PersonEmail::as_str))
        .fetch_all(write.sql())
        .await?;
        let mut ended = Vec::new();
        for found in &rows {
            let person: Person = row::from_json(found, "person")?;
            if provider.is_none_or(|provider| *provider == person.provider) {
                ended.push(LoginSessionId::from_bytes(row::bytes(found, "id")?));
            }
        }
        for id in &ended {
            let delete = sql::query("DELETE FROM person_sessions WHERE id = $1").bind(id.as_bytes().as_slice());
            delete.execute(write.sql()).await?;
        }
        write.commit().await?;
        Ok(ended)
    }
}

fn ids(rows: &[DbRow]) -> Result<Vec<LoginSessionId>, StoreError> {
    rows.iter().map(|found| Ok(LoginSessionId::from_bytes(row::bytes(found, "id")?))).collect()
}

pub(crate) fn session(found: &DbRow) -> Result<LoginSession, StoreError> {
    Ok(LoginSession {
        id: LoginSessionId::from_bytes(row::bytes(found, "id")?),
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        person: row::from_json(found, "person")?,
        authenticated_at: found.try_get("authenticated_at")?,
        expires_at: found.try_get("expires_at")?,
    })
}
