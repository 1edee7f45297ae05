//! Whatever passes the checks becomes a configuration that BIRD takes.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    process::Command,
};

use proptest::{collection::vec, option, prelude::*};
use sallyport_anycast::{
    bird::{EdgePart, PartPrefix, Version, configuration},
    model::{Announcement, BfdTimers, Community, Peer, PeerRole, Place},
};

use crate::network::{bird, can_run};

fn community() -> impl Strategy<Value = Community> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(one, two)| Community::Standard(one, two)),
        any::<(u32, u32, u32)>().prop_map(|(one, two, three)| Community::Large(one, two, three)),
    ]
}

fn role() -> impl Strategy<Value = Option<PeerRole>> {
    option::of(proptest::sample::select(vec![
        PeerRole::Provider,
        PeerRole::Peer,
        PeerRole::RouteServer,
        PeerRole::Customer,
    ]))
}

prop_compose! {
    /// A neighbour, as strange as it may be; most of them pass the checks.
    fn peer()(
        name in "[a-z][a-z0-9-]{0,31}",
        address in prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)],
        (remote_as, local_as) in prop_oneof![any::<(u32, u32)>(), any::<u32>().prop_map(|number| (number, number))],
        role in role(),
        password in option::of("[!-~]{1,80}"),
        hops in prop_oneof![Just(1u8), any::<u8>()],
        bfd in option::of((10u32..=10_000, 2u8..=50)),
        max_prefixes in 1u32..=10_000_000,
        communities in vec(community(), 0..5),
        drain_communities in vec(community(), 0..5),
        prepend in 0u8..=10,
        is_no_export in any::<bool>(),
    ) -> Peer {
        let bfd = bfd.map(|(interval_ms, multiplier)| BfdTimers { interval_ms, multiplier });
        Peer { name, place: Place::Everywhere, address, remote_as, local_as, role, password, hops, bfd, max_prefixes,
            communities, drain_communities, prepend, is_no_export }
    }
}

prop_compose! {
    fn prefix()(
        address in prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)],
        length in 8u8..=32,
        communities in vec(community(), 0..5),
        state in proptest::sample::select(vec![Announcement::Announced, Announcement::Deprioritised, Announcement::Withdrawn]),
    ) -> PartPrefix {
        PartPrefix { net: ipnet::IpNet::new(address, length).unwrap().trunc(), communities, state }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bird_takes_every_configuration(
        mut peers in vec(peer(), 0..6),
        prefixes in vec(prefix(), 0..6),
        rpki in vec("([a-z0-9.-]{1,20}|[0-9.]{7,15}):[0-9]{1,5}", 0..3),
        id in 1u32..,
    ) {
        if !can_run() {
            return Ok(());
        }
        peers.retain(|peer| peer.check().is_ok());
        let prefixes: Vec<PartPrefix> = prefixes.into_iter().filter(|one| is_announceable(one.net)).collect();
        let part = EdgePart {
            edge: "edge-1".parse().unwrap(),
            region: None,
            router_id: Ipv4Addr::from_bits(id),
            own: prefixes.iter().map(|prefix| prefix.net).collect(),
            prefixes,
            peers,
            rpki: rpki.iter().filter_map(|text| text.parse().ok()).collect(),
        };
        let version: Version = "2.0.12".parse().unwrap();
        // Names or addresses may be there twice.
        let Ok(configuration) = configuration(&part, version) else { return Ok(()) };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.conf");
        fs::write(&file, &configuration.text).unwrap();
        let output = Command::new(bird()).arg("-p").arg("-c").arg(&file).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        prop_assert!(output.status.success(), "{errors}\n{}", configuration.text);
    }
}

/// Whether the prefix passes its own check.
fn is_announceable(net: ipnet::IpNet) -> bool {
    use sallyport_anycast::model::{AllowList, AnycastPrefix, PrefixError};
    let prefix =
        AnycastPrefix { net, addresses: Vec::new(), regions: Vec::new(), communities: Vec::new(), min_sites: 1 };
    matches!(prefix.check(&AllowList(vec![net])), Err(PrefixError::NoAddress(_)))
}
