//! The protocol state of one connection, shared by the session, which moves its bytes, and the connection's streams.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_ssh_proto::{ChannelId, Error, Event, Read, Server, Written};
use tokio::sync::{Notify, oneshot};

use crate::{
    SshStream,
    connection::{Inner, StreamPlace},
};

/// A connection from its first byte on. Output of any user wakes the session.
pub(crate) struct Link {
    state: Mutex<State>,
    /// Notified when the peer has sent bytes, or has accepted output that was waiting.
    pub(crate) sign_of_life: Arc<Notify>,
}

struct State {
    server: Server,
    waiting: HashMap<ChannelId, Waiting>,
    /// The channels whose writers wait for room on the connection.
    room: Vec<ChannelId>,
    session: Option<Waker>,
    openings: HashMap<ChannelId, Opening>,
    pings: Vec<(u64, oneshot::Sender<()>)>,
    is_over: bool,
}

/// The waiting tasks of one channel.
#[derive(Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Whether the writer waits for room on the connection.
    wants_room: bool,
}

/// A stream that the client has not answered yet.
struct Opening {
    opened: oneshot::Sender<Result<SshStream, u32>>,
    connection: Arc<Inner>,
    place: StreamPlace,
}

/// The status of the protocol.
pub(crate) struct Status {
    /// Whether more input can be handled.
    pub(crate) wants_input: bool,
    /// Whether the connection is over; the remaining output is the last.
    pub(crate) is_over: bool,
}

/// The result of a read.
pub(crate) enum ReadEnd {
    /// This many bytes were read.
    Bytes(usize),
    Eof,
    /// The client closed the channel without an EOF.
    Broken,
    /// The connection is lost.
    Lost,
}

impl Link {
    pub(crate) fn new(server: Server) -> Self {
        let state = State {
            server,
            waiting: HashMap::new(),
            room: Vec::new(),
            session: None,
            openings: HashMap::new(),
            pings: Vec::new(),
            is_over: false,
        };
        Self { state: Mutex::new(state), sign_of_life: Arc::new(Notify::new()) }
    }

