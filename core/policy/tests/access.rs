//! Tests of access lists.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::{collection::vec, option, prelude::*, sample::select};
use sallyport_policy::{AccessError, AccessList, Asn, CompiledList, Country, ListDecision, MAX_RULES, Network, Rule};

fn list(allow: &[&str], deny: &[&str]) -> AccessList {
    let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    AccessList { allow: rules(allow), deny: rules(deny) }
}

fn compiled(allow: &[&str], deny: &[&str]) -> CompiledList {
    list(allow, deny).compile().unwrap()
}

fn decide(list: &CompiledList, address: &str, country: &str, asn: u32) -> ListDecision {
    list.decide(address.parse().unwrap(), country.parse().ok(), Asn::new(asn))
}

#[test]
fn the_empty_list_lets_everyone_in() {
    let list = compiled(&[], &[]);
    for address in ["192.0.2.1", "::1", "::ffff:192.0.2.1"] {
        assert_eq!(decide(&list, address, "", 0), ListDecision { allowed: true, rule: None });
    }
    assert!(!list.needs_country() && !list.needs_asn());
    assert!(AccessList::default().is_empty());
    assert!(decide(&CompiledList::default(), "192.0.2.1", "", 0).allowed);
}

#[test]
fn deny_wins_and_the_default_is_deny() {
    let list = compiled(&["10.0.0.0/8", "2001:db8::/32"], &["10.6.0.0/16"]);
    assert!(decide(&list, "10.1.2.3", "", 0).allowed);
    assert!(decide(&list, "::ffff:10.1.2.3", "", 0).allowed, "IPv4 on a socket of both families");
    assert!(decide(&list, "2001:db8::7", "", 0).allowed);
    let denied = decide(&list, "10.6.7.8", "", 0);
    assert_eq!(denied, ListDecision { allowed: false, rule: Some("10.6.0.0/16".parse().unwrap()) });
    assert_eq!(decide(&list, "11.0.0.1", "", 0), ListDecision { allowed: false, rule: None });
    assert!(!decide(&list, "2001:db9::", "", 0).allowed);
    assert!(!decide(&list, "::ffff:10.6.7.8", "", 0).allowed);
}

#[test]
fn the_narrowest_network_is_named() {
    let list =
        compiled(&["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/16", "10.1.2.0/24"], &["255.255.255.255"]);
    for (address, network) in [
        ("9.9.9.9", "0.0.0.0/0"),
        ("10.0.0.0", "10.0.0.0/8"),
        ("10.1.1.255", "10.1.0.0/16"),
        ("10.1.2.0", "10.1.2.0/24"),
        ("10.1.2.255", "10.1.2.0/24"),
        ("10.1.3.0", "10.1.0.0/16"),
        ("10.255.255.255", "10.0.0.0/8"),
        ("11.0.0.0", "0.0.0.0/0"),
    ] {
        let rule = Some(network.parse().unwrap());
        assert_eq!(decide(&list, address, "", 0), ListDecision { allowed: true, rule }, "{address}");
    }
    assert!(!decide(&list, "255.255.255.255", "", 0).allowed);
}

#[test]
fn a_client_of_an_unknown_country_is_not_allowed_and_is_denied() {
    let allows = compiled(&["country:CH", "asn:64500"], &[]);
    assert!(allows.needs_country() && allows.needs_asn());
    assert!(decide(&allows, "192.0.2.1", "CH", 0).allowed);
    assert!(decide(&allows, "192.0.2.1", "", 64_500).allowed, "one of them is enough");
    assert!(!decide(&allows, "192.0.2.1", "DE", 64_501).allowed);
    assert!(!decide(&allows, "192.0.2.1", "", 0).allowed, "unknown is not allowed");

    let denies = compiled(&[], &["country:CH", "asn:64500"]);
    assert!(!decide(&denies, "192.0.2.1", "CH", 64_501).allowed);
    assert!(!decide(&denies, "192.0.2.1", "DE", 64_500).allowed);
    assert!(decide(&denies, "192.0.2.1", "DE", 64_501).allowed);
    for (country, asn) in [("", 0), ("DE", 0), ("", 64_501)] {
        let decision = decide(&denies, "192.0.2.1", country, asn);
        assert!(!decision.allowed && decision.rule.is_some(), "it may be one of those: {country} {asn}");
    }
    for private in
        ["10.1.2.3", "127.0.0.1", "::1", "fd00::1", "fe80::1", "100.64.0.1", "169.254.1.1", "::ffff:10.0.0.1"]
    {
        assert!(decide(&denies, private, "", 0).allowed, "{private} is in no country, and that is known");
    }

    let both = compiled(&["country:CH"], &["asn:64500"]);
    assert!(!decide(&both, "192.0.2.1", "CH", 64_500).allowed);
    assert!(both.needs_country() && list(&["asn:1"], &[]).needs_asn() && !list(&["asn:1"], &[]).needs_country());
}

