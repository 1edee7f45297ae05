//! Moves the bytes of one connection between its transport and the protocol.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_ssh_proto::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Sleep, sleep},
};

use crate::{
    handler::{Handler, PendingDecision},
    link::{Link, Status},
    transport::Transport,
};

/// Size of a read at first, in bytes.
const FIRST_READ_BYTES: usize = 16 * 1_024;
/// Size of a read of a client that sends much, in bytes. A larger one would exceed the caches of a CPU core.
const MAX_READ_BYTES: usize = 64 * 1_024;
/// Time that a client has to read the reason of the end.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Reason why a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A protocol error, or the end of the protocol.
    #[error(transparent)]
    Protocol(#[from] Error),
    /// The server ended the connection during a decision.
    #[error("the connection was ended by the server")]
    Ended,
}

/// The future of one connection. Resolves when either side has closed it.
pub(crate) struct Session<S> {
    transport: Transport<S>,
    link: Arc<Link>,
    handler: Handler,
    input: Input,
    written: Vec<u8>,
    written_to: usize,
    needs_flush: bool,
    /// The pending decision of the gate.
    question: Option<PendingDecision>,
    timer: Pin<Box<Sleep>>,
    closing: Option<Closing>,
}

/// The last output is being written.
struct Closing {
    error: Option<Error>,
    until: Pin<Box<Sleep>>,
    is_shut: bool,
}

/// Input that the protocol has not consumed.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the protocol has stopped consuming although there may be complete packets left.
    is_held_up: bool,
}

/// How a session ends without an error.
enum Moved {
    /// The client closed the connection.
    Left,
    /// The protocol is over, and its last output is to be written.
    Over,
}

impl Input {
    fn new() -> Self {
        Self { buffer: vec![0; FIRST_READ_BYTES], start: 0, end: 0, is_held_up: false }
    }

    /// Makes room for input. After a read that filled the buffer, reads are larger from then on; the largest buffer
    /// holds a complete packet.
    fn make_room(&mut self) {
        let was_full = self.end == self.buffer.len();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if was_full {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let larger = (2 * self.buffer.len()).min(MAX_READ_BYTES);
            self.buffer.resize(larger, 0);
        }
    }

    /// Frees memory that an idle client does not need.
    fn shrink(&mut self) {
        if self.start == self.end && self.buffer.len() > FIRST_READ_BYTES {
            *self = Self::new();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    pub(crate) fn new(transport: Transport<S>, link: Arc<Link>, handler: Handler) -> Self {
        Self {
            transport,
            link,
            handler,
            input: Input::new(),
            written: Vec::new(),
            written_to: 0,
            needs_flush: false,
            question: None,
            timer: Box::pin(sleep(Duration::ZERO)),
            closing: None,
        }
    }

    /// Moves bytes until the connection is over, without its last output.
    fn poll_move(&mut self, cx: &mut Context<'_>) -> Poll<Result<Moved, SessionError>> {
        self.poll_timer(cx)?;
        loop {
            self.poll_question(cx)?;
            // A client that does not read now may still send.
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                return Poll::Ready(Err(error.into()));
            }
            let Status { wants_input, is_over } = self.link.status();
            if is_over {
                return Poll::Ready(Ok(Moved::Over));
            }
            if !wants_input {
                // Woken by the gate's answer, or by room in the transport.
                return Poll::Pending;
            }
            if !self.input.is_held_up {
                self.input.make_room();
                let count = ready!(self.transport.poll_read(cx, &mut self.input.buffer[self.input.end..]))?;
                if count == 0 {
                    return Poll::Ready(Ok(Moved::Left));
                }
                self.input.end += count;
            }
            self.handle_input()?;
        }
    }

    /// Passes the gate's decision to the protocol.
    fn poll_question(&mut self, cx: &mut Context<'_>) -> Result<(), SessionError> {
        while let Some(question) = &mut self.question
            && let Poll::Ready(decision) = question.as_mut().poll(cx)
        {
            self.question = None;
            self.handler.apply(decision)?;
            // Input may have waited for the answer, with the next request in it.
            self.handle_input()?;
        }
        Ok(())
    }

    /// Passes input to the protocol, and handles the events.
    fn handle_input(&mut self) -> Result<(), SessionError> {
        loop {
            let mut events = Vec::new();
            let input = &mut self.input;
            let result = self.link.handle_input(&mut input.buffer[input.start..input.end], &mut events);
            // Answers may cause the next event, and free input.
            let is_last = events.is_empty();
            for event in events {
                if let Some(question) = self.handler.handle(event) {
                    // The protocol waits for one decision at a time.
                    self.question = Some(question);
                }
            }
            self.input.start += result?;
            if is_last {
                break;
            }
        }
        self.input.is_held_up = self.input.start < self.input.end && !self.link.status().wants_input;
        Ok(())
    }

    /// Writes all pending output.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.written_to == self.written.len() {
                self.written_to = 0;
                self.link.take_output(&mut self.written, cx);
                if self.written.is_empty() {
                    break;
                }
            }
            let count = ready!(self.transport.poll_write(cx, &self.written[self.written_to..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written_to += count;
            self.needs_flush = true;
        }
        if self.needs_flush {
            ready!(self.transport.poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Probes a silent client, and frees memory.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Result<(), SessionError> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let next = self.link.handle_deadline()?;
            self.timer.as_mut().reset(next.into());
            self.input.shrink();
            if self.written.is_empty() {
                self.written = Vec::new();
            }
        }
        Ok(())
    }

    /// Writes the last output and lets the client read it: closing a connection with unread input would discard it.
    fn poll_final_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write(cx))?;
        if let Some(closing) = self.closing.as_mut().filter(|closing| !closing.is_shut) {
            ready!(self.transport.poll_shutdown(cx))?;
            closing.is_shut = true;
        }
        while ready!(self.transport.poll_read(cx, &mut self.input.buffer))? > 0 {}
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Session<S> {
    type Output = Result<(), SessionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.closing.is_none() {
            let error = match ready!(self.poll_move(cx)) {
                Ok(Moved::Left) => return Poll::Ready(Ok(())),
                Ok(Moved::Over) => None,
                Err(SessionError::Protocol(error)) if !matches!(error, Error::Left { .. } | Error::Silent) => {
                    Some(error)
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            self.question = None;
            self.closing = Some(Closing { error, until: Box::pin(sleep(CLOSE_TIME)), is_shut: false });
        }
        let is_late = self.closing.as_mut().is_some_and(|closing| closing.until.as_mut().poll(cx).is_ready());
        if !is_late {
            // The connection is over, whether the output was read or not.
            let _ = ready!(self.poll_final_output(cx));
        }
        let error = self.closing.as_ref().and_then(|closing| closing.error);
        Poll::Ready(error.map_or(Ok(()), |error| Err(error.into())))
    }
}
