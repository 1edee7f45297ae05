//! TLS as the edge speaks it.

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

/// How many tickets a client gets with a full handshake: one for each of two connections that it opens next.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// What a client and the edge agreed to speak (ALPN, RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiated {
    /// The tunnel protocol, over TLS 1.3.
    Tunnel,
    /// The tunnel protocol over TLS 1.2, which it does not allow: close the connection.
    TunnelTooOld,
    /// HTTP/2.
    Http2,
    /// HTTP/1.1, or a client that did not say.
    Http1,
}

/// The edge's side of TLS 1.2 and 1.3: certificates by name, resumption by tickets (whose keys live in memory and
/// change every six hours), no early data, and no log of keys.
#[must_use]
pub fn server_config(certificates: Arc<Certificates>, tunnel_alpn: &[u8]) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![tunnel_alpn.to_vec(), b"h2".to_vec(), b"http/1.1".to_vec()];
    // Many clients put AES-256 first out of habit. Where the CPU has AES ours goes first.
    config.ignore_client_order = provider::cpu_has_aes();
    config.max_early_data_size = 0;
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    // Sessions live in the clients' tickets: nothing of ours grows with their number.
    config.session_storage = Arc::new(server::NoServerSessionStorage {});
    match Ticketer::new() {
        Ok(ticketer) => config.ticketer = ticketer,
        Err(error) => tracing::warn!(%error, "no tickets: every handshake is a full one"),
    }
    Arc::new(config)
}

/// TLS for clients that bring a ticket: as `base`, with one new ticket in the place of theirs.
#[must_use]
pub fn server_config_for_returning(base: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = base.clone();
    config.send_tls13_tickets = 1;
    Arc::new(config)
}

/// TLS for connectors alone: as `base`, with this protocol (ALPN) and no other, and as [`crate::LeanTls`] wants it.
#[must_use]
pub fn server_config_for_tunnels(base: &ServerConfig, tunnel_alpn: &[u8]) -> Arc<ServerConfig> {
    let mut config = lean(base);
    config.alpn_protocols = vec![tunnel_alpn.to_vec()];
    Arc::new(config)
}

/// TLS as `base`, as [`crate::LeanTls`] wants it.
#[must_use]
pub fn lean_server_config(base: &ServerConfig) -> Arc<ServerConfig> {
    Arc::new(lean(base))
}

fn lean(base: &ServerConfig) -> ServerConfig {
    let mut config = base.clone();
    config.enable_secret_extraction = true;
    config
}

/// TLS for one name: as `base`, but with the certificate for `name` whatever the client asks for, with tickets that open
/// nothing else, and with these protocols (ALPN); without any, none is negotiated.
#[must_use]
pub fn server_config_for(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    name: String,
    alpn: &[String],
) -> Arc<ServerConfig> {
    let mut config = base.clone();
    config.ticketer = Arc::new(TicketsOf { name: name.clone(), tickets: base.ticketer.clone() });
    config.cert_resolver = Arc::new(OneName { certificates, name });
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect();
    Arc::new(config)
}

/// Whether who shows this certificate, in DER, may come in; asked when it is known that the authority has signed it and
/// that it is good now.
pub type Welcome = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// TLS for one name as by [`server_config_for`], for clients with a certificate of this authority (its own certificate, in
/// DER) that are welcome. There are no tickets: every connection shows its certificate, and is looked at anew.
///
/// # Errors
/// When the authority's certificate is none.
pub fn server_config_for_holders(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    name: String,
    alpn: &[String],
    authority: &[u8],
    welcome: Welcome,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let alpn = alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect();
    for_holders(base, OneName { certificates, name }, alpn, authority, |chain| chain, welcome)
}

/// TLS for one name of the port that all share, as `base`, for clients that may show a certificate of this authority (its
/// own certificate, in DER) and need not. Who shows another one, or is not welcome with it, does not come in. There are no
/// tickets: a session that is resumed would bring its certificate along unseen.
///
/// # Errors
/// When the authority's certificate is none.
pub fn server_config_for_some_holders(
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    name: String,
    authority: &[u8],
    welcome: Welcome,
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
    welcome: Welcome,
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

/// Asks for a certificate, and looks at its chain first and then at who shows it.
struct Holders {
    chain: Arc<dyn ClientCertVerifier>,
    welcome: Welcome,
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

/// Tickets of one name. A resumed session shows no certificate, so without this a ticket of one name would open another
/// one's port, for a client that says there which name it wants.
#[derive(Debug)]
struct TicketsOf {
    name: String,
    tickets: Arc<dyn server::ProducesTickets>,
}

/// No session that rustls writes into a ticket begins with this byte.
const NAMED_TICKET: u8 = 0xff;

impl TicketsOf {
    fn mark(&self) -> Vec<u8> {
        [&[NAMED_TICKET], self.name.as_bytes(), &[0]].concat()
    }
}

impl server::ProducesTickets for TicketsOf {
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

/// What was agreed on in a finished handshake: this protocol (ALPN), over this version of TLS.
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
        let of = |name: &str| TicketsOf { name: name.into(), tickets: tickets.clone() };
        let (one, other) = (of("a.localhost"), of("b.localhost"));
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.decrypt(&ticket), None);
        assert_eq!(of("a").decrypt(&ticket), None, "nor one that its name begins with");
        assert_eq!(one.decrypt(&tickets.encrypt(b"session").unwrap()), None, "nor is one of the shared port's taken");
    }
}
