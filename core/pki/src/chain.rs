//! The check of a chain of certificates that a person gives.

use x509_parser::{
    certificate::X509Certificate, error::X509Error, extensions::ParsedExtension, parse_x509_certificate,
};

/// The most certificates of a chain. Authorities send two or three.
const MAX_CHAIN: usize = 10;
const CERTIFICATE: &str = "CERTIFICATE";

/// Reason why a chain in PEM cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The text has no certificate.
    #[error("expected a certificate in PEM, followed by those of its authorities")]
    None,
    /// The text has a private key.
    #[error("the chain has a private key: give only the certificates, and the key by itself")]
    PrivateKey,
    /// There are too many certificates.
    #[error("a chain has at most {MAX_CHAIN} certificates")]
    TooMany,
    /// A certificate is malformed. Counted from 1.
    #[error("certificate {0} of the chain cannot be read")]
    Malformed(usize),
    /// A certificate did not sign the one before it. Counted from 1.
    #[error(
        "certificate {0} of the chain did not sign the one before it: begin with the certificate of the names, then \
         each authority that signed the one before"
    )]
    Foreign(usize),
}

/// The certificates of a chain in PEM, without anything else in the text. Each one is signed by the next.
///
/// # Errors
/// The text is no such chain.
pub fn checked_chain(text: &str) -> Result<String, ChainError> {
    let blocks = pem::parse_many(text).map_err(|_| ChainError::None)?;
    if blocks.iter().any(|block| block.tag().ends_with("PRIVATE KEY")) {
        return Err(ChainError::PrivateKey);
    }
    let blocks: Vec<_> = blocks.into_iter().filter(|block| block.tag() == CERTIFICATE).collect();
    match blocks.len() {
        0 => return Err(ChainError::None),
        1..=MAX_CHAIN => {}
        _ => return Err(ChainError::TooMany),
    }
    let mut parsed = Vec::with_capacity(blocks.len());
    for (number, block) in (1..).zip(&blocks) {
        let (rest, certificate) =
            parse_x509_certificate(block.contents()).map_err(|_| ChainError::Malformed(number))?;
        if !rest.is_empty() {
            return Err(ChainError::Malformed(number));
        }
        parsed.push(certificate);
    }
    for (number, pair) in (2..).zip(parsed.windows(2)) {
        if !is_signed_by(&pair[0], &pair[1]) {
            return Err(ChainError::Foreign(number));
        }
    }
    Ok(pem::encode_many(&blocks))
}

/// Whether the authority has signed the certificate, as far as can be told: signatures of rare kinds cannot be verified
/// here. The names of both keys in the certificates decide then (RFC 5280 section 4.2.1.1).
fn is_signed_by(certificate: &X509Certificate<'_>, authority: &X509Certificate<'_>) -> bool {
    if certificate.issuer() != authority.subject() {
        return false;
    }
    match certificate.verify_signature(Some(authority.public_key())) {
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => true,
        Err(_) => {
            let named = certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
                _ => None,
            });
            let own = authority.iter_extensions().find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id),
                _ => None,
            });
            named.zip(own).is_some_and(|(named, own)| named.0 == own.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    struct Signed {
        leaf: String,
        root: String,
        key: String,
    }

    fn signed(common_name: &str) -> Signed {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["app.example.org".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(root, root_key)).unwrap().pem();
        Signed { leaf, root: root_pem, key: key.serialize_pem() }
    }

    #[test]
    fn only_the_certificates_of_a_chain_are_kept() {
        let one = signed("one");
        let chain = checked_chain(&format!("a comment\n{}\nmore\n{}", one.leaf, one.root)).unwrap();
        assert_eq!((chain.matches("BEGIN CERTIFICATE").count(), chain.contains("comment")), (2, false));
        assert_eq!(checked_chain(&one.leaf).unwrap().matches("BEGIN").count(), 1);
        assert_eq!(checked_chain(&format!("{}{}", one.leaf, one.key)), Err(ChainError::PrivateKey));
    }

    #[test]
    fn what_is_no_chain_is_refused_with_a_sentence() {
        // The other authority has the same name.
        let (one, other) = (signed("one"), signed("one"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, error) in [
            (String::new(), ChainError::None),
            ("no PEM".to_owned(), ChainError::None),
            (format!("{}{}", one.leaf, other.root), ChainError::Foreign(2)),
            (format!("{}{}", one.root, one.leaf), ChainError::Foreign(2)),
            (format!("{}{broken}", one.leaf), ChainError::Malformed(2)),
            (one.leaf.repeat(11), ChainError::TooMany),
            (one.leaf.repeat(2), ChainError::Foreign(2)),
        ] {
            assert_eq!(checked_chain(&text), Err(error));
        }
    }
}
