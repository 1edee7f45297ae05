//! `sallyport lab`: a network of edges on this machine, and faults to try on it.
//!
//! Uses the library of this crate, and `sallyport_cli`.

mod anycast;
mod capacity;
mod chaos;
mod fault;
mod load;
mod measure;
mod show;
mod simulate;
mod simulate_dns;

use std::{
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use sallyport_cli::{
    completion::CompletionArgs,
    duration,
    failure::{Failure, Kind},
    manual::ManualArgs,
    output::{self, Output},
};
use sallyport_lab::{
    AnycastOptions, DEFAULT_PARENT, Database, Lab, LabError, LabName, Plant, Topology, TopologyError, TopologyOptions,
    rate_bits,
};
use serde_json::json;

use self::{
    anycast::AnycastCommand, capacity::CapacityCommand, chaos::ChaosArgs, fault::FaultCommand, load::LoadArgs,
    measure::MeasureArgs, simulate::SimulateCommand,
};

/// The context of every command.
#[derive(Debug)]
pub(crate) struct Context {
    /// How to print.
    pub(crate) output: Output,
    /// The root certificate of `--ca`.
    pub(crate) ca: Option<PathBuf>,
}

/// A laboratory on the command line.
#[derive(Debug, Args)]
pub(crate) struct LabSelector {
    /// The name of the laboratory, where there are several: 1 to 8 lower-case letters and digits
    #[arg(
        id = "lab_name",
        long = "lab",
        global = true,
        value_name = "NAME",
        default_value_t,
        hide_default_value = true
    )]
    name: LabName,
    /// Where laboratories keep their files
    #[arg(id = "lab_dir", long = "dir", global = true, value_name = "DIR", default_value = DEFAULT_PARENT, hide = true)]
    dir: PathBuf,
}

/// What can be done with laboratories.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Build a laboratory: regions with edges, controls, NATS, PostgreSQL, origins and clients
    Up(UpArgs),
    /// Remove the laboratory, with everything that runs in it
    Down,
    /// List the laboratories of this machine
    #[command(alias = "list")]
    Ls,
    /// Show the processes of the laboratory, and its cut and slowed links
    Status,
    /// Run a program on a node, such as us-client, where names resolve to the nearest edge
    Exec(ExecArgs),
    /// Inject a fault (kill, pause, partition, slow), or undo it
    #[command(subcommand)]
    Fault(FaultCommand),
    /// Send requests from a node, and count the failed ones
    Load(LoadArgs),
    /// Inject random faults one after the other, while clients of all regions send requests, and count the failed ones
    Chaos(ChaosArgs),
    /// Show at which site each client network lands, add edges to a site, and take edges away under load
    #[command(subcommand)]
    Anycast(AnycastCommand),
    /// Show how soon edges know of tunnels, and what tunnels, connections and requests cost
    #[command(subcommand)]
    Capacity(CapacityCommand),
    /// Repeat the measurements of published articles on this machine, without a laboratory
    Measure(MeasureArgs),
    /// Run steering in virtual time, without a laboratory and without root
    #[command(subcommand)]
    Simulate(SimulateCommand),
    /// Update the names of all sockets on all nodes, after sockets were made
    Names,
    /// The program that carries packets
    #[command(hide = true)]
    Wires,
    /// The web service of an origin
    #[command(hide = true)]
    Service(ServiceArgs),
    /// Write the manual pages of the laboratory into a folder
    #[command(hide = true)]
    Man(ManualArgs),
    /// Print the completion script of a shell, for `sallyport-lab`
    #[command(hide = true)]
    Completion(CompletionArgs),
}

/// Options of `lab up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// How many regions: eu, us, ap, sa, af, oc
    #[arg(id = "lab_regions", long = "regions", value_name = "COUNT", default_value_t = 3)]
    regions: u8,
    /// How many edges in each region
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    edges: u8,
    /// How many controls, spread over the regions [default: 2, or 1 with --no-postgres]
    #[arg(long, value_name = "COUNT")]
    controls: Option<u8>,
    /// Keep the store in SQLite, with the one control
    #[arg(long)]
    no_postgres: bool,
    /// The delay between any two regions, one way [default: that of such regions: 40ms from eu to us]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    delay: Option<Duration>,
    /// How many packets of a hundred are lost between regions
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    loss: f64,
    /// Bits per second between any two regions, each way, such as 100M [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate_bits)]
    rate: Option<u64>,
    /// The program `sallyport` of controls, edges and connectors, such as one of another version [default: the one
    /// beside this program, else the one on PATH]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    #[command(flatten)]
    anycast: AnycastArgs,
}

/// Options of `lab up --anycast`.
#[derive(Debug, Args)]
#[command(next_help_heading = "An internet in which edges announce anycast addresses by BGP")]
pub(crate) struct AnycastArgs {
    /// Build networks with routers around the edges, in place of regions
    #[arg(
        long,
        conflicts_with_all = ["lab_regions", "edges", "controls", "no_postgres", "delay", "loss", "rate"]
    )]
    anycast: bool,
    /// How many sites: london, new-york, tokyo, sao-paulo, johannesburg, sydney
    #[arg(long, value_name = "COUNT", default_value_t = 4, requires = "anycast")]
    sites: u8,
    /// How many edges in each site
    #[arg(long, value_name = "COUNT", default_value_t = 2, requires = "anycast")]
    edges_per_site: u8,
    /// Plant what sends clients to the wrong site: london (AS3356 prefers its customer AS209, to which New York
    /// announces), or leak (a customer sends routes of one provider to the other)
    #[arg(long, value_name = "CASE", requires = "anycast")]
    plant: Option<Plant>,
}