    /// Changes the protocol's state, and wakes the session if there is output.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Server) -> T) -> T {
        self.lock().change(change)
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.lock();
        Status { wants_input: state.server.wants_input(), is_over: state.server.is_over() }
    }

    /// Reads from a channel.
    pub(crate) fn poll_read(&self, channel: ChannelId, target: &mut [u8], cx: &Context<'_>) -> Poll<ReadEnd> {
        let mut state = self.lock();
        Poll::Ready(match state.change(|server| server.read(channel, target)) {
            Read::Bytes(count) => ReadEnd::Bytes(count),
            Read::Eof => ReadEnd::Eof,
            Read::Broken => ReadEnd::Broken,
            Read::Wait if state.is_over => ReadEnd::Lost,
            Read::Wait => {
                state.waiting.entry(channel).or_default().reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        })
    }

    /// Writes to a channel; returns the number of bytes, or `None` if the channel accepts no more.
    pub(crate) fn poll_write(&self, channel: ChannelId, data: &[u8], cx: &Context<'_>) -> Poll<Option<usize>> {
        let mut state = self.lock();
        if state.is_over {
            return Poll::Ready(None);
        }
        let wants_room = match state.change(|server| server.write(channel, data)) {
            Written::Bytes(count) => return Poll::Ready(Some(count)),
            Written::Closed => return Poll::Ready(None),
            Written::NoWindow => false,
            Written::NoRoom => true,
        };
        let waiting = state.waiting.entry(channel).or_default();
        waiting.writer = Some(cx.waker().clone());
        if wants_room && !std::mem::replace(&mut waiting.wants_room, true) {
            state.room.push(channel);
        }
        Poll::Pending
    }

    /// Releases the channel after its user was dropped.
    pub(crate) fn release(&self, channel: ChannelId) {
        let mut state = self.lock();
        state.waiting.remove(&channel);
        state.change(|server| server.release(channel));
    }

    /// Opens a stream of a forward at the client. A stream that arrives after the caller has stopped waiting is closed
    /// again.
    pub(crate) fn open(
        &self,
        forward: (&str, u32),
        originator: SocketAddr,
        connection: Arc<Inner>,
        place: StreamPlace,
    ) -> Option<oneshot::Receiver<Result<SshStream, u32>>> {
        let from = originator.ip().to_canonical().to_string();
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let originator = (from.as_str(), u32::from(originator.port()));
        let channel = state.change(|server| server.open_forwarded(forward, originator))?;
        let (sender, receiver) = oneshot::channel();
        state.openings.insert(channel, Opening { opened: sender, connection, place });
        Some(receiver)
    }

    /// Probes the client.
    pub(crate) fn ping(&self) -> Option<oneshot::Receiver<()>> {
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        state.pings.retain(|(_, waits)| !waits.is_closed());
        let number = state.change(Server::ping)?;
        let (sender, receiver) = oneshot::channel();
        state.pings.push((number, sender));
        Some(receiver)
    }

    /// Swaps the pending output into a buffer that has been written; the session is woken when there is more.
    pub(crate) fn take_output(&self, written: &mut Vec<u8>, cx: &Context<'_>) {
        let mut state = self.lock();
        state.server.swap_output(written);
        match &mut state.session {
            Some(waker) => waker.clone_from(cx.waker()),
            None => state.session = Some(cx.waker().clone()),
        }
        let mut writers = Vec::new();
        for channel in std::mem::take(&mut state.room) {
            if let Some(waiting) = state.waiting.get_mut(&channel) {
                waiting.wants_room = false;
                writers.extend(waiting.writer.take());
            }
        }
        drop(state);
        writers.into_iter().for_each(Waker::wake);
    }

    /// Passes input to the protocol, which decrypts it in place; returns the number of consumed bytes. Events of the
    /// whole connection are added to `events`.
    pub(crate) fn handle_input(&self, input: &mut [u8], events: &mut Vec<Event>) -> Result<usize, Error> {
        let mut state = self.lock();
        let result = state.server.handle_input(input, Instant::now());
        let notifications = state.take_events(events);
        drop(state);
        notifications.deliver();
        result
    }

    /// Handles the timer; returns the next deadline.
    pub(crate) fn handle_deadline(&self) -> Result<Instant, Error> {
        let now = Instant::now();
        let mut state = self.lock();
        let is_due = now >= state.server.deadline();
        state.server.handle_deadline(now)?;
        if is_due {
            state.server.shrink();
        }
        Ok(state.server.deadline())
    }

    /// Ends the connection: waiting tasks are woken.
    pub(crate) fn over(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let waiting = std::mem::take(&mut state.waiting);
        let openings = std::mem::take(&mut state.openings);
        let pings = std::mem::take(&mut state.pings);
        drop(state);
        waiting.into_values().flat_map(|one| [one.reader, one.writer]).flatten().for_each(Waker::wake);
        drop((openings, pings));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn change<T>(&mut self, change: impl FnOnce(&mut Server) -> T) -> T {
        let result = change(&mut self.server);
        if self.server.output_len() > 0
            && let Some(session) = self.session.take()
        {
            session.wake();
        }
        result
    }

    /// Takes the protocol's events; those of the whole connection are added to `events`.
    fn take_events(&mut self, events: &mut Vec<Event>) -> Notifications {
        let mut notifications = Notifications::default();
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Readable(channel) => {
                    notifications
                        .wakers
                        .extend(self.waiting.get_mut(&channel).and_then(|waiting| waiting.reader.take()));
                }
                Event::Writable(channel) => {
                    notifications
                        .wakers
                        .extend(self.waiting.get_mut(&channel).and_then(|waiting| waiting.writer.take()));
                }
                Event::Opened(channel) => {
                    notifications.openings.extend(self.openings.remove(&channel).map(|opening| (opening, Ok(channel))));
                }
                Event::Refused { channel, reason } => {
                    notifications.openings.extend(self.openings.remove(&channel).map(|opening| (opening, Err(reason))));
                }
                Event::Pong(number) => {
                    if let Some(place) = self.pings.iter().position(|(asked, _)| *asked == number) {
                        notifications.pongs.push(self.pings.swap_remove(place).1);
                    }
                }
                other => events.push(other),
            }
        }
        notifications
    }
}

/// Tasks and answers to complete after the state is unlocked.
#[derive(Default)]
struct Notifications {
    wakers: Vec<Waker>,
    openings: Vec<(Opening, Result<ChannelId, u32>)>,
    pongs: Vec<oneshot::Sender<()>>,
}

impl Notifications {
    fn deliver(self) {
        self.wakers.into_iter().for_each(Waker::wake);
        for pong in self.pongs {
            let _ = pong.send(());
        }
        for (Opening { opened, connection, place }, outcome) in self.openings {
            // A stream whose caller has stopped waiting closes its channel when dropped.
            let _ = opened.send(outcome.map(|channel| SshStream::new(channel, connection, place)));
        }
    }
}
