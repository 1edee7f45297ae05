//! Answers that are chosen for a client: by its network, its resolver, and the dials of regions.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use hickory_proto::op::Message;
use proptest::prelude::*;
use sallyport_model::{DnsRegion, DnsSteeringPart, RegionName};
use sallyport_zone::{
    AnswerKind, Record, RecordData, Zone,
    data::{HttpPorts, Site, Steered, Steering},
    steer::{ChoiceReason, Keep, MeasuredNetwork, MeasuredResolver, PlanInput, RegionTime, SteeringTable, plan},
};

use crate::{
    edns::options,
    support::{Ask, DNSSEC_OK, Lab, signed_zone},
};

const REGIONS: [&str; 3] = ["ap", "eu", "us"];
const CLIENT_SUBNET: u16 = 8;

fn region(name: &str) -> RegionName {
    name.parse().unwrap()
}

fn times(of: &[(&str, u32)]) -> Vec<RegionTime> {
    of.iter().map(|(name, ms)| RegionTime { region: region(name), micros: ms * 1_000 }).collect()
}

fn network(text: &str, of: &[(&str, u32)]) -> MeasuredNetwork {
    MeasuredNetwork { network: text.parse().unwrap(), times: times(of), requests: 1 }
}

/// Each region has an address of IPv4 that ends with its place, and one of IPv6.
fn sites(keep: impl Fn(&str) -> Keep) -> Vec<Site> {
    let site = |(at, name): (usize, &&str)| Site {
        region: region(name),
        addresses: vec![[203, 0, 113, at as u8 + 1].into(), format!("2001:db8::{}", at + 1).parse().unwrap()],
        ports: Some(HttpPorts { tcp: 443, udp: 8_000 + at as u16 }),
        keep: keep(name),
        slot: at as u8,
    };
    REGIONS.iter().enumerate().map(site).collect()
}

fn open(_: &str) -> Keep {
    Keep::default()
}

fn input(networks: Vec<MeasuredNetwork>) -> PlanInput {
    PlanInput { regions: REGIONS.map(region).to_vec(), networks, ..PlanInput::default() }
}

fn table(input: &PlanInput) -> Arc<SteeringTable> {
    Arc::new(SteeringTable::new(&plan(input)))
}

/// A server whose names have the addresses of all edges.
fn lab() -> Lab {
    let base = signed_zone("example.com", "txt TXT static");
    let mut records = base.records();
    let edges =
        |owner: &str| Record { owner: owner.parse().unwrap(), ttl: 30, data: RecordData::Edges("all".to_owned()) };
    records.extend([edges("*.example.com"), edges("example.com")]);
    let mut lab = Lab::new([Zone::build(base.apex().clone(), records, base.keys().cloned()).unwrap()]);
    let all: Vec<IpAddr> = sites(open).into_iter().flat_map(|site| site.addresses).collect();
    lab.view.set_group("all", 30, &all, None).unwrap();
    lab.peer.address = [9, 9, 9, 9].into();
    lab
}

fn steered(table: &Arc<SteeringTable>, sites: &[Site], global: &[IpAddr]) -> Lab {
    let mut lab = lab();
    lab.view.set_steering(Steering::new(table.clone(), sites, (global, None), 30).map(Arc::new));
    assert!(lab.view.steering().is_some());
    lab
}

/// The option of a client's network.
fn subnet(text: &str) -> Vec<u8> {
    let (address, prefix) = text.split_once('/').unwrap();
    let (address, prefix): (IpAddr, u8) = (address.parse().unwrap(), prefix.parse().unwrap());
    let (family, bytes) = match address {
        IpAddr::V4(four) => (1, four.octets().to_vec()),
        IpAddr::V6(six) => (2, six.octets().to_vec()),
    };
    [&[0, family, prefix, 0], &bytes[..usize::from(prefix).div_ceil(8)]].concat()
}

/// What is answered: the last parts of the addresses, the scope, and how it was chosen.
fn ask_from(lab: &mut Lab, client: Option<&str>) -> (Vec<u8>, Option<u8>, Option<Steered>) {
    let ask = Ask::new("www.example.com", 1);
    let ask = client.iter().fold(ask, |ask, client| ask.option(CLIENT_SUBNET, &subnet(client)));
    let (outcome, out) = lab.send(&ask.bytes());
    let message = Message::from_vec(&out).unwrap();
    let last = |record: &hickory_proto::rr::Record| record.to_string().rsplit('.').next().unwrap().parse().unwrap();
    let scope = options(&out).into_iter().find(|(code, _)| *code == CLIENT_SUBNET).map(|(_, value)| {
        let asked = subnet(client.unwrap());
        assert_eq!((&value[..3], &value[4..]), (&asked[..3], &asked[4..]), "the option comes back as it was");
        value[3]
    });
    assert!(message.answers.iter().all(|record| record.ttl == 30), "{message:?}");
    (message.answers.iter().map(last).collect(), scope, outcome.steered)
}

