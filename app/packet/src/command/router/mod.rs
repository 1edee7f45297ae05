//! `packet router`: brings the router up and down, follows the kernel, and shows what is there.

mod down;
mod prober;
mod run;
mod show;
mod up;

use clap::Subcommand;
use sallyport_cli::output::Output;
use sallyport_xdp::Router;

pub(super) use up::say_if_off;

/// What a router does.
#[derive(Debug, Subcommand)]
pub(crate) enum RouterCommand {
    /// Bring the router up, or change the one that stands, without a lost packet
    #[command(after_help = up::EXAMPLES)]
    Up(up::UpArgs),
    /// Bring the router up, and follow the kernel: routes for the lookup fib, VLANs, addresses
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunArgs),
    /// Take the router down: the kernel forwards again
    Down,
    /// Show routes, neighbours, the lookup, or what was forwarded and dropped
    #[command(subcommand)]
    Show(show::ShowCommand),
}

/// Runs a command.
pub(super) async fn run(output: Output, router: &Router, command: RouterCommand) -> anyhow::Result<()> {
    match command {
        RouterCommand::Up(args) => up::up(output, router, args).await,
        RouterCommand::Run(args) => run::run(output, router, args).await,
        RouterCommand::Down => down::down(output, router).await,
        RouterCommand::Show(command) => show::show(output, router, command).await,
    }
}
