//! `sallyport network machine`: the machines of a network.

use clap::{Args, Subcommand};
use sallyport_api::Machine;
use serde_json::json;

use super::NetworkArg;
use crate::{
    command::options::confirm::YesArg,
    context::Context,
    failure,
    output::Output,
    view::columns::{self, Column},
};

/// What can be done with machines.
#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// List the machines of a network
    #[command(alias = "list")]
    Ls(NetworkArg),
    /// Remove a machine from a network
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    network: NetworkArg,
    /// The machine, by name or id
    #[arg(value_name = "MACHINE")]
    machine: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(super) async fn run(context: &Context, command: MachineCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        MachineCommand::Ls(NetworkArg { network }) => {
            let machines = client.machines(&network).await.map_err(|error| failure::about(error, &network))?;
            context.output.list(&machines, "the network has no machines", |all| table(&context.output, all))
        }
        MachineCommand::Rm(RmArgs { network: NetworkArg { network }, machine, yes }) => {
            yes.confirm(&format!("Remove the machine {machine} from the network {network}? It loses its addresses."))?;
            let removed = client.delete_machine(&network, &machine).await;
            removed.map_err(|error| failure::about_both(error, ("network", &network), Some(&machine)))?;
            let said = json!({ "deleted": machine, "network": network });
            context.output.data(&said, |_| format!("removed the machine {machine} from {network}"))
        }
    }
}

/// The machines as a table.
pub(super) fn table(output: &Output, machines: &[Machine]) -> String {
    let columns = [
        Column::Plain("MACHINE"),
        Column::Plain("ADDRESSES"),
        Column::Plain("ROUTES"),
        Column::Plain("GROUPS"),
        Column::Plain("EXIT"),
    ];
    let rows = machines.iter().map(|machine| {
        let addresses: Vec<_> = machine.addresses.iter().map(ToString::to_string).collect();
        let exit = if machine.is_exit { "yes" } else { "no" };
        let (routes, groups) = (machine.routes.join(" "), machine.groups.join(" "));
        [machine.name.clone(), addresses.join(" "), routes, groups, exit.to_owned()]
    });
    columns::table(output, columns, rows)
}