#[test]
fn each_client_gets_its_nearest_region_and_the_scope_that_was_measured() {
    let mut measured = input(vec![
        network("192.0.2.0/24", &[("eu", 10), ("us", 90), ("ap", 200)]),
        network("198.51.0.0/16", &[("us", 10), ("eu", 90)]),
        network("198.51.100.0/24", &[("ap", 10), ("us", 90)]),
        network("2001:db8:1::/48", &[("ap", 10), ("us", 90)]),
    ]);
    measured.resolvers.push(MeasuredResolver {
        address: [8, 8, 8, 8].into(),
        times: times(&[("us", 20), ("eu", 30)]),
        requests: 7,
    });
    let mut lab = steered(&table(&measured), &sites(open), &[[203, 0, 113, 99].into()]);
    let mut at = |client: Option<&str>| {
        let (addresses, scope, how) = ask_from(&mut lab, client);
        (addresses, scope, how.unwrap().reason)
    };
    use ChoiceReason::{Global, Network, Resolver, Subnet};
    let (ap, eu, us, global) = (vec![1], vec![2], vec![3], vec![99]);
    assert_eq!(at(Some("192.0.2.0/24")), (eu.clone(), Some(24), Subnet));
    assert_eq!(at(Some("192.0.2.77/32")), (eu.clone(), Some(24), Subnet), "no more than 24 bits count");
    assert_eq!(at(Some("198.51.200.0/24")), (us.clone(), Some(17), Subnet), "198.51.100.0/24 is elsewhere");
    assert_eq!(at(Some("198.51.100.0/24")), (ap.clone(), Some(24), Subnet));
    assert_eq!(at(Some("2001:db8:1:5::/64")), (ap, Some(48), Subnet));
    assert_eq!(at(Some("203.0.113.0/24")), (global.clone(), Some(5), Global), "nothing was measured there");
    assert_eq!(at(Some("192.0.0.0/16")), (global.clone(), Some(23), Global), "too short, and a part was measured");
    // Nobody is there, or the client wants to stay unknown.
    for nobody in ["10.0.0.0/24", "127.0.0.0/24", "224.0.0.0/24", "fd00::/56", "::ffff:192.0.2.0/120", "0.0.0.0/0"] {
        assert_eq!(at(Some(nobody)), (global.clone(), Some(0), Global), "{nobody}");
    }
    assert_eq!(at(None), (global, None, Global));
    lab.peer.address = [8, 8, 8, 8].into();
    let mut at = |client: Option<&str>| {
        let (addresses, scope, how) = ask_from(&mut lab, client);
        (addresses, scope, how.unwrap().reason)
    };
    assert_eq!(at(None), (us.clone(), None, Resolver));
    assert_eq!(at(Some("10.0.0.0/24")), (us.clone(), Some(0), Resolver));
    assert_eq!(at(Some("192.0.2.0/24")), (eu.clone(), Some(24), Subnet));
    assert_eq!(at(Some("203.0.113.0/24")), (us, Some(5), Resolver), "its network is not known, its resolver is");
    lab.peer.address = [192, 0, 2, 53].into();
    let (addresses, _, how) = ask_from(&mut lab, None);
    assert_eq!((addresses, how.unwrap().reason), (eu, Network));
}

#[test]
fn answers_for_everybody_have_the_scope_0() {
    let mut lab = steered(&table(&input(vec![network("192.0.2.0/24", &[("eu", 1)])])), &sites(open), &[]);
    let (outcome, out) =
        lab.send(&Ask::new("txt.example.com", 16).option(CLIENT_SUBNET, &subnet("192.0.2.0/24")).bytes());
    assert_eq!(options(&out), [(CLIENT_SUBNET, subnet("192.0.2.0/24"))]);
    assert_eq!(outcome.steered, None);
    // Without what was measured, or with one region, nobody is steered, and all edges are answered.
    let one = table(&input(vec![network("192.0.2.0/24", &[("eu", 1)])]));
    assert!(Steering::new(one.clone(), &sites(open)[..1], (&[], None), 30).is_none());
    assert!(Steering::new(Arc::default(), &sites(open), (&[], None), 30).is_none());
    lab.view.set_steering(None);
    assert_eq!(ask_from(&mut lab, Some("192.0.2.0/24")), (vec![1, 2, 3], Some(0), None));
    // Where there is no address for everybody, clients that are not known get all edges.
    let mut lab = steered(&one, &sites(open), &[]);
    assert_eq!(ask_from(&mut lab, Some("203.0.113.0/24")).0, [1, 2, 3]);
    // Malformed options are refused as before.
    let bad = lab.send(&Ask::new("www.example.com", 1).option(CLIENT_SUBNET, &[0, 1, 24, 9, 1, 2, 3]).bytes());
    assert_eq!(bad.0.kind, AnswerKind::Malformed);
}

