//! Random faults under load, one after the other: each is repaired, and failed requests are counted.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{
    capacity::{known, ms},
    error::LabError,
    load::{MAX_TOLD, Tick},
    plan::Kind,
    process::{Life, Started},
    schedule::{Act, Fault, Target, schedule},
    state::Lab,
    watch::Watcher,
    wrk::{Wrk, WrkReport},
};

/// How long recovery from a fault may take; a connector's longest wait is half a minute.
pub(crate) const MEND_TIME: Duration = Duration::from_secs(120);
/// How long first answers, and agreement of edges about tunnels, may take.
const BEGIN_TIME: Duration = Duration::from_secs(60);
/// How often recovery is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a load generator may take to report.
const GUEST_END_TIME: Duration = Duration::from_secs(5);
/// How often edges are asked, which costs them something.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// The longest run. Clients run for twice that, which includes recoveries.
pub const MAX_CHAOS_TIME: Duration = Duration::from_secs(12 * 3_600);

/// A request to end a run early: the first one lets the present fault be repaired, the second one ends all waits.
#[derive(Debug, Default)]
pub struct Stop(AtomicU8);

impl Stop {
    /// Requests the end once more.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn is_at_once(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// The options of a run.
#[derive(Debug, Clone)]
pub struct ChaosOptions {
    /// For how long faults and the rests between them last; recoveries come on top.
    pub time: Duration,
    /// Determines the faults.
    pub seed: u64,
    /// The kinds of faults.
    pub acts: Vec<Act>,
    /// The targets of faults.
    pub targets: Vec<Target>,
    /// The load of each region's client.
    pub load: ChaosLoad,
}

/// The load of each region's client.
#[derive(Debug, Clone)]
pub struct ChaosLoad {
    /// How many connections.
    pub connections: u16,
    /// Requests in a second, all connections together.
    pub rate: u32,
    /// How long a request may take.
    pub timeout: Duration,
    /// How many long transfers.
    pub transfers: u16,
    /// How many connections of wrk, if it runs.
    pub wrk: Option<u16>,
}

/// What clients saw in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFigures {
    /// Requests that have ended.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Failed ones by client.
    pub failed_by: BTreeMap<String, u64>,
    /// Failures in words, each once.
    pub told: Vec<String>,
    /// The longest time without a good answer at a client, in milliseconds.
    pub longest_gap_ms: u64,
    /// Transfers that began.
    pub transfers: u64,
    /// Those that were cut off.
    pub transfers_cut: u64,
    /// Bytes of transfers.
    pub transfer_bytes: u64,
}

impl ClientFigures {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        for (client, failed) in &other.failed_by {
            *self.failed_by.entry(client.clone()).or_default() += failed;
        }
        other.told.iter().for_each(|why| self.tell(why));
        self.longest_gap_ms = self.longest_gap_ms.max(other.longest_gap_ms);
        self.transfers += other.transfers;
        self.transfers_cut += other.transfers_cut;
        self.transfer_bytes += other.transfer_bytes;
    }

    fn tell(&mut self, why: &str) {
        if self.told.len() < MAX_TOLD && !self.told.iter().any(|known| known == why) {
            self.told.push(why.to_owned());
        }
    }
}

/// The report of one fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultReport {
    /// The fault.
    #[serde(flatten)]
    pub fault: Fault,
    /// Its start, in milliseconds since the first rest.
    pub at_ms: u64,
    /// What clients saw from its start until the recovery.
    #[serde(flatten)]
    pub seen: ClientFigures,
    /// How many requests may fail; `None` if the broken thing has no replacement.
    pub may_fail: Option<u64>,
    /// From its start until the last failed request, in milliseconds; 0 without a failure.
    pub failing_ms: u64,
    /// From the repair until every connection had an answer to a later request, and every transfer continued, in
    /// milliseconds; `None` if that did not happen.
    pub answered_ms: Option<u64>,
    /// From the repair until all edges also knew and held the former tunnels, in milliseconds.
    pub whole_ms: Option<u64>,
    /// What wrk saw, by client.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub wrk: BTreeMap<String, WrkReport>,
}

impl FaultReport {
    /// Whether no more requests failed than may, and the recovery was complete.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.whole_ms.is_some() && self.may_fail.is_none_or(|may| self.seen.failed <= may)
    }
}

