//! `sallyport anycast`: which region clients get.
//!
//! May use what `command` may use.

mod dial;
mod resolve;

use clap::Subcommand;

use self::{dial::DialArgs, resolve::ResolveArgs};
use crate::context::Context;

/// What can be done with anycast.
#[derive(Debug, Subcommand)]
pub(crate) enum AnycastCommand {
    /// Show or set how much of what comes to a region by DNS stays there; the rest gets the next best region
    Dial(DialArgs),
    /// Say which region the name server would answer a client, and why
    Resolve(ResolveArgs),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: AnycastCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        AnycastCommand::Dial(args) => dial::run(context, &client, args).await,
        AnycastCommand::Resolve(args) => resolve::run(context, &client, args).await,
    }
}
