//! `sallyport migrate`, `backup` and `restore`: an installation's data, moved or copied as a whole.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::AuditVerification;
use sallyport_audit::AUDIT_DIR;
use sallyport_control::SETUP_TOKEN_FILE;
use sallyport_control::Secrets;
use sallyport_store::{DATABASE_FILE, DataDirLock, PostgresAddress, Store, TransferredTable};
use serde_json::json;

use crate::{
    args::audit::AUDIT_KEY,
    context::Context,
    failure::{Failure, Kind},
    installation::{
        self, KeyArgs,
        database::{self, DatabaseArgs},
        default_data_dir,
    },
};

/// The lock file, which is not part of backups.
const LOCK_FILE: &str = "lock";

/// Options of `migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// The data directory whose database moves [default: as for `up`]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
    /// The empty database to move to: postgres://USER@HOST/NAME; put the password into SALLYPORT_DATABASE, PGPASSWORD
    /// or ~/.pgpass
    #[arg(long, value_name = "URL", env = "SALLYPORT_DATABASE", hide_env_values = true)]
    to: String,
    #[command(flatten)]
    key: KeyArgs,
    /// Check whether the move would work, and print what would move
    #[arg(long)]
    dry_run: bool,
}

/// Options of `rekey`.
#[derive(Debug, Args)]
pub(crate) struct RekeyArgs {
    /// The file for the new key, which must not exist yet
    #[arg(value_name = "FILE")]
    into: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    key: KeyArgs,
    /// The data directory with the current key, unless --key-file names it
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The directory for the backup, which is new or empty
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// The data directory [default: as for `up`]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
    /// Leave the audit log out, which may be large
    #[arg(long)]
    without_audit: bool,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// The data directory to create, without a database and keys so far [default: as for `up`]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
}

/// The data directory, which must exist.
pub(super) fn data_dir(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let data =
        named.or_else(default_data_dir).ok_or_else(|| Failure::usage("name a data directory with --data DIR"))?;
    if !data.is_dir() {
        let message = format!("there is no data directory {}", data.display());
        return Err(Failure::new(Kind::NotFound, message)
            .next("name the one of your `sallyport up` with --data DIR")
            .into());
    }
    Ok(data)
}

/// Moves the database of a data directory to PostgreSQL.
pub(crate) async fn migrate(context: &Context, args: MigrateArgs) -> anyhow::Result<()> {
    let data = data_dir(args.data)?;
    let to = database::parse(&args.to)?;
    let _lock = DataDirLock::take(&data)?;
    let tables = Store::transfer(&data, &to, args.dry_run).await?;
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    let shown = |table: &TransferredTable| {
        let digest: String = table.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({ "name": table.name, "rows": table.rows, "sha256": digest })
    };
    let tables: Vec<_> = tables.iter().map(shown).collect();
    let json = json!({ "to": to.to_string(), "dry_run": args.dry_run, "rows": rows, "tables": tables });
    context.output.data(&json, |_| {
        let verb = if args.dry_run { "would move" } else { "moved" };
        format!("{verb} {rows} rows of {} tables to {to}", tables.len())
    })?;
    let made = if args.dry_run { None } else { keep_keys(&data, &to, &args.key).await? };
    if let Some(made) = made {
        context.output.hint(&format!(
            "the keys are in the database too, sealed with the key that was made into {}: controls need it \
             (--key-file), and nothing else opens them; keep a copy",
            made.display()
        ));
    }
    let next = if args.dry_run {
        "nothing has changed; run it without --dry-run".to_owned()
    } else {
        format!(
            "start `sallyport up --database {to}` or `sallyport control --database {to}` with the same data directory, \
             and move {} away when all is well: it is not used any more",
            data.join(DATABASE_FILE).display()
        )
    };
    context.output.hint(&next);
    Ok(())
}

