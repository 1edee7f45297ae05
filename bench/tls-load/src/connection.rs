//! One connection: its handshake, its request and the whole answer, as far as the network lets it without waiting.

use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    sync::Arc,
    time::Instant,
};

use mio::{Interest, Registry, Token, event::Event, net::TcpStream};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, cipher_suite, kx_group},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};

use crate::Load;

/// What every connection of a place offers, and the session that the next one resumes where sessions are resumed.
pub(crate) fn offer(resumes: bool) -> Result<Arc<ClientConfig>, Error> {
    let provider = CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let mut tls = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    tls.resumption = if resumes { Resumption::in_memory_sessions(1) } else { Resumption::disabled() };
    Ok(Arc::new(tls))
}

/// A connection under way.
pub(crate) struct Connection {
    tcp: TcpStream,
    tls: ClientConnection,
    answer: Vec<u8>,
    /// When it began.
    pub(crate) begin: Instant,
}

impl Connection {
    /// Dials, and says the first words. Its events are told with this token from then on.
    pub(crate) fn begin(
        load: &Load,
        offer: &Arc<ClientConfig>,
        registry: &Registry,
        token: Token,
    ) -> Result<Self, Failure> {
        let begin = Instant::now();
        let mut tls = ClientConnection::new(Arc::clone(offer), load.name.clone())?;
        // Kept until the handshake allows it, and sent together with our Finished then.
        tls.writer().write_all(load.request.as_bytes())?;
        let tcp = TcpStream::connect(load.address)?;
        tcp.set_nodelay(true)?;
        let mut connection = Self { tcp, tls, answer: Vec::new(), begin };
        // Before it is watched: on one machine it is mostly connected already, and no event needs to say so.
        connection.write()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let interest = if connection.tls.wants_write() { interest } else { Interest::READABLE };
        registry.register(&mut connection.tcp, token, interest)?;
        Ok(connection)
    }

    /// Goes on with what has become possible. Once the answer is whole, gives whether the session was resumed.
    pub(crate) fn go_on(&mut self, event: &Event) -> Result<Option<bool>, Failure> {
        self.write()?;
        if !event.is_readable() || !self.read(event.is_read_closed())? {
            return Ok(None);
        }
        if !self.answer.starts_with(b"HTTP/1.1 200") {
            return Err(Failure::Answer(std::mem::take(&mut self.answer)));
        }
        Ok(Some(self.tls.handshake_kind() == Some(HandshakeKind::Resumed)))
    }

    /// Reads what there is, and says what is to be said to that. Gives whether that was the end, up to which it reads
    /// because tickets come beside the answer, and not every server says `close_notify` behind it.
    fn read(&mut self, has_ended: bool) -> Result<bool, Failure> {
        let mut room = [0; 8192];
        loop {
            let length = match self.tcp.read(&mut room) {
                Ok(0) if self.tls.is_handshaking() => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(0) => return Ok(true),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if self.take(&room[..length])? {
                return Ok(true);
            }
            // Where the room was not filled nothing is left, and an event tells when more comes. It has told of the end
            // already if that is behind what was read.
            if length < room.len() && !has_ended {
                return Ok(false);
            }
        }
    }

    /// What came; gives whether the server said that it was all.
    fn take(&mut self, mut came: &[u8]) -> Result<bool, Failure> {
        while !came.is_empty() {
            self.tls.read_tls(&mut came)?;
            let state = self.tls.process_new_packets()?;
            let had = self.answer.len();
            self.answer.resize(had + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut self.answer[had..])?;
            if state.peer_has_closed() {
                return Ok(true);
            }
        }
        self.write()?;
        Ok(false)
    }

    fn write(&mut self) -> Result<(), Failure> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.tcp) {
                Ok(_) => {}
                // Not connected yet: an event tells when it is. Room for a ClientHello and a request there always is.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Why a connection counts as none.
#[derive(Debug)]
pub(crate) enum Failure {
    Io(io::Error),
    Tls(Error),
    Answer(Vec<u8>),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Tls(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Answer(answer) => {
                write!(f, "answered {:?}", String::from_utf8_lossy(&answer[..answer.len().min(60)]))
            }
        }
    }
}

/// Takes every server for the right one. The load dials an address on its own machine, where the benchmark has just
/// started the server with a certificate that nobody signed, and sends nothing that is secret. What verifying would
/// cost (ECDSA in each whole handshake) is the load's own work, on processors that it may share with the server that is
/// measured.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("the load speaks TLS 1.3 alone".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]
    }
}