#[test]
fn https_records_have_the_ports_of_the_edges_that_are_answered() {
    let all = table(&input(vec![network("192.0.2.0/24", &[("eu", 1)]), network("198.51.100.0/24", &[("us", 1)])]));
    let mut lab = steered(&all, &sites(open), &[]);
    for (client, port) in [("192.0.2.0/24", Some("8001")), ("198.51.100.0/24", Some("8002")), ("203.0.113.0/24", None)]
    {
        let ask = Ask::new("www.example.com", 65).option(CLIENT_SUBNET, &subnet(client));
        let answers = lab.ask(&ask).answers;
        let text = answers.first().map(ToString::to_string);
        assert_eq!(text.is_some(), port.is_some(), "{text:?}: the edges of all regions have no port in common");
        assert!(port.is_none_or(|port| text.unwrap().contains(&format!("port={port}"))), "{client}");
    }
}

#[test]
fn a_region_without_edges_is_passed_by_and_one_without_ipv4_too() {
    let all = table(&input(vec![network("192.0.2.0/24", &[("eu", 10), ("us", 90), ("ap", 200)])]));
    let mut lab = steered(&all, &[sites(open)[0].clone(), sites(open)[2].clone()], &[]);
    assert_eq!(ask_from(&mut lab, Some("192.0.2.0/24")).0, [3]);
    let mut without_v4 = sites(open);
    without_v4[1].addresses.remove(0);
    let mut lab = steered(&all, &without_v4, &[]);
    assert_eq!(ask_from(&mut lab, Some("192.0.2.0/24")).0, [3], "the client might have IPv4 alone");
}

/// 500 clients near eu, and as many near us.
fn a_thousand() -> PlanInput {
    let net = |n: u32, first: u8| MeasuredNetwork {
        network: format!("{first}.{}.{}.0/24", n / 250, n % 250).parse().unwrap(),
        times: if first == 20 {
            times(&[("eu", 10), ("us", 80), ("ap", 200)])
        } else {
            times(&[("us", 10), ("ap", 90)])
        },
        requests: 1,
    };
    input((0..500).flat_map(|n| [net(n, 20), net(n, 30)]).collect())
}

/// Where the clients of `first` go: how many by the last part of the address, and each client's.
fn where_clients_go(table: &Arc<SteeringTable>, dials: &[(&str, u8)], first: u8) -> (BTreeMap<u8, usize>, Vec<u8>) {
    let keep = |name: &str| Keep::new(dials.iter().find(|(of, _)| *of == name).map_or(100, |(_, dial)| *dial), 100);
    let mut lab = steered(table, &sites(keep), &[]);
    let each: Vec<u8> = (0..500)
        .map(|n| {
            let (addresses, scope, _) = ask_from(&mut lab, Some(&format!("{first}.{}.{}.0/24", n / 250, n % 250)));
            assert_eq!((addresses.len(), scope), (1, Some(24)));
            addresses[0]
        })
        .collect();
    let mut counts = BTreeMap::new();
    each.iter().for_each(|region| *counts.entry(*region).or_default() += 1);
    (counts, each)
}

#[test]
fn a_dial_passes_on_its_part_of_what_comes_and_moves_no_other_client() {
    let all = table(&a_thousand());
    let (near, before) = where_clients_go(&all, &[], 20);
    assert_eq!(near, BTreeMap::from([(2, 500)]));
    let (half, each) = where_clients_go(&all, &[("eu", 50)], 20);
    assert_eq!(half, BTreeMap::from([(2, 250), (3, 250)]), "half of eu goes to us, which is next");
    assert_eq!(where_clients_go(&all, &[("eu", 50)], 20).1, each, "the same clients each time");
    assert_eq!(where_clients_go(&all, &[("eu", 50)], 30).0, BTreeMap::from([(3, 500)]), "those near us stay");
    // A higher dial moves nobody out.
    let (_, more) = where_clients_go(&all, &[("eu", 60)], 20);
    assert!(each.iter().zip(&more).all(|(at_50, at_60)| *at_50 != 2 || *at_60 == 2));
    assert_eq!(more.iter().filter(|region| **region == 2).count(), 300);
    // The next region's dial applies in turn, and the last one keeps the rest.
    let (three, _) = where_clients_go(&all, &[("eu", 20), ("us", 50), ("ap", 10)], 20);
    assert_eq!(three, BTreeMap::from([(1, 200), (2, 100), (3, 200)]));
    assert_eq!(where_clients_go(&all, &[("eu", 0)], 20).0, BTreeMap::from([(3, 500)]));
    let none = [("eu", 0), ("us", 0), ("ap", 0)];
    assert_eq!(where_clients_go(&all, &none, 20).1, before, "edges prefer to serve");
}

