//! Parses client certificates of persons and machines.

use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
};

use crate::client::SERVICE_TOKEN_URN;

/// The person of an organisation's client certificate. The caller verifies the signature and the dates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateHolder {
    /// The e-mail address.
    pub email: String,
    /// The DNS name of its socket.
    pub socket: String,
    /// The login session, as the URI `urn:uuid:...`.
    pub session: String,
}

impl CertificateHolder {
    /// Parses a certificate in DER. `None` if it is not a person's certificate, or ambiguous. It must be for client
    /// authentication, and name exactly one address, one login and one socket.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (rest, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        if !rest.is_empty() || !is_for_clients(&certificate) {
            return None;
        }
        let mut organisations = certificate.subject().iter_organization();
        let socket = organisations.next()?.as_str().ok()?.to_owned();
        if organisations.next().is_some() {
            return None;
        }
        let (mut email, mut session) = (None, None);
        for name in &certificate.subject_alternative_name().ok()??.value.general_names {
            match name {
                GeneralName::RFC822Name(text) => once(&mut email, text)?,
                GeneralName::URI(text) => once(&mut session, text)?,
                GeneralName::DNSName(text) if *text == socket => {}
                _ => return None,
            }
        }
        Some(Self { email: email?, socket, session: session? })
    }
}

/// The machine of an organisation's client certificate. The caller verifies the signature and the dates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHolder {
    /// The id of its token, as text.
    pub token: String,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
}

impl ServiceHolder {
    /// Parses a certificate in DER. `None` if it is not a machine's certificate. It must be for client authentication,
    /// and name exactly one token and nothing else.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (rest, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        if !rest.is_empty() || !is_for_clients(&certificate) {
            return None;
        }
        let names = &certificate.subject_alternative_name().ok()??.value.general_names;
        let [GeneralName::URI(uri)] = names.as_slice() else { return None };
        let token = uri.strip_prefix(SERVICE_TOKEN_URN)?.to_owned();
        Some(Self { token, not_after: certificate.validity().not_after.timestamp() })
    }
}

fn once(place: &mut Option<String>, text: &str) -> Option<()> {
    place.replace(text.to_owned()).is_none().then_some(())
}

/// Whether the purpose is client authentication. It must be stated: a certificate without a purpose is valid for every
/// purpose.
fn is_for_clients(certificate: &X509Certificate<'_>) -> bool {
    certificate.iter_extensions().any(|extension| {
        let ParsedExtension::ExtendedKeyUsage(usage) = extension.parsed_extension() else { return false };
        usage.client_auth && !usage.any
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};

    use super::*;

    fn holder(
        names: &[SanType],
        organisations: &[&str],
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Option<CertificateHolder> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        for organisation in organisations {
            params.distinguished_name.push(DnType::OrganizationName, *organisation);
        }
        params.extended_key_usages = purposes.to_vec();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        CertificateHolder::from_der(certificate.der())
    }

    #[test]
    fn a_certificate_says_who_where_and_by_which_login_and_each_once() {
        let email = |text: &str| SanType::Rfc822Name(text.try_into().unwrap());
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let dns = |text: &str| SanType::DnsName(text.try_into().unwrap());
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        let (ann, login, bay) = (email("ann@example.com"), uri("urn:uuid:1"), "calm-bay-1000.localhost");
        let good = holder(&[ann.clone(), dns(bay), login.clone()], &[bay], std::slice::from_ref(&client)).unwrap();
        assert_eq!((&good.email[..], &good.socket[..], &good.session[..]), ("ann@example.com", bay, "urn:uuid:1"));
        for (names, purposes) in [
            (vec![ann.clone()], vec![client.clone()]),
            (vec![login.clone()], vec![client.clone()]),
            (vec![ann.clone(), email("bob@example.com"), login.clone()], vec![client.clone()]),
            (vec![ann.clone(), login.clone(), uri("urn:uuid:2")], vec![client.clone()]),
            (vec![ann.clone(), login.clone(), dns("other.localhost")], vec![client.clone()]),
            (vec![ann.clone(), login.clone()], vec![]),
            (vec![ann.clone(), login.clone()], vec![ExtendedKeyUsagePurpose::ServerAuth]),
            (vec![ann.clone(), login.clone()], vec![ExtendedKeyUsagePurpose::Any]),
        ] {
            assert_eq!(holder(&names, &[bay], &purposes), None, "{names:?} {purposes:?}");
        }
        assert_eq!(holder(&[ann, login], &[], &[client]), None, "no socket");
        assert_eq!(CertificateHolder::from_der(b"nonsense"), None);
    }
}
