//! `sallyport authority`: the authorities of an installation.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sallyport_store::{DataDirLock, Store};
use serde_json::json;

use super::data::data_dir;
use crate::{
    context::Context,
    failure::Failure,
    installation::{self, KEY_FILE, KeyArgs, WhichAuthority, database::DatabaseArgs},
};

/// What can be done with the authorities of an installation.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Replace an authority by a new one, while neither `up` nor any control runs
    Rotate(RotateArgs),
}

/// Options of `authority rotate`.
#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// The authority: clients (the root that clients trust) or machines (between controls and edges)
    #[arg(value_enum, value_name = "WHICH", hide_possible_values = true)]
    which: WhichAuthority,
    /// The data directory of `up` or of a control [default: as for `up`]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    key: KeyArgs,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: AuthorityCommand) -> anyhow::Result<()> {
    let AuthorityCommand::Rotate(args) = command;
    let data = data_dir(args.data)?;
    let lock = DataDirLock::take(&data)?;
    let fingerprint = match args.database.address()? {
        None if data.join(KEY_FILE).exists() => {
            let message = format!("the keys of the control in {} are in its database", data.display());
            return Err(Failure::usage(message).next("name that with --database or --database-file").into());
        }
        None => installation::replace_authority(&data, args.which)?,
        Some(address) => {
            let store = Store::open_postgres(&address).await?;
            let made = installation::replace_shared_authority(&store, &data, &args.key, args.which).await;
            store.close().await;
            made?
        }
    };
    drop(lock);
    let (name, next) = match args.which {
        WhichAuthority::Clients => (
            "clients",
            "start `up` or the controls again; then give ca.pem in their data directory to whoever connects, instead \
             of the former one",
        ),
        WhichAuthority::Machines => {
            ("machines", "start the controls again; then let each edge join anew, in an empty data directory")
        }
    };
    let json = json!({ "authority": name, "fingerprint": fingerprint });
    context.output.data(&json, |_| format!("the authority of {name} is a new one: {fingerprint}"))?;
    context.output.hint(next);
    Ok(())
}