#[test]
fn an_unsatisfiable_list_is_refused() {
    let error = |allow: &[&str], deny: &[&str]| list(allow, deny).compile().unwrap_err();
    assert_eq!(error(&[], &["0.0.0.0/0", "::/0"]), AccessError::DeniesEveryone);
    assert_eq!(error(&[], &["0.0.0.0/1", "128.0.0.0/1", "8000::/1", "::/1"]), AccessError::DeniesEveryone);
    assert_eq!(error(&["country:CH"], &["0.0.0.0/0", "::/0"]), AccessError::DeniesEveryone);
    let denied_all =
        error(&["10.1.0.0/16", "country:CH", "asn:1"], &["10.0.0.0/8", "country:CH", "asn:1", "country:DE"]);
    assert_eq!(denied_all, AccessError::AllowsNobody { rule: "10.1.0.0/16".parse().unwrap() });
    assert!(
        denied_all.to_string().contains("nobody could use the socket: 10.1.0.0/16 is allowed and denied"),
        "{denied_all}"
    );
    assert!(matches!(error(&["10.0.0.0/8"], &["10.0.0.0/9", "10.128.0.0/9"]), AccessError::AllowsNobody { .. }));
    assert!(matches!(error(&["::ffff:10.0.0.0/104"], &["0.0.0.0/0"]), AccessError::AllowsNobody { .. }));

    for (allow, deny) in [
        (&["10.0.0.0/8"][..], &["10.0.0.0/9", "10.192.0.0/10"][..]),
        (&["country:CH", "country:DE"], &["country:CH"]),
        (&["10.0.0.0/8"], &["country:CH"]),
        (&["country:CH"], &["0.0.0.0/0"]),
        (&[], &["::/0"]),
        (&[], &["0.0.0.0/0", "::/1", "8000::/2", "c000::/3", "e000::/4"]),
    ] {
        assert!(list(allow, deny).compile().is_ok(), "{allow:?} {deny:?}");
    }
}

#[test]
fn a_list_has_a_bound() {
    let rules = |count: usize| (1..=count).map(|n| Rule::Asn(Asn::new(n as u32).unwrap())).collect::<Vec<_>>();
    assert!(AccessList { allow: rules(500), deny: vec![] }.compile().is_ok());
    assert!(AccessList { allow: rules(MAX_RULES), deny: vec![] }.compile().is_ok());
    let error = AccessList { allow: rules(MAX_RULES), deny: rules(1) }.compile().unwrap_err();
    assert_eq!(error, AccessError::TooManyRules { count: MAX_RULES + 1 });
    assert!(error.to_string().contains("has 1001 rules and may have 1000"), "{error}");
}

