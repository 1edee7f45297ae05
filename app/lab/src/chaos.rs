//! Faults at random while clients ask: one after the other, each mended, and what failed meanwhile counted.

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
    error::LabError,
    load::{MAX_TOLD, Tick},
    measure::{known, ms},
    plan::Kind,
    process::{Life, Started},
    schedule::{Act, Fault, Target, schedule},
    state::Lab,
    watch::Watcher,
    wrk::{Wrk, WrkReport},
};

/// How long it may take until all is as before, once a fault is mended: a connector that came in vain waits for half a minute.
pub(crate) const MEND_TIME: Duration = Duration::from_secs(120);
/// How long clients may take to have their first answers, and edges to agree about tunnels.
const BEGIN_TIME: Duration = Duration::from_secs(60);
/// How often it is looked whether all is as before.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a load generator may take to say what it saw.
const GUEST_END_TIME: Duration = Duration::from_secs(5);
/// How often edges are asked what they know: it costs them something too.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// The longest time of a run: clients ask for twice that, with what mending takes.
pub const MAX_CHAOS_TIME: Duration = Duration::from_secs(12 * 3_600);

/// The wish to end a run before its time: once, and what is broken is mended first; twice, and nothing is waited for behind
/// that.
#[derive(Debug, Default)]
pub struct Stop(AtomicU8);

impl Stop {
    /// Says it once more.
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

/// What is wished for.
#[derive(Debug, Clone)]
pub struct ChaosWish {
    /// For how long things are broken, and rest between two faults; mending comes on top.
    pub time: Duration,
    /// What decides which faults come.
    pub seed: u64,
    /// What may be done.
    pub acts: Vec<Act>,
    /// To what.
    pub targets: Vec<Target>,
    /// How the client of each region asks.
    pub load: ChaosLoad,
}

/// How the client of each region asks.
#[derive(Debug, Clone)]
pub struct ChaosLoad {
    /// By so many connections.
    pub connections: u16,
    /// Requests in a second, all connections together.
    pub rate: u32,
    /// How long a request may take.
    pub patience: Duration,
    /// Long transfers besides.
    pub transfers: u16,
    /// And wrk with so many connections.
    pub wrk: Option<u16>,
}

/// What clients saw in some time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Requests that came to their end.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// By the client that asked.
    pub failed_by: BTreeMap<String, u64>,
    /// Failures in words, each once.
    pub told: Vec<String>,
    /// The longest time in which a client had no good answer, in milliseconds.
    pub longest_gap_ms: u64,
    /// Transfers that were begun.
    pub transfers: u64,
    /// Those that were cut off.
    pub transfers_cut: u64,
    /// What came by transfers, in bytes.
    pub transfer_bytes: u64,
}

impl Seen {
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
        if self.told.len() < MAX_TOLD && !self.told.iter().any(|told| told == why) {
            self.told.push(why.to_owned());
        }
    }
}

/// What came of one fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultReport {
    /// What was done.
    #[serde(flatten)]
    pub fault: Fault,
    /// When, in milliseconds since the first rest.
    pub at_ms: u64,
    /// What clients saw from when it was done until all was as before.
    #[serde(flatten)]
    pub seen: Seen,
    /// How many of their requests may fail; `None` where nothing can take the place of what broke.
    pub may_fail: Option<u64>,
    /// From when it was done until the last request failed, in milliseconds; 0 where none did.
    pub failing_ms: u64,
    /// From when it was mended until every connection had an answer to what it asked behind that, and every transfer went
    /// on, in milliseconds; `None` where that did not come to be.
    pub answered_ms: Option<u64>,
    /// From when it was mended until all edges knew and held the tunnels of before as well, in milliseconds.
    pub whole_ms: Option<u64>,
    /// What wrk saw, by client.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub wrk: BTreeMap<String, WrkReport>,
}

impl FaultReport {
    /// Whether no more failed than may, and all was as before in the end.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.whole_ms.is_some() && self.may_fail.is_none_or(|may| self.seen.failed <= may)
    }
}

/// What came of it all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChaosReport {
    /// What decided which faults came.
    pub seed: u64,
    /// How many faults the seed has in the time that was given; not all of them were done where the run ended early.
    pub planned: usize,
    /// What was done.
    pub faults: Vec<FaultReport>,
    /// What clients saw while nothing was broken.
    pub between: Seen,
    /// What they saw in all.
    pub all: Seen,
    /// Whether every fault kept within its bound, all was as before in the end, nothing failed while nothing was broken, and
    /// nothing went wrong with the run itself.
    pub is_within: bool,
    /// Why it could not go on before its time; all else is what came by then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken_off: Option<String>,
}

/// What one client has told so far.
#[derive(Default)]
struct Client {
    seen: Seen,
    /// The last failure since [`Self::seen`] began.
    last_failed: Option<Instant>,
    /// All its connections were answered to what they asked behind this.
    all_good: Option<Instant>,
    has_ended: bool,
}

