//! Errors of the store.

use std::{io, path::PathBuf};

use sqlx::postgres::PgDatabaseError;

use super::open::DATABASE_FILE;

/// An error of the store. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not a database, or is damaged.
    #[error(
        "the database {} is damaged ({detail}); it was left as it is: restore it from a backup, or move it away to \
         start with an empty one", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The message of SQLite.
        detail: String,
    },
    /// A valid database that belongs to another program.
    #[error("{} is a database of another program: use another one", path.display())]
    Foreign {
        /// The file, or the address of the server.
        path: PathBuf,
    },
    /// The database was written by a newer version of Sallyport.
    #[error(
        "the database {} has version {found} and this program knows versions up to {known}: use the newer program that \
         wrote it", path.display()
    )]
    Newer {
        /// The file, or the address of the server.
        path: PathBuf,
        /// The database's version.
        found: i64,
        /// The newest version that this program supports.
        known: i64,
    },
    /// A file or folder cannot be created, read or changed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The disk is full.
    #[error("the disk with the data directory is full: nothing was changed; free some space and try again")]
    DiskFull,
    /// The database or its disk is read-only.
    #[error("the database cannot be written: the file or its disk is read-only")]
    ReadOnly,
    /// The database server does not answer, or the connection was lost before a commit was requested.
    #[error("the database cannot be reached ({detail}): nothing was changed; try again when it is back")]
    Unreachable {
        /// The detail.
        detail: String,
    },
    /// The connection was lost during a commit.
    #[error(
        "the connection to the database was lost at the end of a change, which was made or not: look what is there \
         before you try again"
    )]
    OutcomeUnknown,
    /// The database server refuses the connection, or lacks something.
    #[error("the database {database} refuses the connection ({detail}): {advice}")]
    Refused {
        /// The address of the database, without a password.
        database: String,
        /// The message of the server.
        detail: String,
        /// The advice.
        advice: &'static str,
    },
    /// The store was busy for too long.
    #[error("the store is too busy: try again in a moment")]
    Busy,
    /// The e-mail address belongs to an account.
    #[error("there is already an account with this e-mail address")]
    EmailTaken,
    /// There is an account already; this one was to be the first.
    #[error("there is an account already")]
    NotFirst,
    /// The first account needs the setup token, and the request has none or a wrong one.
    #[error("the first account is made with the setup token of this server")]
    SetupToken,
    /// No open invitation of the address has this code.
    #[error("no open invitation of this address has this code")]
    NoInvitation,
    /// A limit is reached.
    #[error("no more than {max} {what}")]
    Limit {
        /// The limited items, with advice.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// Every random name was taken.
    #[error("no free name was found: try again")]
    NoFreeName,
    /// Every port of the range is in use.
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
    /// The requested port is in use.
    #[error("port {port} belongs to another socket: ask for another one, or for none in particular")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The organisation has a service token with this name.
    #[error("there is already a service token named {name:?}: policies identify them by name")]
    ServiceTokenTaken {
        /// The name.
        name: String,
    },
    /// Another socket or tunnel of the organisation has this name.
    #[error("{by} has the name {name:?} already: names are unique in an organisation, so choose another one")]
    NameTaken {
        /// The name.
        name: String,
        /// The holder of the name.
        by: String,
    },
    /// Several ids have this prefix.
    #[error("several ids begin with {start}: give more of the id, or a name")]
    AmbiguousId {
        /// The prefix.
        start: String,
    },
    /// Every random forward port was taken.
    #[error("no free forward port was found: try again")]
    NoFreeForwardPort,
    /// The account has this ssh key already.
    #[error("the account has this ssh key already, as {name:?}")]
    SshKeyTaken {
        /// The name of the key.
        name: String,
    },
    /// The domain is added already.
    #[error("{name} is a domain of {by} already")]
    DomainTaken {
        /// The name.
        name: String,
        /// The holder of the name.
        by: &'static str,
    },
    /// The domain is not verified for the organisation.
    #[error("{name} is not a verified domain of this organisation")]
    DomainUnverified {
        /// The name.
        name: String,
    },
    /// The domain leads to another socket, which has a service.
    #[error(
        "{name} leads to another socket, which has a service: `sallyport socket edit SOCKET --domain` moves a domain"
    )]
    DomainInUse {
        /// The name.
        name: String,
    },
    /// The prefix or the neighbour is there already.
    #[error("there is {name} already: remove it first, to set it up anew")]
    AnycastTaken {
        /// The name.
        name: String,
    },
    /// The egress address is there already.
    #[error("the egress address {address} is there already: remove it first, to give it other tags")]
    EgressTaken {
        /// The address.
        address: std::net::IpAddr,
    },
    /// Another site has the virtual address.
    #[error("the site {site} has the virtual address {address} already: two sites share one only by anycast")]
    VirtualAddressTaken {
        /// The address.
        address: std::net::IpAddr,
        /// The other site.
        site: sallyport_model::RegionName,
    },
    /// A range of another network of the organisation.
    #[error("the range {range} and {other} of the network {network} have addresses in common")]
    RangeTaken {
        /// The range.
        range: ipnet::IpNet,
        /// The range of the other network.
        other: ipnet::IpNet,
        /// The other network.
        network: sallyport_network::name::Name,
    },
    /// The networks of the organisation have every range that could be given out.
    #[error("no range is free in 10.0.0.0/8, 100.64.0.0/10 and fd00::/8: name ranges of the network")]
    NoFreeRange,
    /// The machine cannot join the network.
    #[error(transparent)]
    Join(#[from] sallyport_network::members::JoinError),
    /// The network has machines.
    #[error(
        "the network has machines ({machines}), which lose their addresses with it: remove them first, or force it"
    )]
    NetworkInUse {
        /// How many.
        machines: u64,
    },
    /// The zone is there already.
    #[error("there is a zone {name} already")]
    ZoneTaken {
        /// The name.
        name: String,
    },
    /// The label was given to a socket of another organisation.
    #[error("the label {label:?} is or was the name of another socket: choose another one")]
    LabelTaken {
        /// The label.
        label: String,
    },
    /// The organisation has a policy with this name.
    #[error("there is already a policy named {name:?}")]
    PolicyNameTaken {
        /// The name.
        name: String,
    },
    /// The policy is still attached.
    #[error("the policy is attached to {what}: detach it first, so that the effect on access can be reported")]
    PolicyAttached {
        /// The attachment.
        what: String,
    },
    /// The organisation has a provider with this name.
    #[error("there is already a provider with this name")]
    ProviderTaken,
    /// The organisation has a provider of kind local.
    #[error("there is already a provider of kind local: an organisation has at most one")]
    LocalProviderTaken,
    /// The organisation has a person with this address.
    #[error("there is already a person with this e-mail address")]
    PersonTaken,
    /// The socket has a direct origin at this address.
    #[error("the socket has the direct origin {address} already: change its weight to give it another share")]
    OriginTaken {
        /// The address.
        address: String,
    },
    /// The idempotency key was used with another request.
    #[error("this idempotency key was used for another request: use a new one")]
    KeyReused,
    /// The subject of the change does not exist.
    #[error("it does not exist, or was deleted")]
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
/// Growing the shared-memory file failed, which also means a full disk (extended result code).
const SQLITE_IOERR_SHMSIZE: u32 = 4_874;

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if let Some(code) = postgres_code(&error) {
            return of_postgres(code, &error).unwrap_or(Self::Database(error));
        }
        match &error {
            sqlx::Error::PoolTimedOut => return Self::Busy,
            _ if is_lost(&error) => return Self::Unreachable { detail: error.to_string() },
            _ => {}
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

/// The SQLSTATE of PostgreSQL: five characters (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
pub(crate) fn postgres_code(error: &sqlx::Error) -> Option<&str> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    Some(error.code())
}

