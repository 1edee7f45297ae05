//! A client's connection, as seen by the gate and the streams.

use std::{
    collections::HashMap,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::{
    Console, Forward,
    link::Link,
    stats::{SshStats, count, uncount},
};

/// A connection. Clones are the same connection, and equal.
#[derive(Debug, Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

impl Connection {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// A number that is unique on this server.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The name that the gate assigned; empty before the login.
    pub fn login(&self) -> &str {
        self.inner.login.get().map_or("", |login| &login.name)
    }

    /// The user name that the client sent.
    pub fn user(&self) -> &str {
        self.inner.login.get().map_or("", |login| &login.user)
    }

    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// The lines shown in the client's shell.
    pub fn console(&self) -> &Console {
        &self.inner.console
    }

    /// Whether the connection is logged in and not ending.
    pub fn is_usable(&self) -> bool {
        self.inner.login.get().is_some() && !self.inner.is_closing()
    }

    /// Number of granted forwards.
    pub fn forwards(&self) -> usize {
        self.inner.forward_count()
    }

    /// Number of open streams.
    pub fn streams(&self) -> usize {
        *self.inner.streams.borrow()
    }

    /// Probes the client; false without a sign of life within this time. The answer may be queued behind other data, so
    /// any input counts, and also the acceptance of output that was waiting.
    pub async fn answers_within(&self, time: Duration) -> bool {
        let link = &self.inner.link;
        let mut sign_of_life = pin!(link.sign_of_life.notified());
        sign_of_life.as_mut().enable();
        if !self.inner.is_logged_in() {
            return false;
        }
        let Some(answer) = link.ping() else { return false };
        tokio::select! {
            answer = answer => answer.is_ok(),
            () = sign_of_life => true,
            () = tokio::time::sleep(time) => false,
        }
    }

    /// Closes the connection with a message for the shell and the client's log, for example because a newer login has
    /// replaced it. Returns at once; streams are cut. Later calls have no effect.
    pub fn disconnect(&self, message: &str) {
        self.inner.ask_to_end(message, 1, Duration::ZERO);
    }

    /// Like [`disconnect`](Self::disconnect), but open streams may finish within `grace` first.
    pub fn retire(&self, message: &str, grace: Duration) {
        self.inner.ask_to_end(message, 1, grace);
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

/// Reason and manner of the end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) message: String,
    /// Exit status of the shell.
    pub(crate) status: u32,
    /// Time that streams have to finish.
    pub(crate) grace: Duration,
}

pub(crate) struct Inner {
    id: u64,
    peer: SocketAddr,
    max_streams: usize,
    console: Console,
    stats: Arc<SshStats>,
    link: Arc<Link>,
    login: OnceLock<Login>,
    life: Mutex<Life>,
    has_logged_in: AtomicBool,
    is_closing: AtomicBool,
    ending: Mutex<Option<Ending>>,
    /// Notified on a login or an ending.
    pub(crate) changed: Notify,
    /// Number of open streams.
    pub(crate) streams: watch::Sender<usize>,
    forwards: Mutex<Forwards>,
}

/// Phase of a connection; it only advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    New,
    LoggedIn,
    Over,
}

#[derive(Default)]
struct Forwards {
    by_name: HashMap<(String, u32), Forward>,
    are_over: bool,
}

impl Inner {
    pub(crate) fn new(id: u64, peer: SocketAddr, max_streams: usize, stats: Arc<SshStats>, link: Arc<Link>) -> Self {
        Self {
            id,
            peer,
            max_streams,
            console: Console::new(stats.clone()),
            stats,
            link,
            login: OnceLock::new(),
            life: Mutex::new(Life::New),
            has_logged_in: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            ending: Mutex::new(None),
            changed: Notify::new(),
            streams: watch::Sender::new(0),
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

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn set_login(&self, user: &str, name: String) {
        // There is only one login: the protocol accepts no attempts after it.
        let _ = self.login.set(Login { user: user.to_owned(), name });
    }

    /// Marks the connection as logged in and calls `on_login`; false, without the call, if the connection
    /// is over already.
    pub(crate) fn logged_in(&self, on_login: impl FnOnce()) -> bool {
        let mut life = lock(&self.life);
        if *life == Life::New {
            *life = Life::LoggedIn;
            self.has_logged_in.store(true, Ordering::Release);
            on_login();
        }
        let is_logged_in = *life == Life::LoggedIn;
        drop(life);
        self.changed.notify_one();
        is_logged_in
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.has_logged_in.load(Ordering::Acquire)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Refuses further forwards and streams.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.link.with(|protocol| protocol.refuse_sessions());
    }

    pub(crate) fn ask_to_end(&self, message: &str, status: u32, grace: Duration) {
        self.close();
        lock(&self.ending).get_or_insert_with(|| Ending { message: message.to_owned(), status, grace });
        self.changed.notify_one();
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        lock(&self.ending).clone()
    }

    /// Adds the forward; false if the connection is over.
    pub(crate) fn add_forward(&self, forward: &Forward) -> bool {
        let mut forwards = lock(&self.forwards);
        if forwards.are_over {
            return false;
        }
        forward.grant();
        count(&self.stats.forwards_open);
        forwards.by_name.insert((forward.address().to_owned(), forward.port()), forward.clone());
        true
    }

    pub(crate) fn remove_forward(&self, address: &str, port: u32) -> Option<Forward> {
        let forward = lock(&self.forwards).by_name.remove(&(address.to_owned(), port))?;
        forward.revoke();
        uncount(&self.stats.forwards_open);
        Some(forward)
    }

    pub(crate) fn has_forward(&self, address: &str, port: u32) -> bool {
        lock(&self.forwards).by_name.contains_key(&(address.to_owned(), port))
    }

    pub(crate) fn forward_count(&self) -> usize {
        lock(&self.forwards).by_name.len()
    }

    /// Ends the connection and wakes readers and writers. Returns whether it was logged in.
    pub(crate) fn over(&self) -> bool {
        self.close();
        let before = std::mem::replace(&mut *lock(&self.life), Life::Over);
        let forwards =
            std::mem::replace(&mut *lock(&self.forwards), Forwards { are_over: true, ..Forwards::default() });
        for forward in forwards.by_name.values() {
            forward.revoke();
            uncount(&self.stats.forwards_open);
        }
        self.link.over();
        before == Life::LoggedIn
    }

    /// Reserves room for one more stream, if there is any.
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
    mutex.lock()
}

/// Guard of one of the connection's streams.
pub(crate) struct StreamPlace {
    connection: Arc<Inner>,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.connection.streams.send_modify(|streams| *streams -= 1);
        uncount(&self.connection.stats.streams_open);
    }
}
