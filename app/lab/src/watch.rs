//! Asks an edge, from its own namespace, how many tunnels it knows: repeatedly, over one connection.

use std::{
    fs::File,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::{Condvar, Mutex};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sallyport_net::{Trust, client_config, connect_tls};

use crate::{error::LabError, plan::DOMAIN};

/// The longest answer, in bytes.
const MAX_METRICS_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// The gauge of tunnels at all edges.
const TUNNELS: &str = "sallyport_directory_tunnels";
/// The gauge of tunnels that are attached to the edge.
const ATTACHED: &str = "sallyport_edge_tunnels_up";

/// What an edge knew at this time or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TunnelCount {
    tunnels: u64,
    since: Instant,
}

type SharedCount = Arc<(Mutex<Option<TunnelCount>>, Condvar)>;

/// Asks an edge until dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    known: SharedCount,
    held: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watcher {
    /// Watches the edge in this namespace, with a resolution of `every`.
    pub(crate) fn start(namespace: PathBuf, ca: PathBuf, every: Duration) -> Result<Self, LabError> {
        let file = File::open(&namespace).map_err(LabError::io(format!("open {}", namespace.display())))?;
        let (known, ends) = (SharedCount::default(), Arc::new(AtomicBool::new(false)));
        let held = Arc::new(AtomicU64::new(0));
        let (ours, ours_held, end) = (known.clone(), held.clone(), ends.clone());
        let tls = client_config(&Trust::Ca(ca), &[b"http/1.1"]).map_err(|error| LabError::Unfit(error.to_string()))?;
        // Only this thread enters the namespace, with the connections that it makes.
        let thread = thread::spawn(move || {
            if move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).is_err() {
                return;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let mut sender = None;
                while !end.load(Ordering::Relaxed) {
                    let asked = tokio::time::timeout(PATIENCE, ask(&mut sender, tls.clone())).await;
                    let (tunnels, held) = asked.ok().flatten().unzip();
                    ours_held.store(held.unwrap_or(0), Ordering::Relaxed);
                    if tunnels.is_none() {
                        sender = None;
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    tell(&ours, tunnels);
                    tokio::time::sleep(every).await;
                }
            });
        });
        Ok(Self { known, held, ends, thread: Some(thread) })
    }

    /// How many tunnels the edge knows now; `None` if it does not answer.
    pub(crate) fn tunnels(&self) -> Option<u64> {
        self.known.0.lock().map(|known| known.tunnels)
    }

    /// How many tunnels are attached to the edge; 0 if it does not answer.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Waits until the number is right. Returns the time.
    pub(crate) fn wait(&self, limit: Duration, is_right: impl Fn(u64) -> bool) -> Option<Instant> {
        let ends = Instant::now() + limit;
        let mut known = self.known.0.lock();
        loop {
            if let Some(now) = known.filter(|now| is_right(now.tunnels)) {
                return Some(now.since);
            }
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.known.1.wait_for(&mut known, left);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn tell(shared: &SharedCount, tunnels: Option<u64>) {
    let mut known = shared.0.lock();
    if known.map(|known| known.tunnels) != tunnels {
        *known = tunnels.map(|tunnels| TunnelCount { tunnels, since: Instant::now() });
        shared.1.notify_all();
    }
}

async fn ask(kept: &mut Option<SendRequest<Empty<Bytes>>>, tls: Arc<rustls::ClientConfig>) -> Option<(u64, u64)> {
    let name = format!("api.{DOMAIN}");
    let mut sender = match kept.take() {
        Some(sender) => sender,
        None => {
            let stream = connect_tls("127.0.0.1", 443, &name, tls, PATIENCE).await.ok()?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            sender
        }
    };
    let request = Request::get("/metrics").header("host", &name).body(Empty::new()).ok()?;
    let answer = sender.send_request(request).await.ok()?;
    let body = Limited::new(answer.into_body(), MAX_METRICS_BYTES).collect().await.ok()?.to_bytes();
    *kept = Some(sender);
    let text = std::str::from_utf8(&body).ok()?;
    Some((gauge(text, TUNNELS)?, gauge(text, ATTACHED)?))
}

/// The value of a gauge without labels.
fn gauge(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_is_found_among_others() {
        let text = "# TYPE sallyport_directory_tunnels gauge\nsallyport_directory_tunnels_x 3\n\
                    sallyport_directory_tunnels 7\n";
        assert_eq!(gauge(text, TUNNELS), Some(7));
        assert_eq!(gauge("", TUNNELS), None);
    }

    #[test]
    fn a_number_is_known_since_it_changed() {
        let shared = SharedCount::default();
        let watcher = Watcher { known: shared.clone(), held: Arc::default(), ends: Arc::default(), thread: None };
        tell(&shared, Some(1));
        let first = watcher.wait(Duration::ZERO, |tunnels| tunnels == 1).unwrap();
        tell(&shared, Some(1));
        assert_eq!(watcher.wait(Duration::ZERO, |tunnels| tunnels == 1), Some(first));
        assert_eq!(watcher.wait(Duration::from_millis(1), |tunnels| tunnels == 2), None);
        let other = thread::spawn(move || tell(&shared, Some(2)));
        assert!(watcher.wait(Duration::from_secs(60), |tunnels| tunnels == 2).unwrap() >= first);
        other.join().unwrap();
        tell(&watcher.known, None);
        assert_eq!(watcher.tunnels(), None);
    }
}
