//! [`LegStream`]: one stream on a leg, and the return of the leg for the next stream.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use sallyport_wire::{FrameType, Open, OpenFailure, ResetCode, leg::MAX_DISCARD_TIME};
use tokio::io::ReadBuf;

use crate::{
    count::StreamCount,
    establishment::Establishment,
    leg::{Leg, LegEvent},
    life::Waiting,
};

/// Bound on the bytes sent on a stream that the peer resets, for the leg to serve the next stream. Bytes in flight
/// precede the next opening, on a slow path for long. Above the peer's limit
/// ([`sallyport_wire::leg::MAX_DISCARDED_BYTES`]) the leg would end during the next stream.
const MAX_UNWANTED_BYTES: u32 = 64 * 1024;

/// Takes legs back when their streams are over.
pub(crate) trait LegHome: Send + Sync + 'static {
    fn take_back(self: Arc<Self>, leg: Leg);

    /// Whether a leg with a queued terminal frame is accepted: the home then sends that frame soon.
    fn sends_terminal_frames(&self) -> bool {
        false
    }
}

/// How reading ended.
#[derive(Debug, Clone, Default)]
pub(crate) enum ReadEnd {
    /// Reading goes on.
    #[default]
    None,
    /// All data was read.
    End,
    /// The origin was not reached.
    Failed(OpenFailure),
    /// The peer reset the stream.
    Reset(ResetCode),
    /// The carrier ended.
    Lost(Arc<str>),
}

