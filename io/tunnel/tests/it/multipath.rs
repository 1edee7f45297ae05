//! Tunnels over several paths, on loopback.

use std::{
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use sallyport_links_model::{Link, Properties};
use sallyport_multipath::{AssociationId, Config, PathId, Side};
use sallyport_multipath_udp::{Associations, LinkSocket, Multipath, Offer, endpoint, server_config, transport};
use sallyport_net::{
    Certificates, LocalCa, QuicProtocols, Trust, client_config, listen_udp_group, server_config_for_quic,
};
use sallyport_quic::{QuicListener, QuicPort, QuicSecret};
use sallyport_tunnel::{
    BoxFuture, BoxedCarrier, Dial, EdgeTunnels,
    carrier::{
        association::{AssociationRefused, ask_for_association},
        quic::QuicConnection,
    },
};
use sallyport_wire::{ALPN, Associate, Associated, Refusal};
use tokio::io::AsyncReadExt as _;

use crate::lab::*;

/// An edge whose connectors may have several paths.
struct PathsEdge {
    edge: Edge,
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    _listeners: Vec<QuicListener>,
    _directory: tempfile::TempDir,
}

/// Makes the associations of the edge, and serves what travels over them.
struct Serve {
    associations: Arc<Associations>,
    tunnels: EdgeTunnels,
    tls: Arc<rustls::ServerConfig>,
    port: u16,
}

impl sallyport_tunnel::Associations for Serve {
    fn associate(&self, question: &Associate, peer: SocketAddr) -> Result<Associated, Refusal> {
        if *question != self::question() {
            return Err(Refusal::new("bad-credential", "another credential was asked for", false));
        }
        let (multipath, offer) = self.associations.open().unwrap();
        let endpoint = endpoint(multipath, peer, Some(server_config(&self.tls).unwrap())).unwrap();
        let tunnels = self.tunnels.clone();
        tokio::spawn(async move {
            let connection = QuicConnection::accepted(endpoint.accept().await.unwrap().await.unwrap(), 600);
            while let Ok(carrier) = connection.accept_carrier().await {
                let tunnels = tunnels.clone();
                tokio::spawn(async move { tunnels.serve_carrier(carrier, peer).await });
            }
        });
        let Offer { edge, connector, secret } = offer;
        Ok(Associated { edge: edge.0, connector: connector.0, secret, port: self.port })
    }
}

impl PathsEdge {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(directory.path(), "localhost").unwrap();
        let tls = client_config(&Trust::Ca(ca.pem_path().to_owned()), &[]).unwrap();
        let server =
            server_config_for_quic(Certificates::new(ca, "localhost").unwrap(), ALPN, QuicProtocols::default());
        let group = listen_udp_group("127.0.0.1:0".parse().unwrap(), NonZeroUsize::MIN, "--x").unwrap();
        let port = QuicPort::new(group, QuicSecret::random().unwrap()).unwrap();
        let address = port.address();
        let associations = Associations::new(Config::default(), port.sender().unwrap());
        port.share_with(associations.clone());
        let sockets = port.take_sockets().into_iter();
        let listeners = sockets.map(|socket| socket.listen(&server, None, None).unwrap()).collect();
        for listener in &listeners {
            let listener: &QuicListener = listener;
            let listener = listener.clone();
            // The listener reads the port, also without connections of its own.
            tokio::spawn(async move { while listener.accept().await.is_some() {} });
        }
        let edge = Edge::new();
        let tunnels = edge.tunnels.clone();
        edge.tunnels.set_associations(Arc::new(Serve { associations, tunnels, tls: server, port: address.port() }));
        Self { edge, address, tls, _listeners: listeners, _directory: directory }
    }

    fn dial(&self) -> Arc<Paths> {
        let (address, tls, tunnels) = (self.address, self.tls.clone(), self.edge.tunnels.clone());
        Arc::new(Paths { address, tls, tunnels, session: Arc::default() })
    }
}

/// What a connector of tunnel 1 asks.
fn question() -> Associate {
    Associate { tunnel: tunnel(1), credential: "good".into() }
}

/// What the connector has of its session.
struct Session {
    connection: QuicConnection,
    multipath: Arc<Multipath>,
    links: Vec<PathId>,
}

