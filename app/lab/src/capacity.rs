//! Measurements of a running laboratory: how fast edges learn of tunnels, and what tunnels, connections and requests
//! cost.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{
    error::LabError,
    kernel,
    load::percentile,
    plan::{Kind, Launch, Node, SERVICE_PORT},
    process::{Life, Started, Used},
    start::{self, Starting},
    state::Lab,
    watch::Watcher,
};

/// How long an edge may take to learn of a tunnel.
const KNOW_TIME: Duration = Duration::from_secs(30);
/// How long all edges may take to learn of all tunnels.
const ALL_TIME: Duration = Duration::from_secs(300);
/// How often edges are asked about one tunnel, and about many.
const OFTEN: Duration = Duration::from_millis(2);
const SELDOM: Duration = Duration::from_millis(20);
/// How many tunnels one socket has.
const TUNNELS_PER_SOCKET: usize = 200;
/// For how long idle processes are watched.
const REST: Duration = Duration::from_secs(10);
/// How long nothing may be missing before all tunnels count as back.
const SETTLED: Duration = Duration::from_secs(12);
/// How many services one `sallyport run` has.
const MAX_SERVICES: usize = 1_000;
/// How many tunnels a measurement has: an account makes at most 2,000 sockets and tunnels in a row.
pub const MAX_TUNNELS: u32 = 1_800;

/// How long all edges take to learn something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Soon {
    /// How many rounds there were.
    pub rounds: usize,
    /// The median, in microseconds.
    pub median_us: u64,
    /// The 99th percentile, in microseconds.
    pub p99_us: u64,
    /// The longest time, in microseconds.
    pub most_us: u64,
}

impl Soon {
    fn of(mut times_us: Vec<u64>) -> Self {
        times_us.sort_unstable();
        Self {
            rounds: times_us.len(),
            median_us: percentile(&times_us, 50),
            p99_us: percentile(&times_us, 99),
            most_us: times_us.last().copied().unwrap_or_default(),
        }
    }
}

/// How long all edges take to learn that a tunnel came or went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryFigures {
    /// From when the first edge knew, which holds the tunnel.
    pub up: Soon,
    /// From the kill of the connector.
    pub down: Soon,
}

/// What a kind of process used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// The growth of its memory, in bytes.
    pub memory_bytes: i64,
    /// Processor time, in microseconds.
    pub cpu_us: u64,
}

/// What processes used, by name.
pub type ByProcess = BTreeMap<String, ResourceUsage>;

/// The cost of many tunnels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelFigures {
    /// How many tunnels.
    pub tunnels: u32,
    /// From the start of the connectors until all edges knew all tunnels, in milliseconds.
    pub until_known_ms: u64,
    /// What was used until then.
    pub coming: ByProcess,
    /// What is used at rest, over [`Self::rest_ms`].
    pub rest: ByProcess,
    /// The length of the rest, in milliseconds.
    pub rest_ms: u64,
    /// The killed edge.
    pub killed: String,
    /// The least number of tunnels that the others knew.
    pub least_known: u64,
    /// From the kill until the others knew all tunnels again, in milliseconds; 0 if they always did.
    pub until_back_ms: u64,
    /// How many holds of tunnels all edges had before the kill.
    pub holds: u64,
    /// From the kill until the others had as many, in milliseconds.
    pub until_held_ms: u64,
}

/// The cost of requests, or of kept connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFigures {
    /// The report of the load.
    pub report: crate::load::LoadReport,
    /// What was used.
    pub taken: ByProcess,
}

/// The recovery from a lost edge.
struct Lost {
    killed: String,
    least_known: u64,
    until_back_ms: u64,
    holds: u64,
    until_held_ms: u64,
}

/// Programs of a measurement, which end with it.
struct MeasuredPrograms(Vec<Starting>);

impl Drop for MeasuredPrograms {
    fn drop(&mut self) {
        for program in &self.0 {
            drop(program.started().signal(Signal::KILL));
        }
    }
}

impl Lab {
    fn edges(&self) -> Vec<&Node> {
        self.plan.nodes.iter().filter(|node| node.kind == Kind::Edge).collect()
    }

    pub(crate) fn watchers(&self, every: Duration) -> Result<Vec<(String, Watcher)>, LabError> {
        let watch = |node: &&Node| {
            let namespace = kernel::path(&self.plan.namespace(node));
            Ok((node.name.clone(), Watcher::start(namespace, self.places.ca(), every)?))
        };
        self.edges().iter().map(watch).collect()
    }

    /// What all processes have used so far.
    fn used(&self) -> BTreeMap<String, Used> {
        let used = |(name, started): (&String, &Started)| Some((name.clone(), started.used()?));
        self.state.started.iter().filter_map(used).collect()
    }

