//! Pings from an anycast address, whose replies come to whichever edge routing leads them to.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
};
use sallyport_bus::{
    CatchmentAnswer, MAX_ANSWER_ITEMS, MAX_ASKED_TARGETS, MeasurementProgress, OpenMeasurement, TargetResult,
};
use sallyport_model::is_private;
use sallyport_ping::{Catcher, CaughtCounts, Key, is_one_host};
use sallyport_probe::{CatchSocket, Family, MAX_CATCH_RATE, Prober};
use tokio::task::{AbortHandle, JoinSet};

use super::PROBE_TIMEOUT;

/// After this time without a question of control, a measurement ends.
const IDLE: Duration = Duration::from_secs(60);
/// The most pings that wait for the round trip of this edge at once.
const MAX_ROUND_TRIPS: usize = 1_024;
/// The pause between two batches of them.
const BATCH_PAUSE: Duration = Duration::from_millis(5);

/// The measurement of this edge: one at a time.
#[derive(Debug)]
pub(super) struct CatchmentPings {
    prober: Option<Arc<Prober>>,
    /// Whether private addresses may be pinged.
    allows_private: bool,
    current: Mutex<Option<Running>>,
    totals: Totals,
}

/// Counts of measurements that have ended.
#[derive(Debug, Default)]
struct Totals {
    sent: AtomicU64,
    counted: AtomicU64,
    duplicates: AtomicU64,
    forged: AtomicU64,
}

#[derive(Debug)]
struct Running {
    open: OpenMeasurement,
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    asked_at: Instant,
    has_begun: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// What the tasks of a measurement share with the answers about it.
#[derive(Debug)]
struct Shared {
    /// None where this edge does not have the address.
    socket: Option<CatchSocket>,
    catcher: Mutex<Catcher>,
    round_trips: Mutex<Vec<Option<u32>>>,
    sent: AtomicU64,
    unsent: AtomicU64,
    refused: AtomicU64,
    is_sending: AtomicBool,
    is_timing: AtomicBool,
}

impl CatchmentPings {
    pub(super) fn new(prober: Option<Arc<Prober>>, allows_private: bool) -> Arc<Self> {
        Arc::new(Self { prober, allows_private, current: Mutex::default(), totals: Totals::default() })
    }

    /// Whether this edge may ping an address.
    fn is_allowed(&self, target: IpAddr) -> bool {
        is_one_host(target) && (self.allows_private || !is_private(target))
    }

    pub(super) fn open(self: &Arc<Self>, open: OpenMeasurement) -> CatchmentAnswer {
        let opened = CatchSocket::open(open.address, open.identifier);
        let why_not_here = opened.as_ref().err().map(ToString::to_string);
        let family = Family::of(open.address.to_canonical());
        let shared = Arc::new(Shared {
            socket: opened.ok(),
            catcher: Mutex::new(Catcher::new(family, open.identifier, Key::new(open.key.0))),
            round_trips: Mutex::default(),
            sent: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_sending: AtomicBool::new(false),
            is_timing: AtomicBool::new(false),
        });
        let receiving = shared.clone();
        let receiver = tokio::spawn(async move {
            if let Some(socket) = &receiving.socket {
                socket.receive(&receiving.catcher).await;
            }
        });
        let ending = (Arc::downgrade(self), open.id.clone());
        tokio::spawn(async move {
            // Ends what control has forgotten.
            loop {
                tokio::time::sleep(IDLE / 4).await;
                let Some(pings) = ending.0.upgrade() else { return };
                if !pings.end_if_idle(&ending.1) {
                    return;
                }
            }
        });
        let tasks = vec![receiver.abort_handle()];
        let running = Running { open, shared, tasks, asked_at: Instant::now(), has_begun: false };
        let former = self.current.lock().replace(running);
        self.count(former);
        CatchmentAnswer::Opened { why_not_here }
    }

