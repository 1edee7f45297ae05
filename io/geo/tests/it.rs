//! MaxMind's own test databases, valid and damaged.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use sallyport_geo::{Geo, GeoError};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn country() -> PathBuf {
    data("GeoLite2-Country-Test.mmdb")
}

fn asn() -> PathBuf {
    data("GeoLite2-ASN-Test.mmdb")
}

#[test]
fn addresses_have_countries_and_systems_where_these_are_known() {
    let geo = Geo::open(Some(&country()), Some(&asn())).unwrap();
    assert!(geo.has_country() && geo.has_asn());
    let country = |text: &str| geo.country(text.parse().unwrap()).map(|country| country.to_string());
    assert_eq!(country("2.125.160.217").as_deref(), Some("GB"));
    assert_eq!(country("::ffff:2.125.160.217").as_deref(), Some("GB"));
    assert_eq!(country("2001:218::1").as_deref(), Some("JP"));
    assert_eq!(country("127.0.0.1"), None);
    let asn = |text: &str| geo.asn(text.parse().unwrap()).map(|asn| asn.number());
    assert_eq!(asn("1.128.0.1"), Some(1_221));
    assert_eq!(asn("::1"), None);
}

#[test]
fn without_a_database_nothing_is_known() {
    let geo = Geo::open(None, None).unwrap();
    assert!(!geo.has_country() && !geo.has_asn());
    let address = "1.128.0.1".parse().unwrap();
    assert_eq!((geo.country(address), geo.asn(address), geo.reload().unwrap()), (None, None, 0));
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Geo::open(Some(&dir.path().join("none.mmdb")), None).unwrap_err();
    assert!(matches!(missing, GeoError::Read { .. }), "{missing}");
    let nonsense = dir.path().join("nonsense.mmdb");
    fs::write(&nonsense, "no database").unwrap();
    let malformed = Geo::open(None, Some(&nonsense)).unwrap_err();
    assert!(malformed.to_string().contains("nonsense.mmdb is not a database"), "{malformed}");
    let swapped = Geo::open(Some(&asn()), None).unwrap_err();
    assert!(swapped.to_string().contains("does not have the country"), "{swapped}");
}

#[test]
fn a_file_that_changes_is_read_again_and_one_that_breaks_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("country.mmdb");
    fs::copy(country(), &path).unwrap();
    let geo = Geo::open(Some(&path), None).unwrap();
    assert_eq!(geo.reload().unwrap(), 0, "nothing has changed");
    let touch = |seconds| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(seconds)).unwrap();
    };
    touch(10);
    assert_eq!((geo.reload().unwrap(), geo.reload().unwrap()), (1, 0));
    fs::write(&path, "cut short").unwrap();
    touch(20);
    assert!(geo.reload().is_err());
    assert!(geo.country("2.125.160.217".parse().unwrap()).is_some(), "the former one stays");
    fs::remove_file(&path).unwrap();
    assert!(geo.reload().is_err());
}
