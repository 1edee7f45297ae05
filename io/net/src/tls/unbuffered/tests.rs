use std::{future::poll_fn, time::Duration};

use rustls::{
    CipherSuite, HandshakeKind, RootCertStore,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use sallyport_tls_records::{ContentType, OVERHEAD_BYTES};

use super::*;

const ALPN: &[u8] = b"test/1";
const PATIENCE: Duration = Duration::from_secs(30);

struct Configs {
    server: ServerConfig,
    client: ClientConfig,
}

/// Both sides, with this cipher suite or any.
fn configs(suite: Option<CipherSuite>) -> Configs {
    let mut provider: CryptoProvider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| suite.is_none_or(|suite| known.suite() == suite));
    let provider = Arc::new(provider);
    configs_by(provider.clone(), provider)
}

fn configs_by(of_server: Arc<CryptoProvider>, of_client: Arc<CryptoProvider>) -> Configs {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut server = ServerConfig::builder_with_provider(of_server)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    server.alpn_protocols = vec![ALPN.to_vec()];
    server.enable_secret_extraction = true;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(of_client)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.enable_secret_extraction = true;
    Configs { server, client }
}

fn name() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

type Stream = UnbufferedTlsStream<DuplexStream>;

/// Both ends handled here.
async fn pair(configs: Configs, room: usize) -> (Stream, Stream) {
    let (near, far) = tokio::io::duplex(room);
    let client = UnbufferedTlsStream::connect(near, Arc::new(configs.client), name());
    let server = UnbufferedTlsStream::accept(far, Arc::new(configs.server));
    let (client, server) = tokio::join!(client, server);
    let ((client, agreed), (server, also)) = (client.unwrap(), server.unwrap());
    assert_eq!((agreed.as_deref(), also.as_deref()), (Some(ALPN), Some(ALPN)));
    (client, server)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 % 251) as u8).collect()
}

/// Sends these bytes one way in pieces of all sizes, and closes; the other side reads them in pieces of other sizes.
async fn move_bytes<A, B>(from: &mut A, to: &mut B, len: usize)
where
    A: AsyncWrite + Unpin,
    B: AsyncRead + Unpin,
{
    let all = bytes(len);
    let sending = async {
        let mut rest = &all[..];
        for size in [1, 7, 16_383, 16_384, 16_385, 100_000].into_iter().cycle() {
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            from.write_all(piece).await.unwrap();
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        from.shutdown().await.unwrap();
    };
    let receiving = async {
        let mut got = Vec::new();
        for size in [4, 65_536, 5, 1_000].into_iter().cycle() {
            let mut piece = vec![0; size];
            let n = to.read(&mut piece).await.unwrap();
            if n == 0 {
                break;
            }
            got.extend_from_slice(&piece[..n]);
        }
        got
    };
    let moved = async { tokio::join!(sending, receiving) };
    let ((), got) = tokio::time::timeout(PATIENCE, moved).await.unwrap();
    assert!(got == all, "{len} bytes came as they were sent");
}

#[tokio::test]
async fn bytes_come_as_they_were_sent_by_every_cipher_and_in_every_room() {
    let suites = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    for suite in suites {
        for (room, len) in [(3_000, 100_000), (16_384, 300_000), (1 << 20, 1_000_003)] {
            let (mut client, mut server) = pair(configs(Some(suite)), room).await;
            move_bytes(&mut client, &mut server, len).await;
            move_bytes(&mut server, &mut client, len).await;
        }
    }
}

#[tokio::test]
async fn it_speaks_with_rustls_on_either_side() {
    for len in [0, 1, 16_384, 1_000_003] {
        let Configs { server, client } = configs(None);
        let (near, far) = tokio::io::duplex(50_000);
        let theirs = TlsConnector::from(Arc::new(client)).connect(name(), near);
        let (theirs, ours) = tokio::join!(theirs, UnbufferedTlsStream::accept(far, Arc::new(server)));
        let (mut theirs, (mut ours, _)) = (theirs.unwrap(), ours.unwrap());
        move_bytes(&mut theirs, &mut ours, len).await;
        move_bytes(&mut ours, &mut theirs, len).await;

        let Configs { server, client } = configs(None);
        let (near, far) = tokio::io::duplex(50_000);
        let ours = UnbufferedTlsStream::connect(near, Arc::new(client), name());
        let (ours, theirs) = tokio::join!(ours, TlsAcceptor::from(Arc::new(server)).accept(far));
        let ((mut ours, _), mut theirs) = (ours.unwrap(), theirs.unwrap());
        move_bytes(&mut theirs, &mut ours, len).await;
        move_bytes(&mut ours, &mut theirs, len).await;
    }
}

#[tokio::test]
async fn a_handshake_that_has_to_begin_anew_comes_to_its_end() {
    let of_groups = |kx_groups| Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() });
    use aws_lc_rs::kx_group::{SECP256R1, X25519};
    // The client's key is for a group that the server does not know.
    let Configs { server, client } = configs_by(of_groups(vec![X25519]), of_groups(vec![SECP256R1, X25519]));
    let (near, far) = tokio::io::duplex(50_000);
    let theirs = TlsConnector::from(Arc::new(client)).connect(name(), near);
    let (theirs, ours) = tokio::join!(theirs, UnbufferedTlsStream::accept(far, Arc::new(server)));
    let (mut theirs, (mut ours, _)) = (theirs.unwrap(), ours.unwrap());
    assert_eq!(theirs.get_ref().1.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    move_bytes(&mut theirs, &mut ours, 10).await;
    move_bytes(&mut ours, &mut theirs, 10).await;
}

