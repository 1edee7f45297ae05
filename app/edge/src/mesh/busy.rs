//! What is relayed for other edges counts among what an origin here is busy with, so that what comes here directly goes where
//! there is less to do.
//!
//! A connection that is passed on as it is counts from its beginning to its end, and so does a flow of datagrams. One that
//! carries HTTP is kept by the other edge after its request, for the next one, and this edge does not read what is said on it:
//! it counts from the request's first byte until the origin has answered and nothing more has moved for a while.

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

/// How often it is looked what has come to rest: what has not moved from one look to the next has.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// How an answer begins after which the connection is not HTTP any more (RFC 9112 section 4, RFC 9110 section 15.2.2).
const SWITCHES: &[u8] = b"HTTP/1.1 101";

/// One stream that is relayed for another edge, and what it is for its origin.
pub(super) struct Busy {
    origin: Arc<Origin>,
    protocol: StreamProtocol,
    /// Whether it counts now.
    counts: AtomicBool,
    counted: Mutex<Option<InFlight>>,
    /// The origin was asked something, and has said nothing since.
    awaits: AtomicBool,
    /// Something has moved since the last look.
    moved: AtomicBool,
    /// It counts to its end.
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

    /// The origin.
    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The origin is asked something.
    pub(super) fn record_request(&self) {
        if self.is_flow.load(Ordering::Relaxed) {
            return;
        }
        self.moved.store(true, Ordering::Relaxed);
        // What HTTP/2 says is not always a question.
        self.awaits.store(self.protocol == StreamProtocol::Http1, Ordering::Relaxed);
        if !self.counts.load(Ordering::Acquire) {
            let mut counted = self.counted.lock();
            counted.get_or_insert_with(|| InFlight::enter_relayed(self.origin.clone()));
            self.counts.store(true, Ordering::Release);
        }
    }

    /// The origin says this.
    pub(super) fn record_answer(&self, words: &[u8]) {
        if self.is_flow.load(Ordering::Relaxed) {
            return;
        }
        self.moved.store(true, Ordering::Relaxed);
        if self.awaits.swap(false, Ordering::Relaxed) && words.starts_with(SWITCHES) {
            self.is_flow.store(true, Ordering::Relaxed);
        }
    }

    /// Counts no more when it rests.
    fn look(&self) {
        let is_at_rest = !self.moved.swap(false, Ordering::Relaxed)
            && !self.awaits.load(Ordering::Relaxed)
            && !self.is_flow.load(Ordering::Relaxed);
        if is_at_rest && self.counts.load(Ordering::Acquire) {
            let mut counted = self.counted.lock();
            // Asked again in between: it counts still.
            if !self.moved.load(Ordering::Relaxed) {
                *counted = None;
                self.counts.store(false, Ordering::Release);
            }
        }
    }
}

/// The streams that are relayed for other edges. As many as there are.
#[derive(Default)]
pub(super) struct BusyList {
    streams: Mutex<Vec<Weak<Busy>>>,
    came: Notify,
}

impl BusyList {
    /// A stream to this origin.
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

    /// Looks at them for as long as the edge serves.
    pub(super) async fn look(&self) {
        loop {
            if self.look_once() {
                tokio::time::sleep(LOOK_PERIOD).await;
            } else {
                self.came.notified().await;
            }
        }
    }

    /// Returns whether there are any.
    fn look_once(&self) -> bool {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.upgrade().inspect(|stream| stream.look()).is_some());
        !streams.is_empty()
    }
}
