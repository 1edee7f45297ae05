//! One connection: its handshake where it has TLS, its request and the whole answer, as far as the network lets it
//! without waiting.

use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    sync::Arc,
    time::Instant,
};

use mio::{Interest, Registry, Token, event::Event, net::TcpStream};
use rustls::{ClientConfig, ClientConnection, Error, HandshakeKind};

use crate::Load;

/// A connection under way.
pub(crate) struct Connection {
    tcp: TcpStream,
    speech: Speech,
    answer: Vec<u8>,
    /// When it began.
    pub(crate) begin: Instant,
    /// When the first of its answer was there.
    pub(crate) answered: Option<Instant>,
}

/// How its words go.
enum Speech {
    /// As they are; what has not been said yet.
    Plain(Vec<u8>),
    Tls(Box<ClientConnection>),
}

impl Connection {
    /// Dials, and says the first words: with TLS if there is an offer for it. Its events are told with this token from
    /// then on.
    pub(crate) fn begin(
        load: &Load,
        offer: Option<&Arc<ClientConfig>>,
        registry: &Registry,
        token: Token,
    ) -> Result<Self, Failure> {
        let begin = Instant::now();
        let speech = match offer {
            None => Speech::Plain(load.request.clone().into_bytes()),
            Some(offer) => {
                let mut tls = ClientConnection::new(Arc::clone(offer), load.name.clone())?;
                // Kept until the handshake allows it, and sent together with our Finished then.
                tls.writer().write_all(load.request.as_bytes())?;
                Speech::Tls(Box::new(tls))
            }
        };
        let tcp = TcpStream::connect(load.address)?;
        tcp.set_nodelay(true)?;
        let mut connection = Self { tcp, speech, answer: Vec::new(), begin, answered: None };
        // Before it is watched: on one machine it is mostly connected already, and no event needs to say so.
        connection.write()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let interest = if connection.speech.wants_write() { interest } else { Interest::READABLE };
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
        Ok(Some(self.speech.has_resumed()))
    }

    /// Reads what there is, and says what is to be said to that. Gives whether that was the end, up to which it reads
    /// because tickets come beside the answer, and not every server says `close_notify` behind it.
    fn read(&mut self, has_ended: bool) -> Result<bool, Failure> {
        let mut room = [0; 8192];
        loop {
            let length = match self.tcp.read(&mut room) {
                Ok(0) if self.speech.is_handshaking() => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(0) => return Ok(true),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let is_end = self.speech.take(&room[..length], &mut self.answer)?;
            if self.answered.is_none() && !self.answer.is_empty() {
                self.answered = Some(Instant::now());
            }
            if is_end {
                return Ok(true);
            }
            self.write()?;
            // Where the room was not filled nothing is left, and an event tells when more comes. It has told of the end
            // already if that is behind what was read.
            if length < room.len() && !has_ended {
                return Ok(false);
            }
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        while self.speech.wants_write() {
            match self.speech.write(&mut self.tcp) {
                Ok(()) => {}
                // Not connected yet: an event tells when it is. Room for a ClientHello and a request there always is.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Speech {
    fn wants_write(&self) -> bool {
        match self {
            Self::Plain(unsaid) => !unsaid.is_empty(),
            Self::Tls(tls) => tls.wants_write(),
        }
    }

    fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_handshaking())
    }

    fn has_resumed(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    fn write(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Plain(unsaid) => tcp.write(unsaid).map(|length| drop(unsaid.drain(..length))),
            Self::Tls(tls) => tls.write_tls(tcp).map(|_| ()),
        }
    }

    /// What came, as far as it is of the answer; gives whether the server said that it was all.
    fn take(&mut self, mut came: &[u8], answer: &mut Vec<u8>) -> Result<bool, Failure> {
        let Self::Tls(tls) = self else {
            answer.extend_from_slice(came);
            return Ok(false);
        };
        while !came.is_empty() {
            tls.read_tls(&mut came)?;
            let state = tls.process_new_packets()?;
            let had = answer.len();
            answer.resize(had + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut answer[had..])?;
            if state.peer_has_closed() {
                return Ok(true);
            }
        }
        Ok(false)
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
