//! Addresses of edges, ALIAS records and challenges.

use std::net::IpAddr;

use sallyport_zone::{
    Record, RecordData, View, Zone,
    data::{HttpPorts, ViewError},
};

use crate::support::{Ask, DNSSEC_OK, Lab, signed_zone, zone};

const SOA: &str = "auth example.com. 60 IN SOA ns.example.com. host.example.com. 1 3600 600 86400 60";

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A zone whose wildcard is the edges, and whose apex is an alias. `own` is the edges too, and has an HTTPS record.
fn lab() -> Lab {
    let base = signed_zone("example.com", "*.there TXT static\nother CNAME a\nown HTTPS 1 . alpn=h2");
    let mut records = base.records();
    let more = |owner: &str, data| Record { owner: owner.parse().unwrap(), ttl: 20, data };
    records.push(more("*.example.com", RecordData::Edges("eu".to_owned())));
    records.push(more("own.example.com", RecordData::Edges("eu".to_owned())));
    records.push(more("example.com", RecordData::Alias("lb.example.net".parse().unwrap())));
    let zone = Zone::build(base.apex().clone(), records, base.keys().cloned()).unwrap();
    assert!(!zone.is_static());
    Lab::new([zone])
}

#[test]
fn the_edges_answer_while_one_is_known() {
    let mut lab = lab();
    assert_eq!(lab.text("a.example.com", 1), "ServFail aa", "nobody has said which edges there are");
    lab.view.set_group("eu", 20, &addresses(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]), None).unwrap();
    assert_eq!(
        lab.text("a.example.com", 1),
        "NoError aa; a.example.com. 20 IN A 192.0.2.1; a.example.com. 20 IN A 192.0.2.2"
    );
    assert_eq!(lab.text("a.b.example.com", 28), "NoError aa; a.b.example.com. 20 IN AAAA 2001:db8::1");
    lab.view.set_group("eu", 20, &addresses(&["192.0.2.2"]), None).unwrap();
    assert_eq!(lab.text("a.example.com", 1), "NoError aa; a.example.com. 20 IN A 192.0.2.2");
    assert_eq!(lab.text("a.example.com", 28), format!("NoError aa; {SOA}"));
    // All edges are down: the last known ones.
    lab.view.set_group("eu", 20, &[], None).unwrap();
    assert_eq!(lab.text("a.example.com", 1), "NoError aa; a.example.com. 20 IN A 192.0.2.2");
}

#[test]
fn names_of_edges_have_an_https_record_while_these_serve_http3() {
    let mut lab = lab();
    // The reader of these tests writes a comma after each protocol.
    let own = "NoError aa; own.example.com. 300 IN HTTPS 1 . alpn=h2,";
    let all = addresses(&["192.0.2.1"]);
    lab.view.set_alias("lb.example.net".parse().unwrap(), 30, &all).unwrap();
    // The types at the name by its NSEC record, which comes with what is not there.
    let types = |lab: &mut Lab, name| {
        let denied = lab.ask(&Ask::new(name, 28).edns(DNSSEC_OK));
        let nsec = denied.authorities.iter().map(ToString::to_string).find(|text| text.contains(" NSEC \\000."));
        nsec.unwrap().rsplit_once(". ").unwrap().1.to_owned()
    };
    let none = format!("NoError aa; {SOA}");
    assert_eq!(lab.text("a.example.com", 65), none, "no edge is known");
    for ports in [None, Some(HttpPorts { tcp: 443, udp: 443 }), Some(HttpPorts { tcp: 8443, udp: 8443 }), None] {
        lab.view.set_group("eu", 20, &all, ports).unwrap();
        let port = if ports.is_some_and(|ports| ports.udp == 8443) { " port=8443" } else { "" };
        let record = |name| format!("{name}. 20 IN HTTPS 1 . alpn=h3,h2,{port}");
        let (answered, answer) = (ports.is_some(), lab.text("a.example.com", 65));
        assert_eq!(answer, if answered { format!("NoError aa; {}", record("a.example.com")) } else { none.clone() });
        assert_eq!(types(&mut lab, "a.example.com"), if answered { "A RRSIG NSEC HTTPS" } else { "A RRSIG NSEC" });
        let signed = lab.ask(&Ask::new("a.example.com", 65).edns(DNSSEC_OK));
        let signed: Vec<u16> = signed.answers.iter().map(|record| record.record_type().into()).collect();
        assert_eq!(signed, if answered { &[65, 46][..] } else { &[] });
        // An alias leads to the record.
        assert_eq!(lab.text("other.example.com", 65).contains(&record("a.example.com")), answered);
        // What the owner has written stays, and an alias of another host says nothing of that host's protocols.
        assert_eq!(lab.text("own.example.com", 65), own);
        assert_eq!(types(&mut lab, "own.example.com"), "A RRSIG NSEC HTTPS");
        assert_eq!(lab.text("example.com", 65), none);
        assert!(!types(&mut lab, "example.com").contains("HTTPS"));
    }
}

