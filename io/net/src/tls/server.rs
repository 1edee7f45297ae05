//! TLS configurations of the edge.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, ProtocolVersion, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs::Ticketer,
    pki_types::{CertificateDer, UnixTime},
    server::{
        self, ClientCertVerifierBuilder, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use super::{certificates::Certificates, provider};

/// Tickets after a full handshake: one for each of the client's next two connections.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// The protocol of a connection (ALPN, RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiated {
    /// The tunnel protocol, over TLS 1.3.
    Tunnel,
    /// The tunnel protocol over TLS 1.2, which it forbids: close the connection.
    TunnelTooOld,
    /// HTTP/2.
    Http2,
    /// HTTP/1.1, or a client that named no protocol.
    Http1,
}

/// The configuration of the edge for TLS 1.2 and 1.3: certificates by name, no early data, no log of keys. Sessions are
/// resumed by tickets, whose keys live in memory and change every six hours.
#[must_use]
pub fn server_config(certificates: Arc<Certificates>, tunnel_alpn: &[u8]) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![tunnel_alpn.to_vec(), b"h2".to_vec(), b"http/1.1".to_vec()];
    // Many clients list AES-256 first. On a CPU with AES instructions the server's order wins.
    config.ignore_client_order = provider::cpu_has_aes();
    config.max_early_data_size = 0;
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    // Sessions live in the clients' tickets: no state here grows with their number.
    config.session_storage = Arc::new(server::NoServerSessionStorage {});
    match Ticketer::new() {
        Ok(ticketer) => config.ticketer = ticketer,
        Err(error) => tracing::warn!(%error, "cannot create session tickets: every handshake is a full one"),
    }
    Arc::new(config)
}

/// The protocol name of HTTP/3 (ALPN, RFC 9114 section 3.1).
pub const HTTP3_ALPN: &[u8] = b"h3";

/// What a QUIC port serves besides connectors.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuicProtocols {
    /// HTTP/3 to clients.
    pub has_http3: bool,
    /// Whether clients may send early data (0-RTT). A session is then good for one connection at this process, so that
    /// recorded early data is refused elsewhere and the second time.
    pub accepts_early_data: bool,
}

/// How many sessions are kept for clients that may send early data.
const MAX_EARLY_SESSIONS: usize = 8_192;

/// Like [`server_config`], for QUIC: TLS 1.3 with the tunnel's protocol, and with these. Connectors get built-in
/// certificates only.
#[must_use]
pub fn server_config_for_quic(
    certificates: Arc<Certificates>,
    tunnel_alpn: &'static [u8],
    protocols: QuicProtocols,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(&server_config(certificates.clone(), tunnel_alpn));
    config.alpn_protocols = vec![tunnel_alpn.to_vec()];
    if protocols.has_http3 {
        config.alpn_protocols.push(HTTP3_ALPN.to_vec());
    }
    if protocols.accepts_early_data {
        // rustls takes early data only with sessions that it keeps, and each of them once.
        config.ticketer = Arc::new(NoTickets);
        config.session_storage = server::ServerSessionMemoryCache::new(MAX_EARLY_SESSIONS);
        // QUIC has a bound of its own (RFC 9001 section 4.6.1).
        config.max_early_data_size = u32::MAX;
    }
    config.cert_resolver = Arc::new(ByProtocol { certificates, tunnel_alpn });
    Arc::new(config)
}

/// Like `base`, for clients that resume with a ticket: they get one new ticket in its place.
#[must_use]
pub fn server_config_for_returning(base: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = base.clone();
    config.send_tls13_tickets = 1;
    Arc::new(config)
}

/// Like `base`, for connectors: only with this protocol (ALPN), as [`crate::UnbufferedTlsStream`] needs it, and with
/// built-in certificates.
#[must_use]
pub fn server_config_for_tunnels(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    tunnel_alpn: &[u8],
) -> Arc<ServerConfig> {
    let mut config = with_secret_extraction(base);
    config.cert_resolver = Arc::new(BuiltIn(certificates));
    config.alpn_protocols = vec![tunnel_alpn.to_vec()];
    Arc::new(config)
}

/// Like `base`, as [`crate::UnbufferedTlsStream`] needs it.
#[must_use]
pub fn unbuffered_server_config(base: &ServerConfig) -> Arc<ServerConfig> {
    Arc::new(with_secret_extraction(base))
}

fn with_secret_extraction(base: &ServerConfig) -> ServerConfig {
    let mut config = base.clone();
    config.enable_secret_extraction = true;
    config
}

/// Like `base`, for one name: always with the certificate of `name`, and with tickets that are valid for no other name.
/// `alpn` lists the protocols; without any, none is negotiated.
#[must_use]
pub fn server_config_for(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    name: String,
    alpn: &[String],
) -> Arc<ServerConfig> {
    let mut config = base.clone();
    config.ticketer = Arc::new(NamedTickets { name: name.clone(), tickets: base.ticketer.clone() });
    config.cert_resolver = Arc::new(OneName { certificates, name });
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect();
    Arc::new(config)
}