/// Stores the sealed keys in the database, for controls.
async fn keep_keys(data: &Path, to: &PostgresAddress, key: &KeyArgs) -> anyhow::Result<Option<PathBuf>> {
    let store = Store::open_postgres(to).await?;
    let kept = installation::put_into(&store, data, key).await;
    store.close().await;
    kept
}

/// Seals the keys of an installation with a new key.
pub(crate) async fn rekey(context: &Context, args: RekeyArgs) -> anyhow::Result<()> {
    let data =
        args.data.or_else(default_data_dir).ok_or_else(|| Failure::usage("name a data directory with --data DIR"))?;
    let address = args.database.address()?.ok_or_else(|| {
        Failure::usage("the database with the keys is not named").next("name it with --database or --database-file")
    })?;
    let store = Store::open_postgres(&address).await?;
    let changed = installation::change_key(&store, &data, &args.key, &args.into).await;
    store.close().await;
    changed?;
    let json = json!({ "key": args.into, "database": address.to_string() });
    context.output.data(&json, |_| format!("the keys are sealed with the key in {} now", args.into.display()))?;
    context.output.hint("give it to every control, for its next start; the former key opens nothing any more");
    Ok(())
}

/// Copies what a data directory keeps, while it is used.
pub(crate) async fn backup(context: &Context, args: BackupArgs) -> anyhow::Result<()> {
    let data = data_dir(args.data)?;
    make_empty(&args.to)?;
    let has_database = data.join(DATABASE_FILE).exists();
    if has_database {
        Store::back_up(&data, &args.to).await?;
    }
    let mut files = kept_files(&data)?;
    for name in &files {
        copy(&data.join(name), &args.to.join(name))?;
    }
    if has_database {
        files.push(DATABASE_FILE.to_owned());
    }
    // An audit log alone is no installation.
    let audit = if args.without_audit || files.is_empty() {
        None
    } else {
        sallyport_audit::copy(&data.join(AUDIT_DIR), &args.to.join(AUDIT_DIR))?
    };
    if audit.is_some() {
        files.push(AUDIT_DIR.to_owned());
    }
    if files.is_empty() {
        return Err(Failure::new(Kind::NotFound, format!("there is nothing to keep in {}", data.display())).into());
    }
    files.sort();
    File::open(&args.to)?.sync_all()?;
    let json =
        json!({ "backup": args.to, "data": data, "files": files, "audit_bytes": audit.map(|copied| copied.bytes) });
    context.output.data(&json, |_| format!("kept {} in {}", files.join(", "), args.to.display()))?;
    let log = if audit.is_some() { "the audit log" } else { "no audit log" };
    let hint = if has_database {
        format!("keep it as safe as the keys in it; {log} is in it")
    } else {
        format!(
            "this is the keys, and {log}: keep it as safe as they are; the database is PostgreSQL: back it up with \
             pg_dump"
        )
    };
    context.output.hint(&hint);
    Ok(())
}