#[test]
fn a_share_sheds_like_a_dial_and_both_multiply() {
    assert_eq!(Keep::new(50, 50), Keep::new(25, 100));
    assert_eq!(Keep::new(100, 40), Keep::new(40, 100));
    assert_eq!(Keep::default(), Keep::new(255, 100));
}

#[test]
fn dials_count_requests_where_they_are_known() {
    // A fifth of the networks has nearly all requests.
    let mut heavy = a_thousand();
    heavy.networks.iter_mut().step_by(10).for_each(|one| one.requests = 1_000);
    let all = table(&heavy);
    let (_, each) = where_clients_go(&all, &[("eu", 50)], 20);
    let weight = |n: usize| if n.is_multiple_of(5) { 1_000 } else { 1 };
    let kept: u64 = each.iter().enumerate().filter(|(_, at)| **at == 2).map(|(n, _)| weight(n)).sum();
    let total: u64 = (0..500).map(weight).sum();
    assert!(kept.abs_diff(total / 2) <= 1_000, "{kept} of {total}: within one client of half");
}

#[test]
fn a_flood_of_client_networks_leaves_no_trace() {
    let mut lab = steered(&table(&a_thousand()), &sites(open), &[]);
    let signed =
        |client: &str| Ask::new("www.example.com", 1).edns(DNSSEC_OK).option(CLIENT_SUBNET, &subnet(client)).bytes();
    // One answer of each kind, and one of another name.
    for client in ["20.0.0.0/24", "30.0.0.0/24", "40.0.0.0/24"] {
        assert_eq!(lab.send(&signed(client)).0.kind, AnswerKind::Records);
    }
    let other = Ask::new("txt.example.com", 16).edns(DNSSEC_OK).bytes();
    lab.send(&other);
    let made = lab.state.signatures_made();
    assert_eq!(made, 4);
    let mut answers = BTreeSet::new();
    for n in 0..20_000_u32 {
        let address = Ipv4Addr::from(n.wrapping_mul(2_654_435_761) & !0xff);
        let (outcome, out) = lab.send(&signed(&format!("{address}/24")));
        assert_eq!(outcome.kind, AnswerKind::Records);
        answers.insert(out[..out.len() - 11].to_vec());
    }
    assert!(answers.len() <= 3, "the answers are those of regions, and for everybody: {}", answers.len());
    lab.send(&other);
    assert_eq!(lab.state.signatures_made(), made, "nothing was added, and nothing evicted");
}

#[test]
fn rates_count_by_the_address_of_the_resolver() {
    let mut lab = steered(&table(&a_thousand()), &sites(open), &[]);
    lab.state = sallyport_zone::State::new(sallyport_zone::StateConfig::default(), [5; 16]);
    let limited = (0..1_000_u32)
        .filter(|n| {
            let ask = Ask::new("www.example.com", 1)
                .option(CLIENT_SUBNET, &subnet(&format!("20.{}.{}.0/24", n / 250, n % 250)));
            lab.send(&ask.bytes()).0.kind == AnswerKind::Limited
        })
        .count();
    assert!(limited >= 800, "{limited}");
}

