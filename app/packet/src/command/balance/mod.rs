//! `packet balance`: a balancer before edges. Uses the loader in io/xdp, and the model's configuration.

mod explain;
mod metrics;
mod run;
mod show;
mod state;
mod up;

use std::path::PathBuf;

use clap::Subcommand;
use sallyport_cli::output::Output;
use sallyport_xdp::balance::Balancer;

/// What a balancer does.
#[derive(Debug, Subcommand)]
pub(crate) enum BalanceCommand {
    /// Bring the balancer up, or change the one that stands, without a lost packet
    #[command(after_help = up::EXAMPLES)]
    Up(up::UpArgs),
    /// Bring the balancer up, and keep its tables in step with the file
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::RunArgs>),
    /// Show edges, services, slices, or what was sent and dropped
    #[command(subcommand)]
    Show(show::ShowCommand),
    /// Give an edge no new connections; those that it has stay
    Drain(up::EdgeArgs),
    /// Give a drained edge new connections again
    Undrain(up::EdgeArgs),
    /// Say which edge or machine would get a packet, and why
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Take the balancer down
    Down,
}

/// Runs a command.
pub(super) async fn run(
    output: Output,
    balancer: &Balancer,
    command: BalanceCommand,
    ca: Option<PathBuf>,
) -> anyhow::Result<()> {
    match command {
        BalanceCommand::Up(args) => up::up(output, balancer, &args).await,
        BalanceCommand::Run(args) => run::run(output, balancer, *args, ca).await,
        BalanceCommand::Show(command) => show::show(output, balancer, command).await,
        BalanceCommand::Drain(args) => up::drain(output, balancer, &args, true),
        BalanceCommand::Undrain(args) => up::drain(output, balancer, &args, false),
        BalanceCommand::Explain(args) => explain::explain(output, balancer, args).await,
        BalanceCommand::Down => up::down(output, balancer).await,
    }
}
