//! What the fuzzer does with its bytes: they are a chain of certificates, as a person imports it. It also lives in
//! `fuzz/`.

use sallyport_pki::{CertificateSummary, checked_chain};

/// An accepted chain has certificates alone, and reads as itself.
pub(crate) fn given_chain(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(chain) = checked_chain(text) else { return };
    assert_eq!(checked_chain(&chain).unwrap(), chain);
    assert!(!chain.contains("PRIVATE KEY"), "{chain}");
    let count = chain.matches("-----BEGIN ").count();
    assert!((1..=10).contains(&count), "{count} certificates");
    assert_eq!(chain.matches("-----BEGIN CERTIFICATE-----").count(), count);
    assert!(CertificateSummary::from_pem(&chain).is_some());
}