#[test]
fn parts_are_short_and_few_and_a_change_touches_one() {
    let net = |n: u32, requests| MeasuredNetwork {
        network: format!("2001:db8:{:x}:{:x}00::/56", n >> 8, n & 0xff).parse().unwrap(),
        times: (0..8)
            .map(|at| RegionTime { region: region(&format!("region-with-a-name-{at}")), micros: 1 + (n >> at) % 7 })
            .collect(),
        requests,
    };
    let names = (0..8).map(|at| region(&format!("region-with-a-name-{at}"))).collect();
    let mut input = PlanInput { regions: names, ..PlanInput::default() };
    input.networks = (0..110_000).map(|n| net(n, u64::from(u32::MAX) - u64::from(n))).collect();
    let parts = plan(&input);
    assert_eq!(parts.len(), 49);
    let longest = parts.iter().map(|part| serde_json::to_vec(part).unwrap().len()).max().unwrap();
    assert!(longest < 400_000, "{longest} bytes");
    let table = SteeringTable::new(&parts);
    assert_eq!(table.sizes(), (100_000, 0), "those with the most requests");
    input.networks[17].times.reverse();
    input.networks[17].times.truncate(1);
    let changed = plan(&input).iter().zip(&parts).filter(|(new, old)| new != old).count();
    assert_eq!(changed, 1);
    let read: Vec<DnsSteeringPart> =
        parts.iter().map(|part| serde_json::from_slice(&serde_json::to_vec(part).unwrap()).unwrap()).collect();
    assert_eq!(read, parts);
}

#[test]
fn settings_reach_the_first_part_and_unknown_regions_no_ranking() {
    let mut input =
        input(vec![network("192.0.2.0/24", &[("mars", 1), ("eu", 9)]), network("10.0.0.0/30", &[("us", 1)])]);
    let eu = DnsRegion { dial: 50, addresses: vec![[192, 0, 2, 1].into(); 20], ..DnsRegion::default() };
    input.settings = BTreeMap::from([(region("eu"), eu), (region("us"), DnsRegion::default())]);
    let parts = plan(&input);
    assert_eq!(parts[0].regions.len(), 1, "what is as by itself is left out");
    assert_eq!(parts[0].regions[&region("eu")].addresses.len(), 16);
    let mut lab = steered(&Arc::new(SteeringTable::new(&parts)), &sites(open), &[]);
    assert_eq!(ask_from(&mut lab, Some("192.0.2.0/24")).0, [2], "nobody has edges on mars");
    lab.peer.address = [10, 0, 0, 77].into();
    assert_eq!(ask_from(&mut lab, None).0, [3], "10.0.0.0/30 counts as 10.0.0.0/24");
    // Damaged parts leave out what leads nowhere.
    let mut damaged = parts.clone();
    damaged[1].networks.iter_mut().for_each(|one| one.1 = 9);
    damaged[2].rankings = vec![vec![200]];
    assert!(SteeringTable::new(&damaged).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    /// Whatever was measured, dialled and asked: answers have edges that are there, and scopes that were measured.
    #[test]
    fn answers_are_of_regions_that_are_there(
        nets in prop::collection::vec((any::<[u8; 2]>(), 8_u8..=24, prop::collection::vec((0_usize..3, 1_u32..300), 1..4)), 1..40),
        there in prop::sample::subsequence(vec![0_usize, 1, 2], 2..=3),
        dials in prop::array::uniform3(0_u8..=100),
        asked in prop::collection::vec((any::<[u8; 4]>(), 0_u8..=32), 1..20),
    ) {
        let measured = nets.iter().map(|(bytes, len, of)| MeasuredNetwork {
            network: ipnet::IpNet::new([20 + bytes[0] % 4, bytes[1], 7, 0].into(), *len).unwrap().trunc(),
            times: of.iter().map(|(at, ms)| RegionTime { region: region(REGIONS[*at]), micros: *ms }).collect(),
            requests: 1,
        });
        let table = table(&input(measured.collect()));
        let longest = nets.iter().map(|(_, len, _)| *len).max().unwrap();
        let keep = |name: &str| Keep::new(dials[REGIONS.iter().position(|one| *one == name).unwrap()], 100);
        let sites: Vec<Site> = there.iter().map(|at| sites(keep)[*at].clone()).collect();
        let mut lab = lab();
        let all: Vec<IpAddr> = sites.iter().flat_map(|site| site.addresses.clone()).collect();
        lab.view.set_group("all", 30, &all, None).unwrap();
        let steering = Steering::new(table, &sites, (&[], None), 30);
        lab.view.set_steering(steering.map(Arc::new));
        for (mut bytes, len) in asked {
            bytes[0] = 20 + bytes[0] % 4;
            let client = ipnet::Ipv4Net::new(bytes.into(), len).unwrap().trunc().to_string();
            let (addresses, scope, how) = ask_from(&mut lab, Some(&client));
            let healthy = |last: &u8| there.contains(&usize::from(last - 1));
            prop_assert!(!addresses.is_empty() && addresses.iter().all(healthy), "{addresses:?} of {there:?}");
            prop_assert!(scope.unwrap() <= longest, "{scope:?} of {longest}");
            prop_assert_eq!(ask_from(&mut lab, Some(&client)), (addresses, scope, how), "the same each time");
        }
    }
}
