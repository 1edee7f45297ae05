//! The round trips of clients' connections, by the network that the clients come from.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_catchment::{Catchment, ClientNetwork};
use sallyport_net::shortest_round_trip;
use sallyport_policy::Network;
use tokio::net::TcpStream;

/// The round trips of clients at this edge.
#[derive(Debug)]
pub(crate) struct ClientRoundTrips {
    table: Mutex<Catchment>,
    started: Instant,
    /// The networks of balancers. The round trip of a connection from there is not that of a client.
    balancers: Vec<Network>,
    counts: RoundTripCounts,
}

/// How many connections were recorded, and how many not.
#[derive(Debug, Default)]
pub(crate) struct RoundTripCounts {
    /// Connections with a round trip.
    pub(crate) recorded: AtomicU64,
    /// Connections without a believable round trip.
    pub(crate) unmeasured: AtomicU64,
    /// Connections through a balancer.
    pub(crate) balanced: AtomicU64,
}

impl ClientRoundTrips {
    /// An empty table at an edge behind these balancers.
    pub(crate) fn new(balancers: Vec<Network>) -> Arc<Self> {
        let (table, counts) = (Mutex::default(), RoundTripCounts::default());
        Arc::new(Self { table, started: Instant::now(), balancers, counts })
    }

    /// Records a connection of this client that ends.
    pub(crate) fn record_tcp(&self, socket: &TcpStream, client: IpAddr) {
        // The peer of a connection that was reset is not known any more.
        let is_direct = self.balancers.is_empty() || socket.peer_addr().is_ok_and(|peer| !self.is_balancer(peer.ip()));
        if is_direct {
            self.record(client, shortest_round_trip(socket));
        } else {
            self.counts.balanced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a QUIC connection of this client that ends.
    pub(crate) fn record_quic(&self, client: IpAddr, round_trip: Duration) {
        if self.is_balancer(client) {
            self.counts.balanced.fetch_add(1, Ordering::Relaxed);
        } else {
            self.record(client, Some(round_trip));
        }
    }

    fn record(&self, client: IpAddr, round_trip: Option<Duration>) {
        let is_recorded = round_trip.is_some_and(|time| self.table.lock().record(client, time, self.started.elapsed()));
        let count = if is_recorded { &self.counts.recorded } else { &self.counts.unmeasured };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn is_balancer(&self, address: IpAddr) -> bool {
        self.balancers.iter().any(|network| network.contains(address.to_canonical()))
    }

    /// The networks, those with the most connections first, and how long ago each was seen.
    pub(crate) fn list(&self) -> Vec<(ClientNetwork, Duration)> {
        let now = self.started.elapsed();
        let networks = self.table.lock().list(now);
        networks.into_iter().map(|network| (network, now.saturating_sub(network.last_seen))).collect()
    }

    /// How many networks are known.
    pub(crate) fn networks(&self) -> usize {
        self.table.lock().len()
    }

    pub(crate) fn counts(&self) -> &RoundTripCounts {
        &self.counts
    }
}

/// Records a client's connection at its end.
#[derive(Debug)]
pub(crate) struct RoundTripRecorder {
    to: Arc<ClientRoundTrips>,
    client: IpAddr,
}

impl RoundTripRecorder {
    /// For a connection of this client.
    pub(crate) fn new(to: &Arc<ClientRoundTrips>, client: IpAddr) -> Self {
        Self { to: to.clone(), client }
    }

    /// Records the connection.
    pub(crate) fn record(self, socket: &TcpStream) {
        self.to.record_tcp(socket, self.client);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"hello").await.unwrap();
        near.read_exact(&mut [0; 5]).await.unwrap();
        (near, far)
    }

    fn counted(clients: &ClientRoundTrips) -> [u64; 3] {
        let counts = clients.counts();
        [&counts.recorded, &counts.unmeasured, &counts.balanced].map(|count| count.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_balancer_is_no_client() {
        let client: IpAddr = "192.0.2.7".parse().unwrap();
        let (_near, far) = connected().await;
        let clients = ClientRoundTrips::new(Vec::new());
        RoundTripRecorder::new(&clients, client).record(&far);
        let listed = clients.list();
        assert_eq!((listed.len(), listed[0].0.prefix.to_string().as_str()), (1, "192.0.2.0/24"));

        let behind = ClientRoundTrips::new(vec!["127.0.0.0/8".parse().unwrap()]);
        RoundTripRecorder::new(&behind, client).record(&far);
        behind.record_quic("::ffff:127.0.0.1".parse().unwrap(), Duration::from_millis(5));
        assert_eq!((behind.networks(), counted(&behind)), (0, [0, 0, 2]));
        let elsewhere = ClientRoundTrips::new(vec!["10.0.0.0/8".parse().unwrap()]);
        elsewhere.record_tcp(&far, client);
        assert_eq!((elsewhere.networks(), counted(&elsewhere)), (1, [1, 0, 0]));
    }

    #[test]
    fn absurd_round_trips_are_counted_apart() {
        let clients = ClientRoundTrips::new(Vec::new());
        for time in [Duration::ZERO, Duration::from_secs(11), Duration::from_millis(20)] {
            clients.record_quic("2001:db8::1".parse().unwrap(), time);
        }
        assert_eq!((clients.networks(), counted(&clients)), (1, [1, 2, 0]));
    }
}
