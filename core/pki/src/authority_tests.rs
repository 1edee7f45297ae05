use time::macros::datetime;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

fn key() -> KeyPair {
    KeyPair::generate_for(&crate::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn authority(domain: &str) -> Authority {
    Authority::create("Sallyport root on a-machine", domain, key(), NOW, [0xff; 16]).unwrap()
}

fn issue(authority: &Authority, name: &str, now: OffsetDateTime) -> Result<Issued, IssueError> {
    authority.issue_server(&[name.to_owned()], &key(), now, [7; 16], LEAF_LIFETIME)
}

#[test]
fn the_root_may_sign_certificates_for_its_domain_only_and_lives_ten_years() {
    let authority = authority("LocalHost");
    let root = authority.root();
    let (_, certificate) = X509Certificate::from_der(&root.der).unwrap();
    let constraints = certificate.basic_constraints().unwrap().unwrap().value;
    assert!(constraints.ca);
    assert_eq!(constraints.path_len_constraint, Some(0));
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    let names = certificate.name_constraints().unwrap().unwrap();
    assert!(names.critical, "RFC 5280 section 4.2.1.10");
    assert_eq!(root.domain.as_deref(), Some("localhost"));
    assert!(root.subject.starts_with("CN=Sallyport root on a-machine "), "{}", root.subject);
    assert!(certificate.raw_serial().len() <= 20 && certificate.raw_serial()[0] & 0x80 == 0);
    assert_eq!(root.not_after - root.not_before, ROOT_LIFETIME + ROOT_BACKDATE);
    assert!(root.has_begun(NOW) && !root.has_ended(NOW) && root.has_ended(NOW + ROOT_LIFETIME));
}

#[test]
fn two_roots_have_different_subjects_and_a_long_name_is_cut() {
    let name = "a very long name ".repeat(20);
    let one = Authority::create(&name, "localhost", key(), NOW, [1; 16]).unwrap();
    let two = Authority::create(&name, "localhost", key(), NOW, [1; 16]).unwrap();
    assert_ne!(one.root().subject, two.root().subject);
    assert!(one.root().subject.chars().count() <= "CN=".len() + MAX_COMMON_NAME_CHARS);
}

#[test]
fn a_server_certificate_names_its_host_and_nothing_else() {
    let authority = authority("localhost");
    let issued = issue(&authority, "wandering-shape-7752.localhost", NOW).unwrap();
    assert_eq!(issued.chain.len(), 2);
    assert_eq!(issued.chain[1], authority.root().der);
    let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
    let (_, root) = X509Certificate::from_der(&issued.chain[1]).unwrap();
    leaf.verify_signature(Some(root.public_key())).unwrap();
    assert!(!leaf.is_ca());
    assert_eq!(leaf.subject().iter().count(), 0);
    let names = leaf.subject_alternative_name().unwrap().unwrap();
    assert!(names.critical, "RFC 5280 section 4.2.1.6, with an empty subject");
    assert_eq!(names.value.general_names, [GeneralName::DNSName("wandering-shape-7752.localhost")]);
    let usage = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
    assert_eq!(leaf.validity().not_before.to_datetime(), NOW - BACKDATE);
    assert_eq!(leaf.validity().not_after.to_datetime(), NOW + LEAF_LIFETIME);
    assert_eq!((issued.not_before, issued.not_after), (NOW - BACKDATE, NOW + LEAF_LIFETIME));
    assert_eq!(issued.renew_at, issued.not_before + (issued.not_after - issued.not_before) * 2 / 3);
}

#[test]
fn a_server_certificate_never_outlives_its_root() {
    let authority = authority("localhost");
    let end = authority.root().not_after;
    let issued = issue(&authority, "x.localhost", end - Duration::days(3)).unwrap();
    assert_eq!(issued.not_after, end);
    assert!(issued.renew_at < end);
    assert!(matches!(issue(&authority, "x.localhost", end), Err(IssueError::RootEnded(_))));
}

#[test]
fn a_clock_set_back_before_the_root_still_gives_certificates_that_are_valid_then() {
    let authority = authority("localhost");
    let long_ago = OffsetDateTime::UNIX_EPOCH + Duration::days(400);
    let issued = issue(&authority, "x.localhost", long_ago).unwrap();
    assert!(matches!(renewal(issued.not_before, issued.not_after, long_ago), Renewal::NotYet { .. }));
}

#[test]
fn names_outside_the_domain_are_refused() {
    let authority = authority("door.example");
    for good in ["door.example", "DOOR.example", "x.door.example", "*.door.example", "a.b.door.example"] {
        assert!(issue(&authority, good, NOW).is_ok(), "{good}");
    }
    for bad in ["example", "backdoor.example", "door.example.org", "x.localhost"] {
        assert!(matches!(issue(&authority, bad, NOW), Err(IssueError::OutsideDomain { .. })), "{bad}");
    }
    for bad in ["", "-x.door.example", "x..door.example", "127.0.0.1", "a b.door.example", "ü.door.example", "*"] {
        assert!(matches!(issue(&authority, bad, NOW), Err(IssueError::Name(_))), "{bad}");
    }
    assert!(matches!(
        authority.issue_server(&[], &key(), NOW, [7; 16], LEAF_LIFETIME),
        Err(IssueError::Name(name)) if name.is_empty()
    ));
}

#[test]
fn a_domain_that_no_certificate_can_name_is_refused() {
    for bad in ["", "127.0.0.1", "a b", "-a.example", "*.example", "::1"] {
        let created = Authority::create("x", bad, key(), NOW, [1; 16]);
        assert!(matches!(created, Err(CreateError::Domain(_))), "{bad}");
    }
}

#[test]
fn a_stored_root_is_the_same_root() {
    let made = authority("localhost");
    let read = Authority::from_pem(made.root_pem(), &made.key_pem(), NOW).unwrap();
    assert_eq!(read.root(), made.root());
    let issued = issue(&read, "x.localhost", NOW).unwrap();
    let (_, leaf) = X509Certificate::from_der(&issued.chain[0]).unwrap();
    let (_, root) = X509Certificate::from_der(&made.root().der).unwrap();
    leaf.verify_signature(Some(root.public_key())).unwrap();
    assert_eq!(leaf.issuer(), root.subject());
}

#[test]
fn a_stored_root_that_is_damaged_is_refused_with_the_reason() {
    let (one, two) = (authority("localhost"), authority("localhost"));
    let (certificate, key) = (one.root_pem().to_owned(), one.key_pem());
    let load = |certificate: &str, key: &str| Authority::from_pem(certificate, key, NOW);
    assert!(matches!(load("", &key), Err(LoadError::Certificate(RootError::NotPem))));
    assert!(matches!(load(&key, &key), Err(LoadError::Certificate(RootError::NotPem))));
    assert!(matches!(load(&certificate[..certificate.len() / 2], &key), Err(LoadError::Certificate(_))));
    let both = format!("{certificate}{}", two.root_pem());
    assert!(matches!(load(&both, &key), Err(LoadError::Certificate(RootError::Several))));
    assert!(matches!(load(&certificate, ""), Err(LoadError::Key)));
    assert!(matches!(load(&certificate, &key[..key.len() / 2]), Err(LoadError::Key)));
    assert!(matches!(load(&certificate, &two.key_pem()), Err(LoadError::Mismatch)));
    let later = NOW + ROOT_LIFETIME + Duration::DAY;
    assert!(matches!(Authority::from_pem(&certificate, &key, later), Err(LoadError::Ended(_))));
}

#[test]
fn every_flipped_byte_of_what_a_root_says_is_noticed() {
    let authority = authority("localhost");
    let der = &authority.root().der;
    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let signed_bytes = der.len() - certificate.signature_value.as_ref().len() - 14;
    for at in 0..signed_bytes {
        let mut damaged = der.clone();
        damaged[at] ^= 0x01;
        assert!(RootInfo::from_der(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn a_leaf_is_no_root() {
    let authority = authority("localhost");
    let issued = issue(&authority, "x.localhost", NOW).unwrap();
    assert_eq!(RootInfo::from_der(&issued.chain[0]), Err(RootError::NotAuthority));
}
