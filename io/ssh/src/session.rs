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
    handler::{Handler, Question},
    link::{Link, Status},
    transport::Transport,
};

/// What is read at once at first, in bytes.
const FIRST_READ_BYTES: usize = 16 * 1_024;
/// What is read at once of a client that sends much, in bytes. More would leave the caches of a processor core.
const MAX_READ_BYTES: usize = 64 * 1_024;
/// How long a client may take to read why its connection is over.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The protocol says so.
    #[error(transparent)]
    Protocol(#[from] Error),
    /// The connection was ended here while something of it was decided.
    #[error("the connection was ended by the server")]
    Ended,
}

/// One connection until it is over. It resolves when the client has left, or has been left.
pub(crate) struct Session<S> {
    transport: Transport<S>,
    link: Arc<Link>,
    handler: Handler,
    input: Input,
    written: Vec<u8>,
    written_to: usize,
    needs_flush: bool,
    /// What the gate decides.
    question: Option<Question>,
    timer: Pin<Box<Sleep>>,
    closing: Option<Closing>,
}

/// The last words are being written.
struct Closing {
    error: Option<Error>,
    until: Pin<Box<Sleep>>,
    is_shut: bool,
}

/// What the client sent and the protocol has not taken.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The protocol took no more, and there may be whole packets left.
    is_held_up: bool,
}

/// How a session that has not failed ends.
enum Moved {
    /// The client closed the connection.
    Left,
    /// The protocol is over, and its last words are to be written.
    Over,
}

impl Input {
    fn new() -> Self {
        Self { buffer: vec![0; FIRST_READ_BYTES], start: 0, end: 0, is_held_up: false }
    }

    /// Makes room for more. Where the last read has filled the buffer, more is read at once from now on; a whole packet
    /// has room in the largest one.
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

    /// Lets memory go that a silent client does not need.
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

    /// Moves bytes until the connection is over, without its last words.
    fn poll_move(&mut self, cx: &mut Context<'_>) -> Poll<Result<Moved, SessionError>> {
        self.poll_timer(cx)?;
        loop {
            self.poll_question(cx)?;
            // A client that takes nothing now may still have something to say.
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                return Poll::Ready(Err(error.into()));
            }
            let Status { wants_input, is_over } = self.link.status();
            if is_over {
                return Poll::Ready(Ok(Moved::Over));
            }
            if !wants_input {
                // The gate's answer, or room in the transport, comes back here.
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

    /// What the gate has decided goes back to the protocol.
    fn poll_question(&mut self, cx: &mut Context<'_>) -> Result<(), SessionError> {
        while let Some(question) = &mut self.question
            && let Poll::Ready(decision) = question.as_mut().poll(cx)
        {
            self.question = None;
            self.handler.apply(decision)?;
            // There may be input that waited for the answer, and the next question in it.
            self.handle_input()?;
        }
        Ok(())
    }

    /// Returns the protocol what there is, and does what comes of it.
    fn handle_input(&mut self) -> Result<(), SessionError> {
        loop {
            let mut events = Vec::new();
            let input = &mut self.input;
            let result = self.link.handle_input(&mut input.buffer[input.start..input.end], &mut events);
            // What is answered here may make the next event, and room for input.
            let is_last = events.is_empty();
            for event in events {
                if let Some(question) = self.handler.handle(event) {
                    // The protocol asks one thing at a time.
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

    /// Writes until nothing is left.
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

    /// Asks a silent client whether it is there, and lets memory go.
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

    /// Writes the last words, and lets the client read them: a connection that is closed while something of the client
    /// is unread would take them back.
    fn poll_last_words(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
            // It is over, whatever becomes of the words.
            let _ = ready!(self.poll_last_words(cx));
        }
        let error = self.closing.as_ref().and_then(|closing| closing.error);
        Poll::Ready(error.map_or(Ok(()), |error| Err(error.into())))
    }
}
