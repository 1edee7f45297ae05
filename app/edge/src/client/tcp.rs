//! A client's TCP connection, below TLS.

use sallyport_net::{NearTcp, ReadAhead, Recorded, RelayEnd};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A client's TCP connection below TLS: its first bytes can be read again.
pub(crate) type ClientTcp = Recorded<ReadAhead<NearTcp>>;

/// A client's connection that is passed on as it is.
pub(crate) trait ClientIo: RelayEnd + Send + 'static {
    /// The connection underneath, for what concerns TCP alone.
    fn socket(&self) -> &TcpStream;
}

impl ClientIo for NearTcp {
    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

impl ClientIo for Recorded<ReadAhead<NearTcp>> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().get_ref().get_ref()
    }
}

impl<S: ClientIo> ClientIo for TlsStream<S> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0.socket()
    }
}
