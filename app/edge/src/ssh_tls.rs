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

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
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
    TlsConnector::from(config(protocol)?).connect(name, stream).await
}

/// One configuration for each protocol, made once.
fn config(protocol: StreamProtocol) -> io::Result<Arc<ClientConfig>> {
    static CONFIGS: [OnceLock<Arc<ClientConfig>>; 3] = [const { OnceLock::new() }; 3];
    let (place, alpn): (_, &[&[u8]]) = match protocol {
        StreamProtocol::Raw => (0, &[]),
        StreamProtocol::Http1 => (1, &[b"http/1.1"]),
        StreamProtocol::Http2 => (2, &[b"h2"]),
    };
    if let Some(config) = CONFIGS[place].get() {
        return Ok(config.clone());
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(HoldsItsKey { provider }))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    // Sessions of one service are not those of another one, and all have the same name here.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(CONFIGS[place].get_or_init(|| Arc::new(config)).clone())
}

/// Takes any certificate whose key the service holds.
#[derive(Debug)]
struct HoldsItsKey {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for HoldsItsKey {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
