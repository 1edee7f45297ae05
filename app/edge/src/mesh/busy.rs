//! Counts what this edge relays for other edges in the load of its origins, so that balancing here accounts for relayed
//! work.
//!
//! Raw streams and datagram flows count from begin to end. The other edge keeps an HTTP connection open between
//! requests, and this edge does not parse HTTP. So an HTTP stream counts from the first byte of a request until the
//! origin has answered and no byte has moved for [`LOOK_PERIOD`].

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_wire::StreamProtocol;
use tokio::sync::Notify;

use crate::origins::origin::{InFlight, Origin};

/// How often streams are checked. A stream is idle if no byte has moved from one check to the next.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// The start of a response after which the connection is no longer HTTP (RFC 9112 section 4, RFC 9110 section 15.2.2).
const SWITCHES: &[u8] = b"HTTP/1.1 101";

/// A stream that is relayed for another edge, with its share of the origin's load.
pub(super) struct Busy {
    origin: Arc<Origin>,
    protocol: StreamProtocol,
    /// Whether the stream counts now.
    counts: AtomicBool,
    counted: Mutex<Option<InFlight>>,
    /// The origin has a request and has sent no byte of the response.
    awaits: AtomicBool,
    /// A byte has moved since the last check.
    moved: AtomicBool,
    /// The stream counts to its end.
    is_flow: AtomicBool,
}

impl Busy {
    fn new(origin: Arc<Origin>, protocol: StreamProtocol) -> Self {
        let is_flow = protocol == StreamProtocol::Raw;
        let counted = is_flow.then(|| InFlight::enter_relayed(origin.clone()));
        Self {
            origin,
            protocol,
            counts: AtomicBool::new(is_flow),
            counted: Mutex::new(counted),
            awaits: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            is_flow: AtomicBool::new(is_flow),
        }
    }

    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Bytes of a request are on their way to the origin.
    pub(super) fn record_request(&self) {
        if self.is_flow.load(Ordering::Relaxed) {
            return;
        }
        self.moved.store(true, Ordering::Relaxed);
        // Bytes of HTTP/2 need not be a request, so no response is expected.
        self.awaits.store(self.protocol == StreamProtocol::Http1, Ordering::Relaxed);
        if !self.counts.load(Ordering::Acquire) {
            let mut counted = self.counted.lock();
            counted.get_or_insert_with(|| InFlight::enter_relayed(self.origin.clone()));
            self.counts.store(true, Ordering::Release);
        }
    }

    /// Bytes of a response came from the origin.
    pub(super) fn record_answer(&self, words: &[u8]) {
        if self.is_flow.load(Ordering::Relaxed) {
            return;
        }
        self.moved.store(true, Ordering::Relaxed);
        if self.awaits.swap(false, Ordering::Relaxed) && words.starts_with(SWITCHES) {
            self.is_flow.store(true, Ordering::Relaxed);
        }
    }

    /// Stops counting the stream if it is idle.
    fn look(&self) {
        let is_at_rest = !self.moved.swap(false, Ordering::Relaxed)
            && !self.awaits.load(Ordering::Relaxed)
            && !self.is_flow.load(Ordering::Relaxed);
        if is_at_rest && self.counts.load(Ordering::Acquire) {
            let mut counted = self.counted.lock();
            // A request may have arrived in between; the stream still counts then.
            if !self.moved.load(Ordering::Relaxed) {
                *counted = None;
                self.counts.store(false, Ordering::Release);
            }
        }
    }
}

/// The HTTP streams that are relayed for other edges. Bounded by the number of streams.
#[derive(Default)]
pub(super) struct BusyList {
    streams: Mutex<Vec<Weak<Busy>>>,
    came: Notify,
}

impl BusyList {
    /// Adds a stream to this origin.
    pub(super) fn enter(&self, origin: Arc<Origin>, protocol: StreamProtocol) -> Arc<Busy> {
        let busy = Arc::new(Busy::new(origin, protocol));
        if protocol != StreamProtocol::Raw {
            let mut streams = self.streams.lock();
            streams.push(Arc::downgrade(&busy));
            if streams.len() == 1 {
                self.came.notify_one();
            }
        }
        busy
    }

    /// Checks the streams for as long as the edge serves.
    pub(super) async fn look(&self) {
        loop {
            if self.look_once() {
                tokio::time::sleep(LOOK_PERIOD).await;
            } else {
                self.came.notified().await;
            }
        }
    }

    /// Checks every stream once. Returns whether there are any.
    fn look_once(&self) -> bool {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.upgrade().inspect(|stream| stream.look()).is_some());
        !streams.is_empty()
    }
}
