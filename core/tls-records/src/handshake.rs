//! The handshake of a connection: rustls on buffers of this crate.

use std::sync::Arc;

use rustls::{
    AlertDescription, ClientConfig, Error, ProtocolVersion, ServerConfig,
    client::UnbufferedClientConnection,
    pki_types::ServerName,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus},
};

use crate::{
    ContentType, HandshakeError, MAX_PLAIN_BYTES, RecordLayer,
    key::KeySchedule,
    record::{HEADER_BYTES, body_bytes},
};

/// Least free room of [`Handshake::read_buffer`], in bytes.
const READ_BYTES: usize = 4_096;
/// Bound on handshake bytes that wait for the rest of a message: more than the longest message that rustls accepts.
const MAX_HANDSHAKE_BYTES: usize = 131_072;

/// A connection after its handshake.
pub struct Established {
    /// The record layer of the connection.
    pub records: RecordLayer,
    /// Bytes after the handshake, still encrypted.
    pub received: Vec<u8>,
    /// The protocol that both sides agreed on (ALPN).
    pub alpn: Option<Vec<u8>>,
}

/// The next action of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send [`Handshake::outgoing`], and clear it.
    Send,
    /// Read from the peer into [`Handshake::read_buffer`].
    Read,
    /// Nothing: call [`Handshake::finish`].
    Done,
}

/// A running handshake. Call [`Handshake::advance`] and follow the [`Step`], until it is [`Step::Done`].
pub struct Handshake {
    connection: Connection,
    /// Received bytes that rustls did not get yet.
    received: Vec<u8>,
    /// Missing bytes of the last record that rustls got.
    missing: usize,
    /// Bytes that rustls got and has not consumed.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    has_received: bool,
    /// Whether this side has answered the peer, and may have encrypted its output.
    has_answered: bool,
}

enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The result of a step of rustls.
enum Progress {
    /// rustls has more work with the bytes.
    More,
    Wait(Step),
}

