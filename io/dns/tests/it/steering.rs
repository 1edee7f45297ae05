//! Answers that are chosen for a client, by dig, and what is counted of them.

use std::{net::IpAddr, process::Command, sync::Arc};

use sallyport_dns::Counters;
use sallyport_model::{ALL_EDGES, DnsSteeringPart, RegionName, SteeredNetwork};
use sallyport_zone::{
    Record, RecordData, Settings, Zone,
    data::{OTHER_REGION, Site, Steering},
    steer::{ChoiceReason, Keep, SteeringTable},
};

use crate::support::{program, serve};

fn zone() -> Zone {
    let apex: sallyport_zone::Name = "steered.test".parse().unwrap();
    let text = "@ 300 SOA ns host 1 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.53\n";
    let mut records = Zone::from_master_file(apex.clone(), text, None).unwrap().records();
    let data = RecordData::Edges(ALL_EDGES.to_owned());
    records.push(Record { owner: apex.child("www").unwrap(), ttl: 30, data });
    Zone::build(apex, records, None).unwrap()
}

fn steering(counters: &Counters) -> Steering {
    let names: Vec<RegionName> = ["eu", "us"].iter().map(|name| name.parse().unwrap()).collect();
    let part = DnsSteeringPart {
        names: names.clone(),
        rankings: vec![vec![0, 1], vec![1, 0]],
        networks: vec![
            SteeredNetwork("192.0.2.0/24".parse().unwrap(), 0, 1),
            SteeredNetwork("2001:db8:7::/48".parse().unwrap(), 1, 1),
        ],
        ..DnsSteeringPart::default()
    };
    let site = |(at, region): (usize, &RegionName)| Site {
        region: region.clone(),
        addresses: vec![[203, 0, 113, at as u8 + 1].into()],
        ports: None,
        keep: Keep::default(),
        slot: counters.slot(region),
    };
    let sites: Vec<Site> = names.iter().enumerate().map(site).collect();
    let global: [IpAddr; 1] = [[203, 0, 113, 99].into()];
    Steering::new(Arc::new(SteeringTable::new([&part])), &sites, (&global, None), 30).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_gets_the_region_of_the_client_it_names() {
    let Some(dig) = program("dig", "bind9-dnsutils") else { return };
    let (server, address) = serve([zone()], Settings::default());
    server.change_view(|view| {
        view.set_group(ALL_EDGES, 30, &[[203, 0, 113, 1].into(), [203, 0, 113, 2].into()], None).unwrap();
        view.set_steering(Some(Arc::new(steering(server.counters()))));
    });
    let ask = |more: &[&str]| {
        let port = address.port().to_string();
        let mut command = Command::new(&dig);
        command.args(["@127.0.0.1", "-p", &port, "+norec", "www.steered.test", "A"]).args(more);
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    for (client, last, scope) in [
        ("192.0.2.0/24", "203.0.113.1", "192.0.2.0/24/24"),
        ("192.0.2.7/32", "203.0.113.1", "192.0.2.7/32/24"),
        ("2001:db8:7:100::/56", "203.0.113.2", "2001:db8:7:100::/56/48"),
        ("203.0.113.0/24", "203.0.113.99", "203.0.113.0/24/5"),
        ("10.0.0.0/8", "203.0.113.99", "10.0.0.0/8/0"),
    ] {
        for transport in ["+notcp", "+tcp"] {
            let said = ask(&[&format!("+subnet={client}"), transport]);
            assert!(said.contains(&format!("\t30\tIN\tA\t{last}\n")), "{client}: {said}");
            assert!(said.contains(&format!("CLIENT-SUBNET: {scope}\n")), "{client}: {said}");
        }
    }
    assert!(ask(&[]).contains("203.0.113.99"));
    let counters = server.counters().clone();
    server.stop().await;
    let eu = Some("eu".parse().unwrap());
    let found = counters.steered();
    assert!(found.contains(&(eu, ChoiceReason::Subnet, 4)), "{found:?}");
    assert!(found.contains(&(None, ChoiceReason::Global, 5)), "{found:?}");
    assert_eq!(found.iter().map(|(_, _, count)| count).sum::<u64>(), 11);
}

#[test]
fn regions_keep_their_numbers_and_there_is_a_bound() {
    let counters = Counters::default();
    let region = |number: usize| format!("region-{number}").parse::<RegionName>().unwrap();
    let slots: Vec<u8> = (0..70).map(|number| counters.slot(&region(number))).collect();
    assert_eq!(slots[..64], (0..64).collect::<Vec<u8>>());
    assert!(slots[64..].iter().all(|slot| *slot == OTHER_REGION));
    assert_eq!(counters.slot(&region(7)), 7);
}