#[test]
fn lists_are_json_of_strings() {
    let list = list(&["10.0.0.0/8", "country:CH"], &["asn:64500"]);
    let json = r#"{"allow":["10.0.0.0/8","country:CH"],"deny":["asn:64500"]}"#;
    assert_eq!(serde_json::to_string(&list).unwrap(), json);
    assert_eq!(serde_json::from_str::<AccessList>(json).unwrap(), list);
    assert!(serde_json::from_str::<AccessList>("{}").unwrap().is_empty());
    let error = |json: &str| serde_json::from_str::<AccessList>(json).unwrap_err().to_string();
    assert!(error(r#"{"alow":[]}"#).contains("unknown field `alow`"));
    assert!(error(r#"{"deny":["10.0.0.1/8"]}"#).contains("write 10.0.0.0/8"));
}

/// Networks that are close together, so that they overlap.
fn network() -> impl Strategy<Value = Network> {
    let v4 = (any::<u8>(), 20u8..=32).prop_map(|(low, bits)| {
        let address = Ipv4Addr::from(u32::from(low) << 4 | 0xffff_f000);
        ipnet::IpNet::new(address.into(), bits).unwrap().into()
    });
    let v6 = (any::<u8>(), 116u8..=128).prop_map(|(low, bits)| {
        let address = Ipv6Addr::from(u128::from(low) << 4 | (u128::MAX << 12));
        ipnet::IpNet::new(address.into(), bits).unwrap().into()
    });
    prop_oneof![v4, v6]
}

fn country() -> impl Strategy<Value = Country> {
    select(vec!["CH", "DE", "FR"]).prop_map(|text| text.parse().unwrap())
}

fn asn() -> impl Strategy<Value = Asn> {
    (1u32..4).prop_map(|number| Asn::new(number).unwrap())
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        6 => network().prop_map(Rule::Network),
        1 => country().prop_map(Rule::Country),
        1 => asn().prop_map(Rule::Asn),
    ]
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0u32..4_096).prop_map(|low| IpAddr::from(Ipv4Addr::from(low | 0xffff_f000))),
        (0u128..4_096).prop_map(|low| IpAddr::from(Ipv6Addr::from(low | (u128::MAX << 12)))),
        any::<u32>().prop_map(|any| IpAddr::from(Ipv4Addr::from(any))),
        (0u32..4_096).prop_map(|low| IpAddr::from(Ipv4Addr::from(low | 0xffff_f000).to_ipv6_mapped())),
    ]
}

/// Whether the rule may match the address because its location is unknown.
fn may_match(rule: &Rule, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> bool {
    let is_private = match address.to_canonical() {
        IpAddr::V4(four) => [
            "0.0.0.0/32",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
        ]
        .iter()
        .any(|network| network.parse::<Network>().unwrap().contains(IpAddr::V4(four))),
        IpAddr::V6(six) => ["::/127", "fc00::/7", "fe80::/10"]
            .iter()
            .any(|network| network.parse::<Network>().unwrap().contains(IpAddr::V6(six))),
    };
    let is_unknown = match rule {
        Rule::Network(_) => false,
        Rule::Country(_) => country.is_none(),
        Rule::Asn(_) => asn.is_none(),
    };
    matches(rule, address, country, asn) || (is_unknown && !is_private)
}

fn matches(rule: &Rule, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> bool {
    match rule {
        Rule::Network(network) => network.contains(address),
        Rule::Country(rule) => country == Some(*rule),
        Rule::Asn(rule) => asn == Some(*rule),
    }
}

proptest! {
    /// Every decision equals that of evaluating all rules one by one, and names the narrowest network.
    #[test]
    fn answers_are_those_of_the_rules(
        allow in vec(rule(), 0..12),
        deny in vec(rule(), 0..12),
        clients in vec((address(), option::of(country()), option::of(asn())), 1..40),
    ) {
        let list = AccessList { allow, deny };
        let Ok(compiled) = list.compile() else { return Ok(()) };
        for (address, country, asn) in clients {
            let any = |rules: &[Rule]| rules.iter().any(|rule| matches(rule, address, country, asn));
            let denied = list.deny.iter().any(|rule| may_match(rule, address, country, asn));
            let expected = !denied && (list.allow.is_empty() || any(&list.allow));
            let decision = compiled.decide(address, country, asn);
            prop_assert_eq!(decision.allowed, expected);
            let side = if decision.allowed { &list.allow } else { &list.deny };
            let Some(rule) = decision.rule else { continue };
            prop_assert!(side.contains(&rule) && may_match(&rule, address, country, asn));
            if let Rule::Network(named) = rule {
                let narrower = side.iter().any(|rule| matches!(rule, Rule::Network(network)
                    if network.contains(address) && network.net().prefix_len() > named.net().prefix_len()));
                prop_assert!(!narrower);
            }
        }
    }

    /// A list is refused as useless only if no client at all is admitted.
    #[test]
    fn a_refused_policy_admits_no_subject(
        allow in vec(network().prop_map(Rule::Network), 1..4),
        deny in vec(network().prop_map(Rule::Network), 0..12),
    ) {
        let list = AccessList { allow, deny };
        let every = (0u32..4_096).map(|low| IpAddr::from(Ipv4Addr::from(low | 0xffff_f000)))
            .chain((0u128..4_096).map(|low| IpAddr::from(Ipv6Addr::from(low | (u128::MAX << 12)))));
        let any = |rules: &[Rule], address| rules.iter().any(|rule| matches(rule, address, None, None));
        let is_usable = every.into_iter().any(|address| any(&list.allow, address) && !any(&list.deny, address));
        prop_assert_eq!(list.compile().is_ok(), is_usable);
    }

    #[test]
    fn any_rule_comes_back_from_its_text(rule in rule()) {
        prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
    }

    #[test]
    fn no_text_is_too_strange(text in "(country:|asn:)?[0-9a-fA-F:./%CH ]{0,24}|\\PC{0,40}") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
        }
    }
}
