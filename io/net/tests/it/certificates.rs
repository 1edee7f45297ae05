//! Choice of the certificate for a name, and renewal by a simulated clock.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use rustls::{pki_types::ServerName, sign::CertifiedKey};
use sallyport_net::{Certificates, LocalCa, MAX_CACHED_CERTIFICATES, PublicCertificate};
use sallyport_pki::{LEAF_LIFETIME, ROOT_LIFETIME};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

struct Simulated {
    _dir: TempDir,
    certificates: Arc<Certificates>,
    /// Seconds added to the real time.
    offset: Arc<AtomicI64>,
}

impl Simulated {
    fn new(domain: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let offset = Arc::new(AtomicI64::new(0));
        let (shift, start) = (offset.clone(), OffsetDateTime::now_utc());
        let clock = move || start + Duration::seconds(shift.load(Relaxed));
        let ca = LocalCa::open_or_create(dir.path(), domain).unwrap();
        let certificates = Certificates::with_clock(ca, domain, Box::new(clock)).unwrap();
        Self { _dir: dir, certificates, offset }
    }

    fn get(&self, name: &str) -> Arc<CertifiedKey> {
        self.certificates.certificate(name).unwrap()
    }

    fn at(&self, time: Duration) {
        self.offset.store(time.whole_seconds(), Relaxed);
    }
}

#[test]
fn when_a_public_certificate_has_ended_the_servers_own_names_have_the_built_in_one_again() {
    let simulated = Simulated::new("door.example");
    let names = ["api.door.example".to_owned(), "shop.door.example".to_owned()];
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = rcgen::CertificateParams::new(names.to_vec()).unwrap().self_signed(&key).unwrap().pem();
    let end = OffsetDateTime::now_utc() + Duration::HOUR;
    let public = PublicCertificate::new(names.to_vec(), &chain, &key.serialize_pem(), end.unix_timestamp()).unwrap();
    simulated.certificates.require_public(true);
    simulated.certificates.set_public(&[public]);
    let chains = |host: &str| simulated.get(host).cert.len();
    assert_eq!((chains("api.door.example"), chains("shop.door.example")), (1, 1));
    simulated.at(Duration::HOUR * 2);
    assert_eq!((chains("api.door.example"), chains("shop.door.example")), (2, 1), "with the root behind it");
}

#[test]
fn each_name_gets_a_certificate_of_its_own_with_the_root_behind_it() {
    let simulated = Simulated::new("door.example");
    for name in ["door.example", "x.door.example", "wandering-shape-7752.door.example", "api.door.example"] {
        let certified = simulated.get(name);
        assert_eq!(certified.cert.len(), 2);
        assert_eq!(certified.cert[1].as_ref(), simulated.certificates.ca().unwrap().root().der);
        let leaf = rustls::server::ParsedCertificate::try_from(&certified.cert[0]).unwrap();
        let is_for = |name: &str| {
            rustls::client::verify_server_name(&leaf, &ServerName::try_from(name.to_owned()).unwrap()).is_ok()
        };
        assert!(is_for(name));
        assert!(!is_for("y.door.example"));
    }
    assert_eq!(simulated.certificates.stats().made, 4);
    assert!(Arc::ptr_eq(&simulated.get("x.door.example"), &simulated.get("X.Door.Example.")));
    assert_eq!(simulated.certificates.stats().made, 4);
}

#[test]
fn other_names_get_none() {
    let simulated = Simulated::new("door.example");
    let others = [
        "",
        ".",
        "example",
        "other.example",
        "backdoor.example",
        "a.b.door.example",
        ".door.example",
        "-a.door.example",
        "a_b.door.example",
        "*.door.example",
        "door.example.org",
        "127.0.0.1",
    ];
    for name in others {
        assert!(simulated.certificates.certificate(name).is_none(), "{name}");
    }
    assert_eq!(simulated.certificates.stats().refused_name, others.len() as u64);
    assert_eq!(simulated.certificates.stats().made, 0);
}