#[test]
fn many_edges_are_shared_out_among_networks() {
    let mut lab = lab();
    let many: Vec<IpAddr> = (0..100_u8).map(|n| [192, 0, 2, n].into()).collect();
    lab.view.set_group("eu", 20, &many, None).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for network in 0..100 {
        lab.peer.address = [198, 51, network, 7].into();
        let first = lab.ask(&Ask::new("a.example.com", 1).edns(DNSSEC_OK));
        assert!(!first.metadata.truncation && (11..=17).contains(&first.answers.len()));
        lab.peer.address = [198, 51, network, 99].into();
        let second = lab.ask(&Ask::new("a.example.com", 1).edns(DNSSEC_OK));
        assert_eq!(first.answers, second.answers, "one network, one answer");
        seen.extend(first.answers.iter().map(|record| format!("{record}")).filter(|text| text.contains(" A 192")));
    }
    assert_eq!(seen.len(), 100);
}

#[test]
fn an_alias_at_the_apex_has_the_addresses_of_its_target() {
    let mut lab = lab();
    assert_eq!(lab.text("example.com", 1), "ServFail aa");
    lab.view.set_alias("lb.example.net".parse().unwrap(), 30, &addresses(&["198.51.100.7"])).unwrap();
    assert_eq!(lab.text("example.com", 1), "NoError aa; example.com. 30 IN A 198.51.100.7");
    assert!(lab.text("example.com", 6).starts_with("NoError aa; example.com. 300 IN SOA "));
}

#[test]
fn challenges_are_answered_and_go_away() {
    let mut lab = lab();
    lab.view.set_group("eu", 20, &addresses(&["192.0.2.1"]), None).unwrap();
    let name = |text: &str| text.parse().unwrap();
    let challenge = "_acme-challenge.app.example.com";
    let edges = "NoError aa; app.example.com. 20 IN A 192.0.2.1";
    assert_eq!(lab.text(challenge, 16), format!("NoError aa; {SOA}"));
    let values = vec!["first".to_owned(), "second".to_owned()];
    lab.view
        .set_challenges(
            5,
            &[(name(challenge), values), (name("_acme-challenge.x.y.there.example.com"), vec!["deep".to_owned()])],
        )
        .unwrap();
    assert_eq!(
        lab.text(challenge, 16),
        "NoError aa; _acme-challenge.app.example.com. 5 IN TXT first; \
         _acme-challenge.app.example.com. 5 IN TXT second"
    );
    let signed = lab.ask(&Ask::new("_acme-challenge.app.example.com", 16).edns(DNSSEC_OK));
    assert_eq!(signed.answers.len(), 3, "two values and a signature");
    assert_eq!(lab.text("app.example.com", 1), edges, "the name above keeps its records");
    assert!(lab.text("x.y.there.example.com", 16).contains(" TXT static"));
    lab.view.set_challenges(5, &[]).unwrap();
    assert_eq!(lab.text(challenge, 16), format!("NoError aa; {SOA}"));
}

#[test]
fn a_name_above_a_challenge_is_there() {
    let mut lab = Lab::new([zone("example.com", "")]);
    assert_eq!(lab.text("app.example.com", 1), format!("NXDomain aa; {SOA}"));
    lab.view.set_challenges(5, &[("_acme-challenge.app.example.com".parse().unwrap(), vec!["x".to_owned()])]).unwrap();
    assert_eq!(lab.text("app.example.com", 1), format!("NoError aa; {SOA}"));
    assert_eq!(lab.text("_acme-challenge.app.example.com", 1), format!("NoError aa; {SOA}"));
}

#[test]
fn the_view_has_bounds() {
    let mut view = View::default();
    let many: Vec<IpAddr> = (0..257_u32).map(|n| IpAddr::V4(n.into())).collect();
    assert!(matches!(view.set_group("g", 1, &many, None), Err(ViewError::TooManyAddresses(_))));
    assert!(matches!(view.set_alias("a.b".parse().unwrap(), 1, &many), Err(ViewError::TooManyAddresses(_))));
    let long = vec![("_acme-challenge.a.b".parse().unwrap(), vec!["x".repeat(256)])];
    assert!(matches!(view.set_challenges(1, &long), Err(ViewError::Challenge(_))));
    let values = vec![("_acme-challenge.a.b".parse().unwrap(), vec!["x".to_owned(); 17])];
    assert!(matches!(view.set_challenges(1, &values), Err(ViewError::Challenge(_))));
}
