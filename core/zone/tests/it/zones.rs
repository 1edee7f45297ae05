//! Records that make no zone.

use std::sync::Arc;

use proptest::prelude::*;
use sallyport_zone::{
    Zone, Zones,
    record::{parse_master_file, parse_record},
};

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

/// Types with a form of their own, and parts of their data.
const TYPES: [&str; 22] = [
    "A",
    "AAAA",
    "NS",
    "CNAME",
    "DNAME",
    "MX",
    "SRV",
    "SOA",
    "TXT",
    "CAA",
    "SVCB",
    "HTTPS",
    "ALIAS",
    "EDGES",
    "DS",
    "NAPTR",
    "TLSA",
    "SSHFP",
    "CERT",
    "HINFO",
    "CSYNC",
    "TYPE65300",
];
const PARTS: [&str; 24] = [
    "1",
    "0",
    "65535",
    "65536",
    "192.0.2.1",
    "2001:db8::1",
    "@",
    ".",
    "a.b.",
    "www",
    "\"text\"",
    "\"\"",
    "\\#",
    "ABAB",
    "AB=",
    "alpn=h2",
    "port=x",
    "key65333=\"a\\000b\"",
    "ech=AAAA",
    "mandatory=port",
    "\\256",
    "ipv4hint=1.2.3.4,x",
    "issue",
    "(",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_data_of_records_break_nothing(
        rtype in prop::sample::select(&TYPES[..]),
        parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..8),
    ) {
        let name = "example.com".parse().unwrap();
        if let Ok(record) = parse_record(&name, 60, rtype, &parts.join(" "), &name) {
            // What is shown is read as the same record.
            let shown = parse_master_file(&record.to_string(), &"other.test".parse().unwrap());
            prop_assert_eq!(shown, Ok(vec![record.clone()]));
            let records = [zone("example.com", "").records(), vec![record]].concat();
            // A zone, or a sentence.
            let _ = Zone::build(name, records, None);
        }
    }

    #[test]
    fn arbitrary_master_files_break_nothing(text in "([a-c@*.$\\\\\"();0-9 \n\t]|TXT|A|IN|CNAME|\\$ORIGIN|\\$TTL| 60 |\n){0,60}") {
        let name = "example.com".parse().unwrap();
        let _ = parse_master_file(&text, &name);
    }
}

#[test]
fn data_that_others_cannot_read_are_refused() {
    let zone = |line: &str| {
        let text = format!("$TTL 60\n@ SOA ns host 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n{line}\n");
        Zone::from_master_file("example.com".parse().unwrap(), &text, None)
    };
    for line in [
        "a TYPE16 \\# 1 05",
        "a TYPE16 \\# 0",
        "a TYPE257 \\# 2 0005",
        "a HTTPS 1 . alpn=h2 mandatory=port",
        "a HTTPS 0 . alpn=h2",
        "a TYPE65 \\# 3 000000ff",
        // Signatures and denials of other kinds would mislead secondaries.
        "@ TYPE51 \\# 5 0100000000",
        "a TYPE50 \\# 1 00",
        "a TYPE24 \\# 1 00",
    ] {
        assert!(zone(line).is_err(), "{line}");
    }
    for line in
        ["a TXT x y", "a TYPE16 \\# 1 00", "a HTTPS 1 . mandatory=port port=1", "a HTTPS 0 b", "a CAA 0 issue x"]
    {
        assert!(zone(line).is_ok(), "{line}: {:?}", zone(line).err());
    }
}
