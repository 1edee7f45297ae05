//! The handover of a UDP port to the next process.
//!
//! The next process already has the port's socket, but connectors are still here for a moment. Until they have moved,
//! each established flow gets a connected socket, which the kernel prefers over the port's socket. So its datagrams
//! still arrive here. Afterwards these sockets close, and the next datagram of each flow reaches the next process. The
//! flow's connector continues with the same socket to the origin (`docs/adr/0008-takeover.md`).

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

/// How many flows get a connected socket, the most recently used first. Each one slows the kernel's lookup for other
/// datagrams a little.
const MAX_OWN_SOCKETS: usize = 1_024;
/// How recently a flow must have been used to get one.
const RECENT: Duration = Duration::from_secs(10);
/// How long connectors have to move to the next process.
const TIME_TO_MOVE: Duration = Duration::from_secs(2);
/// How long late answers still pass after that.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// How often flows are checked for a tunnel that has left.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How many reads empty the port's socket at most.
const MAX_LAST_READS: usize = 256;

/// Serves established flows until they have moved or the time is over.
pub(crate) async fn finish(mut server: Server) {
    server.sweep(Instant::now());
    if server.flows.len() == 0 {
        return;
    }
    let own = open_own_sockets(&mut server);
    let port = server.port.clone();
    // Reads what came to the new sockets before they were connected, and what waits at the port.
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

/// Connected sockets for the established flows, up to the bound.
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
    // No further process may share the port: it belongs to the next process alone.
    drop(server.port.share(false));
    own
}

/// Reads everything that waits in this socket.
fn read_out(server: &mut Server, socket: &UdpPort) {
    for _ in 0..MAX_LAST_READS {
        if socket.recv_now(|received| server.take(received)).is_err() {
            return;
        }
    }
}

/// Serves one flow's connected socket until its tunnel has left or `closing` comes. Then the socket closes, and further
/// datagrams reach the next process.
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

/// Resolves when connectors have had the time to move.
async fn until_moved(mut phase: watch::Receiver<Phase>, server: &Mutex<Server>) {
    phase::reached(&mut phase, Phase::Closing).await;
    let until = tokio::time::Instant::now() + TIME_TO_MOVE;
    while tokio::time::Instant::now() < until {
        if lock(server).flows.iter_mut().all(|(_, flow)| flow.is_cut()) {
            return;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