impl ReadEnd {
    /// The result of a read.
    pub(crate) fn to_read(&self) -> io::Result<()> {
        match self.to_error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The error of a write.
    pub(crate) fn to_write(&self) -> io::Error {
        self.to_error().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn to_error(&self) -> Option<io::Error> {
        match self {
            Self::None | Self::End => None,
            Self::Failed(failure) => Some(io::Error::new(io::ErrorKind::ConnectionRefused, failure.clone())),
            Self::Reset(code) => {
                Some(io::Error::new(io::ErrorKind::ConnectionReset, format!("the peer reset the stream: {code}")))
            }
            Self::Lost(why) => {
                Some(io::Error::new(io::ErrorKind::ConnectionReset, format!("the tunnel was lost: {why}")))
            }
        }
    }
}

/// A stream on a leg of its own. Progress needs polling.
pub(crate) struct LegStream {
    /// `None` once the stream is over.
    leg: Option<Leg>,
    home: Arc<dyn LegHome>,
    /// The opening, until it is sent together with the first bytes.
    opening: Option<Box<Open>>,
    establishment: Establishment,
    read_end: ReadEnd,
    count: Option<StreamCount>,
}

impl LegStream {
    /// Opens a stream on an idle leg (edge's side).
    pub(crate) fn open(
        leg: Leg,
        home: Arc<dyn LegHome>,
        open: Open,
        count: StreamCount,
        establishment: Establishment,
    ) -> Self {
        let mut stream = Self::accept(leg, home, count);
        stream.opening = Some(Box::new(open));
        stream.establishment = establishment;
        stream
    }

    /// Accepts a stream that the edge opened (connector's side).
    pub(crate) fn accept(mut leg: Leg, home: Arc<dyn LegHome>, count: StreamCount) -> Self {
        leg.taken_bytes = 0;
        Self {
            leg: Some(leg),
            home,
            opening: None,
            establishment: Establishment::default(),
            read_end: ReadEnd::None,
            count: Some(count),
        }
    }

    /// Sets the client to which the stream is counted.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        if let Some(count) = &mut self.count {
            count.set_client(client);
        }
    }

    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// Answers that the origin accepted the connection (connector's side).
    pub(crate) async fn send_opened(&mut self) -> io::Result<()> {
        if let Some(leg) = &mut self.leg {
            leg.send_empty(FrameType::Opened)?;
        }
        self.establishment.succeed();
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Like [`Self::send_opened`], but the answer leaves with the first bytes that are written, or with the next flush.
    pub(crate) fn hold_opened(&mut self) -> io::Result<()> {
        if let Some(leg) = &mut self.leg {
            leg.send_empty(FrameType::Opened)?;
            leg.holds_opened = true;
        }
        self.establishment.succeed();
        Ok(())
    }

    /// Whether OPENED is held back.
    pub(crate) fn holds_opened(&self) -> bool {
        self.leg.as_ref().is_some_and(|leg| leg.holds_opened)
    }

    /// Answers that the origin was not reached (connector's side), and discards input until the edge has the answer.
    pub(crate) async fn send_failed(mut self, failure: &OpenFailure) {
        let Some(mut leg) = self.leg.take() else { return };
        if leg.send_failed(failure).is_ok() {
            drain(leg, self.home.clone()).await;
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Err(error) = self.poll_queued(cx) {
            return Poll::Ready(Err(self.lose(&error)));
        }
        loop {
            let Some(leg) = &mut self.leg else { return Poll::Ready(self.read_end.to_read()) };
            if !matches!(self.read_end, ReadEnd::None) {
                return Poll::Ready(self.read_end.to_read());
            }
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let outcome = match leg.poll_next(cx) {
                Poll::Ready(Ok(LegEvent::Data)) => match leg.poll_payload(cx, buf) {
                    Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Pending => Ok(None),
                },
                Poll::Ready(Ok(event)) => Ok(Some(event)),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Pending => Ok(None),
            };
            match outcome {
                Ok(Some(event)) => self.take_event(event, cx),
                Ok(None) if leg.ticket.life.wake_at_end(Waiting::Read, cx) => {
                    return Poll::Ready(Err(self.lose(&session_over())));
                }
                Ok(None) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(self.lose(&error))),
            }
        }
    }

    /// Writes payload. FIN may follow the `last` bytes at once; [`Self::poll_shutdown`] is needed in any case.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
        last: bool,
    ) -> Poll<io::Result<usize>> {
        self.notice_reset(cx);
        let Some(leg) = &mut self.leg else { return Poll::Ready(Err(self.read_end.to_write())) };
        if leg.ticket.life.is_over() {
            return Poll::Ready(Err(self.lose(&session_over())));
        }
        if let Some(open) = self.opening.take()
            && let Err(error) = leg.send_open(&open)
        {
            return Poll::Ready(Err(self.lose(&error)));
        }
        if !leg.state().may_send_data() {
            return Poll::Ready(Err(self.read_end.to_write()));
        }
        match leg.poll_data(cx, bufs, last) {
            Poll::Ready(Ok(n)) => {
                leg.holds_opened = false;
                leg.taken_bytes = leg.taken_bytes.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
                Poll::Ready(Ok(n))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.lose(&error))),
            Poll::Pending if leg.ticket.life.wake_at_end(Waiting::Write, cx) => {
                Poll::Ready(Err(self.lose(&session_over())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // A stream that is over in both directions cannot be reset: later input on its leg belongs to the next stream.
        if self.leg.as_ref().is_some_and(|leg| !leg.state().is_idle()) {
            self.notice_reset(cx);
        }
        match (&self.leg, &self.read_end) {
            (_, ReadEnd::Reset(_) | ReadEnd::Lost(_) | ReadEnd::Failed(_)) => Poll::Ready(self.read_end.to_write()),
            (Some(leg), ReadEnd::End) if leg.ticket.life.wake_at_end(Waiting::Read, cx) => {
                Poll::Ready(self.lose(&session_over()))
            }
            _ => Poll::Pending,
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(leg) = &mut self.leg else {
            return Poll::Ready(if let ReadEnd::Lost(_) = self.read_end { self.read_end.to_read() } else { Ok(()) });
        };
        leg.holds_opened = false;
        if let Some(open) = self.opening.take()
            && let Err(error) = leg.send_open(&open)
        {
            return Poll::Ready(Err(self.lose(&error)));
        }
        match leg.poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.settle();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.lose(&error))),
            Poll::Pending if leg.ticket.life.wake_at_end(Waiting::Write, cx) => {
                Poll::Ready(Err(self.lose(&session_over())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(leg) = &mut self.leg {
            let queued = match self.opening.take() {
                Some(open) => leg.send_open(&open),
                None => Ok(()),
            };
            let ended =
                queued.and_then(|()| if leg.state().sent_terminal() { Ok(()) } else { leg.send_empty(FrameType::Fin) });
            if let Err(error) = ended {
                return Poll::Ready(Err(self.lose(&error)));
            }
            if self.home.sends_terminal_frames() && self.settle_when(Leg::is_over) {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_flush(cx)
    }

    /// Resets the stream.
    pub(crate) fn reset(&mut self, code: ResetCode) {
        let Some(mut leg) = self.leg.take() else { return };
        self.count = None;
        self.establishment.lose("the stream was reset");
        if leg.ticket.life.is_over() {
            return;
        }
        leg.ticket.life.forget_tasks();
        if self.opening.is_some() {
            // The connector has not seen the opening.
            self.home.clone().take_back(leg);
            return;
        }
        if !leg.state().is_idle() && leg.send_reset(code).is_err() {
            return;
        }
        // Mostly the RESET leaves at once, and often ends the stream.
        match leg.poll_drain(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => self.home.clone().take_back(leg),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                if tokio::runtime::Handle::try_current().is_ok() {
                    sallyport_shards::spawn_near(drain(leg, self.home.clone()));
                }
            }
        }
    }

    /// Sends queued bytes before a read, so that no caller waits for the answer to an unsent request: the opening, and
    /// bytes that the carrier has buffered.
    fn poll_queued(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(leg) = &mut self.leg else { return Ok(()) };
        if leg.ticket.life.is_over() {
            return Err(session_over());
        }
        if let Some(open) = self.opening.take() {
            leg.send_open(&open)?;
        } else if !leg.has_unsent() || leg.holds_opened {
            return Ok(());
        }
        let mut sent = leg.poll_flush(cx);
        if sent.is_pending()
            && let Some(both) = leg.ticket.life.with_writer(cx)
        {
            // The carrier keeps one waker for writing: this task must not replace the writer's.
            sent = leg.poll_flush(&mut Context::from_waker(&both));
        }
        if let Poll::Ready(sent) = sent {
            leg.ticket.life.wake_writer();
            sent?;
        }
        Ok(())
    }

    fn take_event(&mut self, event: LegEvent, cx: &mut Context<'_>) {
        self.read_end = match event {
            LegEvent::Opened => {
                self.establishment.succeed();
                return;
            }
            LegEvent::Failed(failure) => {
                self.establishment.fail(failure.clone());
                ReadEnd::Failed(failure)
            }
            LegEvent::End => ReadEnd::End,
            LegEvent::Reset(code) => {
                self.establishment.lose("the connector reset the stream");
                ReadEnd::Reset(code)
            }
            LegEvent::Data | LegEvent::Open(_) => return,
        };
        let gave_up = matches!(self.read_end, ReadEnd::Failed(_) | ReadEnd::Reset(_));
        if let Some(leg) = &mut self.leg {
            // Wakes a task that still writes.
            leg.ticket.life.wake_writer();
            if gave_up && leg.taken_bytes > MAX_UNWANTED_BYTES {
                // Closing the leg ends the stream.
                self.leg = None;
                self.count = None;
                return;
            }
        }
        if gave_up {
            self.answer(cx);
        }
        self.settle();
    }

    /// Sends the terminal frame after the peer's, unless one was sent before.
    fn answer(&mut self, cx: &mut Context<'_>) {
        let Some(leg) = &mut self.leg else { return };
        if !leg.state().sent_terminal() {
            leg.pad();
            if leg.send_reset(ResetCode::Cancelled).is_err() {
                self.leg = None;
                return;
            }
        }
        // Bytes that cannot leave now leave with a later flush, or when the stream is dropped.
        if let Poll::Ready(Err(_)) = leg.poll_flush(cx) {
            self.leg = None;
        }
    }

    /// After the end of input, checks whether the peer reset the other direction: no read would notice.
    fn notice_reset(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.read_end, ReadEnd::End) {
            return;
        }
        let Some(leg) = &mut self.leg else { return };
        match leg.poll_next(cx) {
            Poll::Ready(Ok(event)) => self.take_event(event, cx),
            Poll::Ready(Err(error)) => drop(self.lose(&error)),
            Poll::Pending => {}
        }
    }

    /// Returns the leg once the stream is over and everything was sent.
    fn settle(&mut self) {
        self.settle_when(Leg::is_reusable);
    }

    /// Returns the leg if `is_ready` holds; reports whether it did.
    fn settle_when(&mut self, is_ready: impl Fn(&Leg) -> bool) -> bool {
        let began = |leg: &Leg| leg.state().serial() > 0;
        if self.opening.is_some() || !self.leg.as_ref().is_some_and(|leg| began(leg) && is_ready(leg)) {
            return false;
        }
        let Some(leg) = self.leg.take() else { return false };
        self.count = None;
        leg.ticket.life.forget_tasks();
        self.home.clone().take_back(leg);
        true
    }

    fn lose(&mut self, error: &io::Error) -> io::Error {
        self.establishment.lose(&error.to_string());
        self.leg = None;
        self.count = None;
        if !matches!(self.read_end, ReadEnd::Failed(_) | ReadEnd::Reset(_)) {
            self.read_end = ReadEnd::Lost(error.to_string().into());
        }
        self.read_end.to_write()
    }
}

impl Drop for LegStream {
    fn drop(&mut self) {
        self.reset(ResetCode::Cancelled);
    }
}

fn session_over() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the session is over")
}

/// Discards input until the stream is over on both sides, then returns the leg, or closes the leg.
async fn drain(mut leg: Leg, home: Arc<dyn LegHome>) {
    let drained = {
        let mut drained = pin!(poll_fn(|cx| leg.poll_drain(cx)));
        tokio::time::timeout(MAX_DISCARD_TIME, drained.as_mut()).await
    };
    if let Ok(Ok(())) = drained {
        home.take_back(leg);
    }
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;
    use sallyport_model::TunnelId;
    use sallyport_wire::{FailureReason, Side, StreamProtocol};

    use super::*;
    use crate::{count::Counter, life::LegRegistry};

    #[derive(Default)]
    struct Home(Mutex<Vec<Leg>>);

    impl LegHome for Home {
        fn take_back(self: Arc<Self>, leg: Leg) {
            self.0.lock().push(leg);
        }
    }

    fn open() -> Open {
        Open {
            tunnel: TunnelId::from_bytes([7; 16]),
            protocol: StreamProtocol::Raw,
            client: "192.0.2.1:1".parse().unwrap(),
            destination: None,
            opened_at_us: 0,
            server_name: String::new(),
        }
    }

    /// Whether the leg of a stream is reused after the peer reset the stream behind `sent` bytes.
    async fn comes_back(sent: u32, failed: bool) -> bool {
        let (near, far) = tokio::io::duplex(1 << 20);
        let leg = |io, side| Leg::new(Box::new(io), side, Arc::new(LegRegistry::default()).admit(1).unwrap());
        let (near, mut far) = (leg(near, Side::Edge), leg(far, Side::Connector));
        let home = Arc::new(Home::default());
        let count = StreamCount::new(&Arc::<Counter>::default(), None);
        let mut stream = LegStream::open(near, home.clone(), open(), count, Establishment::default());
        let mut left = sent;
        while left > 0 {
            let piece = [1; 10_000];
            let piece = &piece[..usize::try_from(left).unwrap().min(10_000)];
            let piece = [IoSlice::new(piece)];
            left -= u32::try_from(poll_fn(|cx| stream.poll_write(cx, &piece, false)).await.unwrap()).unwrap();
        }
        poll_fn(|cx| stream.poll_flush(cx)).await.unwrap();
        // The peer reads no further than the opening.
        assert!(matches!(poll_fn(|cx| far.poll_next(cx)).await, Ok(LegEvent::Open(_))));
        if failed {
            far.send_failed(&OpenFailure::new(FailureReason::Refused, "refused")).unwrap();
        } else {
            far.send_reset(ResetCode::OriginReset).unwrap();
        }
        poll_fn(|cx| far.poll_flush(cx)).await.unwrap();
        let mut room = [0; 10];
        let mut room = ReadBuf::new(&mut room);
        let error = poll_fn(|cx| stream.poll_read(cx, &mut room)).await.unwrap_err();
        let kind = if failed { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::ConnectionReset };
        assert_eq!(error.kind(), kind);
        let written = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(b"more")], false)).await;
        assert_eq!(written.unwrap_err().kind(), kind, "and not that the leg is gone");
        drop(stream);
        let came_back = !home.0.lock().is_empty();
        // The peer reads the terminal frame, or the end of the leg.
        assert_eq!(poll_fn(|cx| far.poll_drain(cx)).await.is_ok(), came_back);
        came_back
    }

    #[tokio::test]
    async fn a_leg_with_many_unread_bytes_serves_no_other_stream() {
        for failed in [false, true] {
            assert!(comes_back(MAX_UNWANTED_BYTES, failed).await);
            assert!(!comes_back(MAX_UNWANTED_BYTES + 1, failed).await);
        }
    }
}
