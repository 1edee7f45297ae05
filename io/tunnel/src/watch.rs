//! Whoever waits for a connector in vain has it asked whether it is there.

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

/// Watches one stream that the edge has opened. Its alarm is set when something is waited for, and stays set from one wait to
/// the next.
pub(crate) struct Watch {
    mux: Arc<Mux>,
    awaited: Awaited,
    alarm: Option<WatchTimer>,
}

struct WatchTimer {
    sleep: Pin<Box<Sleep>>,
    /// A timer stays with the scheduler that it was made in.
    shard: ShardId,
}

impl Watch {
    /// Of a stream of this session, whose opening is to be answered.
    pub(crate) fn opening(mux: Arc<Mux>) -> Self {
        Self { mux, awaited: Awaited::opening(), alarm: None }
    }

    /// Something was sent.
    pub(crate) fn sent(&mut self) {
        self.awaited.sent();
    }

    /// Something came, or the end.
    pub(crate) fn came(&mut self) {
        if self.awaited.came() {
            self.alarm = None;
        }
    }

    /// Nothing has come yet: whoever waits is woken to look again, where that is worth it.
    pub(crate) fn poll_look(&mut self, cx: &mut Context<'_>) {
        if !self.awaited.is_watched() {
            // What waits for nothing holds no timer for long.
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
                self.mux.doubt();
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

    /// As [`Self::poll_look`], of what a read came to.
    pub(crate) fn read<T>(&mut self, read: Poll<T>, cx: &mut Context<'_>) -> Poll<T> {
        match read {
            Poll::Ready(_) => self.came(),
            Poll::Pending => self.poll_look(cx),
        }
        read
    }
}