/// Options of `lab exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The node, as `lab status` shows it, or a client such as us-client
    #[arg(value_name = "NODE")]
    node: String,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

/// Options of `lab service`.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// The name of the service, in its responses
    #[arg(long)]
    called: String,
    /// The address to listen on
    #[arg(long)]
    listen: SocketAddr,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, which: LabSelector, command: LabCommand) -> anyhow::Result<()> {
    let LabSelector { name, dir } = &which;
    match command {
        LabCommand::Service(args) => {
            return Ok(sallyport_lab::run_service(&args.called, args.listen).await.map_err(failure)?);
        }
        LabCommand::Wires => {
            return Ok(tokio::task::block_in_place(|| sallyport_lab::run_wires(dir, name)).map_err(failure)?);
        }
        LabCommand::Load(args) => return load::run(context, &which, args).await,
        LabCommand::Chaos(args) => return chaos::run(context, &which, args).await,
        LabCommand::Fault(command) => return fault::run(context, &which, command).await,
        LabCommand::Anycast(command) => return anycast::run(context, &which, command).await,
        LabCommand::Measure(args) => return measure::run(context, args).await,
        _ => {}
    }
    tokio::task::block_in_place(|| match command {
        LabCommand::Up(args) => up(context, &which, &args),
        LabCommand::Down => {
            let was_there = sallyport_lab::down(dir, name).map_err(failure)?;
            let data = json!({ "lab": name, "was_there": was_there });
            context.output.data(&data, |_| {
                if was_there {
                    format!("the laboratory {name} is removed")
                } else {
                    format!("there is no laboratory {name}")
                }
            })
        }
        LabCommand::Ls => {
            let labs = sallyport_lab::all(dir);
            let rows: Vec<_> = labs.iter().map(|(name, whole)| json!({ "lab": name, "is_whole": whole })).collect();
            context.output.list(&rows, "no laboratories: `sallyport lab up` builds one", |_| {
                let state = |whole: bool| if whole { "stands" } else { "half built" };
                output::table(
                    ["LAB", "STATE"],
                    labs.iter().map(|(name, whole)| [name.to_string(), state(*whole).to_owned()]),
                )
            })
        }
        LabCommand::Status => {
            let lab = Lab::look(dir, name).map_err(failure)?;
            context.output.data(&lab.status(), show::status)
        }
        LabCommand::Exec(args) => exec(&which, &args),
        LabCommand::Capacity(command) => capacity::run(context, &which, &command),
        LabCommand::Simulate(command) => simulate::run(context, &command),
        LabCommand::Names => {
            let names = Lab::open(dir, name).and_then(|mut lab| lab.learn_names()).map_err(failure)?;
            context.output.data(&names, |names| names.join("\n"))
        }
        LabCommand::Wires
        | LabCommand::Service(_)
        | LabCommand::Load(_)
        | LabCommand::Measure(_)
        | LabCommand::Fault(_)
        | LabCommand::Anycast(_)
        | LabCommand::Man(_)
        | LabCommand::Completion(_)
        | LabCommand::Chaos(_) => Ok(()),
    })
}

fn up(context: &Context, which: &LabSelector, args: &UpArgs) -> anyhow::Result<()> {
    let database = if args.no_postgres { Database::Sqlite } else { Database::Postgres };
    let options = TopologyOptions {
        name: which.name.clone(),
        regions: args.regions,
        edges: args.edges,
        controls: args.controls.unwrap_or(if args.no_postgres { 1 } else { 2 }),
        database,
        delay: args.delay,
        loss_percent: args.loss,
        rate_bits: args.rate,
    };
    let topology = match &args.anycast {
        AnycastArgs { anycast: true, sites, edges_per_site, plant } => {
            let options = AnycastOptions { sites: *sites, edges_per_site: *edges_per_site, plant: *plant };
            Topology::anycast(which.name.clone(), options)
        }
        _ => Topology::new(&options),
    };
    let topology = topology.map_err(|error: TopologyError| failure(error.into()))?;
    let began = Instant::now();
    let mut tell = |step: &str| context.output.hint(&format!("{:>3} s  {step}", began.elapsed().as_secs()));
    let lab = sallyport_lab::up(&which.dir, topology, args.program.as_deref(), &mut tell).map_err(failure)?;
    let seconds = began.elapsed().as_secs();
    context.output.data(&lab.status(), |_| show::what_to_try(&lab, seconds))
}

fn exec(which: &LabSelector, args: &ExecArgs) -> anyhow::Result<()> {
    let lab = Lab::look(&which.dir, &which.name).map_err(failure)?;
    let (program, rest) = args.program.split_first().ok_or_else(|| Failure::usage("which program?"))?;
    let mut command = lab.command_on(&args.node, program).map_err(failure)?;
    // Replaces this process; a return means that the program cannot be started.
    let error = command.args(rest).exec();
    Err(anyhow::Error::new(error).context("cannot run ip"))
}

/// The failure for an error of a laboratory.
pub(super) fn failure(error: LabError) -> Failure {
    let kind = match &error {
        LabError::Topology(_) => Kind::Usage,
        LabError::None(_) | LabError::NoSuch { .. } => Kind::NotFound,
        LabError::AlreadyExists { .. } | LabError::Half(_) | LabError::Busy(_) | LabError::Unfit(_) => Kind::Refused,
        LabError::Wires(_) => Kind::Unreachable,
        _ => Kind::Failed,
    };
    let failure = Failure::new(kind, error.to_string());
    match error.next_step() {
        Some(step) => failure.next(step),
        None => failure,
    }
}
