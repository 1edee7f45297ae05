//! Carriers over QUIC, on loopback.

use std::{
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use sallyport_net::{
    Certificates, LocalCa, QuicProtocols, Trust, client_config, listen_udp_group, server_config_for_quic,
};
use sallyport_quic::{QuicListener, QuicPort, QuicSecret};
use sallyport_tunnel::{BoxFuture, BoxedCarrier, Dial, carrier::quic::QuicConnection};
use sallyport_wire::ALPN;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::*;

/// An edge on a UDP port of its own.
struct QuicEdge {
    edge: Edge,
    listener: QuicListener,
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    _directory: tempfile::TempDir,
}

impl QuicEdge {
    fn start(max_streams: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(directory.path(), "localhost").unwrap();
        let tls = client_config(&Trust::Ca(ca.pem_path().to_owned()), &[]).unwrap();
        let server =
            server_config_for_quic(Certificates::new(ca, "localhost").unwrap(), ALPN, QuicProtocols::default());
        let group = listen_udp_group("127.0.0.1:0".parse().unwrap(), NonZeroUsize::MIN, "--x").unwrap();
        let port = QuicPort::new(group, QuicSecret::random().unwrap()).unwrap();
        let address = port.address();
        let listener = port.take_sockets().remove(0).listen(&server, None, None).unwrap();
        let edge = Edge::new();
        let (accepting, tunnels) = (listener.clone(), edge.tunnels.clone());
        tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                let peer = incoming.remote_address();
                let Some(incoming) = incoming.validated() else { continue };
                let tunnels = tunnels.clone();
                tokio::spawn(async move {
                    let Ok(connection) = incoming.accept().await else { return };
                    let connection = QuicConnection::accepted(connection, max_streams);
                    while let Ok(carrier) = connection.accept_carrier().await {
                        let tunnels = tunnels.clone();
                        tokio::spawn(async move { tunnels.serve_carrier(carrier, peer).await });
                    }
                });
            }
        });
        Self { edge, listener, address, tls, _directory: directory }
    }

    async fn connect(&self) -> io::Result<QuicConnection> {
        QuicConnection::connect(self.address, "tunnel.localhost", &self.tls, Some("bbr")).await
    }

    fn dial(&self) -> Arc<Quic> {
        Arc::new(Quic { address: self.address, tls: self.tls.clone(), connection: Arc::default() })
    }
}

/// A dialer of such an edge: a QUIC connection for each session.
struct Quic {
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    connection: Arc<Mutex<Option<QuicConnection>>>,
}

impl Dial for Quic {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let connection = self.connection.lock().unwrap().clone().unwrap();
        Box::pin(async move { Ok(Box::new(connection.open_carrier().await?) as BoxedCarrier) })
    }

    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (address, tls, kept) = (self.address, self.tls.clone(), self.connection.clone());
        Box::pin(async move {
            let connection = QuicConnection::connect(address, "tunnel.localhost", &tls, None).await?;
            let carrier = connection.open_carrier().await?;
            *kept.lock().unwrap() = Some(connection);
            Ok(Box::new(carrier) as BoxedCarrier)
        })
    }
}

#[tokio::test]
async fn streams_travel_over_quic_on_legs_and_on_the_control_connection() {
    for max_legs in [512, 0] {
        let quic = QuicEdge::start(600);
        let connector = Connector::start_with(quic.dial(), echo(), &[tunnel(1)], |config| config.max_legs = max_legs);
        let handle = quic.edge.attached(tunnel(1)).await;
        if max_legs > 0 {
            until("the legs join", || quic.edge.tunnels.stats().legs_idle >= 8).await;
        }
        let exchanges: Vec<_> = (0..20_usize)
            .map(|number| {
                let stream = handle.open(open_for(tunnel(1))).unwrap();
                tokio::spawn(async move {
                    let bytes: Vec<u8> = (0..number * 60_000).map(|at| (at % 251) as u8).collect();
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    let writing = async {
                        writer.write_all(&bytes).await.unwrap();
                        writer.shutdown().await.unwrap();
                    };
                    let mut back = Vec::new();
                    let reading = async { reader.read_to_end(&mut back).await.unwrap() };
                    tokio::join!(writing, reading);
                    assert!(back == bytes, "stream {number}");
                })
            })
            .collect();
        for exchange in exchanges {
            soon(exchange).await.unwrap();
        }
        connector.ask_to_stop();
        soon(connector.task).await.unwrap().unwrap();
        until("the session ends", || quic.edge.tunnels.stats().sessions == 0).await;
    }
}

