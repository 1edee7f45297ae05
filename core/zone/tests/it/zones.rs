//! Records that make no zone.

use std::sync::Arc;

use sallyport_zone::{Zone, Zones};

use crate::support::zone;

fn error(text: &str) -> String {
    let text = format!("$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\n{text}\n");
    Zone::from_master_file("example.com".parse().unwrap(), &text, None).unwrap_err().to_string()
}

#[test]
fn each_fault_has_a_sentence() {
    let ds = "DS 1 13 2 ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB";
    for (text, expected) in [
        ("www.example.net. A 192.0.2.1", "www.example.net. is not within the zone example.com."),
        ("a CNAME b\na CNAME c", "a.example.com. has more than one CNAME record: keep one"),
        ("a DNAME b\nx.a A 192.0.2.1", "x.a.example.com. is below a.example.com., which has a DNAME record"),
        ("a DNAME b\na NS ns", "a.example.com. has a DNAME record and NS records"),
        ("a CNAME b\na A 192.0.2.1", "a.example.com. has a CNAME record and other records"),
        ("*.a NS ns", "*.a.example.com. has a NS record: a wildcard cannot have one"),
        (&format!("a {ds}"), "a.example.com. has a DS record and no NS record"),
        ("a ANAME b.example.net.\na A 192.0.2.1", "a.example.com. has addresses of edges or of another name"),
        ("a NS ns\na ANAME b.example.net.", "a.example.com. is delegated: addresses of edges"),
        ("a SOA ns host 1 1 1 1 1", "a.example.com. has an SOA record: only the apex"),
        ("a A", "line 4 of the master file: a.example.com. A: "),
        ("a DNSKEY 257 3 13 AAAA", "line 4 of the master file: a.example.com. DNSKEY: "),
        ("$INCLUDE other", "line 4 of the master file: $INCLUDE is not allowed"),
    ] {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let build =
        |text: &str| Zone::from_master_file("example.com".parse().unwrap(), text, None).unwrap_err().to_string();
    assert_eq!(build("@ 60 NS ns"), "the zone example.com. has no SOA record: add one");
    let no_ns = build("@ 60 SOA ns host 1 1 1 1 1");
    assert_eq!(no_ns, "the zone example.com. has no NS record: add one for each name server");
}

#[test]
fn a_zone_is_there_once() {
    let zones = || [Arc::new(zone("example.com", "")), Arc::new(zone("EXAMPLE.com", ""))];
    assert_eq!(Zones::new(zones()).unwrap_err().to_string(), "the zone example.com. is there twice");
}

#[test]
fn the_records_of_a_zone_come_back_in_order() {
    let zone = zone("example.com", "b A 192.0.2.1\na.b A 192.0.2.1\n*.b A 192.0.2.1\na A 192.0.2.1");
    let names: Vec<String> = zone.records().iter().map(|record| record.owner.to_string()).collect();
    let expected = ["", "", "a.", "b.", "*.b.", "a.b.", "ns."].map(|label| format!("{label}example.com."));
    assert_eq!(names, expected);
    assert_eq!(zone.longest_ttl(), 300);
}
