//! A client's TCP connection, below TLS.

use sallyport_net::{ReadAhead, RelayEnd, ReplayStream, ShardTcpStream};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A client's TCP connection below TLS, with first bytes that can be read again.
pub(crate) type ClientTcp = ReplayStream<ReadAhead<ShardTcpStream>>;

/// A client's connection that can be passed through to an origin.
pub(crate) trait ClientIo: RelayEnd + Send + 'static {
    /// The TCP connection below.
    fn socket(&self) -> &TcpStream;
}

impl ClientIo for ShardTcpStream {
    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

impl ClientIo for ReplayStream<ReadAhead<ShardTcpStream>> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().get_ref().get_ref()
    }
}

impl<S: ClientIo> ClientIo for TlsStream<S> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0.socket()
    }
}