#[tokio::test]
async fn tickets_are_kept_so_that_the_next_connection_is_resumed() {
    let Configs { server, client } = configs(None);
    let (server, client) = (Arc::new(server), Arc::new(client));
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
        let (near, far) = tokio::io::duplex(50_000);
        let ours = UnbufferedTlsStream::connect(near, client.clone(), name());
        let (ours, theirs) = tokio::join!(ours, TlsAcceptor::from(server.clone()).accept(far));
        let ((mut ours, _), mut theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!(theirs.get_ref().1.handshake_kind(), Some(expected));
        // The tickets come with the first bytes at the latest.
        move_bytes(&mut theirs, &mut ours, 10).await;
    }
}

#[tokio::test]
async fn keys_are_renewed_when_they_were_used_enough_and_when_the_other_side_asks() {
    let (mut client, mut server) = pair(configs(None), 50_000).await;
    client.records.set_max_records(20);
    server.records.set_max_records(7);
    move_bytes(&mut client, &mut server, 2_000_000).await;
    assert!(server.read_bytes_of_one_key() < 20);
    server.records.request_key_update().unwrap();
    move_bytes(&mut server, &mut client, 2_000_000).await;

    // rustls asks, and is answered before the next bytes.
    let Configs { server, client } = configs(None);
    let (near, far) = tokio::io::duplex(50_000);
    let theirs = TlsConnector::from(Arc::new(client)).connect(name(), near);
    let (theirs, ours) = tokio::join!(theirs, UnbufferedTlsStream::accept(far, Arc::new(server)));
    let (mut theirs, (mut ours, _)) = (theirs.unwrap(), ours.unwrap());
    for _ in 0..5 {
        theirs.get_mut().1.refresh_traffic_keys().unwrap();
        theirs.write_all(b"hello").await.unwrap();
        theirs.flush().await.unwrap();
        let mut bytes = [0; 5];
        ours.read_exact(&mut bytes).await.unwrap();
        ours.records.request_key_update().unwrap();
        ours.write_all(b"world").await.unwrap();
        ours.flush().await.unwrap();
        theirs.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"world");
    }
    move_bytes(&mut theirs, &mut ours, 100_000).await;
    move_bytes(&mut ours, &mut theirs, 100_000).await;
}

impl<S> UnbufferedTlsStream<S> {
    fn read_bytes_of_one_key(&self) -> u64 {
        self.records.read_sequence()
    }

    fn holds(&self) -> usize {
        let incoming = self.incoming.as_ref().map_or(0, |incoming| incoming.bytes.len());
        incoming + self.outgoing.as_ref().map_or(0, |outgoing| outgoing.bytes.len())
    }
}

#[tokio::test]
async fn a_connection_that_rests_holds_no_buffer() {
    let (mut client, mut server) = pair(configs(None), 1 << 20).await;
    for len in [1, 70_000, 300] {
        client.write_all(&bytes(len)).await.unwrap();
        client.flush().await.unwrap();
        let mut got = vec![0; len];
        server.read_exact(&mut got).await.unwrap();
        let mut more = [0];
        let mut more = ReadBuf::new(&mut more);
        let nothing = poll_fn(|cx| Poll::Ready(Pin::new(&mut server).poll_read(cx, &mut more).is_pending())).await;
        assert!(nothing, "all was read");
        assert_eq!((client.holds(), server.holds()), (0, 0), "after {len} bytes");
    }
}

/// Bytes that `from` sends, as they travel.
async fn sealed(from: &mut Stream, to: &mut Stream, bytes: &[u8]) -> Vec<u8> {
    from.write_all(bytes).await.unwrap();
    from.flush().await.unwrap();
    let mut travelling = vec![0; bytes.len() + OVERHEAD_BYTES];
    to.io.read_exact(&mut travelling).await.unwrap();
    travelling
}

