use proptest::prelude::*;

use super::*;
use crate::model::{AnycastConfig, AnycastPrefix, BfdTimers, Place};

fn peer(name: &str, address: &str) -> Peer {
    Peer {
        name: name.to_owned(),
        place: Place::Everywhere,
        address: address.parse().unwrap(),
        remote_as: 64501,
        local_as: 64500,
        role: None,
        password: None,
        hops: 1,
        bfd: None,
        max_prefixes: 10,
        communities: Vec::new(),
        drain_communities: Vec::new(),
        prepend: 0,
        is_no_export: false,
    }
}

fn part(peers: Vec<Peer>) -> EdgePart {
    let prefix = |net: &str, regions: &[&str]| AnycastPrefix {
        net: net.parse().unwrap(),
        addresses: Vec::new(),
        regions: regions.iter().map(|region| region.parse().unwrap()).collect(),
        communities: vec![Community::Standard(64500, 7)],
        min_sites: 1,
    };
    let prefixes =
        vec![prefix("198.51.100.0/24", &[]), prefix("203.0.113.0/24", &["us-east"]), prefix("2001:db8::/32", &[])];
    let config = AnycastConfig { prefixes, peers, orders: Vec::new() };
    let edge = "edge-1".parse().unwrap();
    EdgePart::of(&config, &edge, Some(&"eu-west".parse().unwrap()), "192.0.2.1".parse().unwrap())
}

fn text(part: &EdgePart, version: &str) -> String {
    configuration(part, version.parse().unwrap()).unwrap().text
}

#[test]
fn an_edge_takes_its_part() {
    let mut here = peer("here", "10.0.0.2");
    here.place = Place::Region("eu-west".parse().unwrap());
    let mut there = peer("there", "10.0.0.3");
    there.place = Place::Edge("edge-2".parse().unwrap());
    let mut part = part(vec![here, there]);
    assert_eq!(part.peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>(), ["here"]);
    assert_eq!(part.prefixes.len(), 2, "the third one is for another region");
    assert!(!part.set("203.0.113.0/24".parse().unwrap(), Announcement::Announced));
    assert!(!text(&part, "2.0.12").contains("blackhole"), "nothing is announced");
    assert!(part.set("198.51.100.0/24".parse().unwrap(), Announcement::Announced));
    let text = text(&part, "2.0.12");
    assert!(text.contains("  route 198.51.100.0/24 blackhole { bgp_community.add((64500,7)); };"), "{text}");
    // What comes back of all own prefixes is listened to.
    assert!(text.contains("if net ~ [ 198.51.100.0/24+, 203.0.113.0/24+ ] then"), "{text}");
}

#[test]
fn what_the_edge_does_not_permit_is_not_announced() {
    let mut part = part(vec![peer("one", "10.0.0.2")]);
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
    let allowed = crate::model::AllowList(nets(&["2001::/16", "198.51.100.0/25"]));
    assert_eq!(part.keep_allowed(&allowed), nets(&["198.51.100.0/24"]));
    assert!(!part.set("198.51.100.0/24".parse().unwrap(), Announcement::Announced));
    assert!(!text(&part, "2.0.12").contains("198.51.100"));
    assert!(part.set("2001:db8::/32".parse().unwrap(), Announcement::Announced));
}

