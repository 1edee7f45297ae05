//! The end of a UDP port in this process, while the next process has it already.
//!
//! The port's socket is the next process's from now on, but connectors are still here, and come over within a moment.
//! Until they have, each established flow gets a socket for its client alone, which the kernel prefers over the port's:
//! its datagrams go on here as if nothing had happened. Then these sockets are closed, the next datagram of each flow
//! goes to the next process, and its connector takes up the same socket to the origin again
//! (`docs/adr/0008-takeover.md`).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_net::{Shutdown, UdpPort};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    lifecycle::phase::{self, Phase},
    udp::{self, Server, flow::Flow, table::Key},
};

/// How many flows get a socket of their own, those that moved last before all others. Each makes the delivery of a
/// stranger's datagram to the port a little dearer.
const MAX_OWN_SOCKETS: usize = 1_024;
/// How recently something must have moved in a flow that gets one.
const RECENT: Duration = Duration::from_secs(10);
/// How long connectors get to come over to the next process, once they are told to.
const TIME_TO_MOVE: Duration = Duration::from_secs(2);
/// How long after that answers that are on their way still pass.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// How often it is looked for flows whose tunnel has gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How many reads of what waits at the port there are at most.
const MAX_LAST_READS: usize = 256;

/// Serves on what was established until it has moved over, or the ports has no more time.
pub(crate) async fn finish(mut server: Server) {
    server.sweep(Instant::now());
    if server.flows.len() == 0 {
        return;
    }
    let own = open_own_sockets(&mut server);
    let port = server.port.clone();
    // What came to the new sockets before they knew their clients, and what was at the port already.
    for socket in own.iter().map(|(_, socket)| socket).chain([&*port]) {
        read_out(&mut server, socket);
    }
    tracing::debug!(flows = server.flows.len(), own_sockets = own.len(), "established UDP flows move over");
    let phase = server.ports().access.state.phase.subscribe();
    let is_established = !own.is_empty();
    let server = Arc::new(Mutex::new(server));
    let (mut sockets, closing) = (JoinSet::new(), Shutdown::new());
    for (key, socket) in own {
        sockets.spawn(serve_own(server.clone(), key, socket, closing.clone()));
    }
    let mut watched = phase.clone();
    tokio::select! {
        () = phase::cut(&mut watched) => {}
        () = until_moved(phase, &server), if is_established => {}
        () = std::future::ready(()), if !is_established => {}
    }
    closing.trigger();
    while sockets.join_next().await.is_some() {}
    tokio::select! {
        () = phase::cut(&mut watched) => {}
        () = tokio::time::sleep(LAST_ANSWERS) => {}
    }
    let over = lock(&server).flows.take_if(|_| true);
    over.into_iter().for_each(Flow::moved);
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock()
}

/// A socket for each flow that is established, as far as there may be more.
fn open_own_sockets(server: &mut Server) -> Vec<(Key, UdpPort)> {
    let now = Instant::now();
    let mut wanted: Vec<_> = server
        .flows
        .iter_mut()
        .filter(|(_, flow)| flow.is_established() && !flow.is_cut() && udp::is_specific(flow.local()))
        .map(|(key, flow)| (flow.last(), *key))
        .filter(|(last, _)| now.saturating_duration_since(*last) < RECENT)
        .collect();
    wanted.sort_unstable_by_key(|(last, _)| std::cmp::Reverse(*last));
    if wanted.is_empty() || server.port.share(true).is_err() {
        return Vec::new();
    }
    let mut own = Vec::new();
    for (_, key) in wanted.into_iter().take(MAX_OWN_SOCKETS) {
        match server.port.for_client(key.local, key.client) {
            Ok(socket) => own.push((key, socket)),
            Err(error) => {
                tracing::debug!(%error, "a flow moves to the next process at once");
                break;
            }
        }
    }
    // Nobody else is to share the port: it stays the next process's alone.
    drop(server.port.share(false));
    own
}

/// Takes all that waits in this socket.
fn read_out(server: &mut Server, socket: &UdpPort) {
    for _ in 0..MAX_LAST_READS {
        if socket.recv_now(|received| server.take(received)).is_err() {
            return;
        }
    }
}

/// Serves one flow's own socket until its tunnel is gone or all are to be closed; then the socket is closed, and what
/// its client sends from then on goes to the next process.
async fn serve_own(server: Arc<Mutex<Server>>, key: Key, socket: UdpPort, closing: Shutdown) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = closing.wait() => {
                read_out(&mut lock(&server), &socket);
                return;
            }
            _ = look.tick() => {
                let mut server = lock(&server);
                if server.flows.get_mut(&key).is_none_or(|flow| flow.is_cut()) {
                    return;
                }
            }
            readable = socket.readable() => {
                if readable.is_err() {
                    return;
                }
                let mut server = lock(&server);
                drop(socket.try_recv(|received| server.take(received)));
            }
        }
    }
}

/// Resolves when connectors have had the time to come over.
async fn until_moved(mut phase: watch::Receiver<Phase>, server: &Mutex<Server>) {
    phase::reached(&mut phase, Phase::Draining).await;
    let until = tokio::time::Instant::now() + TIME_TO_MOVE;
    while tokio::time::Instant::now() < until {
        if lock(server).flows.iter_mut().all(|(_, flow)| flow.is_cut()) {
            return;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
