//! `sallyport anycast`: prefixes that edges announce by BGP, and which region clients get by DNS.
//!
//! May use what `command` may use.

mod dial;
mod explain;
mod orders;
mod resolve;
mod setup;
mod show;

use clap::Subcommand;

use self::{
    dial::DialArgs,
    explain::ExplainArgs,
    orders::OrderArgs,
    resolve::ResolveArgs,
    setup::{AddPeerArgs, AddPrefixArgs, RmArgs},
};
use crate::context::Context;

/// What can be done with anycast.
#[derive(Debug, Subcommand)]
pub(crate) enum AnycastCommand {
    /// Prefixes that edges announce
    #[command(subcommand)]
    Prefix(PrefixCommand),
    /// Routers with which edges speak BGP
    #[command(subcommand)]
    Peer(PeerCommand),
    /// Show how prefixes stand at each edge, why, and who has heard of them
    Status,
    /// Show what edges would change at their BIRD, without passwords
    Preview,
    /// Move clients away from edges, then withdraw their prefixes
    Drain(OrderArgs),
    /// Have routers prefer other edges; these announce on, as the last resort
    Maintain(OrderArgs),
    /// Show by which routes others see a prefix, and why clients land where they do
    Explain(ExplainArgs),
    /// Show or set how much of what comes to a region by DNS stays there; the rest gets the next best region
    Dial(DialArgs),
    /// Say which region the name server would answer a client, and why
    Resolve(ResolveArgs),
}

/// What can be done with prefixes.
#[derive(Debug, Subcommand)]
pub(crate) enum PrefixCommand {
    /// Have edges announce a prefix
    Add(AddPrefixArgs),
    /// List the prefixes
    #[command(alias = "list")]
    Ls,
    /// Have edges no longer announce a prefix
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// What can be done with routers.
#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Have edges speak BGP with a router
    Add(Box<AddPeerArgs>),
    /// List the routers
    #[command(alias = "list")]
    Ls,
    /// End the sessions with a router
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: AnycastCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        AnycastCommand::Prefix(PrefixCommand::Add(args)) => setup::add_prefix(context, &client, args).await,
        AnycastCommand::Prefix(PrefixCommand::Ls) => show::prefixes(context, &client).await,
        AnycastCommand::Prefix(PrefixCommand::Rm(args)) => setup::remove_prefix(context, &client, args).await,
        AnycastCommand::Peer(PeerCommand::Add(args)) => setup::add_peer(context, &client, *args).await,
        AnycastCommand::Peer(PeerCommand::Ls) => show::peers(context, &client).await,
        AnycastCommand::Peer(PeerCommand::Rm(args)) => setup::remove_peer(context, &client, args).await,
        AnycastCommand::Status => show::status(context, &client).await,
        AnycastCommand::Preview => show::preview(context, &client).await,
        AnycastCommand::Drain(args) => orders::run(context, &client, args, true).await,
        AnycastCommand::Maintain(args) => orders::run(context, &client, args, false).await,
        AnycastCommand::Explain(args) => explain::run(context, &client, args).await,
        AnycastCommand::Dial(args) => dial::run(context, &client, args).await,
        AnycastCommand::Resolve(args) => resolve::run(context, &client, args).await,
    }
}