#[test]
fn a_state_changes_the_route_alone() {
    let mut part = part(vec![peer("one", "10.0.0.2"), peer("two", "2001:db8:ffff::2")]);
    let net = "198.51.100.0/24".parse().unwrap();
    let mut texts = Vec::new();
    for state in [Announcement::Withdrawn, Announcement::Deprioritised, Announcement::Announced] {
        part.set(net, state);
        let text = text(&part, "2.0.12");
        let lines: Vec<String> = text.lines().filter(|line| !line.contains("blackhole")).map(str::to_owned).collect();
        texts.push(lines);
    }
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn versions_say_what_they_lack() {
    let mut one = peer("one", "10.0.0.2");
    (one.role, one.bfd) = (Some(PeerRole::Provider), Some(BfdTimers::default()));
    let part = part(vec![one]);
    let made = |version: &str| configuration(&part, version.parse().unwrap()).unwrap();
    let says = |version: &str, words: &str| made(version).missing.iter().any(|sentence| sentence.contains(words));
    assert!(made("2.0.12").text.contains("local role customer;") && !made("2.0.12").text.contains("send hold time"));
    assert!(
        !says("2.0.12", "roles")
            && says("2.0.12", "send hold timer")
            && says("2.0.12", "ASPA")
            && says("2.0.12", "TCP-AO")
    );
    assert!(!made("2.0.10").text.contains("local role") && says("2.0.10", "roles (RFC 9234)"));
    assert!(made("2.17").text.contains("send hold time 60;"));
    assert_eq!(made("2.17").missing, ["the edge has no neighbour of IPv6, so nobody hears its IPv6 prefixes"]);
}

#[test]
fn what_was_not_checked_is_refused() {
    let error = |part: &EdgePart| configuration(part, Version::OLDEST).unwrap_err().to_string();
    let mut bad = part(vec![peer("one", "10.0.0.2")]);
    bad.peers[0].password = Some("x\"; include \"/etc/shadow".to_owned());
    assert!(error(&bad).contains("the neighbour \"one\" is refused: a password"), "{}", error(&bad));
    let two = part(vec![peer("one", "10.0.0.2"), peer("one", "10.0.0.3")]);
    assert_eq!(error(&two), "two neighbours of this edge are named one");
    let two = part(vec![peer("one", "10.0.0.2"), peer("two", "10.0.0.2")]);
    assert_eq!(error(&two), "two neighbours of this edge have the address 10.0.0.2");
    let mut bits = part(Vec::new());
    bits.own[0] = "198.51.100.1/24".parse().unwrap();
    assert_eq!(error(&bits), "198.51.100.1/24 has bits after its length");
    let mut many = part(Vec::new());
    many.rpki = vec!["rtr:1".parse().unwrap(); MAX_RPKI_SERVERS + 1];
    assert!(error(&many).contains("at most"));
    many.rpki.clear();
    many.router_id = std::net::Ipv4Addr::UNSPECIFIED;
    assert_eq!(error(&many), "0.0.0.0 is no router id");
}

#[test]
fn names_of_protocols_go_both_ways() {
    for name in ["a", "transit-1", "a--b-"] {
        assert_eq!(peer_of(&protocol_of(name)).as_deref(), Some(name));
    }
    assert_eq!((peer_of("sp_static4"), peer_of("sp_peer_")), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No text of a neighbour reaches the file unless it is made of harmless characters.
    #[test]
    fn no_text_brings_statements_of_its_own(name in any::<String>(), password in any::<Option<String>>(), host in any::<String>()) {
        let mut one = peer("one", "10.0.0.2");
        (one.name, one.password) = (name.clone(), password.clone());
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if one.check().is_ok() {
            prop_assert!(name.bytes().all(is_name));
            prop_assert!(password.iter().all(|text| !text.contains(['"', '\'', '\\', '\n', '\r', '\0', ' '])));
        } else {
            prop_assert!(configuration(&part(vec![one]), Version::OLDEST).is_err());
        }
        if let Ok(server) = format!("{host}:1").parse::<crate::bird::RpkiServer>() {
            prop_assert!(server.host().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte)));
        }
    }

    /// The same with one bad character within good ones.
    #[test]
    fn quotes_braces_and_lines_are_refused(before in "[a-z]{1,5}", bad in "[\"'\\\\\n\r\0{};# ]", after in "[a-z]{0,5}") {
        let text = format!("{before}{bad}{after}");
        let mut one = peer(&text, "10.0.0.2");
        prop_assert!(one.check().is_err());
        one = peer("one", "10.0.0.2");
        one.password = Some(text.clone());
        // Braces and semicolons are harmless within quotes.
        prop_assert_eq!(one.check().is_ok(), "{};#".contains(&bad));
        let server = text.clone() + ":1";
        prop_assert!(server.parse::<crate::bird::RpkiServer>().is_err());
        prop_assert!(text.parse::<sallyport_model::EdgeName>().is_err());
        prop_assert!(text.parse::<sallyport_model::RegionName>().is_err());
    }
}
