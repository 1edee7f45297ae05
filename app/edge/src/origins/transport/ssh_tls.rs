//! TLS to a service behind a stock ssh client, for sockets of type `https`.
//!
//! Only the client's `-R` option has the service's name, and the server never sees that option. So the certificate's
//! name and authority are not checked; the handshake proves only that the service holds the key. Until the client, ssh
//! protects the bytes. Connectors know the name and check it.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use sallyport_net::{client_config_by, custom_server_verifier};
use sallyport_ssh::SshStream;
use sallyport_wire::StreamProtocol;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The server name in the ClientHello, as in `ssh -R 443:localhost:8443`.
const SERVER_NAME: &str = "localhost";

/// Starts TLS on the stream, and offers this protocol by ALPN.
///
/// # Errors
/// The service speaks no TLS, or not the protocol.
pub(crate) async fn start(stream: SshStream, protocol: StreamProtocol) -> io::Result<TlsStream<SshStream>> {
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    TlsConnector::from(config(protocol)).connect(name, stream).await
}

/// One configuration for each protocol, made once. Accepts any certificate if the service holds its key.
fn config(protocol: StreamProtocol) -> Arc<ClientConfig> {
    static CONFIGS: [OnceLock<Arc<ClientConfig>>; 3] = [const { OnceLock::new() }; 3];
    let (place, alpn): (_, &[&[u8]]) = match protocol {
        StreamProtocol::Raw => (0, &[]),
        StreamProtocol::Http1 => (1, &[b"http/1.1"]),
        StreamProtocol::Http2 => (2, &[b"h2"]),
    };
    let make = || {
        let mut config = client_config_by(custom_server_verifier(|_| Ok(())), alpn);
        // All services have the same name here, so their sessions must not be mixed up.
        config.resumption = Resumption::disabled();
        Arc::new(config)
    };
    CONFIGS[place].get_or_init(make).clone()
}