fn of_postgres(code: &str, error: &sqlx::Error) -> Option<StoreError> {
    Some(match code {
        // read_only_sql_transaction
        "25006" => StoreError::ReadOnly,
        // disk_full
        "53100" => StoreError::DiskFull,
        // query_canceled (statement timeout), lock_not_available, serialization_failure, deadlock_detected;
        // feature_not_supported: a stale cached plan after another program has changed a table
        "57014" | "55P03" | "40001" | "40P01" | "0A000" => StoreError::Busy,
        _ if is_lost(error) => StoreError::Unreachable { detail: error.to_string() },
        _ => return None,
    })
}

/// Whether the connection can no longer be used, for whatever reason.
pub(crate) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed => true,
        // sqlx's error for a connection that ends before the server's first byte, as through a proxy whose server is
        // down: the missing byte reads as 0.
        sqlx::Error::Protocol(detail) => detail.contains("response from SSLRequest: 0x00"),
        // Connection exceptions, too many connections, and a server that stops, crashes or starts; 0A000 is a stale
        // plan, which another connection may prepare anew.
        error => postgres_code(error).is_some_and(|code| {
            code.starts_with("08") || matches!(code, "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "0A000")
        }),
    }
}

impl StoreError {
    /// Whether the error means that a row with this unique value exists.
    pub(crate) fn is_unique_violation(error: &sqlx::Error) -> bool {
        error.as_database_error().is_some_and(|e| e.is_unique_violation())
    }
}
