//! `sallyport network`: networks of machines, and what may talk to what there.
//!
//! May use what `command` may use.

mod apply;
mod control;
mod join;
mod kept;
mod machine;
mod object;
mod policy;
mod stored;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use self::object::{CreateArgs, RmArgs};
pub(crate) use self::{join::JoinArgs, machine::MachineCommand, policy::NetworkPolicyCommand};
use crate::context::{Context, candidates};

/// What can be done with networks.
#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// Make a network
    Create(CreateArgs),
    /// List the networks
    #[command(alias = "list")]
    Ls,
    /// Show a network with its machines
    Show(NetworkArg),
    /// Remove a network
    #[command(alias = "delete")]
    Rm(RmArgs),
    /// Take this machine into a network, for as long as the command runs
    #[command(after_help = "\
Examples:
  sudo sallyport network join office
  sudo sallyport network join office --name gate --route 10.30.0.0/16
  sudo sallyport network join office --accept-routes
  sudo sallyport network join office --transport quic -o json")]
    Join(JoinArgs),
    /// The machines of a network
    #[command(subcommand)]
    Machine(MachineCommand),
    /// What may talk to what: a file, or the policy of a network
    #[command(subcommand)]
    Policy(NetworkPolicyCommand),
}

/// A network.
#[derive(Debug, Args)]
pub(crate) struct NetworkArg {
    /// The network, by name or id
    #[arg(value_name = "NETWORK", add = ArgValueCompleter::new(candidates::networks))]
    network: String,
}

/// So many things, in words: `1 rule`, `2 rules`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: NetworkCommand) -> anyhow::Result<()> {
    match command {
        NetworkCommand::Create(args) => object::create(context, args).await,
        NetworkCommand::Ls => object::ls(context).await,
        NetworkCommand::Show(args) => object::show(context, &args.network).await,
        NetworkCommand::Rm(args) => object::rm(context, &args).await,
        NetworkCommand::Machine(command) => machine::run(context, command).await,
        NetworkCommand::Join(args) => join::run(context, args).await,
        NetworkCommand::Policy(command) => policy::run(context, command).await,
    }
}