#[tokio::test]
async fn a_leg_that_is_not_read_holds_up_no_other() {
    let quic = QuicEdge::start(600);
    let _connector = Connector::start(quic.dial(), echo(), &[tunnel(1)]);
    let handle = quic.edge.ready(tunnel(1)).await;
    let mut stalled = handle.open(open_for(tunnel(1))).unwrap();
    let block = vec![7; 65_536];
    // More than a stream's window each way: the answer is not read.
    while tokio::time::timeout(Duration::from_millis(300), stalled.write_all(&block)).await.is_ok() {}
    let other = handle.open(open_for(tunnel(1))).unwrap();
    assert_eq!(soon(exchange(other, b"meanwhile")).await.unwrap(), b"meanwhile");
}

#[tokio::test]
async fn a_session_ends_with_its_connection_and_the_next_one_begins() {
    let quic = QuicEdge::start(600);
    let dial = quic.dial();
    let _connector = Connector::start(dial.clone(), echo(), &[tunnel(1)]);
    let first = quic.edge.ready(tunnel(1)).await.session();
    let connection = dial.connection.lock().unwrap().take().unwrap();
    assert!(connection.is_open());
    connection.close().await;
    assert!(!connection.is_open());
    until("another session takes the tunnel", || {
        quic.edge.handle(tunnel(1)).is_some_and(|handle| handle.session() != first)
    })
    .await;
    let stream = quic.edge.ready(tunnel(1)).await.open(open_for(tunnel(1))).unwrap();
    assert_eq!(soon(exchange(stream, b"again")).await.unwrap(), b"again");
    soon(quic.listener.close()).await;
    until("the edge's end is noticed", || quic.edge.tunnels.stats().sessions == 0).await;
}

#[tokio::test]
async fn carriers_that_say_nothing_useful_are_closed_and_there_are_only_so_many() {
    let quic = QuicEdge::start(300);
    let connection = quic.connect().await.unwrap();
    let mut garbage = connection.open_carrier().await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The stream ends or is reset; the edge opens no session either way.
    let _ = soon(garbage.read_to_end(&mut answer)).await;
    assert_eq!(quic.edge.tunnels.stats().sessions, 0);
    drop(garbage);

    let mut open = Vec::new();
    while let Ok(carrier) = tokio::time::timeout(Duration::from_millis(500), connection.open_carrier()).await {
        open.push(carrier.unwrap());
        assert!(open.len() <= 301, "the edge allows 300 at a time");
    }
    assert!(open.len() >= 299, "{}", open.len());
}

#[tokio::test]
async fn an_edge_of_another_name_or_authority_is_not_believed() {
    let quic = QuicEdge::start(4);
    let elsewhere = QuicConnection::connect(quic.address, "tunnel.example", &quic.tls, None).await.unwrap_err();
    assert!(elsewhere.to_string().contains("no QUIC connection with 127.0.0.1"), "{elsewhere}");
    let other = tempfile::tempdir().unwrap();
    let ca = LocalCa::open_or_create(other.path(), "localhost").unwrap();
    let tls = client_config(&Trust::Ca(ca.pem_path().to_owned()), &[]).unwrap();
    assert!(QuicConnection::connect(quic.address, "tunnel.localhost", &tls, None).await.is_err());
    quic.listener.refuse_new();
    assert!(soon(quic.connect()).await.is_err());
}