/// Whether a client with this certificate, in DER, is admitted. It is called after the certificate was verified.
pub type CertificateAdmission = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Like [`server_config_for`], for admitted clients with a certificate of this authority (in DER). There are no
/// tickets: every connection presents its certificate.
///
/// # Errors
/// The authority's certificate is malformed.
pub fn server_config_for_holders(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    name: String,
    alpn: &[String],
    authority: &[u8],
    welcome: CertificateAdmission,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let alpn = alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect();
    for_holders(base, OneName { certificates, name }, alpn, authority, |chain| chain, welcome)
}

/// Like `base`, for one name of the shared port. Clients may present a certificate of this authority (in DER). A client
/// with any other certificate, or one that is not admitted, is refused.
///
/// There are no tickets: a resumed session would carry its certificate unverified.
///
/// # Errors
/// The authority's certificate is malformed.
pub fn server_config_for_some_holders(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    name: String,
    authority: &[u8],
    welcome: CertificateAdmission,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let name = OneName { certificates, name };
    let need_not = ClientCertVerifierBuilder::allow_unauthenticated;
    for_holders(base, name, base.alpn_protocols.clone(), authority, need_not, welcome)
}

fn for_holders(
    base: &ServerConfig,
    name: OneName,
    alpn: Vec<Vec<u8>>,
    authority: &[u8],
    how: fn(ClientCertVerifierBuilder) -> ClientCertVerifierBuilder,
    welcome: CertificateAdmission,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority))?;
    let chain = how(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider::provider()))
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Holders { chain, welcome }))
        .with_cert_resolver(Arc::new(name));
    config.alpn_protocols = alpn;
    config.ignore_client_order = base.ignore_client_order;
    config.max_early_data_size = 0;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// Asks for a certificate, verifies its chain, and then asks whether the client is admitted.
struct Holders {
    chain: Arc<dyn ClientCertVerifier>,
    welcome: CertificateAdmission,
}

impl std::fmt::Debug for Holders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holders(..)")
    }
}

impl ClientCertVerifier for Holders {
    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        if (self.welcome)(end_entity) {
            Ok(verified)
        } else {
            // The client gets the alert access_denied.
            Err(rustls::CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Presents built-in certificates only.
#[derive(Debug)]
struct BuiltIn(Arc<Certificates>);

impl server::ResolvesServerCert for BuiltIn {
    fn resolve(&self, hello: server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.built_in(hello.server_name()?)
    }
}

/// No session is in a ticket: the server keeps them all.
#[derive(Debug)]
struct NoTickets;

impl server::ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Presents built-in certificates to connectors, and to others those of the requested name.
#[derive(Debug)]
struct ByProtocol {
    certificates: Arc<Certificates>,
    tunnel_alpn: &'static [u8],
}

impl server::ResolvesServerCert for ByProtocol {
    fn resolve(&self, hello: server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_connector = hello.alpn().is_some_and(|mut offered| offered.any(|name| name == self.tunnel_alpn));
        match is_connector {
            true => self.certificates.built_in(hello.server_name()?),
            false => self.certificates.resolve(hello),
        }
    }
}

#[derive(Debug)]
struct OneName {
    certificates: Arc<Certificates>,
    name: String,
}

impl server::ResolvesServerCert for OneName {
    fn resolve(&self, _hello: server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificates.certificate(&self.name)
    }
}

/// Tickets of one name. A resumed session presents no certificate, so a ticket of one name must not open another.
#[derive(Debug)]
struct NamedTickets {
    name: String,
    tickets: Arc<dyn server::ProducesTickets>,
}

/// The first byte of these tickets: no session that rustls serializes begins with it.
const NAMED_TICKET: u8 = 0xff;

impl NamedTickets {
    fn mark(&self) -> Vec<u8> {
        [&[NAMED_TICKET], self.name.as_bytes(), &[0]].concat()
    }
}

impl server::ProducesTickets for NamedTickets {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets.encrypt(&[&self.mark(), plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let plain = self.tickets.decrypt(cipher)?;
        plain.strip_prefix(&self.mark()[..]).map(<[u8]>::to_vec)
    }
}

/// The protocol of a finished handshake, from ALPN and the TLS version.
#[must_use]
pub fn negotiated(alpn: Option<&[u8]>, version: Option<ProtocolVersion>, tunnel_alpn: &[u8]) -> Negotiated {
    match (alpn, version) {
        (Some(alpn), Some(ProtocolVersion::TLSv1_3)) if alpn == tunnel_alpn => Negotiated::Tunnel,
        (Some(alpn), _) if alpn == tunnel_alpn => Negotiated::TunnelTooOld,
        (Some(b"h2"), _) => Negotiated::Http2,
        _ => Negotiated::Http1,
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::ProducesTickets as _;

    use super::*;

    #[test]
    fn a_ticket_opens_the_name_that_it_is_of_and_no_other() {
        let tickets = Ticketer::new().unwrap();
        let of = |name: &str| NamedTickets { name: name.into(), tickets: tickets.clone() };
        let (one, other) = (of("a.localhost"), of("b.localhost"));
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.decrypt(&ticket), None);
        assert_eq!(of("a").decrypt(&ticket), None, "nor one that its name begins with");
        assert_eq!(one.decrypt(&tickets.encrypt(b"session").unwrap()), None, "nor is one of the shared port's taken");
    }
}
