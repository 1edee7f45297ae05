//! `sallyport network`: networks of machines, and what may talk to what there.
//!
//! May use what `command` may use.

mod apply;
mod join;
mod kept;
mod policy;

use clap::Subcommand;

pub(crate) use self::{join::JoinArgs, policy::NetworkPolicyCommand};
use crate::context::Context;

/// What can be done with networks.
#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// Take this machine into a network, for as long as the command runs
    #[command(after_help = "\
Examples:
  sudo sallyport network join office
  sudo sallyport network join office --name gate --route 10.30.0.0/16
  sudo sallyport network join office --transport quic -o json")]
    Join(JoinArgs),
    /// What may talk to what: a file, which this machine enforces by nftables
    #[command(subcommand)]
    Policy(NetworkPolicyCommand),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: NetworkCommand) -> anyhow::Result<()> {
    match command {
        NetworkCommand::Join(args) => join::run(context, args).await,
        NetworkCommand::Policy(command) => policy::run(context, command).await,
    }
}
