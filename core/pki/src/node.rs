//! Certificates of an installation's machines, for mutual authentication, signed by an authority that no client trusts.

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use time::{Duration, OffsetDateTime};
use x509_parser::{extensions::GeneralName, prelude::FromDer as _};

use crate::{
    Authority, BACKDATE, ClientRequest, IssueError, Issued, MAX_COMMON_NAME_CHARS, Renewal,
    authority::{is_dns_name, serial_number, whole_second},
    renewal,
};

/// The domain of the names in these certificates; it is not in the DNS (RFC 9476 reserves `alt` for that).
pub const NODE_DOMAIN: &str = "nodes.sallyport.alt";
/// The name of controls.
pub const CONTROL_NODE: &str = "control.nodes.sallyport.alt";
/// Default validity of an edge's certificate.
pub const NODE_LIFETIME: Duration = Duration::days(14);
/// Prefix of an edge's URI, followed by its id.
const EDGE_URI: &str = "sallyport:edge:";

/// The name of the edge with this id.
#[must_use]
pub fn edge_node(id: &str) -> String {
    format!("{id}.edge.{NODE_DOMAIN}")
}

impl Authority {
    /// Signs the certificate of the edge with this id and name, as client and server.
    ///
    /// # Errors
    /// The id is invalid, the root has expired, or signing fails.
    pub fn issue_edge(
        &self,
        request: &ClientRequest,
        (id, name): (&str, &str),
        now: OffsetDateTime,
        serial: [u8; 16],
        lifetime: Duration,
    ) -> Result<Issued, IssueError> {
        let host = edge_node(id);
        let refuse = || IssueError::Name(id.chars().take(80).collect());
        if id.contains('.') || !is_dns_name(&host) {
            return Err(refuse());
        }
        if self.info.has_ended(now) {
            return Err(IssueError::RootEnded(self.info.not_after.date()));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let common_name: String = name.chars().take(MAX_COMMON_NAME_CHARS).collect();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = vec![
            SanType::DnsName(host.as_str().try_into().map_err(|_| refuse())?),
            SanType::URI(format!("{EDGE_URI}{id}").as_str().try_into().map_err(|_| refuse())?),
        ];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial_number(serial));
        params.not_before = whole_second(now - BACKDATE);
        params.not_after = whole_second(now + lifetime).min(self.info.not_after);
        let certificate = params.signed_by(request.public_key(), &self.issuer).map_err(IssueError::Sign)?;
        let renew_at = match renewal(now, params.not_after, now) {
            Renewal::NotYet { at } => at,
            Renewal::Due | Renewal::Invalid => now,
        };
        Ok(Issued {
            chain: vec![certificate.der().to_vec(), self.info.der.clone()],
            not_before: params.not_before,
            not_after: params.not_after,
            renew_at,
        })
    }
}

/// The id of the edge in a certificate of [`Authority::issue_edge`]; `None` for all others. The handshake verifies the
/// certificate.
#[must_use]
pub fn edge_of_certificate(der: &[u8]) -> Option<String> {
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(der).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(EDGE_URI).map(str::to_owned),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyPair, PKCS_ECDSA_P256_SHA256, certificate_request};

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 12:00 UTC);
    const ID: &str = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";

    #[test]
    fn an_edge_is_known_by_its_certificate_and_by_no_other() {
        let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let authority = Authority::create("nodes", NODE_DOMAIN, key(), NOW, [1; 16]).unwrap();
        let request = ClientRequest::from_pem(&certificate_request(&key()).unwrap()).unwrap();
        let issued = authority.issue_edge(&request, (ID, "eu-1"), NOW, [2; 16], NODE_LIFETIME).unwrap();
        assert_eq!(edge_of_certificate(&issued.chain[0]).as_deref(), Some(ID));
        assert_eq!(issued.not_after, NOW + NODE_LIFETIME);
        assert!(issued.renew_at > NOW + NODE_LIFETIME / 2 && issued.renew_at < issued.not_after);
        assert_eq!(edge_of_certificate(&issued.chain[1]), None, "the root is of no edge");
        for bad in ["", "a.b", "a b", "*"] {
            assert!(authority.issue_edge(&request, (bad, "x"), NOW, [3; 16], NODE_LIFETIME).is_err(), "{bad}");
        }
    }
}
