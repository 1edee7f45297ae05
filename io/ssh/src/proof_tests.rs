//! What the arithmetic of AWS-LC says about signatures that another library made.

use getrandom::{SysRng, rand_core::UnwrapErr};
use russh::keys::{
    Algorithm, EcdsaCurve, PrivateKey, proof,
    ssh_key::{
        Signature,
        private::{EcdsaKeypair, KeypairData},
        public::{KeyData, SkEcdsaSha2NistP256},
        sha2::{Digest, Sha256},
    },
};
use signature::Signer as _;

const MESSAGE: &[u8] = b"what was said";
const CURVES: [EcdsaCurve; 3] = [EcdsaCurve::NistP256, EcdsaCurve::NistP384, EcdsaCurve::NistP521];

fn new_key(algorithm: Algorithm) -> PrivateKey {
    PrivateKey::random(&mut UnwrapErr(SysRng), algorithm).unwrap()
}

/// What must not pass for a signature of `MESSAGE` by `key`, and what must.
fn check(key: &KeyData, other: &KeyData, signature: &Signature) {
    assert!(proof::is_signed(key, MESSAGE, signature), "{key:?}");
    assert!(!proof::is_signed(key, b"what was not said", signature), "{key:?}");
    assert!(!proof::is_signed(other, MESSAGE, signature), "{key:?}");
    for at in [0, signature.as_bytes().len() / 2, signature.as_bytes().len() - 1] {
        let mut blob = signature.as_bytes().to_vec();
        blob[at] ^= 1;
        if let Ok(changed) = Signature::new(signature.algorithm(), blob) {
            assert!(!proof::is_signed(key, MESSAGE, &changed), "{key:?}: byte {at}");
        }
    }
}

#[test]
fn signatures_of_ed25519_and_of_every_curve_are_what_they_are() {
    for algorithm in CURVES.map(|curve| Algorithm::Ecdsa { curve }).into_iter().chain([Algorithm::Ed25519]) {
        let (key, other) = (new_key(algorithm.clone()), new_key(algorithm.clone()));
        // Some numbers of a signature have a byte less than others.
        for _ in 0..20 {
            let signature = key.try_sign(MESSAGE).unwrap();
            check(key.public_key().key_data(), other.public_key().key_data(), &signature);
        }
        let foreign = new_key(if algorithm == Algorithm::Ed25519 {
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }
        } else {
            Algorithm::Ed25519
        });
        let signature = foreign.try_sign(MESSAGE).unwrap();
        assert!(!proof::is_signed(key.public_key().key_data(), MESSAGE, &signature), "{algorithm}");
    }
}

#[test]
fn a_security_key_signs_what_it_was_asked_for_with_its_counter() {
    let key = new_key(Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 });
    let KeypairData::Ecdsa(EcdsaKeypair::NistP256 { public, .. }) = key.key_data() else { unreachable!() };
    let sign = |trailer: &[u8; 5]| {
        let mut signed = Sha256::digest("ssh:").to_vec();
        signed.extend_from_slice(&[1, 0, 0, 0, 7]);
        signed.extend_from_slice(&Sha256::digest(MESSAGE));
        let mut blob = key.try_sign(&signed).unwrap().as_bytes().to_vec();
        blob.extend_from_slice(trailer);
        Signature::new(Algorithm::SkEcdsaSha2NistP256, blob).unwrap()
    };
    let of = |application: &str| KeyData::SkEcdsaSha2NistP256(SkEcdsaSha2NistP256::new(*public, application));
    check(&of("ssh:"), &of("ssh:elsewhere"), &sign(&[1, 0, 0, 0, 7]));
    assert!(!proof::is_signed(&of("ssh:"), MESSAGE, &sign(&[1, 0, 0, 0, 8])));
    let plain = key.try_sign(MESSAGE).unwrap();
    assert!(!proof::is_signed(&of("ssh:"), MESSAGE, &plain), "a signature of another kind");
}

#[test]
fn rsa_signs_with_both_hashes() {
    let dir = tempfile::tempdir().unwrap();
    let new_key = |name: &str| {
        let path = dir.path().join(name);
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-N", "", "-t", "rsa", "-b", "2048", "-f"])
            .arg(&path)
            .status();
        assert!(made.unwrap().success());
        PrivateKey::read_openssh_file(&path).unwrap()
    };
    let (key, other) = (new_key("one"), new_key("other"));
    let KeypairData::Rsa(pair) = key.key_data() else { unreachable!() };
    for hash in [russh::keys::HashAlg::Sha256, russh::keys::HashAlg::Sha512] {
        let signature: Signature = (pair, Some(hash)).try_sign(MESSAGE).unwrap();
        check(key.public_key().key_data(), other.public_key().key_data(), &signature);
    }
}

#[test]
fn a_new_host_key_is_one_that_others_can_use() {
    let key = proof::new_p256().unwrap();
    let text = key.to_openssh(Default::default()).unwrap();
    let read = PrivateKey::from_openssh(&*text).unwrap();
    assert_eq!(read.public_key(), key.public_key());
    let signature = read.try_sign(MESSAGE).unwrap();
    assert!(proof::is_signed(key.public_key().key_data(), MESSAGE, &signature));
}
