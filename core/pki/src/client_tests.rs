use time::macros::datetime;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);
const SESSION: &str = "urn:uuid:7f9c2ba4-e88f-427d-8a3d-5b6f3c2a1d00";

fn authority() -> ClientAuthority {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    ClientAuthority::create("Sallyport clients", key, NOW, [1; 16]).unwrap()
}

fn subject() -> ClientSubject<'static> {
    ClientSubject { email: "ann@example.com", socket: "calm-bay-1000.example.com", session: SESSION }
}

/// A request that claims another subject, and the CA flag.
fn request(key: &KeyPair) -> String {
    let mut params = CertificateParams::new(["evil.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "root@example.com");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn der(pem: &str) -> Vec<u8> {
    Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap().contents
}

#[test]
fn a_certificate_says_who_logged_in_and_nothing_of_what_was_asked_for() {
    let authority = authority();
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let asked = ClientRequest::from_pem(&request(&key)).unwrap();
        let issued = authority.issue(&asked, subject(), NOW, [0xff; 16]).unwrap();
        let der = der(&issued.pem);
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(certificate.subject().to_string(), "CN=ann@example.com, O=calm-bay-1000.example.com");
        assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
        assert!(!certificate.is_ca());
        let usage = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
        let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(
            names,
            &[
                GeneralName::RFC822Name("ann@example.com"),
                GeneralName::DNSName("calm-bay-1000.example.com"),
                GeneralName::URI(SESSION)
            ]
        );
        assert_eq!(issued.not_before, NOW - Duration::minutes(5));
        assert_eq!(issued.not_after, NOW + Duration::minutes(5));
        assert_eq!(certificate.raw_serial(), issued.serial);
        let (_, issuer) = X509Certificate::from_der(authority.certificate_der()).unwrap();
        certificate.verify_signature(Some(issuer.public_key())).unwrap();
        assert_eq!(certificate.issuer(), issuer.subject());
    }
}

#[test]
fn a_long_address_is_cut_in_the_common_name_only() {
    let email = format!("{}@example.com", "a".repeat(100));
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let asked = ClientRequest::from_pem(&request(&key)).unwrap();
    let issued = authority().issue(&asked, ClientSubject { email: &email, ..subject() }, NOW, [3; 16]).unwrap();
    let der = der(&issued.pem);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let common_name = certificate.subject().iter_common_name().next().unwrap().as_str().unwrap();
    assert_eq!(common_name.len(), 64);
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names[0], GeneralName::RFC822Name(&email));
}

#[test]
fn what_cannot_stand_in_a_certificate_is_refused() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let asked = ClientRequest::from_pem(&request(&key)).unwrap();
    let authority = authority();
    for bad in [
        ClientSubject { email: "", ..subject() },
        ClientSubject { email: "ann", ..subject() },
        ClientSubject { email: "ann@example.com\nbob", ..subject() },
        ClientSubject { email: "\u{e4}nn@example.com", ..subject() },
        ClientSubject { socket: "", ..subject() },
        ClientSubject { socket: "*.example.com", ..subject() },
        ClientSubject { socket: "a b.example.com", ..subject() },
        ClientSubject { session: "https://evil.example", ..subject() },
    ] {
        let refused = authority.issue(&asked, bad, NOW, [3; 16]);
        assert!(matches!(refused, Err(ClientIssueError::Subject(_))), "{bad:?}");
    }
}

#[test]
fn a_request_must_be_signed_by_its_own_good_key() {
    let read = |pem: &str| ClientRequest::from_pem(pem).err();
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let good = request(&key);
    assert_eq!(read(&good), None);
    assert_eq!(read(&good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")), None);
    assert_eq!(read(&certificate_request(&key).unwrap()), None);
    assert_eq!(read(""), Some(RequestError::NotPem));
    assert_eq!(read(&good.replace("CERTIFICATE REQUEST", "CERTIFICATE")), Some(RequestError::NotPem));
    assert_eq!(read(&format!("{good}{good}")), Some(RequestError::NotPem));
    assert_eq!(read(&"x".repeat(20_000)), Some(RequestError::NotPem));
    let p521 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap();
    assert_eq!(read(&request(&p521)), Some(RequestError::Key));
    let whole = der(&good);
    let pem = |der: &[u8]| pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", der));
    assert_eq!(read(&pem(&[&whole[..], b"\0"].concat())), Some(RequestError::Damaged));
    // The signed part; the rest is checked with the signature.
    let (_, parsed) = X509CertificationRequest::from_der(&whole).unwrap();
    let signed = parsed.certification_request_info.raw.to_vec();
    let begin = whole.windows(signed.len()).position(|part| part == signed).unwrap();
    for at in begin..begin + signed.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x01;
        assert!(read(&pem(&damaged)).is_some(), "byte {at}");
    }
}

#[test]
fn an_authority_is_kept_with_its_own_key_alone() {
    let (one, other) = (authority(), authority());
    assert!(ClientAuthority::from_der(one.certificate_der(), &one.key_pem()).is_ok());
    assert!(matches!(ClientAuthority::from_der(one.certificate_der(), &other.key_pem()), Err(LoadError::Mismatch)));
    assert!(matches!(ClientAuthority::from_der(one.certificate_der(), ""), Err(LoadError::Key)));
    assert!(matches!(ClientAuthority::from_der(b"x", &one.key_pem()), Err(LoadError::Certificate(_))));
    let (_, certificate) = X509Certificate::from_der(one.certificate_der()).unwrap();
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(certificate.is_ca() && usage.client_auth && !usage.server_auth);
    let again = ClientAuthority::from_der(one.certificate_der(), &one.key_pem()).unwrap();
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let asked = ClientRequest::from_pem(&request(&key)).unwrap();
    let issued = again.issue(&asked, subject(), NOW, [3; 16]).unwrap();
    let der = der(&issued.pem);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let (_, issuer) = X509Certificate::from_der(one.certificate_der()).unwrap();
    certificate.verify_signature(Some(issuer.public_key())).unwrap();
}

#[test]
fn a_certificate_of_a_machine_names_only_its_token() {
    let authority = authority();
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let asked = ClientRequest::from_pem(&request(&key)).unwrap();
    let token = "7f9c2ba4-e88f-427d-8a3d-5b6f3c2a1d00";
    let subject = |lifetime| ServiceSubject { name: "ci", token, lifetime };
    let issued = authority.issue_service(&asked, subject(Duration::days(30)), NOW, [7; 16]).unwrap();
    assert_eq!(issued.not_after, NOW + Duration::days(30));
    let der = der(&issued.pem);
    let holder = crate::ServiceHolder::from_der(&der).unwrap();
    assert_eq!((holder.token.as_str(), holder.not_after), (token, issued.not_after.unix_timestamp()));
    assert_eq!(crate::CertificateHolder::from_der(&der), None, "it is no person's");
    let persons = authority.issue(&asked, self::subject(), NOW, [8; 16]).unwrap();
    assert_eq!(crate::ServiceHolder::from_der(&self::der(&persons.pem)), None, "and a person's is no machine's");
    let long = authority.issue_service(&asked, subject(Duration::days(4_000)), NOW, [9; 16]).unwrap();
    assert_eq!(long.not_after, NOW + MAX_SERVICE_LIFETIME);
    for bad in ["", "x y", "7f9c/..", "urn:uuid:1"] {
        let subject = ServiceSubject { token: bad, ..subject(Duration::days(1)) };
        assert!(authority.issue_service(&asked, subject, NOW, [1; 16]).is_err(), "{bad}");
    }
}
