//! The handshake of a connection whose records are handled here afterwards: rustls does all of it, in our buffers.

use std::{io, ops::Deref, sync::Arc};

use rustls::{
    ClientConfig, CommonState, Error, ProtocolVersion, ServerConfig,
    client::UnbufferedClientConnection,
    pki_types::ServerName,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::records::{HEADER_BYTES, Kernel, Records};

/// How much is read at a time.
const READ_BYTES: usize = 4_096;
/// How much may come of a handshake before any of it can be used: more than the longest message that rustls takes.
const MAX_HANDSHAKE_BYTES: usize = 131_072;

/// A handshake that is over.
pub(super) struct Done {
    pub(super) records: Records,
    /// What came behind the handshake.
    pub(super) sealed: Vec<u8>,
    pub(super) alpn: Option<Vec<u8>>,
}

/// What is under way.
#[derive(Default)]
struct Bytes {
    /// What came and was not given to rustls.
    ahead: Vec<u8>,
    /// How much has yet to come of the last record that it was given.
    owed: usize,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Bytes {
    /// Gives rustls one more record, or what has come of it, and no more: what stands behind the handshake is not for it to
    /// answer. False when nothing has come.
    fn give(&mut self) -> bool {
        if self.owed == 0 {
            let Some([_, _, _, len @ ..]) = self.ahead.first_chunk::<HEADER_BYTES>() else { return false };
            self.owed = HEADER_BYTES + usize::from(u16::from_be_bytes(*len));
        }
        let n = self.owed.min(self.ahead.len());
        self.incoming.extend(self.ahead.drain(..n));
        self.owed -= n;
        n > 0
    }
}

/// What is to be done next.
enum Step {
    /// Nothing: look again.
    Again,
    /// Send what is outgoing.
    Send,
    /// Read more.
    Read,
    /// Nothing any more.
    Done,
}

/// Lets rustls do one step with what came. Says also how many of the bytes are done with.
type Process<C> = fn(&mut C, &mut Bytes) -> (usize, Result<Step, Error>);

pub(super) async fn connect<S>(io: &mut S, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Done>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = UnbufferedClientConnection::new(config, name).map_err(failed)?;
    let process: Process<_> = |connection: &mut UnbufferedClientConnection, bytes| {
        one_step(connection.process_tls_records(&mut bytes.incoming), &mut bytes.outgoing)
    };
    let bytes = shake(io, &mut connection, process).await?;
    must_be_new(connection.protocol_version())?;
    let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(failed)?;
    let records = Records::new(secrets, Kernel::Client(Box::new(kernel))).map_err(io::Error::other)?;
    Ok(Done { records, sealed: bytes.ahead, alpn })
}

pub(super) async fn accept<S>(io: &mut S, config: Arc<ServerConfig>) -> io::Result<Done>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = UnbufferedServerConnection::new(config).map_err(failed)?;
    let process: Process<_> = |connection: &mut UnbufferedServerConnection, bytes| {
        one_step(connection.process_tls_records(&mut bytes.incoming), &mut bytes.outgoing)
    };
    let bytes = shake(io, &mut connection, process).await?;
    must_be_new(connection.protocol_version())?;
    let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(failed)?;
    let records = Records::new(secrets, Kernel::Server(Box::new(kernel))).map_err(io::Error::other)?;
    Ok(Done { records, sealed: bytes.ahead, alpn })
}

fn must_be_new(version: Option<ProtocolVersion>) -> io::Result<()> {
    if version == Some(ProtocolVersion::TLSv1_3) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "the other side speaks TLS 1.2, and 1.3 is needed"))
}

fn failed(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

async fn shake<S, C>(io: &mut S, connection: &mut C, process: Process<C>) -> io::Result<Bytes>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Deref<Target: Deref<Target = CommonState>>,
{
    let mut bytes = Bytes { outgoing: Vec::with_capacity(READ_BYTES), ..Bytes::default() };
    loop {
        let (discard, step) = process(connection, &mut bytes);
        bytes.incoming.drain(..discard);
        match step {
            Ok(Step::Again) => {}
            Ok(Step::Send) => send(io, &mut bytes.outgoing).await?,
            Ok(Step::Read) if bytes.give() => {}
            Ok(Step::Read) => {
                if bytes.incoming.len() + bytes.ahead.len() >= MAX_HANDSHAKE_BYTES {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a handshake that is too long"));
                }
                bytes.ahead.reserve(READ_BYTES);
                if io.read_buf(&mut bytes.ahead).await? == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"));
                }
            }
            Ok(Step::Done) => return Ok(bytes),
            Err(error) => {
                farewell(io, connection, process, bytes).await;
                return Err(failed(error));
            }
        }
    }
}

async fn send<S: AsyncWrite + Unpin>(io: &mut S, outgoing: &mut Vec<u8>) -> io::Result<()> {
    io.write_all(outgoing).await?;
    outgoing.clear();
    io.flush().await
}

/// Tells the other side why, as far as it still listens.
async fn farewell<S, C>(io: &mut S, connection: &mut C, process: Process<C>, mut bytes: Bytes)
where
    S: AsyncWrite + Unpin,
    C: Deref<Target: Deref<Target = CommonState>>,
{
    // Only for as long as there is something to say: what came is not looked at again.
    while (**connection).wants_write() && matches!(process(connection, &mut bytes), (_, Ok(Step::Again))) {}
    if !bytes.outgoing.is_empty() {
        drop(send(io, &mut bytes.outgoing).await);
    }
}

fn one_step<Data>(status: UnbufferedStatus<'_, '_, Data>, outgoing: &mut Vec<u8>) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            append(outgoing, |room| data.encode(room));
            Ok(Step::Again)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Send)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Read),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Step::Done),
        Ok(_) => Err(Error::General("the other side ended the connection in its handshake".to_owned())),
    };
    (discard, step)
}

/// Appends a record, which says itself how much room it needs.
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
