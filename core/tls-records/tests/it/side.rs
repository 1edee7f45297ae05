//! One side of a connection over a blocking socket, with all that the record layer needs.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
};
use sallyport_tls_records::{
    ContentType, HEADER_BYTES, Handshake, HandshakeError, MAX_PLAIN_BYTES, OVERHEAD_BYTES, Received, RecordError,
    RecordLayer, Step,
};

/// A certificate for `localhost`, and its key.
pub(crate) struct Identity {
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Identity {
    pub(crate) fn new() -> Self {
        Self { made: rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap() }
    }

    pub(crate) fn certificate_pem(&self) -> String {
        self.made.cert.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.made.signing_key.serialize_pem()
    }

    fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.made.cert.der().to_vec())
    }

    pub(crate) fn server(&self) -> ServerConfig {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.made.signing_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate()], key)
            .unwrap();
        config.enable_secret_extraction = true;
        config
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.enable_secret_extraction = true;
        config
    }
}

pub(crate) fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

/// Our side of an established connection.
pub(crate) struct Side {
    pub(crate) io: TcpStream,
    pub(crate) records: RecordLayer,
    /// Encrypted bytes that were received and are not opened.
    pending: Vec<u8>,
    /// All received bytes, from the first byte of the handshake.
    pub(crate) came: Vec<u8>,
    /// All bytes that were sent.
    pub(crate) sent: Vec<u8>,
}

/// Why a connection was not established.
#[derive(Debug)]
pub(crate) enum Failure {
    Handshake(HandshakeError),
    /// The peer ended the connection.
    Ended,
}

impl Side {
    /// Runs the handshake; `injected` is inserted behind the peer's first bytes.
    pub(crate) fn establish(mut io: TcpStream, mut handshake: Handshake, injected: &[u8]) -> Result<Self, Failure> {
        let (mut came, mut sent) = (Vec::new(), Vec::new());
        loop {
            match handshake.advance() {
                Ok(Step::Send) => {
                    sent.extend_from_slice(handshake.outgoing());
                    io.write_all(handshake.outgoing()).unwrap();
                    handshake.outgoing().clear();
                }
                Ok(Step::Read) => {
                    let mut chunk = [0; 4_096];
                    let n = read(&mut io, &mut chunk);
                    if n == 0 {
                        return Err(Failure::Ended);
                    }
                    let buffer = handshake.read_buffer().map_err(Failure::Handshake)?;
                    buffer.extend_from_slice(&chunk[..n]);
                    if came.is_empty() {
                        buffer.extend_from_slice(injected);
                    }
                    came.extend_from_slice(&chunk[..n]);
                }
                Ok(Step::Done) => break,
                Err(error) => {
                    io.write_all(handshake.outgoing()).unwrap();
                    return Err(Failure::Handshake(error));
                }
            }
        }
        let established = handshake.finish().map_err(Failure::Handshake)?;
        Ok(Self { io, records: established.records, pending: established.received, came, sent })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        self.io.write_all(bytes).unwrap();
    }

    /// Sends what the record layer has to send by itself.
    pub(crate) fn flush(&mut self) {
        let outgoing = self.records.take_outgoing();
        self.send(&outgoing);
    }

    /// Sends data in records of the greatest length.
    pub(crate) fn write(&mut self, data: &[u8]) {
        for piece in data.chunks(MAX_PLAIN_BYTES) {
            self.records.prepare(1).unwrap();
            self.flush();
            let record = seal(&mut self.records, ContentType::APPLICATION_DATA, piece);
            self.send(&record);
        }
    }

    /// Sends a record whose inner plaintext (content, content type, padding) is this.
    pub(crate) fn write_inner(&mut self, inner: &[u8]) {
        let record = seal_inner(&mut self.records, inner);
        self.send(&record);
    }

    /// Opens one record of the peer. Sends answers and, on an error, the alert.
    pub(crate) fn read_record(&mut self) -> Result<Option<Vec<u8>>, RecordError> {
        loop {
            if let Some(received) = self.open_pending()? {
                return Ok(received);
            }
            let mut chunk = [0; 20_000];
            let n = read(&mut self.io, &mut chunk);
            assert!(n > 0, "the peer ended the connection without an alert");
            self.came.extend_from_slice(&chunk[..n]);
            self.pending.extend_from_slice(&chunk[..n]);
        }
    }

    /// The data of a record that was received in full; `Some(None)` at the end.
    fn open_pending(&mut self) -> Result<Option<Option<Vec<u8>>>, RecordError> {
        let opened = match self.records.open(&mut self.pending) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.records.abort(&error).unwrap();
                self.flush();
                return Err(error);
            }
        };
        self.flush();
        let data = match opened.received {
            Received::Data(range) => Some(self.pending[range].to_vec()),
            Received::Nothing => Some(Vec::new()),
            Received::Close => None,
        };
        self.pending.drain(..opened.taken);
        Ok(Some(data))
    }

    /// Opens this record, as if the peer had sent it.
    pub(crate) fn open(&mut self, record: &[u8]) -> Result<Option<Vec<u8>>, RecordError> {
        assert!(self.pending.is_empty(), "nothing of the peer waits");
        self.pending.extend_from_slice(record);
        self.open_pending().map(|opened| opened.expect("the record is whole"))
    }

    /// Reads data of the peer until `len` bytes have been received.
    pub(crate) fn read(&mut self, len: usize) -> Vec<u8> {
        let mut data = Vec::new();
        while data.len() < len {
            data.extend(self.read_record().unwrap().expect("no end before all data"));
        }
        data
    }
}

/// Reads, and treats a reset as an end.
fn read(io: &mut TcpStream, into: &mut [u8]) -> usize {
    match io.read(into) {
        Ok(n) => n,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn seal(records: &mut RecordLayer, content_type: ContentType, content: &[u8]) -> Vec<u8> {
    let mut record = vec![0; content.len() + OVERHEAD_BYTES];
    record[HEADER_BYTES..][..content.len()].copy_from_slice(content);
    records.seal(content_type, &mut record, content.len()).unwrap();
    record
}

/// A record with this inner plaintext: the last byte takes the place of the content type.
pub(crate) fn seal_inner(records: &mut RecordLayer, inner: &[u8]) -> Vec<u8> {
    let (last, front) = inner.split_last().unwrap();
    seal(records, ContentType(*last), front)
}

/// The headers of the records in these bytes, as content type, version and length.
pub(crate) fn headers(mut bytes: &[u8]) -> Vec<(u8, u16, usize)> {
    let mut headers = Vec::new();
    while let Some(([kind, v1, v2, l1, l2], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let len = usize::from(u16::from_be_bytes([*l1, *l2]));
        headers.push((*kind, u16::from_be_bytes([*v1, *v2]), len));
        bytes = rest.get(len..).unwrap_or_default();
    }
    headers
}
