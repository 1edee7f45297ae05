//! `sallyport egress`: addresses that edges share by slices of ports.
//!
//! May use what `command` may use.

mod addresses;
mod slices;

use clap::Subcommand;

use self::{
    addresses::{AddAddressArgs, RmAddressArgs},
    slices::{AddSliceArgs, MoveSliceArgs, RmSliceArgs},
};
use crate::context::Context;

/// What can be done with egress.
#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// Addresses that edges share
    #[command(subcommand)]
    Address(AddressCommand),
    /// Slices of 2,048 ports, and the edges that have them
    #[command(subcommand)]
    Slice(SliceCommand),
    /// Print the geofeed that everybody can read at /geofeed.csv (RFC 8805)
    Geofeed,
}

/// What can be done with addresses.
#[derive(Debug, Subcommand)]
pub(crate) enum AddressCommand {
    /// Add an address: it has 31 slices
    Add(AddAddressArgs),
    /// List the addresses
    #[command(alias = "list")]
    Ls,
    /// Remove an address of which no edge has a slice
    #[command(alias = "delete")]
    Rm(RmAddressArgs),
}

/// What can be done with slices.
#[derive(Debug, Subcommand)]
pub(crate) enum SliceCommand {
    /// Give an edge a slice: it dials direct origins from there
    Add(AddSliceArgs),
    /// List the slices, with their ports and edges
    #[command(alias = "list")]
    Ls,
    /// Move a slice to another edge; flows of the former edge go on
    Move(MoveSliceArgs),
    /// Take a slice from its edge; its flows go on
    #[command(alias = "delete")]
    Rm(RmSliceArgs),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: EgressCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        EgressCommand::Address(AddressCommand::Add(args)) => addresses::add(context, &client, args).await,
        EgressCommand::Address(AddressCommand::Ls) => addresses::list(context, &client).await,
        EgressCommand::Address(AddressCommand::Rm(args)) => addresses::remove(context, &client, args).await,
        EgressCommand::Slice(SliceCommand::Add(args)) => slices::add(context, &client, args).await,
        EgressCommand::Slice(SliceCommand::Ls) => slices::list(context, &client).await,
        EgressCommand::Slice(SliceCommand::Move(args)) => slices::change(context, &client, args).await,
        EgressCommand::Slice(SliceCommand::Rm(args)) => slices::remove(context, &client, args).await,
        EgressCommand::Geofeed => addresses::geofeed(context, &client).await,
    }
}