#[test]
fn a_certificate_is_renewed_at_two_thirds_of_its_life() {
    let simulated = Simulated::new("localhost");
    let first = simulated.get("x.localhost");
    simulated.at(LEAF_LIFETIME * 2 / 3 - Duration::hours(1));
    assert!(Arc::ptr_eq(&first, &simulated.get("x.localhost")));
    simulated.at(LEAF_LIFETIME * 2 / 3 + Duration::hours(1));
    let second = simulated.get("x.localhost");
    assert_ne!(first.cert[0], second.cert[0]);
    assert!(Arc::ptr_eq(&second, &simulated.get("x.localhost")));
    let stats = simulated.certificates.stats();
    assert_eq!((stats.made, stats.renewed, stats.cached), (2, 1, 1));
}

#[test]
fn a_clock_that_jumps_never_leaves_a_certificate_that_is_not_valid() {
    let simulated = Simulated::new("localhost");
    for jump in [Duration::ZERO, Duration::days(400), Duration::days(-3), Duration::days(3_000), Duration::days(-9_000)]
    {
        simulated.at(jump);
        let der = simulated.get("x.localhost").cert[0].clone();
        let (begin, end) = life(&der);
        let now = (OffsetDateTime::now_utc() + jump).unix_timestamp();
        assert!(begin <= now && now < end, "{jump}: {begin} to {end}");
    }
    assert_eq!(simulated.certificates.stats().renewed, 4);
}

/// Start and end of a certificate's validity, in seconds since 1970.
fn life(der: &[u8]) -> (i64, i64) {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).unwrap();
    let validity = certificate.validity();
    (validity.not_before.timestamp(), validity.not_after.timestamp())
}

#[test]
fn when_the_root_has_ended_nothing_is_served_and_when_the_clock_is_put_right_all_is_well() {
    let simulated = Simulated::new("localhost");
    simulated.get("x.localhost");
    simulated.at(ROOT_LIFETIME + Duration::DAY);
    assert!(simulated.certificates.certificate("x.localhost").is_none());
    assert!(simulated.certificates.certificate("y.localhost").is_none());
    assert_eq!(simulated.certificates.stats().failed, 2);
    simulated.at(Duration::ZERO);
    simulated.get("x.localhost");
    simulated.get("y.localhost");
}

#[test]
fn a_flood_of_names_gets_the_wildcard_and_does_not_push_out_what_is_in_use() {
    let simulated = Simulated::new("door.example");
    let in_use = simulated.get("in-use.door.example");
    let mut last = None;
    for n in 0..3 * MAX_CACHED_CERTIFICATES {
        last = Some(simulated.get(&format!("flood-{n}.door.example")));
        if n % 100 == 0 {
            assert!(Arc::ptr_eq(&in_use, &simulated.get("in-use.door.example")), "{n}");
        }
    }
    let stats = simulated.certificates.stats();
    assert!(stats.over_rate > 100, "{stats:?}");
    assert!(stats.made < 2 * MAX_CACHED_CERTIFICATES as u64 + 1_000, "{stats:?}");
    assert!(stats.cached <= MAX_CACHED_CERTIFICATES, "{stats:?}");
    // Every answer serves the requested name, also a wildcard name.
    let leaf = last.unwrap();
    let leaf = rustls::server::ParsedCertificate::try_from(&leaf.cert[0]).unwrap();
    let name = format!("flood-{}.door.example", 3 * MAX_CACHED_CERTIFICATES - 1);
    rustls::client::verify_server_name(&leaf, &ServerName::try_from(name).unwrap()).unwrap();
}

#[test]
fn under_a_top_level_domain_a_flood_gets_exact_certificates_that_are_not_kept() {
    let simulated = Simulated::new("localhost");
    for n in 0..MAX_CACHED_CERTIFICATES + 500 {
        let name = format!("flood-{n}.localhost");
        let certified = simulated.get(&name);
        let leaf = rustls::server::ParsedCertificate::try_from(&certified.cert[0]).unwrap();
        rustls::client::verify_server_name(&leaf, &ServerName::try_from(name).unwrap()).unwrap();
    }
    assert!(simulated.certificates.stats().cached <= MAX_CACHED_CERTIFICATES);
}