    /// Returns whether the measurement still runs.
    fn end_if_idle(&self, id: &str) -> bool {
        let mut current = self.current.lock();
        let Some(running) = current.as_ref().filter(|running| running.open.id == id) else { return false };
        if running.asked_at.elapsed() < IDLE {
            return true;
        }
        let former = current.take();
        drop(current);
        self.count(former);
        false
    }

    /// Adds the counts of a measurement that has ended.
    fn count(&self, former: Option<Running>) {
        let Some(running) = former else { return };
        let CaughtCounts { counted, duplicates, forged } = running.shared.catcher.lock().counts();
        for (total, more) in [
            (&self.totals.sent, running.shared.sent.load(Ordering::Relaxed)),
            (&self.totals.counted, counted),
            (&self.totals.duplicates, duplicates),
            (&self.totals.forged, forged),
        ] {
            total.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Does something with the measurement of this id.
    fn with(&self, id: &str, what: impl FnOnce(&mut Running) -> CatchmentAnswer) -> CatchmentAnswer {
        let mut current = self.current.lock();
        match current.as_mut().filter(|running| running.open.id == id) {
            Some(running) => {
                running.asked_at = Instant::now();
                what(running)
            }
            None => CatchmentAnswer::Refused("the edge has no such measurement: it has ended".to_owned()),
        }
    }

    pub(super) fn add(&self, id: &str, first: u32, targets: &[IpAddr]) -> CatchmentAnswer {
        self.with(id, |running| {
            let mut catcher = running.shared.catcher.lock();
            let known = catcher.targets().len();
            if running.has_begun || usize::try_from(first) != Ok(known) || targets.len() > MAX_ASKED_TARGETS {
                return CatchmentAnswer::Refused(format!("targets from number {known} were expected"));
            }
            if !targets.iter().all(|target| catcher.add(*target)) {
                let reason = "a target is of another family than the anycast address, or there are too many";
                return CatchmentAnswer::Refused(reason.to_owned());
            }
            CatchmentAnswer::Done
        })
    }

    pub(super) fn begin(self: &Arc<Self>, id: &str, is_sender: bool) -> CatchmentAnswer {
        self.with(id, |running| {
            if std::mem::replace(&mut running.has_begun, true) {
                return CatchmentAnswer::Done;
            }
            let shared = running.shared.clone();
            let rate = running.open.rate.clamp(1, MAX_CATCH_RATE);
            let targets = shared.catcher.lock().targets().to_vec();
            *shared.round_trips.lock() = vec![None; targets.len()];
            let refused = targets.iter().filter(|target| !self.is_allowed(**target)).count();
            shared.refused.store(u64::try_from(refused).unwrap_or(u64::MAX), Ordering::Relaxed);
            if is_sender {
                shared.is_sending.store(true, Ordering::Relaxed);
                let (this, shared) = (self.clone(), shared.clone());
                running.tasks.push(tokio::spawn(async move { this.send(&shared, rate).await }).abort_handle());
            }
            if running.open.measures_round_trips
                && let Some(prober) = self.prober.clone()
            {
                shared.is_timing.store(true, Ordering::Relaxed);
                let this = self.clone();
                let timing = async move { this.time(&shared, prober, &targets, rate).await };
                running.tasks.push(tokio::spawn(timing).abort_handle());
            }
            CatchmentAnswer::Done
        })
    }

    async fn send(&self, shared: &Shared, rate: u32) {
        let count = |_, is_sent| {
            let counter = if is_sent { &shared.sent } else { &shared.unsent };
            counter.fetch_add(1, Ordering::Relaxed);
        };
        if let Some(socket) = &shared.socket {
            socket.send_all(&shared.catcher, rate, |target| self.is_allowed(target), count).await;
        }
        shared.is_sending.store(false, Ordering::Relaxed);
    }

    /// Measures the round trips of this edge itself.
    async fn time(&self, shared: &Arc<Shared>, prober: Arc<Prober>, targets: &[IpAddr], rate: u32) {
        let mut running = JoinSet::new();
        let began = tokio::time::Instant::now();
        let allowed = targets.iter().enumerate().filter(|(_, target)| self.is_allowed(**target));
        for (sent, (number, target)) in (1_u32..).zip(allowed) {
            while running.len() >= MAX_ROUND_TRIPS {
                running.join_next().await;
            }
            let (prober, shared, target) = (prober.clone(), shared.clone(), *target);
            running.spawn(async move {
                let Ok(answer) = prober.echo(target, PROBE_TIMEOUT).await else { return };
                let us = u32::try_from(answer.time.as_micros()).unwrap_or(u32::MAX).max(1);
                if let Some(place) = shared.round_trips.lock().get_mut(number) {
                    *place = Some(us);
                }
            });
            while running.try_join_next().is_some() {}
            let due = began + Duration::from_secs_f64(f64::from(sent) / f64::from(rate));
            if due > tokio::time::Instant::now() + BATCH_PAUSE {
                tokio::time::sleep_until(due).await;
            }
        }
        running.join_all().await;
        shared.is_timing.store(false, Ordering::Relaxed);
    }

    pub(super) fn progress(&self, id: &str, from: u32) -> CatchmentAnswer {
        self.with(id, |running| {
            let shared = &running.shared;
            let catcher = shared.catcher.lock();
            let round_trips = shared.round_trips.lock();
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let known = (from..catcher.targets().len()).filter_map(|number| {
                let has_landed = catcher.has_replied(number);
                let us = round_trips.get(number).copied().flatten();
                let number = u32::try_from(number).ok()?;
                (has_landed || us.is_some()).then_some(TargetResult { number, has_landed, us })
            });
            let mut results: Vec<_> = known.take(MAX_ANSWER_ITEMS + 1).collect();
            let has_more = results.len() > MAX_ANSWER_ITEMS;
            results.truncate(MAX_ANSWER_ITEMS);
            let CaughtCounts { counted, duplicates, forged } = catcher.counts();
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            CatchmentAnswer::Progress(MeasurementProgress {
                is_busy: shared.is_sending.load(Ordering::Relaxed) || shared.is_timing.load(Ordering::Relaxed),
                sent: read(&shared.sent),
                unsent: read(&shared.unsent),
                refused: read(&shared.refused),
                counted,
                duplicates,
                forged,
                results,
                has_more,
            })
        })
    }

    pub(super) fn close(&self, id: &str) -> CatchmentAnswer {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|running| running.open.id == id) {
            let former = current.take();
            drop(current);
            self.count(former);
        }
        CatchmentAnswer::Done
    }
}

/// The metrics of measurements, read when a scrape comes.
pub(super) struct CatchmentCollector(pub(super) Arc<CatchmentPings>);

impl std::fmt::Debug for CatchmentCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CatchmentCollector(..)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl Collector for CatchmentCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let totals = &self.0.totals;
        let (mut sent, mut now) = (totals.sent.load(Ordering::Relaxed), CaughtCounts::default());
        if let Some(running) = &*self.0.current.lock() {
            sent += running.shared.sent.load(Ordering::Relaxed);
            now = running.shared.catcher.lock().counts();
        }
        let (name, help) = ("sallyport_edge_catchment_pings", "Pings that this edge sent from an anycast address");
        let sent = ConstCounter::new(sent);
        sent.encode(encoder.encode_descriptor(name, help, None, sent.metric_type())?)?;
        let (name, help) = ("sallyport_edge_catchment_replies", "Replies to an anycast address, by what they were");
        let mut replies = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (outcome, total, now) in [
            ("counted", &totals.counted, now.counted),
            ("duplicate", &totals.duplicates, now.duplicates),
            ("forged", &totals.forged, now.forged),
        ] {
            let count = ConstCounter::new(total.load(Ordering::Relaxed) + now);
            count.encode(replies.encode_family(&OutcomeLabel { outcome })?)?;
        }
        Ok(())
    }
}