impl Handshake {
    /// Starts as a client of the server `name`. The configuration must have `enable_secret_extraction`.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, HandshakeError> {
        Ok(Self::new(Connection::Client(Box::new(UnbufferedClientConnection::new(config, name)?))))
    }

    /// Starts as a server. The configuration must have `enable_secret_extraction`.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, HandshakeError> {
        Ok(Self::new(Connection::Server(Box::new(UnbufferedServerConnection::new(config)?))))
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            received: Vec::new(),
            missing: 0,
            incoming: Vec::new(),
            outgoing: Vec::with_capacity(READ_BYTES),
            has_received: false,
            has_answered: false,
        }
    }

    /// Continues with received bytes, and returns the next step.
    ///
    /// # Errors
    /// The peer violates TLS or the configuration. [`Self::outgoing`] then has the alert for the peer.
    pub fn advance(&mut self) -> Result<Step, HandshakeError> {
        loop {
            match self.process() {
                Ok(Progress::More) => {}
                Ok(Progress::Wait(Step::Read)) if self.pass_record_on()? => {}
                Ok(Progress::Wait(step)) => {
                    self.has_answered |= step == Step::Send && self.has_received;
                    return Ok(step);
                }
                Err(error) => {
                    self.encode_alert();
                    return Err(error.into());
                }
            }
        }
    }

    /// The buffer for received bytes, after [`Step::Read`].
    ///
    /// # Errors
    /// [`HandshakeError::TooLong`] when the peer has sent more than any handshake needs.
    pub fn read_buffer(&mut self) -> Result<&mut Vec<u8>, HandshakeError> {
        if self.incoming.len() + self.received.len() >= MAX_HANDSHAKE_BYTES {
            return Err(HandshakeError::TooLong(MAX_HANDSHAKE_BYTES));
        }
        self.received.reserve(READ_BYTES);
        Ok(&mut self.received)
    }

    /// Bytes for the peer. The caller clears what it has sent.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    /// Ends a handshake that is [`Step::Done`].
    ///
    /// # Errors
    /// [`HandshakeError::Version`] if the handshake agreed on TLS 1.2; an error of rustls if the handshake is not over,
    /// or the configuration does not export the secrets.
    pub fn finish(self) -> Result<Established, HandshakeError> {
        let (alpn, secrets, keys) = match self.connection {
            Connection::Client(connection) => {
                require_tls13(connection.protocol_version())?;
                let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (alpn, secrets, KeySchedule::Client(Box::new(kernel)))
            }
            Connection::Server(connection) => {
                require_tls13(connection.protocol_version())?;
                let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (alpn, secrets, KeySchedule::Server(Box::new(kernel)))
            }
        };
        Ok(Established { records: RecordLayer::new(secrets, keys)?, received: self.received, alpn })
    }

    /// Passes exactly one record to rustls, because bytes after the handshake belong to the record layer. False without
    /// a record.
    fn pass_record_on(&mut self) -> Result<bool, HandshakeError> {
        if self.missing == 0 {
            let Some(header) = self.received.first_chunk::<HEADER_BYTES>().copied() else { return Ok(false) };
            self.check_length(header)?;
            self.missing = HEADER_BYTES + body_bytes(header);
        }
        self.has_received = true;
        let n = self.missing.min(self.received.len());
        self.incoming.extend(self.received.drain(..n));
        self.missing -= n;
        Ok(n > 0)
    }

    //= RFC 8446 section 5.1: "An endpoint that receives a record that exceeds this length MUST terminate the connection
    //= with a "record_overflow" alert."
    fn check_length(&mut self, header: [u8; HEADER_BYTES]) -> Result<(), HandshakeError> {
        let is_plain = ContentType(header[0]) == ContentType::HANDSHAKE && header[1] == 3;
        // Later records are rejected by rustls, which may have keys for an alert.
        if !is_plain || self.has_answered || body_bytes(header) <= MAX_PLAIN_BYTES {
            return Ok(());
        }
        const FATAL: u8 = 2;
        let alert = [ContentType::ALERT.0, 3, 3, 0, 2, FATAL, u8::from(AlertDescription::RecordOverflow)];
        self.outgoing.extend_from_slice(&alert);
        Err(Error::PeerSentOversizedRecord.into())
    }

    fn process(&mut self) -> Result<Progress, Error> {
        let (used, progress) = match &mut self.connection {
            Connection::Client(connection) => {
                progress(connection.process_tls_records(&mut self.incoming), &mut self.outgoing)
            }
            Connection::Server(connection) => {
                progress(connection.process_tls_records(&mut self.incoming), &mut self.outgoing)
            }
        };
        self.incoming.drain(..used);
        progress
    }

    /// Lets rustls encode the alert with the reason, and ignores further input.
    fn encode_alert(&mut self) {
        let wants_write = |connection: &Connection| match connection {
            Connection::Client(connection) => connection.wants_write(),
            Connection::Server(connection) => connection.wants_write(),
        };
        while wants_write(&self.connection) && matches!(self.process(), Ok(Progress::More)) {}
    }
}

fn require_tls13(version: Option<ProtocolVersion>) -> Result<(), HandshakeError> {
    if version == Some(ProtocolVersion::TLSv1_3) { Ok(()) } else { Err(HandshakeError::Version) }
}

fn progress<Data>(status: UnbufferedStatus<'_, '_, Data>, outgoing: &mut Vec<u8>) -> (usize, Result<Progress, Error>) {
    let UnbufferedStatus { discard, state } = status;
    let progress = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            append(outgoing, |room| data.encode(room));
            Ok(Progress::More)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Progress::Wait(Step::Send))
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Progress::Wait(Step::Read)),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Progress::Wait(Step::Done)),
        Ok(_) => Err(Error::General("the peer ended the connection during the handshake".to_owned())),
    };
    (discard, progress)
}

/// Appends a record, whose encoder reports the needed room first.
fn append(outgoing: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let start = outgoing.len();
    let written = match encode(&mut []) {
        Ok(written) => written,
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            outgoing.resize(start + required_size, 0);
            encode(&mut outgoing[start..]).unwrap_or(0)
        }
        Err(EncodeError::AlreadyEncoded) => 0,
    };
    outgoing.truncate(start + written);
}