#[tokio::test]
async fn part_of_a_record_waits_in_room_of_its_own_size() {
    let (mut client, mut server) = pair(configs(None), 1 << 20).await;
    let travelling = sealed(&mut client, &mut server, b"hello").await;
    let (mut near, far) = tokio::io::duplex(1 << 20);
    server.io = far;
    let mut bytes = [0; 5];
    for (n, byte) in travelling.iter().enumerate() {
        let mut buf = ReadBuf::new(&mut bytes);
        assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut server).poll_read(cx, &mut buf).is_pending())).await);
        assert_eq!(server.holds(), n, "no more than came");
        near.write_all(&[*byte]).await.unwrap();
    }
    server.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    assert_eq!(server.holds(), 0);
}

#[tokio::test]
async fn it_is_known_whether_a_record_has_come_that_may_hold_a_request() {
    let (mut client, mut server) = pair(configs(None), 1 << 20).await;
    let travelling = sealed(&mut client, &mut server, b"hello, you").await;
    assert!(!server.has_request(), "nothing has come");
    for n in 0..=travelling.len() {
        server.incoming = Some(Incoming { bytes: travelling[..n].into(), sealed: 0..n, plain: 0..0 });
        assert_eq!(server.has_request(), n == travelling.len(), "{n} bytes");
    }
    assert_eq!(server.read_u8().await.unwrap(), b'h');
    assert!(server.has_request(), "part of it was read");
    server.read_exact(&mut [0; 9]).await.unwrap();
    assert!(!server.has_request());
    // As long as a key update.
    let travelling = sealed(&mut client, &mut server, b"hello").await;
    server.incoming = Some(Incoming { sealed: 0..travelling.len(), bytes: travelling.into(), plain: 0..0 });
    assert!(!server.has_request());
}

#[tokio::test]
async fn a_tampered_record_ends_the_connection_with_an_alert() {
    let Configs { server, client } = configs(None);
    let (near, far) = tokio::io::duplex(50_000);
    let theirs = TlsConnector::from(Arc::new(client)).connect(name(), near);
    let (theirs, ours) = tokio::join!(theirs, UnbufferedTlsStream::accept(far, Arc::new(server)));
    let (mut theirs, (mut ours, _)) = (theirs.unwrap(), ours.unwrap());
    theirs.write_all(b"hello").await.unwrap();
    theirs.flush().await.unwrap();
    let mut travelling = vec![0; 5 + OVERHEAD_BYTES];
    ours.io.read_exact(&mut travelling).await.unwrap();
    travelling[7] ^= 1;
    ours.incoming = Some(Incoming { sealed: 0..travelling.len(), bytes: travelling.into(), plain: 0..0 });
    let error = ours.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("changed on its way"), "{error}");
    assert!(ours.write_all(b"more").await.is_err() && ours.read_u8().await.is_err(), "it is of no use any more");
    let error = theirs.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
}

#[tokio::test]
async fn records_that_must_not_be_end_the_connection() {
    let cases: [(&[u8], &str); 5] = [
        (&[22, 3, 3, 0, 1, 0], "not encrypted"),
        (&[21, 3, 3, 0, 2, 1, 0], "not encrypted"),
        (b"GET / HTTP/1.1\r\n\r\n", "not encrypted"),
        (&[23, 3, 3, 0x41, 0x01], "too long"),
        (&[23, 3, 3, 0, 3, 1, 2, 3], "changed on its way"),
    ];
    for (brought, expected) in cases {
        let (_client, mut server) = pair(configs(None), 50_000).await;
        let (mut near, far) = tokio::io::duplex(50_000);
        server.io = far;
        near.write_all(brought).await.unwrap();
        let error = server.read_u8().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{brought:?}: {error}");
    }
}

#[tokio::test]
async fn messages_that_have_no_place_end_the_connection_by_their_first_bytes() {
    let cases: [(&[u8], &str); 6] = [
        (&[], "is empty"),
        (&[4, 0, 0, 9], "no place here"),
        (&[1, 0, 0, 9], "no place here"),
        (&[24, 0, 0xff, 0xff], "malformed"),
        (&[24, 0, 0, 0], "malformed"),
        (&[24, 0, 0, 1, 7], "malformed"),
    ];
    for (message, expected) in cases {
        let (mut client, mut server) = pair(configs(None), 50_000).await;
        let mut record = vec![0; message.len() + OVERHEAD_BYTES];
        record[HEADER_BYTES..][..message.len()].copy_from_slice(message);
        client.records.seal(ContentType::HANDSHAKE, &mut record, message.len()).unwrap();
        client.io.write_all(&record).await.unwrap();
        let error = server.read_u8().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{message:?}: {error}");
    }
}

