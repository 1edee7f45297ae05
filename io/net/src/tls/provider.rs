//! The cryptography provider of every TLS connection.

use std::sync::{Arc, OnceLock};

use rustls::{
    CipherSuite,
    crypto::{CryptoProvider, aws_lc_rs},
};

/// aws-lc-rs, with its cipher suites sorted by speed on this CPU.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || {
        let mut provider = aws_lc_rs::default_provider();
        if cpu_has_aes() {
            // A stable sort: other suites keep their order. AES-128 is a third cheaper per byte than AES-256, and no
            // weaker against any known attack.
            provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        } else {
            provider.cipher_suites.sort_by_key(|suite| !is_chacha(suite.suite()));
        }
        Arc::new(provider)
    };
    PROVIDER.get_or_init(make).clone()
}

/// Whether the CPU has AES instructions. Without them ChaCha20-Poly1305 is faster, and free of timing leaks.
pub(crate) fn cpu_has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

fn is_chacha(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_cipher_is_first_and_none_is_lost() {
        let suites = &provider().cipher_suites;
        assert_eq!(suites.len(), aws_lc_rs::default_provider().cipher_suites.len());
        let first = suites[0].suite();
        assert!(if cpu_has_aes() { is_aes_128(first) } else { is_chacha(first) }, "{first:?}");
    }
}
