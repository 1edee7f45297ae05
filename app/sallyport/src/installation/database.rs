//! The store of an installation: in the data directory, or in PostgreSQL.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Args;
use sallyport_control::{Secrets, TOKEN_KEY_FILE};
use sallyport_store::{HolderId, PostgresAddress, Store};
use tracing::warn;

use crate::failure::{Failure, Kind};

/// The file with this process's id among those that share the store. Not part of backups, because ids are unique.
pub(crate) const OWN_ID_FILE: &str = "control.id";
/// The variable with the address of the database.
const VARIABLE: &str = "SALLYPORT_DATABASE";
/// The purpose of the derived value by which a database knows its installation.
const KEY_CHECK: &str = "whose database";
/// The longest address in a file, in bytes.
const MAX_ADDRESS_BYTES: u64 = 4_096;

/// Options for the place of the store.
#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// The PostgreSQL database to use instead of one in the data directory: postgres://USER@HOST/NAME; put the password
    /// into SALLYPORT_DATABASE, PGPASSWORD, ~/.pgpass or --database-file
    #[arg(long, value_name = "URL", env = VARIABLE, hide_env_values = true)]
    pub(crate) database: Option<String>,
    /// The file with the address of the database; only its owner may read the file
    #[arg(long, value_name = "FILE", env = "SALLYPORT_DATABASE_FILE")]
    pub(crate) database_file: Option<PathBuf>,
}

impl DatabaseArgs {
    /// The address of the database; `None` for the file in the data directory.
    pub(crate) fn address(&self) -> anyhow::Result<Option<PostgresAddress>> {
        let text = match (&self.database, &self.database_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let both = "there are two databases: --database (or SALLYPORT_DATABASE) and --database-file";
                return Err(Failure::usage(both).next("leave one of them out").into());
            }
            (None, Some(file)) => read_address(file)?,
            (Some(text), None) => text.clone(),
        };
        parse(&text).map(Some)
    }

    /// Opens the store: that of `data`, unless another place is given.
    pub(crate) async fn open(&self, data: &Path) -> anyhow::Result<Store> {
        let Some(address) = self.address()? else {
            refuse_lost(data)?;
            return Ok(Store::open(data).await?);
        };
        let store = Store::open_postgres(&address).await?;
        let file = data.join(sallyport_store::DATABASE_FILE);
        if store.count_accounts().await? == 0 && std::fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
            warn!(
                file = %file.display(),
                "there is nothing in the database yet, but in the data directory: `sallyport migrate` moves it"
            );
        }
        Ok(store)
    }
}

/// The keys in the data directory, made if there are none. All processes over one database must have the same keys: the
/// first process claims the database, and processes with other keys are refused before any key is made.
pub(crate) async fn secrets(store: &Store, data: &Path) -> anyhow::Result<Secrets> {
    if !data.join(TOKEN_KEY_FILE).exists() && store.key_check().await?.is_some() {
        return Err(others(store, data).into());
    }
    let secrets = Secrets::open_or_create(data)?;
    if is_claimed(store, &secrets).await? { Ok(secrets) } else { Err(others(store, data).into()) }
}

/// Whether the database belongs to the installation with these keys. Claims a new database.
pub(crate) async fn is_claimed(store: &Store, secrets: &Secrets) -> anyhow::Result<bool> {
    let check = secrets.derived(KEY_CHECK);
    Ok(store.claim(check).await? == check)
}

/// The failure of a process with keys that do not fit the database.
pub(crate) fn others(store: &Store, data: &Path) -> Failure {
    let message = format!("the database {} belongs to an installation with other keys", store.path().display());
    Failure::new(Kind::Refused, message).next(format!(
        "take the keys of one of its data directories: `sallyport backup KEYS` there, `sallyport restore KEYS --data \
         {}` here",
        data.display()
    ))
}

/// This process's id among those that share the store: made once, and stored in the locked data directory.
pub(crate) fn own_id(store: &Store, data: &Path) -> anyhow::Result<HolderId> {
    if !store.is_shared() {
        return Ok([0; 16]);
    }
    let path = data.join(OWN_ID_FILE);
    let read = |text: String| {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok();
        bytes.and_then(|bytes| HolderId::try_from(bytes).ok())
    };
    if let Some(id) = std::fs::read_to_string(&path).ok().and_then(read) {
        return Ok(id);
    }
    let mut id = HolderId::default();
    getrandom::fill(&mut id).map_err(|error| anyhow::anyhow!("the system gave no random numbers: {error}"))?;
    std::fs::write(&path, URL_SAFE_NO_PAD.encode(id)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(id)
}

/// Parses the address. A password in it is refused in command lines, which all users of the machine can read.
pub(crate) fn parse(text: &str) -> anyhow::Result<PostgresAddress> {
    let address = text.parse().map_err(Failure::usage)?;
    let has_password =
        text.split_once("://").and_then(|(_, rest)| rest.split_once('@')).is_some_and(|(user, _)| user.contains(':'));
    if has_password && std::env::args().any(|arg| arg.contains(text)) {
        warn!(
            "other users of this machine can read the database's password: put the address into {VARIABLE} or a file"
        );
    }
    Ok(address)
}

fn read_address(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read the address of the database in {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let message = format!("{} can be read by others (mode {mode:04o})", path.display());
        return Err(Failure::new(Kind::Failed, message).next(format!("run chmod 600 {}", path.display())).into());
    }
    let mut text = String::new();
    file.take(MAX_ADDRESS_BYTES).read_to_string(&mut text).with_context(cannot)?;
    Ok(text.trim().to_owned())
}

/// Refuses an empty database file beside keys of an installation: the database was lost, and must not be taken for a
/// new one.
fn refuse_lost(data: &Path) -> Result<(), Failure> {
    let is_empty = |name: &str| std::fs::metadata(data.join(name)).map(|file| file.len() == 0);
    let database = data.join(sallyport_store::DATABASE_FILE);
    let log = format!("{}-wal", sallyport_store::DATABASE_FILE);
    let has_keys = [sallyport_net::CA_KEY_FILE, TOKEN_KEY_FILE].iter().any(|name| data.join(name).exists());
    let is_lost = is_empty(sallyport_store::DATABASE_FILE).unwrap_or(false) && is_empty(&log).unwrap_or(true);
    if !has_keys || !is_lost {
        return Ok(());
    }
    let message = format!("the database {} is empty, while the keys beside it have been used", database.display());
    Err(Failure::new(Kind::Failed, message)
        .next("restore it from a backup, or remove it to start with no accounts and no sockets"))
}
