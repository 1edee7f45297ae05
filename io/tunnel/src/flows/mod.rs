//! Flows of datagrams: the handles and sinks of their users, the same at both ends, and the datagram leg that a
//! session's flows share.
//!
//! May use `driver` and `mux`.
//!
//! Nothing here waits. A datagram that cannot be queued is dropped, and so is one that waits too long; see
//! [`sallyport_wire::datagram`]. The [driver] moves the bytes between the leg and its carrier.

pub(crate) mod driver;

use std::{collections::HashMap, sync::Arc, task::Waker};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::TunnelId;
use sallyport_wire::{DatagramInput, DatagramLeg, DatagramStats, FlowEnd, FlowId, FlowOpen, FlowOpenError, Side};

use crate::mux::now;

/// Receives the datagrams of one flow. One task reads the carrier of all flows and makes the calls one after another,
/// so they must be quick and must not block.
pub trait FlowSink: Send + Sync + 'static {
    /// Receives datagrams in order: all that were read together. Each may be empty.
    fn datagrams(&self, batch: &[&[u8]]);

    /// Reports that the peer ended the flow, or that the tunnel ended. Called at most once, as the last call; not
    /// called after the own [`FlowHandle`] was closed or dropped.
    fn closed(&self, end: FlowEnd);
}

/// Serves the flows of the tunnels (connector's side).
pub trait FlowHandler: Send + Sync + 'static {
    /// Starts a flow: datagrams are sent through `flow`, and received ones go to the returned sink. Must be quick;
    /// longer work belongs in a task. Close `flow` to refuse the flow.
    fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink>;
}

/// The sending end of one flow. Dropping the handle closes the flow.
pub struct FlowHandle {
    leg: Arc<FlowLeg>,
    id: FlowId,
}

/// The datagram leg of a session.
pub(crate) struct FlowLeg {
    state: Mutex<State>,
}

/// The datagram legs of all sessions, and the sum of the counters of ended legs.
#[derive(Default)]
pub(crate) struct DatagramLegs {
    state: Mutex<(Vec<Arc<FlowLeg>>, DatagramStats)>,
}

/// Guard of a counted leg.
pub(crate) struct CountedLeg {
    legs: Arc<DatagramLegs>,
    leg: Arc<FlowLeg>,
}

impl DatagramLegs {
    /// Counts a leg until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, leg: &Arc<FlowLeg>) -> CountedLeg {
        self.lock().0.push(leg.clone());
        CountedLeg { legs: self.clone(), leg: leg.clone() }
    }

    /// Sums the counters of all legs, ended ones included.
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
    /// Waker of the driver's task while the driver waits.
    driver: Option<Waker>,
    /// Whether the carrier accepts no data now, so that waking the driver has no effect.
    is_blocked: bool,
    over: bool,
}

struct Receiving {
    tunnel: TunnelId,
    sink: Arc<dyn FlowSink>,
}

/// Consecutive datagrams of one flow.
type Run<'a> = (FlowId, Arc<dyn FlowSink>, Vec<&'a [u8]>);

/// Where [`FlowLeg::take_input`] stopped.
enum Step {
    /// No complete frame is left.
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

    /// Ends the flows of one tunnel and notifies both ends.
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

    /// Ends all flows because the carrier or the session ended. A running driver stops.
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

    /// Handles all complete frames at the front of `bytes`, calls the flows' users, and returns the number of bytes
    /// handled. An error is the reason to close the leg, as a sentence.
    fn take_input(self: &Arc<Self>, bytes: &[u8], handler: Option<&Arc<dyn FlowHandler>>) -> Result<usize, String> {
        let mut taken = 0;
        loop {
            // Users are called with the state unlocked, because they may send and close.
            let mut runs: Vec<Run<'_>> = Vec::new();
            let step = {
                let mut state = self.lock();
                if state.over {
                    return Err("the session is over".to_owned());
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

    /// Hands a flow that the edge opened to `handler`, or refuses the flow.
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

    /// Takes what there is to send into `out`, if `out` is set, and registers the driver's waker. False once the leg
    /// has ended.
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
    /// Queues a datagram. False: the flow has ended, the datagram is longer than
    /// [`sallyport_wire::frame::MAX_DATAGRAM_BYTES`], or there is no room. True does not guarantee delivery.
    #[must_use]
    pub fn send(&self, datagram: &[u8]) -> bool {
        self.send_batch(&[datagram]) == 1
    }

    /// Queues datagrams in order, as [`Self::send`] does; returns how many were queued.
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

    /// Whether the flow is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let state = self.leg.lock();
        !state.over && state.leg.is_open(self.id)
    }

    /// Closes the flow and sends the reason to the peer. Queued datagrams of the flow are dropped.
    pub fn close(self, end: FlowEnd) {
        self.end(end);
    }

    fn end(&self, end: FlowEnd) {
        let mut state = self.leg.lock();
        // Dropped after the state is unlocked: the sink may hold handles itself.
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