/// The report of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChaosReport {
    /// The seed of the faults.
    pub seed: u64,
    /// How many faults the seed has for this time; an early end leaves some out.
    pub planned: usize,
    /// The faults.
    pub faults: Vec<FaultReport>,
    /// What clients saw between faults.
    pub between: ClientFigures,
    /// What clients saw in all.
    pub all: ClientFigures,
    /// Whether every fault was within its bound, all recoveries were complete, nothing failed between faults, and the
    /// run itself had no error.
    pub is_within: bool,
    /// Why the run ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken_off: Option<String>,
}

/// The reports of one client so far.
#[derive(Default)]
struct Client {
    seen: ClientFigures,
    /// The last failure since [`Self::seen`] began.
    last_failed: Option<Instant>,
    /// All its connections had answers to requests after this time.
    all_good: Option<Instant>,
    has_ended: bool,
}

/// The clients of all regions, which run until this is dropped.
struct Clients {
    names: Vec<String>,
    states: Arc<Mutex<Vec<Client>>>,
    programs: Vec<Child>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Clients {
    fn start(lab: &Lab, load: &ChaosLoad) -> Result<Self, LabError> {
        let names: Vec<String> = lab.clients();
        let states = Arc::new(Mutex::new(names.iter().map(|_| Client::default()).collect::<Vec<_>>()));
        let mut clients = Self { names, states, programs: Vec::new(), readers: Vec::new() };
        for number in 0..clients.names.len() {
            let program = lab.state.programs.lab.display().to_string();
            let mut command = lab.command_on(&clients.names[number], &program)?;
            command.args(["load", "--here", &format!("https://{}/", lab.secrets.host), "--ticks"]);
            command.args(["--seconds", &(2 * MAX_CHAOS_TIME.as_secs()).to_string()]);
            command.args(["--connections", &load.connections.to_string()]);
            command.args(["--rate", &load.rate.to_string(), "--transfers", &load.transfers.to_string()]);
            command.args(["--patience", &format!("{}ms", load.timeout.as_millis())]);
            // Ctrl-C is for this program, which ends the child.
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().map_err(LabError::io("start the load"))?;
            let output = child.stdout.take();
            clients.programs.push(child);
            let (states, name) = (clients.states.clone(), clients.names[number].clone());
            clients.readers.push(thread::spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    let Ok(tick) = serde_json::from_str::<Tick>(&line) else { continue };
                    let mut states = states.lock();
                    if let Some(client) = states.get_mut(number) {
                        client.record(&name, &tick);
                    }
                }
                let mut states = states.lock();
                if let Some(client) = states.get_mut(number) {
                    client.has_ended = true;
                }
            }));
        }
        Ok(clients)
    }

    fn states(&self) -> MutexGuard<'_, Vec<Client>> {
        self.states.lock()
    }

    /// Waits until every connection had an answer. Returns `false` if the run ends before that.
    fn begin(&self, stop: &Stop) -> Result<bool, LabError> {
        let began = Instant::now();
        while !self.are_answered_since(began) {
            self.check()?;
            if stop.is_asked() {
                return Ok(false);
            }
            if began.elapsed() > BEGIN_TIME {
                let (what, seen) = ("a response on every connection".to_owned(), self.take().0.told.join("; "));
                return Err(LabError::Late { what, seconds: BEGIN_TIME.as_secs(), seen });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    /// Whether every connection had an answer to a request after this time.
    fn are_answered_since(&self, then: Instant) -> bool {
        self.states().iter().all(|client| client.all_good.is_some_and(|good| good > then))
    }

    /// What all clients saw since the last call, and when a request last failed.
    fn take(&self) -> (ClientFigures, Option<Instant>) {
        let (mut all, mut last) = (ClientFigures::default(), None);
        for client in self.states().iter_mut() {
            all.add(&std::mem::take(&mut client.seen));
            last = last.max(client.last_failed.take());
        }
        (all, last)
    }

    /// # Errors
    /// A load generator has ended, so failures would go unseen.
    fn check(&self) -> Result<(), LabError> {
        let ended = self.states().iter().position(|client| client.has_ended);
        ended.map_or(Ok(()), |number| Err(LabError::Unfit(format!("the load of {} has ended", self.names[number]))))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for program in &mut self.programs {
            drop(program.kill());
            drop(program.wait());
        }
        for reader in self.readers.drain(..) {
            drop(reader.join());
        }
    }
}

impl Client {
    fn record(&mut self, name: &str, tick: &Tick) {
        let now = Instant::now();
        let ago = |ms: u64| now.checked_sub(Duration::from_millis(ms));
        let failed = tick.failed.len() as u64 + tick.more_failed;
        self.seen.requests += tick.good + failed;
        self.seen.failed += failed;
        if failed > 0 {
            *self.seen.failed_by.entry(name.to_owned()).or_default() += failed;
            self.last_failed = tick.failed.last().and_then(|failed| ago(failed.ended_ms_ago)).max(self.last_failed);
        }
        tick.failed.iter().for_each(|failed| self.seen.tell(&failed.why));
        tick.cut.iter().for_each(|why| self.seen.tell(&format!("transfer: {why}")));
        self.seen.longest_gap_ms = self.seen.longest_gap_ms.max(tick.gap_ms);
        self.seen.transfers += tick.transfers;
        self.seen.transfers_cut += tick.cut.len() as u64;
        self.seen.transfer_bytes += tick.transfer_bytes;
        self.all_good = tick.all_good_ms.and_then(ago);
    }
}

/// The state of a laboratory without faults.
struct Whole {
    watchers: Vec<(String, Watcher)>,
    tunnels: u64,
    holds: u64,
}

impl Whole {
    /// `None` if the run ends before the state is known.
    fn of(lab: &Lab, stop: &Stop) -> Result<Option<Self>, LabError> {
        let watchers = lab.watchers(WATCH_EVERY)?;
        let late = || LabError::Late {
            what: "one number of tunnels at all edges".to_owned(),
            seconds: BEGIN_TIME.as_secs(),
            seen: String::new(),
        };
        let Some(tunnels) = known(&watchers, BEGIN_TIME, &|| !stop.is_asked()) else {
            return if stop.is_asked() { Ok(None) } else { Err(late()) };
        };
        let holds = watchers.iter().map(|(_, watcher)| watcher.held()).sum();
        Ok(Some(Self { watchers, tunnels, holds }))
    }

    /// Whether all edges know and hold the same tunnels.
    fn is_there(&self) -> bool {
        self.watchers.iter().all(|(_, watcher)| watcher.tunnels() == Some(self.tunnels))
            && self.watchers.iter().map(|(_, watcher)| watcher.held()).sum::<u64>() >= self.holds
    }

    fn missing(&self) -> String {
        let edges = self.watchers.iter().map(|(name, watcher)| {
            let knows = watcher.tunnels().map_or_else(|| "nothing".to_owned(), |tunnels| tunnels.to_string());
            format!("{name} knows {knows} and holds {}", watcher.held())
        });
        edges.collect::<Vec<_>>().join(", ")
    }
}

/// What all faults of a run share.
struct Run<'a> {
    options: &'a ChaosOptions,
    whole: Whole,
    clients: Clients,
    began: Instant,
    stop: &'a Stop,
}

impl Lab {
    /// The clients of all regions.
    pub(crate) fn clients(&self) -> Vec<String> {
        let clients = self.plan.nodes.iter().filter(|node| node.kind == Kind::Client);
        clients.map(|node| node.name.clone()).collect()
    }

    /// Runs faults and repairs by the seed, while the clients of all regions send requests. Ends when the time is over,
    /// at `stop`, or without a recovery. Calls `tell` after each fault.
    ///
    /// # Errors
    /// The laboratory is not healthy at the beginning, or the run cannot begin. Later errors are in the report.
    pub fn chaos(
        &mut self,
        options: &ChaosOptions,
        stop: &Stop,
        tell: &mut dyn FnMut(&FaultReport),
    ) -> Result<ChaosReport, LabError> {
        if self.plan.internet.is_some() {
            let instead = "chaos is for laboratories without --anycast: `sallyport lab anycast drill` takes edges away";
            return Err(LabError::Unfit(instead.to_owned()));
        }
        let wiring = self.wiring()?;
        if !self.is_well() || !wiring.cuts.is_empty() || !wiring.slowed.is_empty() {
            return Err(LabError::Unfit("something is broken already: `sallyport lab status` shows what".to_owned()));
        }
        let faults = schedule(&self.plan, options.seed, options.time, &options.acts, &options.targets);
        if faults.is_empty() {
            return Err(LabError::Unfit("there is nothing of this kind to break in so short a time".to_owned()));
        }
        if options.load.wrk.is_some() {
            Wrk::check()?;
        }
        let mut report = ChaosReport {
            seed: options.seed,
            planned: faults.len(),
            faults: Vec::new(),
            between: ClientFigures::default(),
            all: ClientFigures::default(),
            is_within: true,
            broken_off: None,
        };
        let Some(whole) = Whole::of(self, stop)? else { return Ok(report) };
        let clients = Clients::start(self, &options.load)?;
        if !clients.begin(stop)? {
            return Ok(report);
        }
        // Transfers have begun by now.
        (report.between, _) = clients.take();
        report.all = report.between.clone();
        let run = Run { options, whole, clients, began: Instant::now(), stop };
        let wrong = self.one_by_one(&run, faults, &mut report, tell).err();
        let (between, _) = run.clients.take();
        report.between.add(&between);
        report.all.add(&between);
        report.broken_off = wrong.map(|error| error.to_string());
        let nothing_else = report.between.failed == 0 && report.broken_off.is_none();
        report.is_within = nothing_else && report.faults.iter().all(FaultReport::is_within);
        Ok(report)
    }

    fn one_by_one(
        &mut self,
        run: &Run<'_>,
        faults: Vec<Fault>,
        report: &mut ChaosReport,
        tell: &mut dyn FnMut(&FaultReport),
    ) -> Result<(), LabError> {
        for fault in faults {
            let rests = Duration::from_millis(fault.rest_ms);
            // wrk connects to all addresses of the name at its start, and waits for each.
            let wrk =
                Wrk::start(self, run.options.load.wrk, rests + Duration::from_millis(fault.lasts_ms) + MEND_TIME)?;
            rest(rests, run.stop);
            if run.stop.is_asked() {
                return Ok(());
            }
            run.clients.check()?;
            let (between, _) = run.clients.take();
            report.between.add(&between);
            report.all.add(&between);
            let (done, wrong) = self.one(run, fault, wrk);
            report.all.add(&done.seen);
            tell(&done);
            let is_whole = done.whole_ms.is_some();
            report.faults.push(done);
            wrong.map_or(Ok(()), Err)?;
            if !is_whole {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs one fault: break, repair, wait for recovery. Also returns an error, if there was one.
    fn one(&mut self, run: &Run<'_>, fault: Fault, wrk: Wrk) -> (FaultReport, Option<LabError>) {
        let Run { options, whole, clients, began, stop } = run;
        let broken = Instant::now();
        let (names, mut wrong) = match self.break_it(&fault) {
            Ok(names) => (names, None),
            // Some processes of this name may have been hit.
            Err(error) => (vec![fault.name.clone()], Some(error)),
        };
        if wrong.is_none() {
            rest(Duration::from_millis(fault.lasts_ms), stop);
        }
        let mending = Instant::now();
        if let Err(error) = self.mend(&fault, &names) {
            wrong.get_or_insert(error);
        }
        let mended = Instant::now();
        let (mut answered_ms, mut whole_ms) = (None, None);
        while mended.elapsed() < MEND_TIME && whole_ms.is_none() && wrong.is_none() {
            if answered_ms.is_none() && clients.are_answered_since(mended) {
                answered_ms = Some(ms(mending.elapsed()));
            }
            if answered_ms.is_some() && whole.is_there() && self.is_well() {
                whole_ms = Some(ms(mending.elapsed()));
            } else if stop.is_at_once() {
                let early =
                    "the run was ended at once: the fault is repaired, and the recovery was not complete by then";
                wrong = Some(LabError::Unfit(early.to_owned()));
            } else {
                wrong = clients.check().err();
                thread::sleep(LOOK_EVERY);
            }
        }
        let wrk = wrk.end();
        let (mut seen, last_failed) = clients.take();
        if whole_ms.is_none() {
            let after = mended.elapsed().as_secs();
            seen.tell(&format!("not as before {after} s after the repair: {}", whole.missing()));
        }
        let count = clients.names.len() as u64 * u64::from(options.load.connections);
        let report = FaultReport {
            at_ms: ms(broken.duration_since(*began)),
            may_fail: fault.may_fail(&self.plan, count, options.load.timeout),
            failing_ms: last_failed.map_or(0, |last| ms(last.saturating_duration_since(broken))),
            fault,
            seen,
            answered_ms,
            whole_ms,
            wrk,
        };
        (report, wrong)
    }

    /// Breaks something; returns the names of the processes.
    fn break_it(&self, fault: &Fault) -> Result<Vec<String>, LabError> {
        match (fault.act, fault.link) {
            (Act::Kill, _) => self.kill(&fault.name),
            (Act::Pause, _) => self.pause(&fault.name),
            (Act::Partition, _) => self.partition(&fault.name, fault.from.as_deref()).map(|_| Vec::new()),
            (Act::Slow, link) => self.slow(&fault.name, link.unwrap_or_default()).map(|_| Vec::new()),
        }
    }

    /// Repairs it as far as possible; returns the first error.
    fn mend(&mut self, fault: &Fault, names: &[String]) -> Result<(), LabError> {
        match fault.act {
            Act::Kill | Act::Pause => {
                let resumed: Vec<_> = names.iter().map(|name| self.resume(name)).collect();
                resumed.into_iter().find_map(Result::err).map_or(Ok(()), Err)
            }
            Act::Partition | Act::Slow => self.heal(Some(&fault.name)).map(drop),
        }
    }
}

/// Waits for this long, or until the end of the run.
fn rest(time: Duration, stop: &Stop) {
    let ends = Instant::now() + time;
    while !stop.is_asked() {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Ends a child by a signal that it takes as a request to end; kills it at last.
pub(crate) fn end(child: &mut Child, signal: Signal) {
    let began = Instant::now();
    while let Some(started) = i32::try_from(child.id()).ok().and_then(Started::of)
        && started.life() != Life::Gone
        && began.elapsed() < GUEST_END_TIME
    {
        // Repeated, because a child that has not installed its handler misses the first.
        drop(started.signal(signal));
        thread::sleep(LOOK_EVERY);
    }
    drop(child.kill());
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failed;

    #[test]
    fn reports_of_clients_are_summed_and_reported_once() {
        let mut client = Client::default();
        let failed = |ago: u64| Failed { began_ms_ago: ago + 10, ended_ms_ago: ago, why: "reset".into() };
        let tick = Tick {
            good: 5,
            gap_ms: 70,
            all_good_ms: Some(20),
            failed: vec![failed(60), failed(30)],
            more_failed: 1,
            transfers: 1,
            cut: vec!["reset".into()],
            transfer_bytes: 9,
        };
        client.record("eu-client", &tick);
        client.record("eu-client", &Tick { good: 2, gap_ms: 30, all_good_ms: Some(0), ..Tick::default() });
        assert!(client.all_good.unwrap() > client.last_failed.unwrap());
        let seen = &client.seen;
        assert_eq!((seen.requests, seen.failed, seen.longest_gap_ms), (10, 3, 70));
        assert_eq!((seen.transfers, seen.transfers_cut, seen.transfer_bytes), (1, 1, 9));
        assert_eq!(seen.told, ["reset", "transfer: reset"]);
        let mut all = seen.clone();
        all.add(seen);
        assert_eq!((all.failed, all.failed_by["eu-client"], all.told.len()), (6, 6, 2));
        client.record("eu-client", &Tick::default());
        assert_eq!(client.all_good, None, "while a connection waits for a first response");
    }

    #[test]
    fn the_first_stop_repairs_and_the_second_ends_at_once() {
        let stop = Stop::default();
        assert!(!stop.is_asked());
        stop.ask();
        assert!(stop.is_asked() && !stop.is_at_once());
        rest(MAX_CHAOS_TIME, &stop);
        stop.ask();
        assert!(stop.is_asked() && stop.is_at_once());
    }

    #[test]
    fn a_bound_is_kept_when_no_more_failed_and_all_is_as_before() {
        let fault = Fault {
            act: Act::Kill,
            target: Target::Edge,
            name: "eu-1".into(),
            from: None,
            link: None,
            rest_ms: 0,
            lasts_ms: 1,
        };
        let report = |failed: u64, may_fail: Option<u64>, whole_ms: Option<u64>| FaultReport {
            fault: fault.clone(),
            at_ms: 0,
            seen: ClientFigures { failed, ..ClientFigures::default() },
            may_fail,
            failing_ms: 0,
            answered_ms: Some(0),
            whole_ms,
            wrk: BTreeMap::new(),
        };
        assert!(report(8, Some(8), Some(1)).is_within());
        assert!(!report(9, Some(8), Some(1)).is_within());
        assert!(report(9, None, Some(1)).is_within());
        assert!(!report(0, Some(8), None).is_within());
        let json = serde_json::to_value(report(8, Some(8), Some(1))).unwrap();
        assert!(json["act"] == "kill" && json["failed"] == 8 && json["name"] == "eu-1", "{json}");
    }
}
