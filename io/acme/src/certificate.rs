//! Reads certificates: the one to be replaced, and the one that a CA sends.

use std::collections::BTreeSet;

use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

use crate::AcmeError;

/// Bound on the certificates of a chain.
const MAX_CHAIN_CERTIFICATES: usize = 10;

/// A chain whose first certificate is the one that was asked for.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) pem: String,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
}

/// The first certificate of a chain in PEM, or the certificate in DER.
pub(crate) fn leaf_der(certificate: &[u8]) -> Result<CertificateDer<'static>, AcmeError> {
    let unreadable = || AcmeError::Config("the stored certificate cannot be read".to_owned());
    let is_pem = certificate.windows(11).any(|window| window == b"-----BEGIN ");
    let der = if is_pem {
        let blocks = pem::parse_many(certificate).map_err(|_| unreadable())?;
        blocks.into_iter().find(|block| block.tag() == "CERTIFICATE").ok_or_else(unreadable)?.into_contents()
    } else {
        certificate.to_vec()
    };
    X509Certificate::from_der(&der).map_err(|_| unreadable())?;
    Ok(CertificateDer::from(der))
}

/// Checks that a CA's chain begins with a certificate for exactly these names and the key of the signing request.
pub(crate) fn check_chain(chain_pem: &str, names: &[String], csr_der: &[u8]) -> Result<Chain, AcmeError> {
    let wrong = |text: &str| AcmeError::Certificate(text.to_owned());
    let blocks = pem::parse_many(chain_pem).map_err(|_| wrong("it is not PEM"))?;
    // A private key, for example, has no place in what is served and shown.
    if blocks.iter().any(|block| block.tag() != "CERTIFICATE") {
        return Err(wrong("the chain holds something other than certificates"));
    }
    if blocks.len() > MAX_CHAIN_CERTIFICATES {
        return Err(wrong("the chain is longer than ten certificates"));
    }
    for block in &blocks {
        X509Certificate::from_der(block.contents()).map_err(|_| wrong("a certificate of the chain cannot be read"))?;
    }
    let first = blocks.first().ok_or_else(|| wrong("the chain is empty"))?;
    let (_, leaf) = X509Certificate::from_der(first.contents()).map_err(|_| wrong("it cannot be read"))?;
    if leaf.public_key().raw != public_key(csr_der)? {
        return Err(wrong("it has another key"));
    }
    check_names(&leaf, names)?;
    let validity = leaf.validity();
    // What is stored is made of the certificates alone, without the text that may stand between them.
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    Ok(Chain {
        pem: blocks.iter().map(|block| pem::encode_config(block, config)).collect(),
        not_before: validity.not_before.to_datetime(),
        not_after: validity.not_after.to_datetime(),
    })
}

/// The public key of a signing request in DER.
pub(crate) fn public_key(csr_der: &[u8]) -> Result<&[u8], AcmeError> {
    let (_, csr) = X509CertificationRequest::from_der(csr_der)
        .map_err(|_| AcmeError::Config("the signing request cannot be read".to_owned()))?;
    Ok(csr.certification_request_info.subject_pki.raw)
}

fn check_names(leaf: &X509Certificate<'_>, names: &[String]) -> Result<(), AcmeError> {
    let wrong = |text: &str| AcmeError::Certificate(text.to_owned());
    let found = leaf.subject_alternative_name().map_err(|_| wrong("its names cannot be read"))?;
    let mut of_leaf = BTreeSet::new();
    for name in found.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default() {
        match name {
            GeneralName::DNSName(name) => of_leaf.insert(name.to_ascii_lowercase()),
            _ => return Err(wrong("it has a name that is not a DNS name")),
        };
    }
    let asked: BTreeSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    if let Some(missing) = asked.difference(&of_leaf).next() {
        return Err(AcmeError::Certificate(format!("it lacks the name {missing}")));
    }
    if of_leaf.len() > asked.len() {
        return Err(wrong("it has a name that nobody asked for"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn issued(names: &[&str], key: &KeyPair) -> (String, Vec<u8>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let csr = params.serialize_request(key).unwrap().der().to_vec();
        (params.self_signed(key).unwrap().pem(), csr)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_chain_begins_with_what_was_asked_for() {
        let key = KeyPair::generate().unwrap();
        let (chain, csr) = issued(&["a.test", "*.B.test"], &key);
        let found =
            check_chain(&format!("subject=a\n{chain}\n{chain}"), &names(&["*.b.test", "A.test"]), &csr).unwrap();
        assert_eq!(found.pem.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!found.pem.contains("subject"));
        assert!(found.not_before < found.not_after);
        assert!(leaf_der(found.pem.as_bytes()).is_ok());
    }

    #[test]
    fn a_chain_of_other_names_keys_or_parts_is_refused() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (chain, csr) = issued(&["a.test", "b.test"], &key);
        let asked = names(&["a.test", "b.test"]);
        let reason =
            |chain: &str, asked: &[String], csr: &[u8]| check_chain(chain, asked, csr).unwrap_err().to_string();
        let (_, other_csr) = issued(&["a.test", "b.test"], &other);
        assert!(reason(&chain, &asked, &other_csr).ends_with("it has another key"));
        assert!(reason(&chain, &names(&["a.test"]), &csr).ends_with("it has a name that nobody asked for"));
        assert!(reason(&chain, &names(&["a.test", "c.test"]), &csr).ends_with("it lacks the name c.test"));
        let with_key = format!("{chain}{}", other.serialize_pem());
        assert!(reason(&with_key, &asked, &csr).contains("something other than certificates"));
        assert!(reason(&chain.repeat(11), &asked, &csr).contains("longer than ten"));
        assert!(reason("", &asked, &csr).ends_with("the chain is empty"));
        assert!(reason(&chain.replace("MII", "MIJ"), &asked, &csr).contains("cannot be read"));
        let (address, csr) = issued(&["127.0.0.1"], &key);
        assert!(reason(&address, &asked, &csr).contains("not a DNS name"));
    }

    #[test]
    fn damaged_bytes_are_refused_without_a_panic() {
        let key = KeyPair::generate().unwrap();
        let (chain, csr) = issued(&["a.test"], &key);
        let asked = names(&["a.test"]);
        let der = pem::parse(&chain).unwrap().into_contents();
        for at in 0..der.len() {
            let mut damaged = der.clone();
            damaged[at] ^= 0xff;
            let chain = pem::encode(&pem::Pem::new("CERTIFICATE", damaged.clone()));
            // What remains readable has the name and the key that were asked for.
            if check_chain(&chain, &asked, &csr).is_ok() {
                assert!(damaged.windows(6).any(|window| window == b"a.test"));
            }
            let _ = check_chain(&chain, &asked, &damaged);
            let _ = leaf_der(&damaged);
            let _ = leaf_der(&der[..at]);
        }
    }
}
