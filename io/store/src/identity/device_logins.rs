//! Device logins: a program displays a code, and waits for a person to type it (RFC 8628).

use sallyport_model::{AccountId, LoginSessionId, SocketId};

use crate::db::{
    SecretHash, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// Bound on waiting logins.
pub const MAX_DEVICE_LOGINS: usize = 4_096;
/// Bound on waiting logins of one organisation, so that others have room.
pub const MAX_DEVICE_LOGINS_OF_ORGANISATION: usize = 256;

/// A new device login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDeviceLogin {
    /// The code that the person types.
    pub code: String,
    /// SHA-256 of the program's secret.
    pub device: SecretHash,
    /// The organisation of the socket.
    pub organisation: AccountId,
    /// The socket that the program wants to enter.
    pub socket: SocketId,
    /// The address of the program.
    pub client: String,
    /// Expiry, in seconds since 1970.
    pub expires_at: i64,
}

/// A login that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLogin {
    /// The code that the person types.
    pub code: String,
    /// The socket that the program wants to enter.
    pub socket: SocketId,
    /// The address of the program.
    pub client: String,
}

/// The answer to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAnswer {
    /// No answer yet.
    Pending,
    /// The person agreed. The answer is given once.
    Agreed(LoginSessionId, SocketId),
    /// The person refused. The answer is given once.
    Denied,
}

impl Store {
    /// Starts a login; `false` if too many wait, overall or of the organisation, or the code is in use.
    ///
    /// # Errors
    /// The database fails.
    pub async fn begin_device_login(&self, new: &NewDeviceLogin, now: i64) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM device_logins WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        let all = sql::query_scalar::<i64>("SELECT count(*) FROM device_logins").fetch_one(write.sql()).await?;
        let theirs = sql::query_scalar::<i64>("SELECT count(*) FROM device_logins WHERE organisation = $1")
            .bind(new.organisation.as_bytes().as_slice())
            .fetch_one(write.sql())
            .await?;
        if all >= MAX_DEVICE_LOGINS as i64 || theirs >= MAX_DEVICE_LOGINS_OF_ORGANISATION as i64 {
            return Ok(false);
        }
        let begun = sql::query(
            "INSERT INTO device_logins (code, device, organisation, socket, client, expires_at)
             SELECT $1, $2, id, $4, $5, $6 FROM accounts WHERE id = $3 ON CONFLICT DO NOTHING",
        )
        .bind(&new.code)
        .bind(new.device.as_slice())
        .bind(new.organisation.as_bytes().as_slice())
        .bind(new.socket.as_bytes().as_slice())
        .bind(&new.client)
        .bind(new.expires_at)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(begun.rows_affected() > 0)
    }

    /// The unanswered login with this code.
    ///
    /// # Errors
    /// The database fails.
    pub async fn device_login(&self, code: &str, now: i64) -> Result<Option<DeviceLogin>, StoreError> {
        let found = sql::query(
            "SELECT code, socket, client FROM device_logins WHERE code = $1 AND expires_at > $2 AND answer IS NULL",
        );
        let found = found.bind(code).bind(now).fetch_optional(&self.reader).await?;
        let login = |found: DbRow| {
            Ok(DeviceLogin {
                code: found.try_get("code")?,
                socket: SocketId::from_bytes(row::bytes(&found, "socket")?),
                client: found.try_get("client")?,
            })
        };
        found.map(login).transpose()
    }

    /// Stores the person's answer: the login with which the person agreed, or none. Returns whether a program waits for
    /// it.
    ///
    /// # Errors
    /// The database fails.
    pub async fn answer_device_login(
        &self,
        code: &str,
        agreed: Option<LoginSessionId>,
        now: i64,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let answered = sql::query(
            "UPDATE device_logins SET answer = $1, session = $2
             WHERE code = $3 AND expires_at > $4 AND answer IS NULL",
        )
        .bind(if agreed.is_some() { "agreed" } else { "denied" })
        .bind(agreed.map(|session| session.as_bytes().to_vec()))
        .bind(code)
        .bind(now)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(answered.rows_affected() > 0)
    }

    /// The answer for the program with this secret. The person's answer is returned once. `None`: there is no such
    /// login, or it has expired.
    ///
    /// # Errors
    /// The database fails.
    pub async fn take_device_answer(&self, device: SecretHash, now: i64) -> Result<Option<DeviceAnswer>, StoreError> {
        let found = sql::query("SELECT answer FROM device_logins WHERE device = $1 AND expires_at > $2");
        let found = found.bind(device.as_slice()).bind(now).fetch_optional(&self.reader).await?;
        let Some(found) = found else { return Ok(None) };
        if found.try_get::<Option<&str>>("answer")?.is_none() {
            return Ok(Some(DeviceAnswer::Pending));
        }
        let mut write = self.write().await?;
        let taken = sql::query("DELETE FROM device_logins WHERE device = $1 RETURNING socket, session");
        let taken = taken.bind(device.as_slice()).fetch_optional(write.sql()).await?;
        write.commit().await?;
        // Another request may have been faster.
        let Some(taken) = taken else { return Ok(None) };
        let socket = SocketId::from_bytes(row::bytes(&taken, "socket")?);
        let session = row::optional_bytes(&taken, "session")?.map(LoginSessionId::from_bytes);
        Ok(Some(session.map_or(DeviceAnswer::Denied, |session| DeviceAnswer::Agreed(session, socket))))
    }
}
