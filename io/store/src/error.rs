//! Why the store could not do something.

use std::{io, path::PathBuf};

use crate::open::DATABASE_FILE;

/// Why the store could not do something. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is no database, or a damaged one.
    #[error(
        "the database {} is damaged ({detail}); it was left as it is: restore it from a backup, or move it away to start \
         with an empty one", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        detail: String,
    },
    /// A sound SQLite file that belongs to another program.
    #[error("{} is a database of another program: use another data directory", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Written by a newer Sallyport.
    #[error(
        "the database {} has version {found} and this program knows versions up to {known}: use the newer program that \
         wrote it", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// A file or folder cannot be made, read or changed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No room left.
    #[error("the disk with the data directory is full: nothing was changed; free some space and try again")]
    DiskFull,
    /// The file or its disk cannot be written.
    #[error("the database cannot be written: it or its disk is read-only")]
    ReadOnly,
    /// Others kept the store busy for too long.
    #[error("the store is too busy: try again in a moment")]
    Busy,
    /// The e-mail address belongs to an account.
    #[error("there is already an account with this e-mail address")]
    EmailTaken,
    /// One more than there may be.
    #[error("no more than {max} {what}")]
    Limit {
        /// Of what, and what to do.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// Every random name was taken.
    #[error("no free name was found: try again")]
    NoFreeName,
    /// Every port of the range belongs to a socket.
    #[error(
        "all ports from {from} to {to} belong to sockets: delete a tcp, tls or udp socket, or ask the operator for a \
         larger --port-range"
    )]
    PortsExhausted {
        /// The first port of the range.
        from: u16,
        /// The last port of the range.
        to: u16,
    },
    /// The port that was asked for belongs to a socket.
    #[error("port {port} belongs to another socket: ask for another one, or for none in particular")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The organisation has a service token of this name.
    #[error("there is a service token called {name:?} already: policies tell them apart by name")]
    ServiceTokenTaken {
        /// The name.
        name: String,
    },
    /// Every random forward port was taken.
    #[error("no free forward port was found: try again")]
    NoFreeForwardPort,
    /// The account has this ssh key already.
    #[error("the account has this ssh key already, as {name:?}")]
    SshKeyTaken {
        /// What it is called.
        name: String,
    },
    /// The organisation has a policy of this name.
    #[error("there is already a policy called {name:?}")]
    PolicyNameTaken {
        /// The name.
        name: String,
    },
    /// The policy still says who may come in somewhere.
    #[error("the policy is attached to {what}: detach it first, so that what this opens or closes can be told")]
    PolicyAttached {
        /// To what.
        what: String,
    },
    /// The organisation has a provider of this name.
    #[error("there is already a provider with this name")]
    ProviderTaken,
    /// The idempotency key came before, with another request.
    #[error("this idempotency key was used for another request: use a new one")]
    KeyReused,
    /// What the change is about is gone.
    #[error("it does not exist (any more)")]
    Gone,
    /// Any other refusal of the database.
    #[error("the database failed: {0}")]
    Database(sqlx::Error),
}

/// Primary result codes of SQLite (<https://sqlite.org/rescode.html>).
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_NOTADB: u32 = 26;
/// Growing the shared memory file failed, which is a full disk too (extended result code).
const SQLITE_IOERR_SHMSIZE: u32 = 4_874;

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::PoolTimedOut = error {
            return Self::Busy;
        }
        let code = error.as_database_error().and_then(|e| e.code()).and_then(|code| code.parse::<u32>().ok());
        let Some(code) = code else { return Self::Database(error) };
        match code & 0xff {
            _ if code == SQLITE_IOERR_SHMSIZE => Self::DiskFull,
            SQLITE_FULL => Self::DiskFull,
            SQLITE_READONLY => Self::ReadOnly,
            SQLITE_BUSY | SQLITE_LOCKED => Self::Busy,
            SQLITE_CORRUPT | SQLITE_NOTADB => Self::Corrupt { path: DATABASE_FILE.into(), detail: error.to_string() },
            _ => Self::Database(error),
        }
    }
}

impl StoreError {
    /// Whether the error says that a row with this unique value exists.
    pub(crate) fn is_unique_violation(error: &sqlx::Error) -> bool {
        error.as_database_error().is_some_and(|e| e.is_unique_violation())
    }
}