#[tokio::test]
async fn an_end_without_a_word_is_no_end() {
    let (client, mut server) = pair(configs(None), 50_000).await;
    drop(client);
    let error = server.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let (mut client, mut server) = pair(configs(None), 50_000).await;
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 9]).await.unwrap(), 0);
    assert!(client.write_all(b"more").await.is_err());
    // The other direction continues.
    server.write_all(b"hello").await.unwrap();
    server.flush().await.unwrap();
    let mut bytes = [0; 5];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
}

#[tokio::test]
async fn tls_1_2_and_strangers_are_refused() {
    let Configs { server, client } = configs(None);
    let provider = client.crypto_provider().clone();
    let mut old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    old.alpn_protocols = vec![ALPN.to_vec()];
    let (near, far) = tokio::io::duplex(50_000);
    let (theirs, ours) = tokio::join!(
        TlsConnector::from(Arc::new(old)).connect(name(), near),
        UnbufferedTlsStream::accept(far, Arc::new(server))
    );
    assert!(theirs.is_err());
    assert_eq!(ours.unwrap_err().kind(), io::ErrorKind::InvalidData);

    let (near, mut far) = tokio::io::duplex(50_000);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let error = UnbufferedTlsStream::connect(near, Arc::new(client), name()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.get_ref().unwrap().is::<rustls::Error>(), "{error}");
}

#[tokio::test]
async fn new_keys_that_come_together_with_the_end_of_the_handshake_are_used() {
    let Configs { server, client } = configs(None);
    let (mut near, far) = tokio::io::duplex(50_000);
    let accepting = tokio::spawn(UnbufferedTlsStream::accept(far, Arc::new(server)));
    let mut theirs = rustls::ClientConnection::new(Arc::new(client), name()).unwrap();
    let mut flight = Vec::new();
    theirs.write_tls(&mut flight).unwrap();
    near.write_all(&flight).await.unwrap();
    let receive = async |theirs: &mut rustls::ClientConnection, near: &mut DuplexStream| {
        let mut came = vec![0; 50_000];
        let n = tokio::time::timeout(PATIENCE, near.read(&mut came)).await.unwrap().unwrap();
        let mut came = &came[..n];
        while !came.is_empty() {
            theirs.read_tls(&mut came).unwrap();
            theirs.process_new_packets().unwrap();
        }
    };
    while theirs.is_handshaking() {
        receive(&mut theirs, &mut near).await;
    }
    // The end of the handshake, a request for new keys, and data under the new keys, in one piece.
    theirs.refresh_traffic_keys().unwrap();
    io::Write::write_all(&mut theirs.writer(), b"hello").unwrap();
    flight.clear();
    while theirs.wants_write() {
        theirs.write_tls(&mut flight).unwrap();
    }
    near.write_all(&flight).await.unwrap();
    let (mut ours, _) = accepting.await.unwrap().unwrap();
    let mut bytes = [0; 5];
    ours.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    ours.write_all(b"world").await.unwrap();
    ours.flush().await.unwrap();
    let mut received = Vec::new();
    while received.len() < 5 {
        receive(&mut theirs, &mut near).await;
        drop(io::Read::read_to_end(&mut theirs.reader(), &mut received));
    }
    assert_eq!(received, b"world");
}

#[tokio::test]
async fn nothing_follows_our_last_word() {
    let Configs { server, client } = configs(None);
    let (near, far) = tokio::io::duplex(50_000);
    let theirs = TlsConnector::from(Arc::new(client)).connect(name(), near);
    let (theirs, ours) = tokio::join!(theirs, UnbufferedTlsStream::accept(far, Arc::new(server)));
    let (mut theirs, (mut ours, _)) = (theirs.unwrap(), ours.unwrap());
    ours.records.close().unwrap();
    ours.flush().await.unwrap();
    assert_eq!(theirs.read(&mut [0; 9]).await.unwrap(), 0);
    // Both continue, and request new keys twice.
    for _ in 0..2 {
        theirs.get_mut().1.refresh_traffic_keys().unwrap();
        theirs.write_all(b"hello").await.unwrap();
        theirs.flush().await.unwrap();
        let mut bytes = [0; 5];
        ours.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
    }
    ours.flush().await.unwrap();
    let mut more = [0];
    let mut more = ReadBuf::new(&mut more);
    let far = &mut theirs.get_mut().0;
    assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut *far).poll_read(cx, &mut more).is_pending())).await);
}