/// Makes a data directory of a backup.
pub(crate) async fn restore(context: &Context, args: RestoreArgs) -> anyhow::Result<()> {
    let data =
        args.data.or_else(default_data_dir).ok_or_else(|| Failure::usage("name a data directory with --data DIR"))?;
    if !args.from.is_dir() {
        return Err(Failure::new(Kind::NotFound, format!("there is no backup {}", args.from.display())).into());
    }
    let mut files = kept_files(&args.from)?;
    let has_database = args.from.join(DATABASE_FILE).exists();
    if has_database {
        files.push(DATABASE_FILE.to_owned());
        Store::verify(&args.from).await?;
    }
    files.sort();
    let is_key = |name: &String| name == sallyport_control::TOKEN_KEY_FILE || name == installation::KEY_FILE;
    if !files.iter().any(is_key) {
        let message =
            format!("{} is no backup: there is no {}", args.from.display(), sallyport_control::TOKEN_KEY_FILE);
        return Err(Failure::new(Kind::Failed, message).into());
    }
    let _lock = DataDirLock::take(&data)?;
    if let Some(there) = kept_files(&data)?
        .first()
        .cloned()
        .or_else(|| data.join(DATABASE_FILE).exists().then(|| DATABASE_FILE.to_owned()))
    {
        let message = format!("{} is in use: there is {there} in it", data.display());
        return Err(Failure::new(Kind::Refused, message)
            .next("restore into another directory, or move this one away")
            .into());
    }
    let audit = args.from.join(AUDIT_DIR).is_dir();
    if audit && is_used(&data.join(AUDIT_DIR))? {
        let message = format!("{} is in use: there is an audit log in it", data.display());
        return Err(Failure::new(Kind::Refused, message)
            .next("restore into another directory, or move this one away")
            .into());
    }
    // The database comes last: an incomplete restore without it is no installation.
    files.sort_by_key(|name| name == DATABASE_FILE);
    if audit {
        let into = data.join(AUDIT_DIR);
        if into.is_dir() {
            fs::remove_dir(&into).with_context(|| format!("cannot use {}", into.display()))?;
        }
        sallyport_audit::copy(&args.from.join(AUDIT_DIR), &into)?;
    }
    for name in &files {
        copy(&args.from.join(name), &data.join(name))?;
    }
    File::open(&data)?.sync_all()?;
    if audit {
        files.push(AUDIT_DIR.to_owned());
    }
    files.sort();
    let found = if audit { verified(&data)? } else { None };
    let json = json!({ "data": data, "backup": args.from, "files": files, "audit": found });
    context.output.data(&json, |_| format!("restored {} into {}", files.join(", "), data.display()))?;
    match &found {
        Some(found) if found.is_good => context.output.hint(&format!(
            "the audit log has {} events, and none was removed, changed or inserted; events after the backup are not \
             in it",
            found.events
        )),
        Some(_) => context.output.hint(&format!(
            "the audit log is not as it was written: `sallyport audit verify --data {}` shows what is wrong",
            data.display()
        )),
        None if audit => context.output.hint("look at the audit log with `sallyport audit verify` when control runs"),
        None => context.output.hint("there is no audit log in the backup: a new one begins"),
    }
    context.output.hint(&format!("start `sallyport up --data {}` with the options as before", data.display()));
    Ok(())
}

/// Whether the directory has content.
fn is_used(dir: &Path) -> anyhow::Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", dir.display())),
    }
}

/// Verifies the audit log of a data directory; `None` if its key is in a database.
fn verified(data: &Path) -> anyhow::Result<Option<AuditVerification>> {
    if !data.join(sallyport_control::TOKEN_KEY_FILE).is_file() {
        return Ok(None);
    }
    let key = Secrets::open_or_create(data)?.derived(AUDIT_KEY);
    Ok(Some(sallyport_audit::verify(&data.join(AUDIT_DIR), &key)?))
}

/// The files of an installation beside the database: keys and certificates.
fn kept_files(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A setup token belongs to the present database.
        let is_own = [LOCK_FILE, database::OWN_ID_FILE, SETUP_TOKEN_FILE].contains(&name.as_str());
        if entry.file_type()?.is_file() && !is_own && !name.starts_with(DATABASE_FILE) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Makes the directory for its owner alone, or checks that it is empty.
fn make_empty(dir: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot make {}", dir.display());
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_dir(dir).with_context(cannot)?.next().is_none() {
                return Ok(());
            }
            let message = format!("{} is not empty", dir.display());
            Err(Failure::new(Kind::Refused, message).next("name a directory that is not there yet").into())
        }
        Err(error) => Err(error).with_context(cannot),
    }
}

/// Copies a file with its mode; only its owner can read it meanwhile.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = || -> io::Result<()> {
        let mut source = File::open(from)?;
        let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut source, &mut target)?;
        target.set_permissions(source.metadata()?.permissions())?;
        target.sync_all()
    };
    copied().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}
