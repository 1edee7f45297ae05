//! Certificates of public authorities, given by control for their names, and the certificates of challenges.

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::RwLock;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs::sign::{any_ecdsa_type, any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{GivenCertificateError, provider};

/// The protocol of a client that verifies a name by its certificate (ALPN, RFC 8737 section 6.2).
pub const ACME_TLS_ALPN: &[u8] = b"acme-tls/1";

/// A certificate with its key and the names that it is served for.
#[derive(Clone)]
pub struct PublicCertificate {
    names: Vec<String>,
    certified: Arc<CertifiedKey>,
    not_after: i64,
}

impl PublicCertificate {
    /// A chain and its key, both in PEM. `names` may begin with `*.`.
    ///
    /// # Errors
    /// The certificate or the key is malformed, or they do not belong together.
    pub fn new(
        names: Vec<String>,
        chain_pem: &str,
        key_pem: &str,
        not_after: i64,
    ) -> Result<Self, GivenCertificateError> {
        Ok(Self { names, certified: certified(chain_pem, key_pem)?, not_after })
    }
}

impl fmt::Debug for PublicCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The chain and key of a certificate, checked to belong together.
pub(super) fn certified(chain_pem: &str, key_pem: &str) -> Result<Arc<CertifiedKey>, GivenCertificateError> {
    let wrong = |error: &dyn fmt::Display| GivenCertificateError::new(error.to_string());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|error| wrong(&error))?;
    if key_pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || key_pem.contains("\nDEK-Info:") {
        return Err(GivenCertificateError::new("the key is encrypted: decrypt it first".to_owned()));
    }
    let no_key = || GivenCertificateError::new("expected a private key in PEM".to_owned());
    let unusable = || {
        GivenCertificateError::new(
            "the key cannot be used: RSA needs 2,048 bits or more, ECDSA P-256 to P-521".to_owned(),
        )
    };
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| no_key())?;
    let certified = CertifiedKey::new(chain, any_supported_type(&key).map_err(|_| unusable())?);
    certified
        .keys_match()
        .map_err(|_| GivenCertificateError::new("the key is not the one of the first certificate".to_owned()))?;
    Ok(Arc::new(certified))
}

/// Certificates by name, each with its end in seconds since 1970.
type ByName = HashMap<String, (Arc<CertifiedKey>, i64)>;

/// The served certificates by name. Replaced as a whole.
#[derive(Default)]
pub(super) struct PublicNames {
    by_name: RwLock<Arc<ByName>>,
}

impl PublicNames {
    /// Replaces all certificates. Of two for one name, the one with the later end is served.
    pub(super) fn set(&self, all: &[PublicCertificate]) {
        let mut by_name = ByName::with_capacity(all.len());
        for one in all {
            for name in &one.names {
                let is_better = by_name.get(name).is_none_or(|(_, not_after)| *not_after < one.not_after);
                if is_better {
                    by_name.insert(name.clone(), (one.certified.clone(), one.not_after));
                }
            }
        }
        *self.by_name.write() = Arc::new(by_name);
    }

    /// The certificate for a name in lower case, with its end: its own, or a wildcard's.
    pub(super) fn get(&self, name: &str) -> Option<(Arc<CertifiedKey>, i64)> {
        let by_name = self.by_name.read().clone();
        if by_name.is_empty() {
            return None;
        }
        if let Some(found) = by_name.get(name) {
            return Some(found.clone());
        }
        let (_, parent) = name.split_once('.')?;
        by_name.get(&format!("*.{parent}")).cloned()
    }

    /// The number of names.
    pub(super) fn len(&self) -> usize {
        self.by_name.read().len()
    }

    /// The earliest end of a certificate, in seconds since 1970.
    pub(super) fn earliest_end(&self) -> Option<i64> {
        self.by_name.read().values().map(|(_, not_after)| *not_after).min()
    }
}

/// Presents one certificate, whatever the client asks for.
#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// TLS for an ACME server that verifies a name at port 443: a certificate with the digest of the key authorization.
///
//= RFC 8737 section 3
//# The client prepares for validation by constructing a self-signed certificate that MUST contain an acmeIdentifier
//# extension and a subjectAlternativeName extension
///
/// # Errors
/// The certificate cannot be made.
pub fn server_config_for_challenge(name: &str, digest: &[u8; 32]) -> Result<Arc<ServerConfig>, GivenCertificateError> {
    let wrong = |error: &dyn fmt::Display| GivenCertificateError::new(error.to_string());
    let key = KeyPair::generate().map_err(|error| wrong(&error))?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|error| wrong(&error))?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(|error| wrong(&error))?;
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing_key = any_ecdsa_type(&der).map_err(|error| wrong(&error))?;
    let certified = Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signing_key));
    let mut config = ServerConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(OneCertificate(certified)));
    config.alpn_protocols = vec![ACME_TLS_ALPN.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(names: &[&str], not_after: i64) -> PublicCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names.clone()).unwrap().self_signed(&key).unwrap();
        PublicCertificate::new(names, &certificate.pem(), &key.serialize_pem(), not_after).unwrap()
    }

    #[test]
    fn a_name_gets_its_own_certificate_or_the_wildcard_and_never_another() {
        let served = PublicNames::default();
        assert!(served.get("app.example.com").is_none());
        let (app, wildcard, late) =
            (public(&["app.example.com"], 10), public(&["*.example.com"], 20), public(&["app.example.com"], 30));
        served.set(&[late.clone(), app, wildcard.clone()]);
        let is = |name: &str, of: &PublicCertificate| Arc::ptr_eq(&served.get(name).unwrap().0, &of.certified);
        assert!(is("app.example.com", &late), "the one that ends later");
        assert!(is("b.example.com", &wildcard));
        for other in ["example.com", "a.b.example.com", "example.org", "com", ""] {
            assert!(served.get(other).is_none(), "{other}");
        }
        assert_eq!((served.len(), served.earliest_end()), (2, Some(20)));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let certificate = CertificateParams::new(vec!["a.example".into()]).unwrap().self_signed(&key).unwrap();
        assert!(PublicCertificate::new(vec![], &certificate.pem(), &other.serialize_pem(), 0).is_err());
        assert!(PublicCertificate::new(vec![], "", &key.serialize_pem(), 0).is_err());
        assert!(server_config_for_challenge("app.example.com", &[7; 32]).is_ok());
    }
}
