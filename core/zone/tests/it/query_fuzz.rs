//! What the fuzzer does with its bytes: they are a query, and the answer must be in order. It also lives in `fuzz/`.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use hickory_proto::{
    op::Message,
    rr::rdata::opt::{EdnsCode, EdnsOption},
};
use sallyport_model::{DnsSteeringPart, RegionName, SteeredNetwork};
use sallyport_zone::{
    Now, Peer, Record, RecordData, Serving, Settings, State, StateConfig, Transport, TsigHash, Verdict, View, Zone,
    Zones, answer,
    data::{HttpPorts, Site, Steering},
    dnssec::{Algorithm, KeyRole, KeyTimes, SigningKey, ZoneKeys},
    limit::CookieSecrets,
    steer::{Keep, SteeringTable},
};

const UNSIGNED: &str = "$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww CNAME web\n\
    web A 192.0.2.4\n*.wild A 192.0.2.5\n*.to CNAME x.to\nsub NS ns.sub\nns.sub A 192.0.2.50\ninto CNAME x.sub\n\
    a.b.c TXT deep\nloop CNAME loop2\nloop2 CNAME loop\nmx MX 10 web\n";

struct World {
    zones: Zones,
    view: View,
    settings: Settings,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let key = SigningKey::from_secret(Algorithm::Ed25519, &[7; 32], KeyRole::Combined, KeyTimes::from(0)).unwrap();
        let keys = ZoneKeys::new("s.test".parse().unwrap(), vec![key], 300, 0).unwrap();
        let signed = Zone::from_master_file("s.test".parse().unwrap(), UNSIGNED, Some(Arc::new(keys))).unwrap();
        let plain = Zone::from_master_file("p.test".parse().unwrap(), UNSIGNED, None).unwrap();
        let mut records = plain.records();
        let more = |owner: &str, data| Record { owner: owner.parse().unwrap(), ttl: 20, data };
        records.push(more("*.p.test", RecordData::Edges("all".to_owned())));
        records.push(more("p.test", RecordData::Alias("lb.test".parse().unwrap())));
        let dname = RecordData::Plain(sallyport_zone::RecordType::DNAME, b"\x03new\x01p\x04test\x00".to_vec());
        records.push(more("old.p.test", dname));
        let plain = Zone::build("p.test".parse().unwrap(), records, None).unwrap();
        let signed = signed.with_transfer_keys(vec!["key".parse().unwrap()]);
        let mut view = View::default();
        view.set_group("all", 20, &[[192, 0, 2, 1].into()], None).unwrap();
        view.set_steering(Some(Arc::new(steering())));
        view.set_challenges(5, &[("_acme-challenge.a.p.test".parse().unwrap(), vec!["x".to_owned()])]).unwrap();
        let mut settings = Settings::default();
        settings.set_identity(Some("edge-1".to_owned()), Some("1".to_owned())).unwrap();
        settings.cookies = Some(CookieSecrets::new([1; 16], None));
        settings.tsig_keys.insert("key".parse().unwrap(), TsigHash::Sha256, &[9; 32]).unwrap();
        World { zones: Zones::new([Arc::new(plain), Arc::new(signed)]).unwrap(), view, settings }
    })
}

/// Two regions, and networks within each other.
fn steering() -> Steering {
    let names = vec!["eu".parse().unwrap(), "us".parse().unwrap()];
    let network = |text: &str, ranking| SteeredNetwork(text.parse().unwrap(), ranking, 1);
    let part = DnsSteeringPart {
        names: names.clone(),
        rankings: vec![vec![0, 1], vec![1, 0]],
        networks: vec![
            network("20.0.0.0/8", 0),
            network("20.1.0.0/16", 1),
            network("20.1.2.0/24", 0),
            network("2001:db8::/32", 0),
            network("2001:db8:1::/48", 1),
        ],
        ..DnsSteeringPart::default()
    };
    let site = |(at, region): (usize, &RegionName)| Site {
        region: region.clone(),
        addresses: vec![[192, 0, 2, at as u8 + 10].into()],
        ports: Some(HttpPorts { tcp: 443, udp: 443 }),
        keep: Keep::new(50, 100),
        slot: at as u8,
    };
    let sites: Vec<Site> = names.iter().enumerate().map(site).collect();
    Steering::new(Arc::new(SteeringTable::new([&part])), &sites, (&[], None), 30).unwrap()
}

/// The first byte says the transport and the time; the rest is the message.
pub(crate) fn dns_query(data: &[u8]) {
    let Some((first, message)) = data.split_first() else { return };
    let transport = if first & 1 == 0 { Transport::Udp } else { Transport::Tcp };
    let World { zones, view, settings } = world();
    // Without rates a state is small, and every answer is written.
    let mut config = StateConfig { max_signatures: 64, ..StateConfig::default() };
    config.rate.answers_per_second = 0;
    let mut state = State::new(config, [3; 16]);
    let now = Now {
        unix_seconds: 1_800_000_000 + u64::from(first >> 1) * 10_000,
        monotonic: Instant::now() + Duration::from_secs(u64::from(*first)),
    };
    let peer = Peer { address: [192, 0, 2, 9].into(), transport };
    let serving = Serving { zones, view, settings };
    let (mut out, mut again) = (Vec::new(), Vec::new());
    let outcome = answer(message, &peer, &serving, &mut state, now, &mut out);
    match outcome.verdict {
        Verdict::Drop(_) => assert!(out.is_empty()),
        Verdict::Send => {
            assert!(out.len() <= if transport == Transport::Udp { 1_232 } else { 65_535 });
            assert_eq!(out[..2], message[..2], "the id");
            assert_ne!(out[2] & 0x80, 0, "an answer");
            let parsed = Message::from_vec(&out).expect("a well-formed answer");
            assert_eq!(u16::from(parsed.metadata.response_code), outcome.rcode.0);
            assert_eq!(parsed.metadata.truncation, outcome.is_truncated);
            let edns = parsed.edns.as_ref();
            if let Some(EdnsOption::Subnet(subnet)) = edns.and_then(|edns| edns.option(EdnsCode::Subnet)) {
                let most = if subnet.addr().is_ipv4() { 24 } else { 56 };
                assert!(subnet.scope_prefix() <= most, "{subnet:?}");
                assert!(subnet.scope_prefix() == 0 || outcome.steered.is_some(), "{subnet:?}");
            }
            // Answers to answers would never end.
            let answered = answer(&out, &peer, &serving, &mut state, now, &mut again);
            assert!(matches!(answered.verdict, Verdict::Drop(_)));
        }
        Verdict::Transfer(mut transfer) => {
            while transfer.next_message(now.unix_seconds, &mut out) {
                Message::from_vec(&out).expect("a well-formed message of a transfer");
            }
        }
    }
}
