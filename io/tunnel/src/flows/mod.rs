//! Flows of datagrams: what their users hold, the same at both ends, and the datagram leg that the flows of a session
//! share.
//!
//! Nothing here waits: a datagram that cannot be queued is dropped, and so is one that waits too long; see
//! [`sallyport_wire::datagram`]. The [driver] moves the bytes between the leg and its carrier.

pub(crate) mod driver;

use std::{collections::HashMap, sync::Arc, task::Waker};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::TunnelId;
use sallyport_wire::{DatagramInput, DatagramLeg, DatagramStats, FlowEnd, FlowId, FlowOpen, FlowOpenError, Side};

use crate::mux::now;

/// Takes what comes for one flow. The calls come one after another from the task that reads the carrier of all flows,
/// so they must be quick and must not block.
pub trait FlowSink: Send + Sync + 'static {
    /// Datagrams that came, in order: all that were read together. Any of them may be empty.
    fn datagrams(&self, batch: &[&[u8]]);

    /// The other side ended the flow, or the tunnel did. Called once, and nothing comes afterwards; not called after
    /// one's own [`FlowHandle`] was closed or dropped.
    fn closed(&self, end: FlowEnd);
}

/// Serves the flows that come through the tunnels (connector's side).
pub trait FlowHandler: Send + Sync + 'static {
    /// A flow begins. What is to be sent back goes to `flow`; what comes goes to the sink that is returned. Must be
    /// quick: what takes longer belongs into a task. To refuse the flow, close it.
    fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink>;
}

/// One flow, as either end sends on it. Dropping it closes the flow.
pub struct FlowHandle {
    leg: Arc<FlowLeg>,
    id: FlowId,
}

/// The datagram leg of a session.
pub(crate) struct FlowLeg {
    state: Mutex<State>,
}

/// The datagram legs of all sessions, and what was counted on those that are gone.
#[derive(Default)]
pub(crate) struct DatagramLegs {
    state: Mutex<(Vec<Arc<FlowLeg>>, DatagramStats)>,
}

/// A leg that is counted until this is dropped.
pub(crate) struct CountedLeg {
    legs: Arc<DatagramLegs>,
    leg: Arc<FlowLeg>,
}

impl DatagramLegs {
    /// One more leg begins.
    pub(crate) fn enter(self: &Arc<Self>, leg: &Arc<FlowLeg>) -> CountedLeg {
        self.lock().0.push(leg.clone());
        CountedLeg { legs: self.clone(), leg: leg.clone() }
    }

    /// What was counted on all of them so far.
    pub(crate) fn stats(&self) -> DatagramStats {
        let state = self.lock();
        state.0.iter().fold(state.1, |sum, leg| together(sum, leg.stats()))
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Arc<FlowLeg>>, DatagramStats)> {
        self.state.lock()
    }
}

impl Drop for CountedLeg {
    fn drop(&mut self) {
        let mut state = self.legs.lock();
        state.0.retain(|leg| !Arc::ptr_eq(leg, &self.leg));
        state.1 = DatagramStats { flows: 0, ..together(state.1, self.leg.stats()) };
    }
}

fn together(one: DatagramStats, other: DatagramStats) -> DatagramStats {
    DatagramStats {
        flows: one.flows + other.flows,
        sent: one.sent + other.sent,
        received: one.received + other.received,
        dropped_full: one.dropped_full + other.dropped_full,
        dropped_old: one.dropped_old + other.dropped_old,
        ignored: one.ignored + other.ignored,
    }
}

struct State {
    leg: DatagramLeg,
    sinks: HashMap<FlowId, Receiving>,
    /// The driver's task, while it waits.
    driver: Option<Waker>,
    /// The carrier takes nothing now: the driver need not be woken for what waits anyway.
    is_blocked: bool,
    over: bool,
}

struct Receiving {
    tunnel: TunnelId,
    sink: Arc<dyn FlowSink>,
}

/// Datagrams of one flow that came one right after the other.
type Run<'a> = (FlowId, Arc<dyn FlowSink>, Vec<&'a [u8]>);

/// What [`FlowLeg::take_input`] stopped at.
enum Step {
    /// There is no whole frame left.
    End,
    Opened(FlowId, FlowOpen),
    Closed(Option<Receiving>, FlowEnd),
    Refused(String),
}

