//! TLS to a service behind a stock ssh client, for sockets of type `https`.
//!
//! Which name the service's certificate should have is in the client's `-R` option, which the server never sees; so the
//! certificate proves nothing here and is not checked, only that the service holds its key. What is sent is under the
//! protection of ssh up to the client, and from there under that of this TLS, which is more than the plain text that a
//! forward is otherwise. Connectors know the name and do check.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use sallyport_net::{client_config_by, custom_server_verifier};
use sallyport_ssh::SshStream;
use sallyport_wire::StreamProtocol;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The name that services are greeted with: what `ssh -R 443:localhost:8443` calls them.
const SERVER_NAME: &str = "localhost";

/// Begins TLS on the stream, offering what is to be spoken on it.
///
/// # Errors
/// The service speaks no TLS, or not the protocol.
pub(crate) async fn start(stream: SshStream, protocol: StreamProtocol) -> io::Result<TlsStream<SshStream>> {
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    TlsConnector::from(config(protocol)).connect(name, stream).await
}

/// One configuration for each protocol, made once. Any certificate whose key the service holds is taken.
fn config(protocol: StreamProtocol) -> Arc<ClientConfig> {
    static CONFIGS: [OnceLock<Arc<ClientConfig>>; 3] = [const { OnceLock::new() }; 3];
    let (place, alpn): (_, &[&[u8]]) = match protocol {
        StreamProtocol::Raw => (0, &[]),
        StreamProtocol::Http1 => (1, &[b"http/1.1"]),
        StreamProtocol::Http2 => (2, &[b"h2"]),
    };
    let make = || {
        let mut config = client_config_by(custom_server_verifier(|_| Ok(())), alpn);
        // Sessions of one service are not those of another one, and all have the same name here.
        config.resumption = Resumption::disabled();
        Arc::new(config)
    };
    CONFIGS[place].get_or_init(make).clone()
}
