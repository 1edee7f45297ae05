//! The store: a SQLite file in the data directory, or a database of PostgreSQL that several processes share.
//!
//! Every statement of SQL is in this crate, one module per noun, in one text for both (`sql.rs` says which words to
//! use); so are the tables (`migrations.rs`). What [`Store`] acknowledged is on disk. There is one writer at a time: with
//! SQLite the one connection that writes (write-ahead logging, `synchronous=FULL`), with PostgreSQL whoever holds a lock
//! of the database, in whichever process. Readers see what is committed and wait for nobody. A database that is damaged,
//! of a newer version or not ours is refused with a sentence and never changed.
//!
//! The store reads no clock and makes no secrets: times (seconds since 1970), ids, hashes and random numbers are
//! arguments.

mod account_access;
mod accounts;
mod authorities;
mod controls;
mod device_logins;
mod dialect;
mod edges;
mod error;
mod idempotency;
mod invitations;
mod lock;
mod migrations;
mod open;
mod organisations;
mod origins;
mod person_sessions;
mod persons;
mod policies;
mod ports;
mod postgres;
mod provider_sessions;
mod providers;
mod row;
mod second_factor;
mod service_tokens;
mod sessions;
mod setup;
mod socket_names;
mod sockets;
mod sql;
mod ssh_keys;
mod tokens;
mod transfer;
mod tunnels;
mod used_once;
mod write;

use std::path::{Path, PathBuf};

use sql::DbPool;

pub use account_access::{AccountAccess, MAX_RESETS_PER_ACCOUNT, NewReset, ResetMaker};
pub use accounts::{Admission, Deletion, Entry, MAX_GUEST_SOCKETS, NewAccount, Setup, guest_account};
pub use authorities::{AuthorityKind, IssuedCertificate, MAX_LISTED_CERTIFICATES, StoredAuthority};
pub use controls::{HolderId, MAX_CONTROLS, StoredControl};
pub use device_logins::{
    DeviceAnswer, DeviceLogin, MAX_DEVICE_LOGINS, MAX_DEVICE_LOGINS_OF_ORGANISATION, NewDeviceLogin,
};
pub use edges::{
    EdgeTokenId, JoinRefusal, JoiningEdge, MAX_EDGE_TOKENS, MAX_EDGES, NewEdgeToken, StoredEdge, StoredEdgeToken,
    TokenUser,
};
pub use error::StoreError;
pub use idempotency::{Creation, Keyed, MAX_KEYS_PER_ACCOUNT, REMEMBER_KEYS_SECONDS, StoredAnswer};
pub use invitations::{Invitation, Invited, Inviting, MAX_INVITATIONS_PER_ORGANISATION, Withdrawing};
pub use lock::{DataDirLock, LockError};
pub use open::DATABASE_FILE;
pub use organisations::{
    MAX_MEMBERS_PER_ORGANISATION, MAX_ORGANISATIONS_PER_ACCOUNT, Member, MemberChange, Membership,
};
pub use origins::DirectOriginChange;
pub use person_sessions::{MAX_SESSIONS_PER_ORGANISATION, MAX_SESSIONS_PER_PERSON};
pub use persons::{LocalPerson, MAX_LINKS_PER_PERSON, MAX_PERSONS_PER_ORGANISATION, NewPersonLink, PersonSecrets};
pub use policies::{Attachment, MAX_POLICIES_PER_ORGANISATION, NewPolicy, Policy, PolicyChange};
pub use ports::PortWish;
pub use postgres::PostgresAddress;
pub use provider_sessions::{DueCheck, LogoutOf, MAX_CLAIMED_CHECKS, NewProviderSession};
pub use providers::{MAX_PROVIDERS_PER_ORGANISATION, StoredProvider};
pub use second_factor::{CodeOwner, RECOVERY_CODES};
pub use service_tokens::{MAX_SERVICE_TOKENS, NewServiceToken, StoredServiceToken};
pub use sessions::{MAX_SESSIONS_PER_ACCOUNT, NewSession, Rotation, SessionClient, SessionId, StoredSession};
pub use setup::StoredSetupToken;
pub use socket_names::IfTaken;
pub use sockets::{MAX_SOCKETS_PER_ACCOUNT, Maker, NewSocket, SocketChange};
pub use ssh_keys::{MAX_SSH_KEYS_PER_ACCOUNT, SshKey};
pub use tokens::{MAX_TOKENS_PER_ACCOUNT, NewToken, StoredToken};
pub use transfer::{TransferError, TransferredTable};
pub use tunnels::NewTunnel;
pub use used_once::MAX_USED_ONCE_PER_ORGANISATION;

/// SHA-256 of a secret. The secrets are 256 random bits, so a plain hash is enough.
pub type SecretHash = [u8; 32];

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    writer: DbPool,
    reader: DbPool,
    path: PathBuf,
}

/// Where in a list a page starts: after this position. Positions only grow, and mean nothing outside their list.
pub type Position = i64;

impl Store {
    /// The database file; of PostgreSQL, where the database is, without a password.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the store answers at all: for readiness checks.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn check(&self) -> Result<(), StoreError> {
        sql::query_scalar::<i64>("SELECT count(*) FROM (SELECT 1 FROM accounts LIMIT 1) AS at_most_one")
            .fetch_one(&self.reader)
            .await?;
        Ok(())
    }

    /// Forgets what is over: login sessions that ended, idempotency keys that are too old, links and used states that are
    /// not good any more, invitations and certificates that ended long ago.
    ///
    /// # Errors
    /// What stands in the way; nothing is lost, it can be tried again.
    pub async fn tidy(&self, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM login_sessions WHERE expires_at <= $1")
            .bind(now - sessions::REMEMBER_ENDED_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM person_sessions WHERE expires_at <= $1")
            .bind(now - sessions::REMEMBER_ENDED_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM idempotency_keys WHERE created_at <= $1")
            .bind(now - REMEMBER_KEYS_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM invitations WHERE expires_at <= $1")
            .bind(now - sessions::REMEMBER_ENDED_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM issued_certificates WHERE not_after <= $1")
            .bind(now - authorities::REMEMBER_CERTIFICATES_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM person_links WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM account_resets WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM device_logins WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM used_once WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM edge_tokens WHERE expires_at <= $1")
            .bind(now - edges::REMEMBER_EDGE_TOKENS_SECONDS)
            .execute(write.sql())
            .await?;
        write.commit().await
    }

    /// Ends all connections; what was acknowledged is in the database.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}