impl FlowLeg {
    pub(crate) fn new(side: Side, max_flows: usize) -> Arc<Self> {
        let leg = DatagramLeg::new(side, max_flows);
        let state = State { leg, sinks: HashMap::new(), driver: None, is_blocked: false, over: false };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Opens a flow (edge's side).
    pub(crate) fn open(
        self: &Arc<Self>,
        open: &FlowOpen,
        sink: Arc<dyn FlowSink>,
    ) -> Result<FlowHandle, FlowOpenError> {
        let mut state = self.lock();
        if state.over {
            return Err(FlowOpenError::Exhausted);
        }
        let id = state.leg.open(open)?;
        state.sinks.insert(id, Receiving { tunnel: open.tunnel, sink });
        state.wake_driver();
        drop(state);
        Ok(FlowHandle { leg: self.clone(), id })
    }

    pub(crate) fn stats(&self) -> DatagramStats {
        self.lock().leg.stats()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Ends the flows of one tunnel, and tells both ends.
    pub(crate) fn end_tunnel(&self, tunnel: TunnelId, end: FlowEnd) {
        let mut state = self.lock();
        let gone: Vec<_> = state.sinks.extract_if(|_, receiving| receiving.tunnel == tunnel).collect();
        for (id, _) in &gone {
            state.leg.close(*id, end);
        }
        state.wake_driver();
        drop(state);
        for (_, receiving) in gone {
            receiving.sink.closed(end);
        }
    }

    /// The carrier or its session is gone, and all flows with it. The driver, if it still runs, ends.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        let sinks = std::mem::take(&mut state.sinks);
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        for receiving in sinks.into_values() {
            receiving.sink.closed(FlowEnd::Lost);
        }
    }

    /// Takes all whole frames at the front of `bytes`, and tells the flows' users; says how many bytes those were.
    /// Errors are the reason why the leg is to be closed, as a sentence.
    fn take_input(self: &Arc<Self>, bytes: &[u8], handler: Option<&Arc<dyn FlowHandler>>) -> Result<usize, String> {
        let mut taken = 0;
        loop {
            // Users are called with the state unlocked: they may send and close in turn.
            let mut runs: Vec<Run<'_>> = Vec::new();
            let step = {
                let mut state = self.lock();
                if state.over {
                    return Err("its session is over".to_owned());
                }
                loop {
                    let input = state.leg.take_input(&bytes[taken..]).map_err(|violation| violation.to_string())?;
                    let Some((len, input)) = input else { break Step::End };
                    taken += len;
                    match input {
                        DatagramInput::Datagram(id, data) => match runs.last_mut() {
                            Some((of, _, run)) if *of == id => run.push(data),
                            _ => {
                                if let Some(receiving) = state.sinks.get(&id) {
                                    runs.push((id, receiving.sink.clone(), vec![data]));
                                }
                            }
                        },
                        DatagramInput::Opened(id, open) => break Step::Opened(id, open),
                        DatagramInput::Closed(id, end) => break Step::Closed(state.sinks.remove(&id), end),
                        DatagramInput::Refused(refusal) => break Step::Refused(refusal.to_string()),
                        DatagramInput::Ignored => {}
                    }
                }
            };
            for (_, sink, run) in runs {
                sink.datagrams(&run);
            }
            match step {
                Step::End => return Ok(taken),
                Step::Opened(id, open) => self.opened(id, open, handler),
                Step::Closed(Some(receiving), end) => receiving.sink.closed(end),
                Step::Closed(None, _) => {}
                Step::Refused(why) => return Err(why),
            }
        }
    }

    /// The edge opened a flow: its user takes it, or has refused it when this returns.
    fn opened(self: &Arc<Self>, id: FlowId, open: FlowOpen, handler: Option<&Arc<dyn FlowHandler>>) {
        let flow = FlowHandle { leg: self.clone(), id };
        let Some(handler) = handler else { return flow.close(FlowEnd::Unreachable) };
        let sink = handler.open(open, flow);
        let mut state = self.lock();
        if state.leg.is_open(id) && !state.over {
            state.sinks.insert(id, Receiving { tunnel: open.tunnel, sink });
            return;
        }
        let is_lost = state.over;
        drop(state);
        if is_lost {
            sink.closed(FlowEnd::Lost);
        }
    }

    /// The driver's turn: appends what there is to send if `out` is wanted. False: it is over.
    fn take_output(&self, out: Option<&mut Vec<u8>>, max_bytes: usize, waker: &Waker) -> bool {
        let mut state = self.lock();
        if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(waker)) {
            state.driver = Some(waker.clone());
        }
        state.is_blocked = out.is_none();
        if let Some(out) = out {
            state.leg.poll_transmit(out, max_bytes, now());
        }
        !state.over
    }

    fn set_blocked(&self) {
        self.lock().is_blocked = true;
    }
}

impl State {
    fn wake_driver(&mut self) {
        if !self.is_blocked
            && self.driver.is_some()
            && self.leg.wants_transmit()
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
        }
    }
}

impl FlowHandle {
    /// Queues a datagram. False: the flow is over, the datagram is longer than
    /// [`sallyport_wire::frame::MAX_DATAGRAM_BYTES`], or there is no room. True is no promise that it arrives.
    #[must_use]
    pub fn send(&self, datagram: &[u8]) -> bool {
        self.send_batch(&[datagram]) == 1
    }

    /// Queues datagrams in order, as [`Self::send`] does; says how many were taken.
    pub fn send_batch(&self, batch: &[&[u8]]) -> usize {
        let mut state = self.leg.lock();
        if state.over {
            return 0;
        }
        let now = now();
        let taken = batch.iter().filter(|datagram| state.leg.send(self.id, datagram, now)).count();
        state.wake_driver();
        taken
    }

    /// Whether the flow runs.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let state = self.leg.lock();
        !state.over && state.leg.is_open(self.id)
    }

    /// Closes the flow and tells the other side why. What waits to be sent on it is dropped.
    pub fn close(self, end: FlowEnd) {
        self.end(end);
    }

    fn end(&self, end: FlowEnd) {
        let mut state = self.leg.lock();
        // Dropped when the state is unlocked: it may hold handles itself.
        let sink = state.sinks.remove(&self.id);
        if !state.over {
            state.leg.close(self.id, end);
            state.wake_driver();
        }
        drop(state);
        drop(sink);
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        self.end(FlowEnd::Done);
    }
}

impl std::fmt::Debug for FlowHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowHandle").field("id", &self.id).finish_non_exhaustive()
    }
}
