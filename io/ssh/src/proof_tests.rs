//! Tests of signature verification by AWS-LC against signatures of another library.

use std::path::{Path, PathBuf};

use aws_lc_rs::{
    agreement::{ECDH_P256, ECDH_P384, ECDH_P521, EphemeralPrivateKey},
    encoding::{AsBigEndian, AsDer, EcPublicKeyCompressedBin, PublicKeyX509Der},
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use getrandom::{SysRng, rand_core::UnwrapErr};
use sallyport_ssh_proto::{
    proof,
    ssh_key::{
        Algorithm, EcdsaCurve, HashAlg, PrivateKey, PublicKey, Signature,
        private::{EcdsaKeypair, KeypairData},
        public::{KeyData, SkEcdsaSha2NistP256, SkEd25519},
        sha2::{Digest, Sha256},
    },
};
use signature::Signer as _;

const MESSAGE: &[u8] = b"what was signed";
const CURVES: [EcdsaCurve; 3] = [EcdsaCurve::NistP256, EcdsaCurve::NistP384, EcdsaCurve::NistP521];

fn new_key(algorithm: Algorithm) -> PrivateKey {
    PrivateKey::random(&mut UnwrapErr(SysRng), algorithm).unwrap()
}

/// Checks that `signature` verifies for `MESSAGE` and `key`, and that altered ones do not.
fn check(key: &KeyData, other: &KeyData, signature: &Signature) {
    assert!(proof::is_signed(key, MESSAGE, signature), "{key:?}");
    assert!(!proof::is_signed(key, b"what was not signed", signature), "{key:?}");
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
        // The encoding of a signature may be shorter by a byte.
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

/// The data that a security key signs for `MESSAGE` and the application `ssh:` (PROTOCOL.u2f of OpenSSH).
fn asked_of_a_security_key(trailer: [u8; 5]) -> Vec<u8> {
    [&Sha256::digest("ssh:")[..], &trailer, &Sha256::digest(MESSAGE)].concat()
}

#[test]
fn an_untouched_security_key_is_refused() {
    let curve = new_key(Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 });
    let KeypairData::Ecdsa(EcdsaKeypair::NistP256 { public, .. }) = curve.key_data() else { unreachable!() };
    let edwards = new_key(Algorithm::Ed25519);
    let KeyData::Ed25519(edwards_public) = edwards.public_key().key_data() else { unreachable!() };
    let keys = [
        (
            KeyData::SkEcdsaSha2NistP256(SkEcdsaSha2NistP256::new(*public, "ssh:")),
            &curve,
            Algorithm::SkEcdsaSha2NistP256,
        ),
        (KeyData::SkEd25519(SkEd25519::new(*edwards_public, "ssh:")), &edwards, Algorithm::SkEd25519),
    ];
    for (key, pair, algorithm) in keys {
        // The lowest bit means user presence, the third user verification.
        for (flags, is_let_in) in [(0, false), (1, true), (4, false), (5, true)] {
            let trailer = [flags, 0, 0, 0, 7];
            let mut blob = pair.try_sign(&asked_of_a_security_key(trailer)).unwrap().as_bytes().to_vec();
            blob.extend_from_slice(&trailer);
            let signature = Signature::new(algorithm.clone(), blob).unwrap();
            assert_eq!(proof::is_signed(&key, MESSAGE, &signature), is_let_in, "{algorithm}: flags {flags}");
        }
    }
}

#[test]
fn a_point_that_is_none_of_the_curve_is_no_half_of_a_key_exchange() {
    for (curve, foreign) in [(&ECDH_P256, &ECDH_P384), (&ECDH_P384, &ECDH_P521), (&ECDH_P521, &ECDH_P256)] {
        let new = || EphemeralPrivateKey::generate(curve, &SystemRandom::new()).unwrap();
        let (far, mine) = (new(), new());
        let (public, my_point) = (far.compute_public_key().unwrap(), mine.compute_public_key().unwrap());
        let point = public.as_ref().to_vec();
        let compressed: EcPublicKeyCompressedBin<'_> = public.as_be_bytes().unwrap();
        let der: PublicKeyX509Der<'_> = public.as_der().unwrap();
        assert!(proof::agree(curve, new(), compressed.as_ref()).is_some(), "{curve:?}: compressed");
        let first = |byte: u8| [&[byte], &point[1..]].concat();
        let elsewhere = EphemeralPrivateKey::generate(foreign, &SystemRandom::new()).unwrap().compute_public_key();
        let mut beside = point.clone();
        *beside.last_mut().unwrap() ^= 1;
        for (what, bad) in [
            ("nothing", Vec::new()),
            ("the point at infinity", vec![0]),
            ("a hybrid form", first(6)),
            ("the other hybrid form", first(7)),
            ("beside the curve", beside),
            ("too short", point[..point.len() - 1].to_vec()),
            ("too long", [&point[..], &[0]].concat()),
            ("of another curve", elsewhere.unwrap().as_ref().to_vec()),
            ("in DER", der.as_ref().to_vec()),
        ] {
            assert!(proof::agree(curve, new(), &bad).is_none(), "{curve:?}: {what}");
        }
        assert_eq!(proof::agree(curve, mine, &point), proof::agree(curve, far, my_point.as_ref()));
    }
}

#[test]
fn a_signature_by_a_curve_is_two_numbers_and_no_more() {
    let key = new_key(Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 });
    let good = key.try_sign(MESSAGE).unwrap().as_bytes().to_vec();
    let is_signed = |algorithm: Algorithm, blob: Vec<u8>| {
        // Signatures that the library does not parse are rejected.
        let signature = Signature::new(algorithm, blob);
        signature.is_ok_and(|signature| proof::is_signed(key.public_key().key_data(), MESSAGE, &signature))
    };
    let named = |curve: EcdsaCurve| Algorithm::Ecdsa { curve };
    assert!(is_signed(named(EcdsaCurve::NistP256), good.clone()));
    assert!(!is_signed(named(EcdsaCurve::NistP384), good.clone()), "another curve's name");
    assert!(!is_signed(named(EcdsaCurve::NistP256), [&good[..], &[0]].concat()), "more behind it");
    let (zero, one) = ([0, 0, 0, 0], [0, 0, 0, 1, 1]);
    let negative = [0, 0, 0, 1, 0x81];
    let long = [&[0, 0, 0, 33, 1][..], &[1; 32]].concat();
    for (what, first) in [("zero", &zero[..]), ("negative", &negative), ("too long", &long), ("small", &one)] {
        assert!(!is_signed(named(EcdsaCurve::NistP256), [first, &one].concat()), "{what}");
        assert!(!is_signed(named(EcdsaCurve::NistP256), [&one, first].concat()), "{what}, second");
    }
}