    fn taken_since(&self, before: &BTreeMap<String, Used>) -> ByProcess {
        let taken = |(name, now): (String, Used)| {
            let then = before.get(&name).copied().unwrap_or_default();
            let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let memory_bytes = signed(now.memory_bytes) - signed(then.memory_bytes);
            (name, ResourceUsage { memory_bytes, cpu_us: now.cpu_us.saturating_sub(then.cpu_us) })
        };
        self.used().into_iter().map(taken).collect()
    }

    /// Starts a command of this program on a node, besides the processes of the plan.
    fn start_program(
        &self,
        node: &Node,
        name: &str,
        args: Vec<String>,
        more: &[(&str, &str)],
    ) -> Result<Starting, LabError> {
        let (program, ready) = (self.state.programs.sallyport.clone(), "attached");
        let mut env = self.plan.environment(&self.places);
        env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let launch = Launch { program, args, env, as_postgres: false, ready };
        let mut command = start::command(&self.plan.namespace(node), &launch);
        command.env("HOME", self.places.owner());
        start::spawn(name, command, self.places.log(name), &self.places.root, ready)
    }

    /// Measures how long all edges take to learn that a tunnel came and went, in each region in turn.
    ///
    /// # Errors
    /// An edge does not learn it, or a process does not run.
    pub fn measure_directory(&self, rounds: u32, tell: &mut dyn FnMut(&str)) -> Result<DirectoryFigures, LabError> {
        let watchers = self.watchers(OFTEN)?;
        let late = |what: &str, edge: &str| LabError::Late {
            what: format!("the {what} of a tunnel at {edge}"),
            seconds: KNOW_TIME.as_secs(),
            seen: String::new(),
        };
        let made = self.as_owner(&["socket", "create", "--name", "measured", "--type", "http"])?;
        let socket = made["id"].as_str().unwrap_or_default().to_owned();
        let tunnel = self.as_owner(&["tunnel", "create", &socket])?;
        let word = |name: &str| tunnel[name].as_str().unwrap_or_default().to_owned();
        let (tunnel, credential) = (word("id"), word("credential"));
        // Edges learn of the socket by the bus, after the API's answer.
        thread::sleep(Duration::from_secs(2));
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            if round % 20 == 0 {
                tell(&format!("{round} of {rounds} rounds"));
            }
            let region = round as usize % self.plan.topology.regions.len();
            let origin = self.plan.nodes.iter().find(|node| node.kind == Kind::Origin && node.region == region);
            let Some(origin) = origin else { continue };
            let base = known(&watchers, KNOW_TIME, &|| true).ok_or_else(|| late("number", "all edges"))?;
            let args = ["tunnel", "connect", "--host", "127.0.0.1", "-o", "json", "--port", "1"];
            let args = [&args[..], &["--socket-id", &socket, "--tunnel-id", &tunnel]].concat();
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            // One edge only: with two, which learn one after the other, only the first would be measured.
            let env = [("SALLYPORT_TUNNEL_CREDENTIAL", &*credential), ("SALLYPORT_REDUNDANCY", "1")];
            let programs = MeasuredPrograms(vec![self.start_program(origin, "measured", args, &env)?]);
            let came = know(&watchers, KNOW_TIME, |tunnels| tunnels > base).map_err(|edge| late("coming", &edge))?;
            up.push(us(came.1.duration_since(came.0)));
            // Late reports of the tunnel's arrival must not count as its departure.
            thread::sleep(Duration::from_millis(300));
            let gone = Instant::now();
            drop(programs);
            let all = know(&watchers, KNOW_TIME, |tunnels| tunnels <= base).map_err(|edge| late("going", &edge))?;
            down.push(us(all.1.saturating_duration_since(gone)));
        }
        self.as_owner(&["socket", "delete", &socket])?;
        Ok(DirectoryFigures { up: Soon::of(up), down: Soon::of(down) })
    }

    /// Measures the cost of this many tunnels over all regions, how long edges take to learn of them, and the recovery
    /// from a killed edge.
    ///
    /// # Errors
    /// The tunnels do not come, or a process does not run.
    pub fn measure_tunnels(&mut self, count: u32, tell: &mut dyn FnMut(&str)) -> Result<TunnelFigures, LabError> {
        let watchers = self.watchers(SELDOM)?;
        let missing =
            |what: &str, seen: String| LabError::Late { what: what.to_owned(), seconds: ALL_TIME.as_secs(), seen };
        let base =
            known(&watchers, KNOW_TIME, &|| true).ok_or_else(|| missing("the number of tunnels", String::new()))?;
        let mut sockets = Vec::new();
        for _ in 0..(count as usize).div_ceil(TUNNELS_PER_SOCKET) {
            let made = self.as_owner(&["socket", "create", "--name", "measured", "--type", "http"])?;
            sockets.push(made["id"].as_str().unwrap_or_default().to_owned());
        }
        let before = self.used();
        tell(&format!("starting {count} tunnels, of {} sockets", sockets.len()));
        let (began, programs) = (Instant::now(), self.start_tunnels(count, &sockets)?);
        let wanted = base + u64::from(count);
        let known_at = know(&watchers, ALL_TIME, |tunnels| tunnels >= wanted).map_err(|edge| {
            let seen = watchers.iter().map(|(name, watcher)| format!("{name} {:?}", watcher.tunnels()));
            missing(&format!("{wanted} tunnels at {edge}"), seen.collect::<Vec<_>>().join(", "))
        })?;
        // What only the start needed is freed.
        thread::sleep(Duration::from_secs(3));
        let coming = self.taken_with(&programs, &before);
        tell("at rest");
        // Asking edges costs something too.
        drop(watchers);
        let (before, rested) = (self.used(), Instant::now());
        let used_before: Vec<_> = programs.0.iter().filter_map(|program| program.started().used()).collect();
        thread::sleep(REST);
        let mut rest = self.taken_since(&before);
        let cpu = |used: &[Used]| used.iter().map(|used| used.cpu_us).sum::<u64>();
        let used_now: Vec<_> = programs.0.iter().filter_map(|program| program.started().used()).collect();
        let cpu_us = cpu(&used_now).saturating_sub(cpu(&used_before));
        rest.insert("connectors".to_owned(), ResourceUsage { memory_bytes: 0, cpu_us });
        let rest_ms = ms(rested.elapsed());
        let Lost { killed, least_known, until_back_ms, holds, until_held_ms } =
            self.lose_an_edge(&self.watchers(SELDOM)?, wanted, tell)?;
        drop(programs);
        for socket in &sockets {
            self.as_owner(&["socket", "delete", socket])?;
        }
        Ok(TunnelFigures {
            tunnels: count,
            until_known_ms: ms(known_at.1.saturating_duration_since(began)),
            coming,
            rest,
            rest_ms,
            killed,
            least_known,
            until_back_ms,
            holds,
            until_held_ms,
        })
    }

    fn lose_an_edge(
        &mut self,
        watchers: &[(String, Watcher)],
        wanted: u64,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Lost, LabError> {
        let killed = self.edges().first().map(|node| node.name.clone()).unwrap_or_default();
        tell(&format!("{killed} is killed"));
        known(watchers, KNOW_TIME, &|| true);
        let others: Vec<_> = watchers.iter().filter(|(name, _)| *name != killed).collect();
        let holds: u64 = watchers.iter().map(|(_, watcher)| watcher.held()).sum();
        // A tunnel at two edges must have two left.
        let holds_wanted = if others.len() > 1 { holds } else { wanted };
        let began = Instant::now();
        self.kill(&killed)?;
        let (mut least, mut last_short, mut last_unheld) = (wanted, began, began);
        // All are back when none was missing for longer than the lease of a silent edge.
        while last_short.max(last_unheld).elapsed() < SETTLED && began.elapsed() < ALL_TIME {
            for (_, watcher) in &others {
                let tunnels = watcher.tunnels().unwrap_or(0);
                least = least.min(tunnels);
                if tunnels < wanted {
                    last_short = Instant::now();
                }
            }
            if others.iter().map(|(_, watcher)| watcher.held()).sum::<u64>() < holds_wanted {
                last_unheld = Instant::now();
            }
            thread::sleep(Duration::from_millis(1));
        }
        if began.elapsed() >= ALL_TIME {
            let seen = others.iter().map(|(name, watcher)| format!("{name} {:?}", watcher.tunnels()));
            let what = format!("{wanted} tunnels without {killed}");
            let seen = seen.collect::<Vec<_>>().join(", ");
            return Err(LabError::Late { what, seconds: ALL_TIME.as_secs(), seen });
        }
        self.resume(&killed)?;
        let (until_back_ms, until_held_ms) =
            (ms(last_short.duration_since(began)), ms(last_unheld.duration_since(began)));
        Ok(Lost { killed, least_known: least, until_back_ms, holds, until_held_ms })
    }

    /// Starts `sallyport run` on the origins of all regions, with this many services in all.
    fn start_tunnels(&self, count: u32, sockets: &[String]) -> Result<MeasuredPrograms, LabError> {
        let origins: Vec<_> = self.plan.nodes.iter().filter(|node| node.kind == Kind::Origin).collect();
        let mut programs = MeasuredPrograms(Vec::new());
        let (total, mut made) = (count as usize, 0);
        for (number, origin) in origins.iter().enumerate() {
            let mut left = total / origins.len() + usize::from(number < total % origins.len());
            let mut file_number = 0;
            while left > 0 {
                let services = left.min(MAX_SERVICES);
                left -= services;
                file_number += 1;
                let name = format!("{}-measured-{file_number}", origin.name);
                let mut text = String::new();
                for service in 0..services {
                    let socket = &sockets[made % sockets.len()];
                    made += 1;
                    let _ = writeln!(
                        text,
                        "[[service]]\nname = \"{name}-{service}\"\nsocket-id = \"{socket}\"\nport = {SERVICE_PORT}\n"
                    );
                }
                let file: PathBuf = self.places.root.join(format!("{name}.toml"));
                fs::write(&file, text).map_err(LabError::io(format!("write {}", file.display())))?;
                let args = vec!["run".to_owned(), file.display().to_string(), "-o".into(), "json".into()];
                programs.0.push(self.start_program(origin, &name, args, &[])?);
            }
        }
        Ok(programs)
    }

    fn taken_with(&self, programs: &MeasuredPrograms, before: &BTreeMap<String, Used>) -> ByProcess {
        let mut taken = self.taken_since(before);
        let used: Vec<_> = programs.0.iter().filter_map(|program| program.started().used()).collect();
        let memory: u64 = used.iter().map(|used| used.memory_bytes).sum();
        let sum = ResourceUsage {
            memory_bytes: i64::try_from(memory).unwrap_or(i64::MAX),
            cpu_us: used.iter().map(|used| used.cpu_us).sum(),
        };
        taken.insert("connectors".to_owned(), sum);
        taken
    }

    /// Measures the cost of `lab load` with these arguments, from the first region's client: memory in the middle,
    /// processor time over all of it.
    ///
    /// # Errors
    /// The load cannot be made.
    pub fn measure_load(&self, args: &[String], time: Duration) -> Result<LoadFigures, LabError> {
        let client = self.plan.client(0).ok_or_else(|| self.no_such("client"))?;
        let before = self.used();
        let mut all = vec!["load".to_owned(), "--here".into()];
        all.extend([format!("https://{}/", self.secrets.host), "-o".into(), "json".into()]);
        all.extend(["--seconds".to_owned(), time.as_secs().to_string()]);
        all.extend(args.iter().cloned());
        let mut command = self.command_on(&client.name, &self.state.programs.lab.display().to_string())?;
        command.args(all);
        let load = thread::spawn(move || kernel::run(&mut command, ""));
        thread::sleep(time / 2);
        let memory = self.taken_since(&before);
        let output = load.join().unwrap_or_else(|_| Err(LabError::Unfit("the load ended".to_owned())))?;
        let report = serde_json::from_str(&output).map_err(|error| LabError::Unfit(error.to_string()))?;
        let mut taken = self.taken_since(&before);
        for (name, taken) in &mut taken {
            taken.memory_bytes = memory.get(name).map_or(0, |middle| middle.memory_bytes);
        }
        Ok(LoadFigures { report, taken })
    }

    /// Whether all processes run.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.plan
            .processes
            .iter()
            .all(|process| self.state.started.get(&process.name).is_some_and(|started| started.life() == Life::Runs))
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The number of tunnels on which all edges agree, within a time limit and while it is wanted.
pub(crate) fn known(watchers: &[(String, Watcher)], limit: Duration, is_wanted: &dyn Fn() -> bool) -> Option<u64> {
    let ends = Instant::now() + limit;
    let (mut last, mut since) = (None, Instant::now());
    while Instant::now() < ends && is_wanted() {
        let numbers: Option<Vec<u64>> = watchers.iter().map(|(_, watcher)| watcher.tunnels()).collect();
        let agreed = numbers.filter(|numbers| numbers.windows(2).all(|two| two[0] == two[1]));
        let agreed = agreed.and_then(|numbers| numbers.first().copied());
        if agreed != last {
            (last, since) = (agreed, Instant::now());
        }
        if last.is_some() && since.elapsed() > Duration::from_millis(200) {
            return last;
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}

/// When the first and the last edge knew; the name of an edge that did not learn it.
fn know(
    watchers: &[(String, Watcher)],
    limit: Duration,
    is_right: impl Fn(u64) -> bool,
) -> Result<(Instant, Instant), String> {
    let mut span: Option<(Instant, Instant)> = None;
    for (name, watcher) in watchers {
        let at = watcher.wait(limit, &is_right).ok_or_else(|| name.clone())?;
        span = Some(span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }
    span.ok_or_else(|| "any edge".to_owned())
}
