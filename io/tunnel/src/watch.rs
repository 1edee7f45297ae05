//! Probes a connector that a stream waits for.

use std::{
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use sallyport_shards::ShardId;
use sallyport_wire::Awaited;
use tokio::time::{Instant, Sleep, sleep};

use crate::mux::Mux;

/// Watches one stream that the edge has opened. The timer is set when the stream waits, and stays set from one wait to
/// the next.
pub(crate) struct Watch {
    mux: Arc<Mux>,
    awaited: Awaited,
    alarm: Option<WatchTimer>,
}

struct WatchTimer {
    sleep: Pin<Box<Sleep>>,
    /// The shard of the timer: a timer stays with the scheduler that created it.
    shard: ShardId,
}

impl Watch {
    /// Watches a stream of this session whose opening is unanswered.
    pub(crate) fn opening(mux: Arc<Mux>) -> Self {
        Self { mux, awaited: Awaited::opening(), alarm: None }
    }

    /// Records that something was sent.
    pub(crate) fn sent(&mut self) {
        self.awaited.sent();
    }

    /// Records input, or its end.
    pub(crate) fn came(&mut self) {
        if self.awaited.came() {
            self.alarm = None;
        }
    }

    /// Called while a read is pending: sets the timer if needed, and probes the connector once it has fired.
    pub(crate) fn poll_look(&mut self, cx: &mut Context<'_>) {
        if !self.awaited.is_watched() {
            // An idle stream holds no timer for long.
            self.alarm.take_if(|alarm| alarm.sleep.is_elapsed());
            return;
        }
        loop {
            let here = ShardId::here();
            self.alarm.take_if(|alarm| alarm.shard != here);
            let alarm = match &mut self.alarm {
                Some(alarm) => alarm,
                None => {
                    let Some(after) = self.awaited.look_after() else { return };
                    self.alarm.insert(WatchTimer { sleep: Box::pin(sleep(after)), shard: here })
                }
            };
            if alarm.sleep.as_mut().poll(cx).is_pending() {
                return;
            }
            if self.awaited.looked() {
                self.mux.check_liveness();
            }
            match self.awaited.look_after() {
                Some(after) => alarm.sleep.as_mut().reset(Instant::now() + after),
                None => {
                    self.alarm = None;
                    return;
                }
            }
        }
    }

    /// Like [`Self::poll_look`], for the result of a read.
    pub(crate) fn read<T>(&mut self, read: Poll<T>, cx: &mut Context<'_>) -> Poll<T> {
        match read {
            Poll::Ready(_) => self.came(),
            Poll::Pending => self.poll_look(cx),
        }
        read
    }
}