#[test]
fn a_security_key_signs_what_it_was_asked_for_with_its_counter() {
    let key = new_key(Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 });
    let KeypairData::Ecdsa(EcdsaKeypair::NistP256 { public, .. }) = key.key_data() else { unreachable!() };
    let sign = |trailer: &[u8; 5]| {
        let mut blob = key.try_sign(&asked_of_a_security_key([1, 0, 0, 0, 7])).unwrap().as_bytes().to_vec();
        blob.extend_from_slice(trailer);
        Signature::new(Algorithm::SkEcdsaSha2NistP256, blob).unwrap()
    };
    let of = |application: &str| KeyData::SkEcdsaSha2NistP256(SkEcdsaSha2NistP256::new(*public, application));
    check(&of("ssh:"), &of("ssh:elsewhere"), &sign(&[1, 0, 0, 0, 7]));
    assert!(!proof::is_signed(&of("ssh:"), MESSAGE, &sign(&[5, 0, 0, 0, 7])), "other flags than were signed");
    assert!(!proof::is_signed(&of("ssh:"), MESSAGE, &sign(&[1, 0, 0, 0, 8])));
    let plain = key.try_sign(MESSAGE).unwrap();
    assert!(!proof::is_signed(&of("ssh:"), MESSAGE, &plain), "a signature of another kind");
}

/// An RSA key of this size, generated by OpenSSH: its public part, and its file.
fn new_rsa(dir: &Path, bits: u32, format: &str) -> (KeyData, PathBuf) {
    let path = dir.join(format!("{bits}-{format}-{}", std::fs::read_dir(dir).unwrap().count()));
    let bits = bits.to_string();
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-N", "", "-t", "rsa", "-b", &bits, "-m", format, "-f"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    (PublicKey::read_openssh_file(path.with_added_extension("pub")).unwrap().key_data().clone(), path)
}

#[test]
fn rsa_signs_with_both_hashes() {
    let dir = tempfile::tempdir().unwrap();
    let (key, path) = new_rsa(dir.path(), 2048, "RFC4716");
    let (other, _) = new_rsa(dir.path(), 2048, "RFC4716");
    let pair = PrivateKey::read_openssh_file(&path).unwrap();
    let KeypairData::Rsa(pair) = pair.key_data() else { unreachable!() };
    let named = |hash, blob: &[u8]| Signature::new(Algorithm::Rsa { hash }, blob.to_vec()).unwrap();
    for (hash, another) in [(HashAlg::Sha256, HashAlg::Sha512), (HashAlg::Sha512, HashAlg::Sha256)] {
        let signature: Signature = (pair, Some(hash)).try_sign(MESSAGE).unwrap();
        check(&key, &other, &signature);
        let blob = signature.as_bytes();
        assert!(!proof::is_signed(&key, MESSAGE, &named(Some(another), blob)), "another hash's name");
        assert!(!proof::is_signed(&key, MESSAGE, &named(None, blob)), "the name of SHA-1");
        assert!(!proof::is_signed(&key, MESSAGE, &named(Some(hash), &[&[0], blob].concat())), "longer than the key");
    }
}

#[test]
fn rsa_of_few_bits_signs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (key, path) = new_rsa(dir.path(), 1024, "RFC4716");
    let pair = PrivateKey::read_openssh_file(&path).unwrap();
    let KeypairData::Rsa(pair) = pair.key_data() else { unreachable!() };
    let signature: Signature = (pair, Some(HashAlg::Sha512)).try_sign(MESSAGE).unwrap();
    assert!(!proof::is_signed(&key, MESSAGE, &signature));
}

#[test]
fn the_zeros_at_the_beginning_of_a_signature_by_rsa_may_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (key, path) = new_rsa(dir.path(), 2048, "PKCS8");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let pair = RsaKeyPair::from_pkcs8(&BASE64_STANDARD.decode(lines).unwrap()).unwrap();
    let sign = |message: &[u8]| {
        let mut blob = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut blob).unwrap();
        blob
    };
    // One signature in 256 begins with a zero.
    let (message, blob) = (0_u32..20_000)
        .map(|number| (number.to_be_bytes(), sign(&number.to_be_bytes())))
        .find(|(_, blob)| blob[0] == 0)
        .unwrap();
    for blob in [blob.clone(), blob[1..].to_vec()] {
        let signature = Signature::new(Algorithm::Rsa { hash: Some(HashAlg::Sha256) }, blob).unwrap();
        assert!(proof::is_signed(&key, &message, &signature));
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
