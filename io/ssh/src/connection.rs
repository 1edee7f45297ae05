//! One client that has connected, as the gate and the streams see it.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use russh::{ChannelId, server::Handle};
use tokio::sync::{Notify, watch};

use crate::{
    Console, Forward,
    stats::{SshStats, count, uncount},
    stream::Inbound,
};

/// A login. Clones are the same connection, and equal.
#[derive(Debug, Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

impl Connection {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// A number that no other connection of this server has.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The name that the gate gave it; empty before the login.
    pub fn login(&self) -> &str {
        self.inner.login.get().map_or("", |login| &login.name)
    }

    /// The user's name as the client says it.
    pub fn user(&self) -> &str {
        self.inner.login.get().map_or("", |login| &login.user)
    }

    /// Where the client is.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// What the client's shell shows.
    pub fn console(&self) -> &Console {
        &self.inner.console
    }

    /// Whether it is logged in and not about to end.
    pub fn is_usable(&self) -> bool {
        self.inner.login.get().is_some() && !self.inner.is_closing()
    }

    /// Streams that are open now.
    pub fn streams(&self) -> usize {
        *self.inner.streams.borrow()
    }

    /// Ends the connection, with a sentence for the shell and the client's log: that a newer login has replaced it, or
    /// that the service was deleted. Returns at once; streams are cut. Later calls have no effect.
    pub fn disconnect(&self, message: &str) {
        self.inner.ask_to_end(message, 1);
    }
}

impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Connection {}

#[derive(Debug)]
struct Login {
    user: String,
    name: String,
}

/// Why a connection is to end.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) message: String,
    /// The exit status of the shell.
    pub(crate) status: u32,
}

pub(crate) struct Inner {
    id: u64,
    peer: SocketAddr,
    max_streams: usize,
    console: Console,
    stats: Arc<SshStats>,
    login: OnceLock<Login>,
    handle: OnceLock<Handle>,
    is_closing: AtomicBool,
    ending: Mutex<Option<Ending>>,
    /// A login, or an ending.
    pub(crate) changed: Notify,
    /// How many streams are open.
    pub(crate) streams: watch::Sender<usize>,
    channels: Mutex<HashMap<ChannelId, Arc<Inbound>>>,
    forwards: Mutex<HashMap<(String, u32), Forward>>,
}

impl Inner {
    pub(crate) fn new(id: u64, peer: SocketAddr, max_streams: usize, stats: Arc<SshStats>) -> Self {
        Self {
            id,
            peer,
            max_streams,
            console: Console::new(stats.clone()),
            stats,
            login: OnceLock::new(),
            handle: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            ending: Mutex::new(None),
            changed: Notify::new(),
            streams: watch::Sender::new(0),
            channels: Mutex::default(),
            forwards: Mutex::default(),
        }
    }

    pub(crate) fn console(&self) -> &Console {
        &self.console
    }

    pub(crate) fn stats(&self) -> &SshStats {
        &self.stats
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// There once the client is logged in.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.handle.get()
    }

    pub(crate) fn set_login(&self, user: &str, name: String) {
        // One login only: the library takes no further attempts after it.
        let _ = self.login.set(Login { user: user.to_owned(), name });
    }

    pub(crate) fn logged_in(&self, handle: Handle) {
        let _ = self.handle.set(handle);
        self.changed.notify_one();
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.handle.get().is_some()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// No more forwards and streams.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    pub(crate) fn ask_to_end(&self, message: &str, status: u32) {
        self.close();
        lock(&self.ending).get_or_insert_with(|| Ending { message: message.to_owned(), status });
        self.changed.notify_one();
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        lock(&self.ending).clone()
    }

    pub(crate) fn add_channel(&self, id: ChannelId) {
        lock(&self.channels).insert(id, Arc::default());
    }

    pub(crate) fn channel(&self, id: ChannelId) -> Option<Arc<Inbound>> {
        lock(&self.channels).get(&id).cloned()
    }

    pub(crate) fn forget_channel(&self, id: ChannelId) {
        lock(&self.channels).remove(&id);
    }

    pub(crate) fn add_forward(&self, forward: &Forward) {
        forward.grant();
        count(&self.stats.forwards_open);
        lock(&self.forwards).insert((forward.address().to_owned(), forward.port()), forward.clone());
    }

    pub(crate) fn remove_forward(&self, address: &str, port: u32) -> Option<Forward> {
        let forward = lock(&self.forwards).remove(&(address.to_owned(), port))?;
        forward.revoke();
        uncount(&self.stats.forwards_open);
        Some(forward)
    }

    pub(crate) fn has_forward(&self, address: &str, port: u32) -> bool {
        lock(&self.forwards).contains_key(&(address.to_owned(), port))
    }

    pub(crate) fn forward_count(&self) -> usize {
        lock(&self.forwards).len()
    }

    /// The connection is over: whoever reads or writes hears of it.
    pub(crate) fn over(&self) {
        self.close();
        let forwards = std::mem::take(&mut *lock(&self.forwards));
        for forward in forwards.values() {
            forward.revoke();
            uncount(&self.stats.forwards_open);
        }
        let channels = std::mem::take(&mut *lock(&self.channels));
        channels.values().for_each(|inbound| inbound.lost());
    }

    /// A place for one more stream, if there is one.
    pub(crate) fn stream_place(self: &Arc<Self>) -> Option<StreamPlace> {
        let taken = self.streams.send_if_modified(|streams| {
            let has_room = *streams < self.max_streams;
            *streams += usize::from(has_room);
            has_room
        });
        taken.then(|| {
            count(&self.stats.streams_open);
            StreamPlace { connection: self.clone() }
        })
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the streams that a connection may have at once.
pub(crate) struct StreamPlace {
    connection: Arc<Inner>,
}

impl StreamPlace {
    /// The stream has been opened.
    pub(crate) fn count_open(&self) {
        count(&self.connection.stats.streams);
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.connection.streams.send_modify(|streams| *streams -= 1);
        uncount(&self.connection.stats.streams_open);
    }
}