/// A dialer with three links to the edge.
struct Paths {
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    tunnels: EdgeTunnels,
    session: Arc<Mutex<Option<Session>>>,
}

impl Dial for Paths {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let connection = self.session.lock().unwrap().as_ref().unwrap().connection.clone();
        Box::pin(async move { Ok(Box::new(connection.open_carrier().await?) as BoxedCarrier) })
    }

    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (address, tls, kept, tunnels) =
            (self.address, self.tls.clone(), self.session.clone(), self.tunnels.clone());
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(4_096);
            tokio::spawn(async move { tunnels.serve_carrier(far, peer()).await });
            let Associated { edge, connector, secret, port } = ask_for_association(near, &question()).await?;
            let offer = Offer { edge: AssociationId(edge), connector: AssociationId(connector), secret };
            let multipath = Multipath::new(Config::default(), &offer.setup(Side::Connector));
            let mut links = Vec::new();
            for (number, source) in ["127.0.0.2", "127.0.0.3", "127.0.0.4"].into_iter().enumerate() {
                let link = Link {
                    name: format!("link{number}"),
                    index: 1,
                    device: "lo".into(),
                    addresses: vec![source.parse().unwrap()],
                    mtu_bytes: 1_500,
                    properties: Properties::default(),
                };
                let to = SocketAddr::new(address.ip(), port);
                links.push(multipath.add_link(LinkSocket::open(&link, to)?)?);
            }
            let endpoint = endpoint(multipath.clone(), address, None)?;
            let connection =
                QuicConnection::connect_on(endpoint, transport(), address, "tunnel.localhost", &tls).await?;
            let carrier = connection.open_carrier().await?;
            *kept.lock().unwrap() = Some(Session { connection, multipath, links });
            Ok(Box::new(carrier) as BoxedCarrier)
        })
    }
}

#[tokio::test]
async fn streams_of_a_tunnel_travel_by_three_links_and_survive_two_of_them() {
    let paths = PathsEdge::start();
    let dial = paths.dial();
    let _connector = Connector::start(dial.clone(), echo(), &[tunnel(1)]);
    let handle = paths.edge.ready(tunnel(1)).await;
    let sent = vec![5; 400_000];
    let stream = handle.open(open_for(tunnel(1))).unwrap();
    assert!(soon(exchange(stream, &sent)).await.unwrap() == sent);
    let session = handle.session();
    {
        let kept = dial.session.lock().unwrap();
        let Session { multipath, links, .. } = kept.as_ref().unwrap();
        let names: Vec<_> = multipath.paths().into_iter().filter_map(|path| path.link).collect();
        assert_eq!(names, ["link0", "link1", "link2"]);
        multipath.remove_path(links[0]);
        multipath.remove_path(links[1]);
    }
    let stream = handle.open(open_for(tunnel(1))).unwrap();
    assert!(soon(exchange(stream, &sent)).await.unwrap() == sent);
    assert_eq!(paths.edge.attached(tunnel(1)).await.session(), session, "the session went on");
    let kept = dial.session.lock().unwrap();
    let left = kept.as_ref().unwrap().multipath.paths();
    assert_eq!(left.iter().filter_map(|path| path.link.as_deref()).collect::<Vec<_>>(), ["link2"]);
    assert!(left[0].stats.sent_bytes > 400_000 / 2, "the last link carried the second exchange: {left:?}");
}

#[tokio::test]
async fn an_edge_without_associations_says_so_and_an_older_one_is_understood() {
    let edge = Edge::new();
    let (near, far) = tokio::io::duplex(4_096);
    let tunnels = edge.tunnels.clone();
    tokio::spawn(async move { tunnels.serve_carrier(far, peer()).await });
    let refused = ask_for_association(near, &question()).await.unwrap_err();
    assert_eq!(refused.to_string(), "this edge takes no tunnels over several paths");
    let refusal = refused.get_ref().and_then(|inner| inner.downcast_ref::<AssociationRefused>()).unwrap();
    assert_eq!(refusal.0.code, "no-multipath");

    let (near, mut far) = tokio::io::duplex(4_096);
    tokio::spawn(async move {
        far.read_exact(&mut [0; 4]).await.unwrap();
        drop(far);
    });
    let refused = ask_for_association(near, &question()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("version"), "{refused}");
}
