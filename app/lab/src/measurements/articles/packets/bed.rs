//! A router between two devices of a generator, and what a packet costs there in processor time.
//!
//! The generator is bound to one processor. A veth device hands a packet over on the processor that sends it, so the
//! generator, the router and the sink all run in the generator's time, and other programs do not count. The same
//! packets to a sink without a router are the baseline.

use std::{
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use rustix::thread::{CpuSet, sched_getaffinity};
use sallyport_cli::program;
use serde_json::Value;

use crate::{
    kernel,
    measurements::{
        ETHTOOL,
        frame::RunError,
        links::{Space, connect},
    },
};

const PROGRAM: &str = "sallyport-packet";
/// The source of all packets, and the destination behind the router.
const SOURCE: &str = "198.18.0.1";
const DEST: &str = "198.19.0.1";
/// The first of the destinations that have a route each: 32.0.0.0.
const FIRST_ROUTED: u32 = 0x2000_0000;
/// The router's address towards the sink, to which sources are translated.
pub(super) const TRANSLATED: &str = "10.0.1.1";
/// The next hop behind the router.
const NEXT_HOP: &str = "10.0.1.2";
/// A run with fewer frames at the sink does not count: a lost frame costs less.
const LEAST_ARRIVED: f64 = 0.999;
const TRIES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flows {
    /// So many flows to one destination.
    Of(u32),
    /// One flow to each of so many destinations, each with a route of its own.
    Routed(u32),
}

impl Flows {
    fn count(self) -> u32 {
        match self {
            Self::Of(count) | Self::Routed(count) => count,
        }
    }

    fn args(self) -> [String; 4] {
        let dest = match self {
            Self::Of(_) => DEST.to_owned(),
            Self::Routed(count) => format!("{}-{}", routed(0), routed(count - 1)),
        };
        ["--dst".to_owned(), dest, "--flows".to_owned(), self.count().to_string()]
    }

    /// The destination whose route is set last.
    fn last(self) -> String {
        match self {
            Self::Of(_) => DEST.to_owned(),
            Self::Routed(count) => routed(count - 1).to_string(),
        }
    }
}

/// A destination with a route of its own.
fn routed(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ROUTED + number)
}

/// What the generator did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// The processor time of the run, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// The frames that arrived.
    pub(super) arrived: f64,
    /// Frames a second.
    pub(super) per_second: f64,
    /// Bits a second on a wire.
    pub(super) wire_bits: f64,
}

/// What a packet costs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// In nanoseconds, without the generator and the sink.
    pub(super) net_ns: f64,
    /// The share of frames that arrived, in percent.
    pub(super) arrived_percent: f64,
}

/// The machines.
#[derive(Debug)]
pub(super) struct Bed {
    outside: Space,
    pub(super) router: Space,
    sink: Space,
    processor: usize,
}

