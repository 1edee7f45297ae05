//! The protocol's state of one connection, shared by the session that moves its bytes and by its streams.

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

/// One connection, from its first byte on. What is written by any of its users wakes the session.
pub(crate) struct Link {
    state: Mutex<State>,
    /// The peer has sent bytes, or has made room for some that waited.
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

/// The users of one channel that wait.
#[derive(Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The writer waits for room on the connection, and is among those that do.
    wants_room: bool,
}

/// A stream that the client has not answered for.
struct Opening {
    opened: oneshot::Sender<Result<SshStream, u32>>,
    connection: Arc<Inner>,
    place: StreamPlace,
}

/// How the protocol is.
pub(crate) struct Status {
    /// More of the client is taken now.
    pub(crate) wants_input: bool,
    /// The connection is over, and what waits to be written is the last of it.
    pub(crate) is_over: bool,
}

/// What a read came to.
pub(crate) enum ReadEnd {
    /// So many bytes.
    Bytes(usize),
    Eof,
    /// The client closed the channel before its end.
    Broken,
    /// The connection is gone.
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

    /// Changes the protocol's state, and lets what comes of it be written.
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

    /// Writes to a channel: how many bytes, or nothing where the channel takes no more.
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

    /// The channel's user is gone.
    pub(crate) fn release(&self, channel: ChannelId) {
        let mut state = self.lock();
        state.waiting.remove(&channel);
        state.change(|server| server.release(channel));
    }

    /// Asks the client for a stream of a forward. A stream that comes when its caller has given up is closed again.
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

    /// Asks the client whether it is there.
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

    /// What is to be written next, for a buffer that has been written; the session is woken when there is more.
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

    /// Returns the protocol what the client sent, which it changes in place: how many bytes are done with. What concerns
    /// the connection as a whole is added to `events`.
    pub(crate) fn handle_input(&self, input: &mut [u8], events: &mut Vec<Event>) -> Result<usize, Error> {
        let mut state = self.lock();
        let result = state.server.handle_input(input, Instant::now());
        let told = state.take_events(events);
        drop(state);
        told.tell();
        result
    }

    /// The time that was asked for has come, or not yet: when to come again.
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

    /// The connection is over: readers, writers and those that wait are woken.
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

    /// Takes what happened; what concerns the connection as a whole is added to `events`.
    fn take_events(&mut self, events: &mut Vec<Event>) -> Told {
        let mut told = Told::default();
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Readable(channel) => {
                    told.wakers.extend(self.waiting.get_mut(&channel).and_then(|waiting| waiting.reader.take()));
                }
                Event::Writable(channel) => {
                    told.wakers.extend(self.waiting.get_mut(&channel).and_then(|waiting| waiting.writer.take()));
                }
                Event::Opened(channel) => {
                    told.openings.extend(self.openings.remove(&channel).map(|opening| (opening, Ok(channel))));
                }
                Event::Refused { channel, reason } => {
                    told.openings.extend(self.openings.remove(&channel).map(|opening| (opening, Err(reason))));
                }
                Event::Pong(number) => {
                    if let Some(place) = self.pings.iter().position(|(asked, _)| *asked == number) {
                        told.pongs.push(self.pings.swap_remove(place).1);
                    }
                }
                other => events.push(other),
            }
        }
        told
    }
}

/// What is to be woken and answered once the state is unlocked.
#[derive(Default)]
struct Told {
    wakers: Vec<Waker>,
    openings: Vec<(Opening, Result<ChannelId, u32>)>,
    pongs: Vec<oneshot::Sender<()>>,
}

impl Told {
    fn tell(self) {
        self.wakers.into_iter().for_each(Waker::wake);
        for pong in self.pongs {
            let _ = pong.send(());
        }
        for (Opening { opened, connection, place }, outcome) in self.openings {
            // A stream whose caller has given up closes its channel when it is dropped.
            let _ = opened.send(outcome.map(|channel| SshStream::new(channel, connection, place)));
        }
    }
}
