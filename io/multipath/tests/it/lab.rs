//! An edge's port with associations and an echo over QUIC, and the connector's end.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use quinn::{Connection, Endpoint, crypto::rustls::QuicClientConfig};
use sallyport_links_model::{Link, Properties};
use sallyport_multipath::{Config, Side};
use sallyport_multipath_udp::{Associations, LinkSocket, Multipath, endpoint, server_config, transport};
use sallyport_net::{Certificates, LocalCa, QuicProtocols, Trust, client_config, server_config_for_quic};
use sallyport_quic::{QuicListener, QuicPort, QuicSecret};

const ALPN: &[u8] = b"echo";

pub(crate) struct Edge {
    pub(crate) port: QuicPort,
    pub(crate) associations: Arc<Associations>,
    _listeners: Vec<QuicListener>,
    tls: Arc<rustls::ServerConfig>,
    directory: tempfile::TempDir,
}

impl Edge {
    pub(crate) fn start(sockets: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(directory.path(), "localhost").unwrap();
        let tls = server_config_for_quic(Certificates::new(ca, "localhost").unwrap(), ALPN, QuicProtocols::default());
        let any = "127.0.0.1:0".parse().unwrap();
        let group = sallyport_net::listen_udp_group(any, NonZeroUsize::new(sockets).unwrap(), "--x").unwrap();
        let port = QuicPort::new(group, QuicSecret::from([7; 32])).unwrap();
        let associations = Associations::new(Config::default(), port.sender().unwrap());
        port.share_with(associations.clone());
        let listeners = serve(&port, &tls);
        Self { port, associations, _listeners: listeners, tls, directory }
    }

    /// Serves another port in the same way.
    pub(crate) fn serve(&self, port: &QuicPort) -> Vec<QuicListener> {
        serve(port, &self.tls)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn client(&self) -> quinn::ClientConfig {
        let ca = self.directory.path().join(sallyport_net::CA_CERTIFICATE_FILE);
        let mut tls = rustls::ClientConfig::clone(&client_config(&Trust::Ca(ca), &[]).unwrap());
        tls.alpn_protocols = vec![ALPN.to_vec()];
        quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
    }

    /// A connector with a link from each of these loopback addresses, and the edge's end of its association.
    pub(crate) async fn connect(&self, sources: &[&str]) -> Connector {
        self.connect_by(sources, self.address()).await
    }

    /// The same, by way of a relay at this address.
    pub(crate) async fn connect_by(&self, sources: &[&str], relay: SocketAddr) -> Connector {
        let (at_edge, offer) = self.associations.open().unwrap();
        let multipath = Multipath::new(Config::default(), &offer.setup(Side::Connector));
        for source in sources {
            multipath.add_link(LinkSocket::open(&loopback(source), relay).unwrap()).unwrap();
        }
        let accepting =
            endpoint(at_edge.clone(), "192.0.2.7:7".parse().unwrap(), Some(server_config(&self.tls).unwrap()));
        let accepting = accepting.unwrap();
        let server = accepting.clone();
        tokio::spawn(async move {
            if let Some(incoming) = server.accept().await {
                echo(incoming.await.unwrap()).await;
            }
        });
        let connecting = endpoint(multipath.clone(), self.address(), None).unwrap();
        let mut client = self.client();
        client.transport_config(Arc::new(transport()));
        let connection = connecting.connect_with(client, self.address(), "localhost").unwrap().await.unwrap();
        Connector { connection, multipath, at_edge, _endpoints: (accepting, connecting) }
    }
}

pub(crate) struct Connector {
    pub(crate) connection: Connection,
    pub(crate) multipath: Arc<Multipath>,
    pub(crate) at_edge: Arc<Multipath>,
    _endpoints: (Endpoint, Endpoint),
}

/// The loopback device with this source address.
fn loopback(source: &str) -> Link {
    Link {
        name: "loopback".into(),
        index: 1,
        device: "lo".into(),
        addresses: vec![source.parse().unwrap()],
        mtu_bytes: 1_500,
        properties: Properties::default(),
    }
}

fn serve(port: &QuicPort, tls: &Arc<rustls::ServerConfig>) -> Vec<QuicListener> {
    let listeners: Vec<_> =
        port.take_sockets().into_iter().map(|socket| socket.listen(tls, None, None).unwrap()).collect();
    for listener in listeners.clone() {
        tokio::spawn(async move {
            while let Some(incoming) = listener.accept().await {
                tokio::spawn(async move { echo(incoming.accept().await.unwrap()).await });
            }
        });
    }
    listeners
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::spawn(async move {
            tokio::io::copy(&mut recv, &mut send).await.unwrap();
            send.finish().unwrap();
        });
    }
}

/// Sends bytes and compares what comes back.
pub(crate) async fn exchange(connection: &Connection, length: usize) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let expected = bytes.clone();
    let writing = tokio::spawn(async move {
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
    });
    assert!(recv.read_to_end(length).await.unwrap() == expected, "the bytes came back changed");
    writing.await.unwrap();
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
