//! A server that echoes streams, and its client.

use std::{
    net::{SocketAddr, UdpSocket},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use quinn::{Connection, Endpoint, TokenMemoryCache, TokenStore, crypto::rustls::QuicClientConfig};
use sallyport_net::{Certificates, LocalCa, QuicProtocols, Trust, client_config, server_config_for_quic};
use sallyport_quic::{QuicIncoming, QuicListener, QuicPort, QuicSecret};

const ALPN: &[u8] = b"echo";

/// The certificates of a test.
pub(crate) struct Lab {
    directory: tempfile::TempDir,
    tls: Arc<rustls::ServerConfig>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(directory.path(), "localhost").unwrap();
        let tls = server_config_for_quic(Certificates::new(ca, "localhost").unwrap(), ALPN, QuicProtocols::default());
        Self { directory, tls }
    }

    pub(crate) fn tls(&self) -> &Arc<rustls::ServerConfig> {
        &self.tls
    }

    /// A port with this many sockets.
    pub(crate) fn port(&self, sockets: usize) -> QuicPort {
        let any = "127.0.0.1:0".parse().unwrap();
        let sockets = sallyport_net::listen_udp_group(any, NonZeroUsize::new(sockets).unwrap(), "--x").unwrap();
        QuicPort::new(sockets, QuicSecret::from([7; 32])).unwrap()
    }

    /// A process that serves this port.
    pub(crate) fn serve(&self, port: QuicPort) -> Process {
        self.serve_with(port, Some)
    }

    /// A process whose clients must prove their addresses.
    pub(crate) fn serve_proven(&self, port: QuicPort) -> Process {
        self.serve_with(port, QuicIncoming::validated)
    }

    fn serve_with(&self, port: QuicPort, admit: fn(QuicIncoming) -> Option<QuicIncoming>) -> Process {
        let accepted: Arc<AtomicUsize> = Arc::default();
        let listeners: Vec<_> =
            port.take_sockets().into_iter().map(|socket| socket.listen(&self.tls, None, None).unwrap()).collect();
        for listener in &listeners {
            tokio::spawn(echo(listener.clone(), accepted.clone(), admit));
        }
        Process { port, listeners, accepted }
    }

    pub(crate) fn client(&self) -> Endpoint {
        self.client_with_store(Arc::new(TokenMemoryCache::default()))
    }

    /// A client that sends this token in its first packet.
    pub(crate) fn client_with_token(&self, token: Bytes) -> Endpoint {
        self.client_with_store(Arc::new(Fixed(token)))
    }

    fn client_with_store(&self, tokens: Arc<dyn TokenStore>) -> Endpoint {
        let ca = self.directory.path().join(sallyport_net::CA_CERTIFICATE_FILE);
        let mut tls = rustls::ClientConfig::clone(&client_config(&Trust::Ca(ca), &[]).unwrap());
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let mut client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        config.token_store(tokens);
        client.set_default_client_config(config);
        client
    }
}

/// Gives this token for every connection.
struct Fixed(Bytes);

impl TokenStore for Fixed {
    fn insert(&self, _: &str, _: Bytes) {}

    fn take(&self, _: &str) -> Option<Bytes> {
        Some(self.0.clone())
    }
}

/// One process of a port.
pub(crate) struct Process {
    pub(crate) port: QuicPort,
    pub(crate) listeners: Vec<QuicListener>,
    pub(crate) accepted: Arc<AtomicUsize>,
}

impl Process {
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn echo(listener: QuicListener, accepted: Arc<AtomicUsize>, admit: fn(QuicIncoming) -> Option<QuicIncoming>) {
    while let Some(incoming) = listener.accept().await {
        let Some(incoming) = admit(incoming) else { continue };
        accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let connection = incoming.accept().await.unwrap();
            while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    while let Some(chunk) = recv.read_chunk(65_536, true).await.unwrap() {
                        send.write_chunk(chunk.bytes).await.unwrap();
                    }
                    send.finish().unwrap();
                });
            }
        });
    }
}

pub(crate) async fn connect(client: &Endpoint, address: SocketAddr) -> Connection {
    client.connect(address, "tunnel.localhost").unwrap().await.unwrap()
}

/// Sends bytes on a new stream, and checks that they come back.
pub(crate) async fn check(connection: &Connection, bytes: &[u8]) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let sending = async {
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
    };
    let (echoed, ()) = tokio::join!(recv.read_to_end(bytes.len()), sending);
    assert!(echoed.unwrap() == bytes, "{} bytes came back otherwise", bytes.len());
}

/// Moves a client to another address.
pub(crate) fn rebind(client: &Endpoint) {
    client.rebind(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
}
