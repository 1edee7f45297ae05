//! `sallyport lab fault`: faults in a running laboratory.

use std::time::Duration;

use clap::{Args, Subcommand};
use sallyport_cli::duration;
use sallyport_lab::{Lab, Link, rate_bits};
use serde_json::json;

use super::{Context, LabSelector, failure};

/// What can be done to a laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Kill a process, those of a node, or those of a region (SIGKILL)
    Kill(Target),
    /// Pause processes (SIGSTOP): connections stay open, without responses
    Pause(Target),
    /// Resume paused processes, and start killed ones again
    Resume(Name),
    /// Cut a node or a region off from everything else, or from one other node or region
    Partition(Partition),
    /// Give the links of a node, or those between a region and others, a delay, loss or a rate
    Slow(Slow),
    /// Undo partitions and slow links, of one node or region or of all
    Heal(Heal),
}

/// A process, a node or a region.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// A process, a node or a region, as `lab status` shows them: eu-1, eu-connector, nats-2, eu
    #[arg(value_name = "NAME")]
    name: String,
}

/// The target, and the duration.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    time: Time,
}

/// The duration.
#[derive(Debug, Args)]
pub(crate) struct Time {
    /// Undo the fault after this time, or at Ctrl-C [default: the fault stays]
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
}

/// Options of `lab fault partition`.
#[derive(Debug, Args)]
pub(crate) struct Partition {
    /// A node or a region
    #[arg(value_name = "NAME")]
    name: String,
    /// Only from this node or region
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    #[command(flatten)]
    time: Time,
}

/// Options of `lab fault slow`.
#[derive(Debug, Args)]
pub(crate) struct Slow {
    /// A node or a region
    #[arg(value_name = "NAME")]
    name: String,
    /// Additional delay, one way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration::parse)]
    delay: Duration,
    /// How many packets of a hundred are lost
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    loss: f64,
    /// Bits per second, each way, such as 10M
    #[arg(long, value_name = "RATE", value_parser = rate_bits)]
    rate: Option<u64>,
    #[command(flatten)]
    time: Time,
}

/// Options of `lab fault heal`.
#[derive(Debug, Args)]
pub(crate) struct Heal {
    /// A node or a region [default: all]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// How a fault is undone.
enum Undo {
    /// These processes: the leader of the bus may have changed by then.
    Resume(Vec<String>),
    Heal(String),
}

/// Runs the command.
pub(super) async fn run(context: &Context, which: &LabSelector, command: FaultCommand) -> anyhow::Result<()> {
    let report = |what: &str, names: &[String]| -> anyhow::Result<()> {
        let data = json!({ "done": what, "names": names });
        context.output.data(&data, |_| format!("{what}: {}", names.join(", ")))
    };
    let look = || Lab::look(&which.dir, &which.name).map_err(failure);
    let (time, undo) = match command {
        FaultCommand::Kill(Target { name: Name { name }, time }) => {
            let names = look()?.kill(&name).map_err(failure)?;
            report("killed", &names)?;
            (time, Undo::Resume(names))
        }
        FaultCommand::Pause(Target { name: Name { name }, time }) => {
            let names = look()?.pause(&name).map_err(failure)?;
            report("paused", &names)?;
            (time, Undo::Resume(names))
        }
        FaultCommand::Partition(Partition { name, from, time }) => {
            look()?.partition(&name, from.as_deref()).map_err(failure)?;
            let from = from.unwrap_or_else(|| "everything".to_owned());
            report("cut off", &[format!("{name} from {from}")])?;
            (time, Undo::Heal(name))
        }
        FaultCommand::Slow(Slow { name, delay, loss, rate, time }) => {
            let link = Link { delay, loss_percent: loss, rate_bits: rate };
            look()?.slow(&name, link).map_err(failure)?;
            report("slowed", std::slice::from_ref(&name))?;
            (time, Undo::Heal(name))
        }
        FaultCommand::Resume(Name { name }) => return report("resumed", &resume(which, &[name])?),
        FaultCommand::Heal(Heal { name }) => {
            look()?.heal(name.as_deref()).map_err(failure)?;
            return report("healed", &[name.unwrap_or_else(|| "everything".to_owned())]);
        }
    };
    let Some(time) = time.time else { return Ok(()) };
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    match undo {
        Undo::Resume(names) => report("resumed", &resume(which, &names)?),
        Undo::Heal(name) => {
            look()?.heal(Some(&name)).map_err(failure)?;
            report("healed", &[name])
        }
    }
}

fn resume(which: &LabSelector, names: &[String]) -> anyhow::Result<Vec<String>> {
    tokio::task::block_in_place(|| {
        let mut lab = Lab::open(&which.dir, &which.name).map_err(failure)?;
        let mut resumed = Vec::new();
        for name in names {
            resumed.extend(lab.resume(name).map_err(failure)?);
        }
        Ok(resumed)
    })
}
