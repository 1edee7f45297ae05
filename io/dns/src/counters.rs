//! Counters for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sallyport_model::RegionName;
use sallyport_zone::{
    AnswerKind, DropReason, Outcome, Transport, Verdict,
    data::{OTHER_REGION, REGION_SLOTS, Steered},
    steer::{ChoiceReason, REASONS as CHOICE_REASONS},
};

const KINDS: usize = AnswerKind::ALL.len();
const REASONS: usize = DropReason::ALL.len();

/// Answers that were chosen for a client, by region and reason.
#[derive(Debug)]
struct SteeredAnswers([[AtomicU64; CHOICE_REASONS]; REGION_SLOTS]);

impl Default for SteeredAnswers {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Default::default()))
    }
}

/// What the server has done since its start.
#[derive(Debug, Default)]
pub struct Counters {
    steered: SteeredAnswers,
    /// The regions with numbers of their own, in the order of these.
    regions: RwLock<Vec<RegionName>>,
    queries: [AtomicU64; 2],
    answers: [AtomicU64; KINDS],
    drops: [AtomicU64; REASONS],
    truncated: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    send_errors: AtomicU64,
    signatures: AtomicU64,
    pub(crate) tcp_open: AtomicU64,
    pub(crate) tcp_refused: AtomicU64,
    pub(crate) transfers: AtomicU64,
    pub(crate) panics: AtomicU64,
}

/// What one thread counts until it adds it to [`Counters`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    queries: u64,
    answers: [u64; KINDS],
    drops: [u64; REASONS],
    truncated: u64,
    bytes_in: u64,
    bytes_out: u64,
    pub(crate) send_errors: u64,
    pub(crate) signatures: u64,
    /// At most one for each query of a batch.
    steered: Vec<Steered>,
}

impl Tally {
    /// Counts a message and what became of it.
    pub(crate) fn record(&mut self, bytes_in: usize, bytes_out: usize, outcome: &Outcome) {
        self.queries += 1;
        self.bytes_in += bytes_in as u64;
        self.bytes_out += bytes_out as u64;
        self.truncated += u64::from(outcome.is_truncated);
        self.steered.extend(outcome.steered);
        match outcome.verdict {
            Verdict::Drop(reason) => self.drops[reason.index()] += 1,
            Verdict::Send | Verdict::Transfer(_) => self.answers[outcome.kind.index()] += 1,
        }
    }
}

impl Counters {
    /// Adds what was counted, and begins anew.
    pub(crate) fn add(&self, transport: Transport, tally: &mut Tally) {
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        };
        add(&self.queries[transport as usize], tally.queries);
        self.answers.iter().zip(tally.answers).for_each(|(counter, count)| add(counter, count));
        self.drops.iter().zip(tally.drops).for_each(|(counter, count)| add(counter, count));
        add(&self.truncated, tally.truncated);
        add(&self.bytes_in, tally.bytes_in);
        add(&self.bytes_out, tally.bytes_out);
        add(&self.send_errors, tally.send_errors);
        add(&self.signatures, tally.signatures);
        let mut steered = std::mem::take(&mut tally.steered);
        for one in steered.drain(..) {
            add(&self.steered.0[usize::from(one.slot.min(OTHER_REGION))][one.reason.index()], 1);
        }
        *tally = Tally { steered, ..Tally::default() };
    }

    /// The number by which answers with this region are counted. The first regions have numbers of their own, for as
    /// long as the server runs.
    #[must_use]
    pub fn slot(&self, region: &RegionName) -> u8 {
        let mut regions = self.regions.write();
        let at = regions.iter().position(|known| known == region).unwrap_or(regions.len());
        if at >= usize::from(OTHER_REGION) {
            return OTHER_REGION;
        }
        if at == regions.len() {
            regions.push(region.clone());
        }
        at as u8
    }

    /// Answers that were chosen for a client, by region and reason. `None`: the addresses for everybody, or a region
    /// without a number of its own.
    #[must_use]
    pub fn steered(&self) -> Vec<(Option<RegionName>, ChoiceReason, u64)> {
        let names = self.regions.read().clone();
        let slots = (0..names.len()).chain([usize::from(OTHER_REGION)]);
        let counts = |slot: usize| {
            let name = names.get(slot).cloned();
            ChoiceReason::ALL
                .map(|reason| (name.clone(), reason, self.steered.0[slot][reason.index()].load(Ordering::Relaxed)))
        };
        slots.flat_map(counts).filter(|(_, _, count)| *count > 0).collect()
    }

    /// Messages that came.
    #[must_use]
    pub fn queries(&self, transport: Transport) -> u64 {
        self.queries[transport as usize].load(Ordering::Relaxed)
    }

    /// Answers of a kind that were sent.
    #[must_use]
    pub fn answers(&self, kind: AnswerKind) -> u64 {
        self.answers[kind.index()].load(Ordering::Relaxed)
    }

    /// Messages without an answer.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()].load(Ordering::Relaxed)
    }

    /// Answers that were cut short.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.truncated.load(Ordering::Relaxed)
    }

    /// Bytes of messages that came.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    /// Bytes of answers.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    /// Signatures that were made, because no answer had them before.
    #[must_use]
    pub fn signatures(&self) -> u64 {
        self.signatures.load(Ordering::Relaxed)
    }

    /// Answers that the kernel did not take.
    #[must_use]
    pub fn send_errors(&self) -> u64 {
        self.send_errors.load(Ordering::Relaxed)
    }

    /// TCP connections that are open now.
    #[must_use]
    pub fn tcp_open(&self) -> u64 {
        self.tcp_open.load(Ordering::Relaxed)
    }

    /// TCP connections that were closed at once, because there were too many.
    #[must_use]
    pub fn tcp_refused(&self) -> u64 {
        self.tcp_refused.load(Ordering::Relaxed)
    }

    /// Queries that made a thread panic. Each is a fault of the server.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Transfers of zones that were completed.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.transfers.load(Ordering::Relaxed)
    }
}