/// The clients of all regions, which ask until this is dropped.
struct Clients {
    names: Vec<String>,
    told: Arc<Mutex<Vec<Client>>>,
    programs: Vec<Child>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Clients {
    fn start(lab: &Lab, load: &ChaosLoad) -> Result<Self, LabError> {
        let names: Vec<String> = lab.clients();
        let told = Arc::new(Mutex::new(names.iter().map(|_| Client::default()).collect::<Vec<_>>()));
        let mut clients = Self { names, told, programs: Vec::new(), readers: Vec::new() };
        for number in 0..clients.names.len() {
            let program = lab.state.programs.lab.display().to_string();
            let mut command = lab.command_on(&clients.names[number], &program)?;
            command.args(["load", "--here", &format!("https://{}/", lab.secrets.host), "--ticks"]);
            command.args(["--seconds", &(2 * MAX_CHAOS_TIME.as_secs()).to_string()]);
            command.args(["--connections", &load.connections.to_string()]);
            command.args(["--rate", &load.rate.to_string(), "--transfers", &load.transfers.to_string()]);
            command.args(["--patience", &format!("{}ms", load.patience.as_millis())]);
            // Ctrl-C is for this program, which ends it.
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().map_err(LabError::io("start the load"))?;
            let output = child.stdout.take();
            clients.programs.push(child);
            let (told, name) = (clients.told.clone(), clients.names[number].clone());
            clients.readers.push(thread::spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    let Ok(tick) = serde_json::from_str::<Tick>(&line) else { continue };
                    let mut told = told.lock();
                    if let Some(client) = told.get_mut(number) {
                        client.hear(&name, &tick);
                    }
                }
                let mut told = told.lock();
                if let Some(client) = told.get_mut(number) {
                    client.has_ended = true;
                }
            }));
        }
        Ok(clients)
    }

    fn told(&self) -> MutexGuard<'_, Vec<Client>> {
        self.told.lock()
    }

    /// Waits until every connection has had an answer; `false` where all is to stop before that.
    fn begin(&self, stop: &Stop) -> Result<bool, LabError> {
        let began = Instant::now();
        while !self.are_answered_since(began) {
            self.check()?;
            if stop.is_asked() {
                return Ok(false);
            }
            if began.elapsed() > BEGIN_TIME {
                let (what, said) = ("an answer to every connection".to_owned(), self.take().0.told.join("; "));
                return Err(LabError::Late { what, seconds: BEGIN_TIME.as_secs(), said });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    /// Whether every connection has had an answer to what it asked behind this.
    fn are_answered_since(&self, then: Instant) -> bool {
        self.told().iter().all(|client| client.all_good.is_some_and(|good| good > then))
    }

    /// What all saw since this was last asked, and when a request failed last.
    fn take(&self) -> (Seen, Option<Instant>) {
        let (mut all, mut last) = (Seen::default(), None);
        for client in self.told().iter_mut() {
            all.add(&std::mem::take(&mut client.seen));
            last = last.max(client.last_failed.take());
        }
        (all, last)
    }

    /// # Errors
    /// A program that asks is not there any more: nobody would see what fails.
    fn check(&self) -> Result<(), LabError> {
        let ended = self.told().iter().position(|client| client.has_ended);
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
    fn hear(&mut self, name: &str, tick: &Tick) {
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

/// How a laboratory is when nothing is broken.
struct Whole {
    watchers: Vec<(String, Watcher)>,
    tunnels: u64,
    holds: u64,
}

impl Whole {
    /// `None` where all is to stop before that is known.
    fn of(lab: &Lab, stop: &Stop) -> Result<Option<Self>, LabError> {
        let watchers = lab.watchers(WATCH_EVERY)?;
        let late = || LabError::Late {
            what: "one number of tunnels at all edges".to_owned(),
            seconds: BEGIN_TIME.as_secs(),
            said: String::new(),
        };
        let Some(tunnels) = known(&watchers, BEGIN_TIME, &|| !stop.is_asked()) else {
            return if stop.is_asked() { Ok(None) } else { Err(late()) };
        };
        let holds = watchers.iter().map(|(_, watcher)| watcher.held()).sum();
        Ok(Some(Self { watchers, tunnels, holds }))
    }

    /// Whether all edges know and hold what they did.
    fn is_there(&self) -> bool {
        self.watchers.iter().all(|(_, watcher)| watcher.tunnels() == Some(self.tunnels))
            && self.watchers.iter().map(|(_, watcher)| watcher.held()).sum::<u64>() >= self.holds
    }

    fn said(&self) -> String {
        let edges = self.watchers.iter().map(|(name, watcher)| {
            let knows = watcher.tunnels().map_or_else(|| "nothing".to_owned(), |tunnels| tunnels.to_string());
            format!("{name} knows {knows} and holds {}", watcher.held())
        });
        edges.collect::<Vec<_>>().join(", ")
    }
}

/// What all faults of a run have in common.
struct Run<'a> {
    wish: &'a ChaosWish,
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

    /// Breaks one thing after the other, as the seed says, and mends each, while the clients of all regions ask; until it is
    /// over or to `stop`, or all does not become as before. `tell` is told each fault when it is over.
    ///
    /// # Errors
    /// Something is broken at the beginning, or it cannot begin. What goes wrong behind that is in the report.
    pub fn chaos(
        &mut self,
        wish: &ChaosWish,
        stop: &Stop,
        tell: &mut dyn FnMut(&FaultReport),
    ) -> Result<ChaosReport, LabError> {
        let wiring = self.wiring()?;
        if !self.is_well() || !wiring.cuts.is_empty() || !wiring.slowed.is_empty() {
            return Err(LabError::Unfit("something is broken already: `sallyport lab status` shows what".to_owned()));
        }
        let faults = schedule(&self.plan, wish.seed, wish.time, &wish.acts, &wish.targets);
        if faults.is_empty() {
            return Err(LabError::Unfit("there is nothing of this kind to break in so short a time".to_owned()));
        }
        if wish.load.wrk.is_some() {
            Wrk::check()?;
        }
        let mut report = ChaosReport {
            seed: wish.seed,
            planned: faults.len(),
            faults: Vec::new(),
            between: Seen::default(),
            all: Seen::default(),
            is_within: true,
            broken_off: None,
        };
        let Some(whole) = Whole::of(self, stop)? else { return Ok(report) };
        let clients = Clients::start(self, &wish.load)?;
        if !clients.begin(stop)? {
            return Ok(report);
        }
        // Transfers began by then.
        (report.between, _) = clients.take();
        report.all = report.between.clone();
        let run = Run { wish, whole, clients, began: Instant::now(), stop };
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
            // At its start it connects to all addresses of the name, and waits for each.
            let wrk = Wrk::start(self, run.wish.load.wrk, rests + Duration::from_millis(fault.lasts_ms) + MEND_TIME)?;
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

    /// Does a fault, mends it, and waits until all is as before; and what went wrong with that.
    fn one(&mut self, run: &Run<'_>, fault: Fault, wrk: Wrk) -> (FaultReport, Option<LabError>) {
        let Run { wish, whole, clients, began, stop } = run;
        let broken = Instant::now();
        let (names, mut wrong) = match self.break_it(&fault) {
            Ok(names) => (names, None),
            // It may have been done to some of the processes of this name.
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
                let early = "it was told to end at once: what was broken is mended, and not all was as before by then";
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
            seen.tell(&format!("not as before {after} s after it was mended: {}", whole.said()));
        }
        let count = clients.names.len() as u64 * u64::from(wish.load.connections);
        let report = FaultReport {
            at_ms: ms(broken.duration_since(*began)),
            may_fail: fault.may_fail(&self.plan, count, wish.load.patience),
            failing_ms: last_failed.map_or(0, |last| ms(last.saturating_duration_since(broken))),
            fault,
            seen,
            answered_ms,
            whole_ms,
            wrk,
        };
        (report, wrong)
    }

    /// Does it; gives the processes that it was done to.
    fn break_it(&self, fault: &Fault) -> Result<Vec<String>, LabError> {
        match (fault.act, fault.link) {
            (Act::Kill, _) => self.kill(&fault.name),
            (Act::Pause, _) => self.pause(&fault.name),
            (Act::Partition, _) => self.partition(&fault.name, fault.from.as_deref()).map(|_| Vec::new()),
            (Act::Slow, link) => self.slow(&fault.name, link.unwrap_or_default()).map(|_| Vec::new()),
        }
    }

    /// Undoes it as far as that goes; gives what went wrong first.
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

/// Waits for so long, or until all is to stop.
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

/// Ends a program that was started here, by a signal that it takes as the wish to end; gives up at last.
pub(crate) fn end(child: &mut Child, signal: Signal) {
    let began = Instant::now();
    while let Some(started) = i32::try_from(child.id()).ok().and_then(Started::of)
        && started.life() != Life::Gone
        && began.elapsed() < GUEST_END_TIME
    {
        // Again and again: one that is on its way to wait for it would miss the first.
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
    fn what_clients_tell_is_added_up_and_told_once() {
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
        client.hear("eu-client", &tick);
        client.hear("eu-client", &Tick { good: 2, gap_ms: 30, all_good_ms: Some(0), ..Tick::default() });
        assert!(client.all_good.unwrap() > client.last_failed.unwrap());
        let seen = &client.seen;
        assert_eq!((seen.requests, seen.failed, seen.longest_gap_ms), (10, 3, 70));
        assert_eq!((seen.transfers, seen.transfers_cut, seen.transfer_bytes), (1, 1, 9));
        assert_eq!(seen.told, ["reset", "transfer: reset"]);
        let mut all = seen.clone();
        all.add(seen);
        assert_eq!((all.failed, all.failed_by["eu-client"], all.told.len()), (6, 6, 2));
        client.hear("eu-client", &Tick::default());
        assert_eq!(client.all_good, None, "while somebody waits for a first answer");
    }

    #[test]
    fn who_is_asked_to_stop_mends_first_and_asked_again_waits_for_nothing() {
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
            seen: Seen { failed, ..Seen::default() },
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
