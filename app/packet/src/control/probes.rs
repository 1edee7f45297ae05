//! Whether edges answer this machine: a TCP connection to each, again and again.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sallyport_cli::output::note;
use sallyport_packet_model::balance::Liveness;
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
};

use super::known::Known;

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// What the probes say of edges, by their names.
type Found = Arc<Mutex<BTreeMap<String, Liveness>>>;

/// Probes of the edges of a site, until this is dropped.
pub(super) struct Probes {
    found: Found,
    task: JoinHandle<()>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Probes {
    /// Probes each `interval`.
    pub(super) fn start(known: watch::Receiver<Known>, interval: Duration, news: Arc<Notify>) -> Self {
        let found = Found::default();
        let task = tokio::spawn(probe(known, interval, found.clone(), news));
        Self { found, task }
    }

    /// Whether an edge answers, as far as is known.
    pub(super) fn is_up(&self, edge: &str) -> bool {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(edge).is_none_or(Liveness::is_up)
    }
}

async fn probe(known: watch::Receiver<Known>, interval: Duration, found: Found, news: Arc<Notify>) {
    loop {
        let edges: Vec<_> =
            known.borrow().balancer.edges.iter().filter_map(|edge| Some((edge.name.clone(), place(edge)?))).collect();
        let mut running = JoinSet::new();
        for (name, place) in edges.clone() {
            running.spawn(async move {
                let answered = tokio::time::timeout(CONNECT_TIME, TcpStream::connect(place)).await;
                (name, matches!(answered, Ok(Ok(_))))
            });
        }
        while let Some(ended) = running.join_next().await {
            let Ok((name, is_answered)) = ended else { continue };
            let mut all = found.lock().unwrap_or_else(PoisonError::into_inner);
            let edge = all.entry(name.clone()).or_default();
            if edge.handle_probe(is_answered, Instant::now()) {
                let says = if edge.is_up() { "answers again" } else { "does not answer: it gets no flows" };
                note(&format!("{name} {says}"));
                news.notify_one();
            }
        }
        // What is no edge any more begins anew when it comes back.
        let is_there = |name: &String| edges.iter().any(|edge| edge.0 == *name);
        found.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| is_there(name));
        tokio::time::sleep(interval).await;
    }
}

/// Where an edge is probed.
fn place(edge: &sallyport_api::BalancedEdge) -> Option<SocketAddr> {
    Some(SocketAddr::new(edge.address?, edge.probe_port?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::known::tests::known;

    async fn until(probes: &Probes, wanted: bool) {
        while probes.is_up("eu-1") != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn an_edge_that_listens_no_more_is_down_and_comes_back() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut known = known();
        let edges = &mut known.balancer.edges;
        edges.truncate(1);
        (edges[0].address, edges[0].probe_port) = (Some(address.ip()), Some(address.port()));
        let sender = watch::Sender::new(known);
        let probes = Probes::start(sender.subscribe(), Duration::from_millis(5), Arc::default());
        tokio::time::timeout(Duration::from_secs(60), async {
            until(&probes, true).await;
            drop(listener);
            until(&probes, false).await;
            let _listener = std::net::TcpListener::bind(address).unwrap();
            until(&probes, true).await;
        })
        .await
        .unwrap();
        assert!(probes.is_up("unknown"));
    }
}
