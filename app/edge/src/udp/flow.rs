//! One flow of a UDP port: the datagrams between a client and an origin.

use std::{
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_balance::Attempts;
use sallyport_net::{Pace, RelayCounts, UdpPort};
use sallyport_tunnel::{FlowEnd, FlowSink, OpenFlowError};

use crate::{
    access::admit::Pass,
    metrics::{Metrics, verdict::Verdict},
    origins::{
        http::forwarding::Group,
        origin::InFlight,
        pool::SocketPool,
        quotas::QuotaChoice,
        transport::{FlowRequest, OriginFlow},
    },
    policy::limits::Meter,
    record::flow::FlowContext,
    udp::{
        address_validation::{AddressValidation, Allowance, Level},
        table::Key,
    },
};

/// How many datagrams of one flow wait for a tunnel that is expected (back) soon.
const MAX_WAITING_DATAGRAMS: usize = 32;
/// How many bytes of them.
const MAX_WAITING_BYTES: usize = 8_192;
/// How long they wait.
const MAX_WAITING_TIME: Duration = Duration::from_secs(2);

/// A client's flow.
pub(crate) struct Flow {
    back: Arc<ClientSide>,
    context: FlowContext,
    pass: Pass,
    origin_leg: Option<OriginLeg>,
    tried: Attempts<u64>,
    /// The origin that last refused this flow because it had as many flows as it may.
    full_at: Option<u64>,
    /// When another flow was evicted for this one.
    evicted_other_since: Option<Instant>,
    waiting: WaitingDatagrams,
    metrics: Metrics,
    began: Instant,
    seen: Instant,
    bytes: u64,
}

/// The origin of a flow.
struct OriginLeg {
    handle: OriginFlow,
    ended: Arc<OnceLock<FlowEnd>>,
    origin: InFlight,
}

/// Datagrams that wait for a tunnel.
#[derive(Default)]
struct WaitingDatagrams {
    datagrams: Vec<Box<[u8]>>,
    bytes: usize,
    since: Option<Instant>,
}

/// The client's side of a flow.
struct ClientSide {
    key: Key,
    port: Arc<UdpPort>,
    allowance: Arc<Allowance>,
    /// Whether traffic to unvalidated addresses is bounded, which the socket's owner configures.
    is_guarded: Arc<AtomicBool>,
    validation: Mutex<AddressValidation>,
    meter: Mutex<Meter>,
    metrics: Metrics,
    began: Instant,
    /// How many bytes went to the client.
    bytes: AtomicU64,
    /// When the last datagram went to the client, in milliseconds since the begin; 0 for never.
    last_ms: AtomicU64,
}

/// Receives the answers of one origin.
struct Sink {
    back: Arc<ClientSide>,
    ended: Arc<OnceLock<FlowEnd>>,
}

/// The outcome for a client's datagrams.
pub(crate) enum Step {
    /// Sent, or dropped as datagrams may be.
    Sent,
    /// They wait for a tunnel: [`Flow::try_waiting`] is to be called soon.
    Waiting,
    /// The flow has ended: no origin takes it.
    Over(Verdict),
}

/// Whether the limits allow this many bytes now. What exceeds the limits is dropped, because datagrams are not queued.
fn is_in_time(pace: &mut impl Pace, bytes: u64) -> bool {
    let is_in_time = pace.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready();
    if is_in_time {
        pace.moved(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    is_in_time
}

impl FlowSink for Sink {
    fn datagrams(&self, batch: &[&[u8]]) {
        self.back.send(batch);
    }

    fn closed(&self, end: FlowEnd) {
        let _ = self.ended.set(end);
    }
}

impl ClientSide {
    fn send(&self, batch: &[&[u8]]) {
        let now = Instant::now();
        let allowed = self.allowed(batch, now);
        if allowed < batch.len() {
            self.metrics.datagrams_dropped("amplification", batch.len() - allowed);
        }
        let batch = &batch[..allowed];
        let bytes: u64 = batch.iter().map(|datagram| datagram.len() as u64).sum();
        if !is_in_time(&mut *self.meter.lock(), bytes) {
            self.metrics.datagrams_dropped("rate", batch.len());
            return;
        }
        let sent = self.port.send(self.key.client, Some(self.key.local), batch);
        if sent > 0 {
            let elapsed = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
            self.last_ms.store(elapsed.max(1), Ordering::Release);
        }
        let bytes: u64 = batch[..sent].iter().map(|datagram| datagram.len() as u64).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.datagrams_out(sent);
        if sent < batch.len() {
            self.metrics.datagrams_dropped("no-room", batch.len() - sent);
        }
    }

    fn validation(&self) -> MutexGuard<'_, AddressValidation> {
        self.validation.lock()
    }

    /// How many of these, from the first on, may go to the client by its address validation.
    fn allowed(&self, batch: &[&[u8]], now: Instant) -> usize {
        let mut validation = self.validation();
        if !self.is_guarded.load(Ordering::Relaxed) {
            validation.sends();
            return batch.len();
        }
        let may_send = |datagram: &&&[u8]| validation.may_send(datagram.len() as u64, &self.allowance, now);
        batch.iter().take_while(may_send).count()
    }

    fn is_answered(&self) -> bool {
        self.last_ms.load(Ordering::Acquire) > 0
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.last_ms.load(Ordering::Acquire))
    }
}

impl Flow {
    /// A flow that begins now.
    pub(crate) fn new(
        key: Key,
        port: Arc<UdpPort>,
        guard: (Arc<Allowance>, Arc<AtomicBool>),
        context: FlowContext,
        pass: Pass,
        metrics: Metrics,
    ) -> Self {
        let began = context.began();
        let (allowance, is_guarded) = guard;
        let back = ClientSide {
            key,
            port,
            allowance,
            is_guarded,
            validation: Mutex::default(),
            meter: Mutex::new(pass.meter().clone()),
            metrics: metrics.clone(),
            began,
            bytes: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        };
        Self {
            back: Arc::new(back),
            context,
            pass,
            origin_leg: None,
            tried: Attempts::default(),
            full_at: None,
            evicted_other_since: None,
            waiting: WaitingDatagrams::default(),
            metrics,
            began,
            seen: began,
            bytes: 0,
        }
    }

    /// The address of the client.
    pub(crate) fn client(&self) -> IpAddr {
        self.back.key.client.ip()
    }

    /// Whether an answer of the origin has reached the client.
    pub(crate) fn is_answered(&self) -> bool {
        self.back.is_answered()
    }

    /// Whether the client has sent again after an answer.
    pub(crate) fn is_established(&self) -> bool {
        self.back.validation().level() > Level::New
    }

    /// The rank for eviction.
    pub(crate) fn rank(&self, now: Instant) -> Level {
        self.back.validation().rank(now.saturating_duration_since(self.seen))
    }

    /// When a datagram last moved, in either direction.
    pub(crate) fn last(&self) -> Instant {
        self.seen.max(self.back.last())
    }

    /// Steps 3 to 5 for the client's datagrams: selects an origin if there is none (any more), and sends. `expects`
    /// says whether a tunnel is expected soon.
    pub(crate) fn forward(
        &mut self,
        pool: &SocketPool,
        expects: impl Fn() -> bool,
        datagrams: &[&[u8]],
        now: Instant,
    ) -> Step {
        self.seen = now;
        let bytes: usize = datagrams.iter().map(|datagram| datagram.len()).sum();
        self.bytes += bytes as u64;
        self.back.validation().received(datagrams.len(), bytes as u64, now);
        if !is_in_time(&mut self.pass, bytes as u64) {
            self.metrics.datagrams_dropped("rate", datagrams.len());
            return Step::Sent;
        }
        match self.reach_origin(pool, expects) {
            Ok(true) => {
                self.release_held(now);
                self.send(datagrams);
                Step::Sent
            }
            Ok(false) => {
                self.hold(datagrams, now);
                Step::Waiting
            }
            Err(verdict) => Step::Over(verdict),
        }
    }

    /// Allows a new try at every origin, after another flow was evicted.
    pub(crate) fn try_all_again(&mut self, now: Instant) {
        self.tried = Attempts::default();
        if !self.has_way() {
            self.evicted_other_since = Some(now);
        }
    }

    /// Whether another flow was evicted for this one, and no answer has come since.
    pub(crate) fn has_way(&self) -> bool {
        self.evicted_other_since.is_some_and(|since| self.back.last() <= since)
    }

    /// The origin that last refused this flow because it had as many flows as it may.
    pub(crate) fn full_at(&self) -> Option<u64> {
        self.full_at
    }

    /// Whether the flow goes to this origin.
    pub(crate) fn goes_to(&self, origin: u64) -> bool {
        self.origin_leg.as_ref().is_some_and(|origin_leg| origin_leg.origin.origin().number() == origin)
    }

    /// Tries again to send the waiting datagrams. Returns false when none wait any more.
    pub(crate) fn try_waiting(&mut self, pool: &SocketPool, now: Instant) -> bool {
        let Some(since) = self.waiting.since else { return false };
        if now.saturating_duration_since(since) > MAX_WAITING_TIME {
            let waiting = std::mem::take(&mut self.waiting);
            self.metrics.datagrams_dropped("no-tunnel", waiting.datagrams.len());
            return false;
        }
        if matches!(self.reach_origin(pool, || true), Ok(true)) {
            self.release_held(now);
        }
        self.waiting.since.is_some()
    }

    fn send(&self, datagrams: &[&[u8]]) {
        let Some(origin_leg) = &self.origin_leg else { return };
        let taken = origin_leg.handle.send_batch(datagrams);
        if taken < datagrams.len() {
            self.metrics.datagrams_dropped("tunnel-full", datagrams.len() - taken);
        }
    }

    /// Selects an origin if there is none; `Ok(false)` if one is expected soon.
    fn reach_origin(&mut self, pool: &SocketPool, expects: impl Fn() -> bool) -> Result<bool, Verdict> {
        let mut last = None;
        if let Some(origin_leg) = &self.origin_leg {
            match origin_leg.ended.get() {
                None => return Ok(true),
                // This origin has failed, and the datagrams that it got are lost; the next origin gets later ones.
                Some(end @ (FlowEnd::Unreachable | FlowEnd::Busy)) => {
                    if self.back.is_answered() {
                        self.tried = Attempts::default();
                    }
                    let is_busy = *end == FlowEnd::Busy;
                    self.full_at = is_busy.then(|| origin_leg.origin.origin().number()).or(self.full_at);
                    last = Some(if is_busy { Verdict::TooManyFlows } else { Verdict::OriginRefused });
                }
                Some(_) => self.tried = Attempts::default(),
            }
        }
        self.origin_leg = None;
        let mut is_near = false;
        loop {
            let chosen = if pool.quotas().is_limited() {
                match pool.try_choose_by_quota(Group::ROOT, &mut self.tried, self.pass.hint()) {
                    QuotaChoice::Chosen(origin) => Some(origin),
                    QuotaChoice::NoOrigin => None,
                    QuotaChoice::Full(_) => return Err(last.unwrap_or(Verdict::OverCapacity)),
                }
            } else {
                pool.choose(Group::ROOT, &mut self.tried, self.pass.hint())
            };
            let Some(origin) = chosen else { break };
            self.context.set_transport(origin.origin().handle().clone());
            match self.open(&origin) {
                Ok((handle, ended)) => {
                    self.origin_leg = Some(OriginLeg { handle, ended, origin });
                    return Ok(true);
                }
                Err(OpenFlowError::NotReady) => is_near = true,
                Err(OpenFlowError::TooManyFlows) => {
                    self.full_at = Some(origin.origin().number());
                    last = Some(Verdict::TooManyFlows);
                }
                Err(_) => {}
            }
        }
        if is_near || (last.is_none() && expects()) {
            self.tried = Attempts::default();
            return Ok(false);
        }
        Err(last.unwrap_or(Verdict::NoTunnel))
    }

    fn open(&self, origin: &InFlight) -> Result<(OriginFlow, Arc<OnceLock<FlowEnd>>), OpenFlowError> {
        let wanted = FlowRequest {
            client: self.back.key.client,
            destination: (self.back.key.local, self.back.port.address().port()).into(),
        };
        let ended = Arc::new(OnceLock::new());
        let sink = Arc::new(Sink { back: self.back.clone(), ended: ended.clone() });
        Ok((origin.origin().handle().open_flow(wanted, sink)?, ended))
    }

    fn hold(&mut self, datagrams: &[&[u8]], now: Instant) {
        self.waiting.since.get_or_insert(now);
        for datagram in datagrams {
            if self.waiting.datagrams.len() == MAX_WAITING_DATAGRAMS
                || self.waiting.bytes + datagram.len() > MAX_WAITING_BYTES
            {
                self.metrics.datagrams_dropped("no-tunnel", 1);
                continue;
            }
            self.waiting.bytes += datagram.len();
            self.waiting.datagrams.push((*datagram).into());
        }
    }

    fn release_held(&mut self, now: Instant) {
        if self.waiting.since.is_none() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.seen = now;
        let datagrams: Vec<&[u8]> = waiting.datagrams.iter().map(|datagram| &datagram[..]).collect();
        self.send(&datagrams);
    }

    /// Whether the flow was idle for too long; `longest` is the configured idle timeout.
    pub(crate) fn is_idle(&self, longest: Duration, now: Instant) -> bool {
        let (rest, silence) = (now.saturating_duration_since(self.last()), now.saturating_duration_since(self.seen));
        let is_guarded = self.back.is_guarded.load(Ordering::Relaxed);
        self.back.validation().is_over(rest, silence, longest, is_guarded)
    }

    /// Whether the origin or its tunnel ended the flow. The next datagram goes to another origin.
    pub(crate) fn is_cut(&self) -> bool {
        self.origin_leg.as_ref().is_none_or(|origin_leg| origin_leg.ended.get().is_some())
    }

    /// The local address to which the client sends.
    pub(crate) fn local(&self) -> IpAddr {
        self.back.key.local
    }

    /// Whether the flow was ended through the API. Updates the flow's byte counts for the API as well.
    pub(crate) fn is_killed(&self) -> bool {
        let live = self.context.live().flow();
        live.bytes.store(self.bytes + self.back.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        live.is_cut()
    }

    /// The flow ends after its idle timeout.
    pub(crate) fn ended_idle(self) {
        let verdict = if self.back.is_answered() { Verdict::Complete } else { Verdict::Unanswered };
        self.ended(verdict);
    }

    /// The flow continues in another process, with the same socket at its connector.
    pub(crate) fn moved(self) {
        let verdict = if self.back.is_answered() { Verdict::Complete } else { Verdict::Unanswered };
        self.finish(verdict, FlowEnd::Detached);
    }

    /// The flow ends.
    pub(crate) fn ended(self, verdict: Verdict) {
        let is_idle = matches!(verdict, Verdict::Complete | Verdict::Unanswered);
        self.finish(verdict, if is_idle { FlowEnd::Idle } else { FlowEnd::Done });
    }

    fn finish(mut self, verdict: Verdict, end: FlowEnd) {
        if let Some(origin_leg) = self.origin_leg.take() {
            origin_leg.handle.close(end);
        }
        self.context.set_carried(RelayCounts { forth: self.bytes, back: self.back.bytes.load(Ordering::Relaxed) });
        tracing::trace!(lasted = ?self.began.elapsed(), verdict = verdict.as_str(), "a flow ended");
        self.context.ended(verdict);
    }
}
