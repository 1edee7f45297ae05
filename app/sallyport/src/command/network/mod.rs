//! `sallyport network`: networks of machines, and what may talk to what there.
//!
//! May use what `command` may use.

mod apply;
mod policy;

use clap::Subcommand;

pub(crate) use self::policy::NetworkPolicyCommand;
use crate::context::Context;

/// What can be done with networks.
#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// What may talk to what: a file, which this machine enforces by nftables
    #[command(subcommand)]
    Policy(NetworkPolicyCommand),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: NetworkCommand) -> anyhow::Result<()> {
    match command {
        NetworkCommand::Policy(command) => policy::run(context, command).await,
    }
}