impl Bed {
    /// Connects the generator to the router on both sides, and to a sink.
    pub(super) fn new() -> Result<Self, RunError> {
        ETHTOOL.version()?;
        let (outside, router, sink) = (Space::new()?, Space::with_bpf()?, Space::new()?);
        connect((&outside, "g0", "10.0.0.2/24"), (&router, "d0", "10.0.0.1/24"))?;
        connect((&outside, "s0", "10.0.1.2/24"), (&router, "d1", "10.0.1.1/24"))?;
        connect((&outside, "b0", "10.0.2.2/24"), (&sink, "bd", "10.0.2.1/24"))?;
        router.set(&[("ipv4/ip_forward", "1"), ("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/d0/rp_filter", "0")])?;
        let behind = mac(&outside, "s0")?;
        let before = mac(&outside, "g0")?;
        router.ip(&format!(
            "neigh add 10.0.0.2 lladdr {before} dev d0 nud permanent\nneigh add {NEXT_HOP} lladdr {behind} dev d1 nud \
             permanent\nroute add {SOURCE}/32 via 10.0.0.2\nroute add 198.19.0.0/16 via {NEXT_HOP}\n"
        ))?;
        // A device sends frames of XDP once its peer polls, and that is told when it changes.
        for (space, device) in [(&outside, "g0"), (&outside, "s0"), (&router, "d0"), (&router, "d1")] {
            for state in ["off", "on"] {
                run(space, Command::new(ETHTOOL.program).args(["-K", device, "gro", state]))?;
            }
        }
        let allowed: CpuSet = sched_getaffinity(None).map_err(|error| RunError::io("list processors")(error.into()))?;
        let processor = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)).unwrap_or(0);
        Ok(Self { outside, router, sink, processor })
    }

    /// Sets the routes of these flows.
    pub(super) fn set_routes(&self, flows: Flows) -> Result<(), RunError> {
        let Flows::Routed(count) = flows else { return Ok(()) };
        let line = |number| format!("route add {}/32 via {NEXT_HOP}\n", routed(number));
        self.router.ip(&(0..count).map(line).collect::<String>())
    }

    /// What a packet of these flows costs in the router.
    pub(super) fn cost(&self, flows: Flows, frames: u32) -> Result<Cost, RunError> {
        let through = mac(&self.router, "d0")?;
        let args = flows.args();
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--size", "64"]).collect();
        let behind = ["--receive-dev", "s0"];
        // Neighbours, flows and caches are there from here on.
        self.send(("g0", &through), &behind, &args, flows.count())?;
        let mut arrived_percent = 0.0;
        for _ in 0..TRIES {
            let baseline = self.to_sink(&args, frames)?;
            let sent = self.send(("g0", &through), &behind, &args, frames)?;
            arrived_percent = sent.arrived * 100.0 / f64::from(frames);
            if arrived_percent >= LEAST_ARRIVED * 100.0 {
                let net_ns = (sent.cpu_ns - baseline.cpu_ns) / f64::from(frames);
                return Ok(Cost { net_ns, arrived_percent });
            }
        }
        Err(RunError::Unfit(format!("only {arrived_percent:.1} % of the frames came through, time and again")))
    }

    /// Sends frames to the sink, without a router.
    pub(super) fn to_sink(&self, args: &[&str], frames: u32) -> Result<Sent, RunError> {
        let (to, path) = (mac(&self.sink, "bd")?, self.sink.path());
        self.send(("b0", &to), &["--receive-dev", "bd", "--receive-netns", &path], args, frames)
    }

    fn send(&self, by: (&str, &str), receive: &[&str], args: &[&str], frames: u32) -> Result<Sent, RunError> {
        let mut command = packet(&["generate", "--dev", by.0, "--to", by.1, "--src", SOURCE, "-o", "json"])?;
        command.args(["--cpu", &self.processor.to_string(), "--count", &frames.to_string()]).args(receive).args(args);
        let before = children_ns()?;
        let printed = run(&self.outside, &mut command)?;
        let cpu_ns = children_ns()? - before;
        let printed: Value = serde_json::from_str(&printed).unwrap_or_default();
        let figure = |figure: &Value| {
            figure.as_f64().ok_or_else(|| RunError::Unfit("the generator printed no figures".to_owned()))
        };
        Ok(Sent {
            cpu_ns,
            arrived: figure(&printed["received"]["packets"])?,
            per_second: figure(&printed["packets_per_second"])?,
            wire_bits: figure(&printed["wire_bits_per_second"])?,
        })
    }

    /// Runs a command of `sallyport-packet` in the router.
    pub(super) fn command(&self, args: &[&str]) -> Result<String, RunError> {
        run(&self.router, &mut packet(args)?)
    }

    /// Waits until the running router forwards to the last destination of these flows.
    pub(super) fn wait_for(&self, flows: Flows) -> Result<(), RunError> {
        let began = Instant::now();
        let last = flows.last();
        loop {
            let said = self.command(&["explain", SOURCE, &last, "udp", "1024", "9", "--from", "d0", "-o", "json"]);
            let verdict: Value =
                said.as_deref().ok().and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default();
            if verdict["action"] == "forward" {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                said?;
                return Err(RunError::Unfit(format!("the router does not forward to {last}: {verdict}")));
            }
            thread::sleep(LOOK);
        }
    }

    /// The frames that the XDP router forwarded from the generator.
    pub(super) fn forwarded(&self) -> Result<f64, RunError> {
        let counts: Value = serde_json::from_str(&self.command(&["router", "show", "drops", "--all", "-o", "json"])?)
            .unwrap_or_default();
        let is_forwarded = |count: &&Value| count["port"] == "d0" && count["action"] == "forward";
        let counts = counts.as_array().into_iter().flatten().filter(is_forwarded);
        Ok(counts.filter_map(|count| count["packets"].as_f64()).sum())
    }
}

/// A program that ends with this value, or with the thread that started it.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// Starts a command of `sallyport-packet` in the namespace of this thread.
    pub(super) fn start(args: &[&str]) -> Result<Self, RunError> {
        let mut command = packet(args)?;
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        started.map(Self).map_err(RunError::io("start sallyport-packet"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A command of `sallyport-packet`, which ends with the thread that starts it.
fn packet(args: &[&str]) -> Result<Command, RunError> {
    let found = program::find(PROGRAM).ok_or_else(|| RunError::Missing {
        what: PROGRAM.to_owned(),
        how: "install it beside sallyport-lab or where PATH finds it",
    })?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(found).args(args);
    Ok(command)
}

/// Runs a program in a namespace to its end.
fn run(space: &Space, command: &mut Command) -> Result<String, RunError> {
    let printed = space.within(|| Ok(kernel::run(command, "")?));
    printed.map_err(|error| match error.to_string() {
        said if said.contains("built without clang") => RunError::Missing {
            what: "the packet path in sallyport-packet".to_owned(),
            how: "build it again where clang is installed",
        },
        _ => error,
    })
}

/// The MAC of a device.
fn mac(space: &Space, device: &str) -> Result<String, RunError> {
    let printed = run(space, Command::new("ip").args(["-j", "link", "show", "dev", device]))?;
    let links: Value = serde_json::from_str(&printed).unwrap_or_default();
    let mac = links[0]["address"].as_str().map(str::to_owned);
    mac.ok_or_else(|| RunError::Unfit(format!("ip shows no address of {device}")))
}

/// The processor time of all programs of this process that have ended, in nanoseconds.
fn children_ns() -> Result<f64, RunError> {
    let usage =
        getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| RunError::io("read the time used")(error.into()))?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(us as f64 * 1e3)
}
