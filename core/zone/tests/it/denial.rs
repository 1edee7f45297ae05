//! Compact denial of existence: RFC 9824. Validators check the signatures in io/dns.

use hickory_proto::rr::RecordType;

use crate::support::{Ask, COMPACT_OK, DNSSEC_OK, Lab, describe, signed_zone, zone};

fn lab() -> Lab {
    Lab::new([signed_zone(
        "example.com",
        "web A 192.0.2.4\nweb TXT text\n*.wild TXT wild\na.b TXT deep\nsub NS ns.elsewhere.net.\n\
         safe NS ns.elsewhere.net.\nsafe A 192.0.2.8\n\
         safe DS 1 13 2 ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB",
    )])
}

/// The NSEC records of the authority, and the types that are signed in each section.
fn proof(lab: &mut Lab, ask: &Ask) -> (String, Vec<String>, usize) {
    let message = lab.ask(ask);
    let is_nsec = |record: &&hickory_proto::rr::Record| record.record_type() == RecordType::NSEC;
    let nsec: Vec<String> = message.authorities.iter().filter(is_nsec).map(|record| format!("{record}")).collect();
    let signatures = message.all_sections().filter(|record| record.record_type() == RecordType::RRSIG).count();
    (format!("{:?}", message.metadata.response_code), nsec, signatures)
}

#[test]
fn what_is_not_there_has_one_nsec_record() {
    let mut lab = lab();
    for (name, rtype, expected) in [
        ("none.example.com", 1, "none.example.com. 60 IN NSEC \\000.none.example.com. RRSIG NSEC TYPE128"),
        ("web.example.com", 28, "web.example.com. 60 IN NSEC \\000.web.example.com. A TXT RRSIG NSEC"),
        ("b.example.com", 1, "b.example.com. 60 IN NSEC \\000.b.example.com. RRSIG NSEC"),
        ("x.wild.example.com", 1, "x.wild.example.com. 60 IN NSEC \\000.x.wild.example.com. TXT RRSIG NSEC"),
        ("sub.example.com", 43, "sub.example.com. 60 IN NSEC sub\\000.example.com. NS RRSIG NSEC"),
        ("example.com", 16, "NSEC \\000.example.com. NS SOA RRSIG NSEC DNSKEY CDS CDNSKEY"),
    ] {
        let (rcode, nsec, signatures) = proof(&mut lab, &Ask::new(name, rtype).edns(DNSSEC_OK));
        assert_eq!(rcode, "NoError", "{name}");
        let shown = nsec.join(";").replace("Unknown(128)", "TYPE128");
        assert!(shown.contains(expected.split(" NSEC ").next().unwrap_or_default()), "{shown}");
        assert_eq!((nsec.len(), signatures), (1, 2), "{name}: the SOA record and the NSEC record are signed");
    }
}

#[test]
fn the_code_nxdomain_is_for_who_asks_for_it() {
    let mut lab = lab();
    let code = |lab: &mut Lab, flags| proof(lab, &Ask::new("none.example.com", 1).edns(flags)).0;
    assert_eq!(code(&mut lab, DNSSEC_OK), "NoError");
    assert_eq!(code(&mut lab, DNSSEC_OK | COMPACT_OK), "NXDomain");
    assert_eq!(code(&mut lab, 0), "NXDomain");
}

#[test]
fn types_of_dnssec_are_answered_where_an_alias_stands_too() {
    let mut lab = Lab::new([signed_zone("example.com", "www A 192.0.2.1\nal CNAME www\nmail MX 10 www\n")]);
    for (name, rtype) in [("www.example.com", 46), ("al.example.com", 46), ("al.example.com", 47)] {
        for edns in [0, DNSSEC_OK] {
            let answer = lab.ask(&Ask::new(name, rtype).edns(edns));
            assert_eq!(u16::from(answer.answers[0].record_type()), rtype, "{name} {edns:x}");
            let is_alone = answer.answers.iter().all(|record| matches!(u16::from(record.record_type()), 46 | 47));
            assert!(is_alone && answer.authorities.is_empty(), "{name} {rtype}");
        }
    }
    // The addresses of a host that an answer names, with their signatures.
    let answer = lab.ask(&Ask::new("mail.example.com", 15).edns(DNSSEC_OK));
    let added: Vec<u16> = answer.additionals.iter().map(|record| record.record_type().into()).collect();
    assert_eq!(added, [1, 46]);
    let mut plain = Lab::new([zone("example.com", "www A 192.0.2.1\nal CNAME www\n")]);
    for rtype in [46, 47] {
        let answer = plain.ask(&Ask::new("al.example.com", rtype));
        assert!(answer.answers.is_empty() && answer.authorities.len() == 1, "{rtype}");
    }
}

#[test]
fn signatures_are_for_who_takes_them() {
    let mut lab = lab();
    let signatures = |lab: &mut Lab, name, rtype, flags| proof(lab, &Ask::new(name, rtype).edns(flags)).2;
    assert_eq!(signatures(&mut lab, "web.example.com", 1, 0), 0);
    assert_eq!(signatures(&mut lab, "web.example.com", 1, DNSSEC_OK), 1);
    assert_eq!(signatures(&mut lab, "example.com", 48, DNSSEC_OK), 1);
    let ds = lab.ask(&Ask::new("x.safe.example.com", 1).edns(DNSSEC_OK));
    assert!(describe(&ds).contains(" DS 1 13 2 "));
    assert_eq!(signatures(&mut lab, "x.safe.example.com", 1, DNSSEC_OK), 1, "the DS record, not the NS records");
    let (_, nsec, count) = proof(&mut lab, &Ask::new("x.sub.example.com", 1).edns(DNSSEC_OK));
    assert_eq!((nsec.len(), count), (1, 1), "an unsigned delegation has a proof");
}

#[test]
fn a_signature_stays_for_a_day() {
    let mut lab = lab();
    let ask = Ask::new("web.example.com", 1).edns(DNSSEC_OK);
    let first = describe(&lab.ask(&ask));
    let mut changes = 0;
    let mut before = first;
    for _ in 0..48 {
        lab.advance(3_600);
        let after = describe(&lab.ask(&ask));
        changes += usize::from(after != before);
        before = after;
    }
    assert_eq!(changes, 2);
}
