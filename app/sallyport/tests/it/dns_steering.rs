//! Clients of the name server get the region that is nearest by what was measured.

use std::{
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sallyport_catchment::{Prefix, Row, Source};
use sallyport_store::Store;

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere},
    harness::{Home, text, wait_until},
    tcp::free_port,
};

/// How many networks are near each region.
const NETWORKS: usize = 20;

/// Writes what was measured into the store, before control opens it.
fn plant(home: &Home) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let row = |address: String, site: &str, ms| Row {
        round_trip: Some(Duration::from_millis(ms)),
        requests: 1,
        ..Row::new(Prefix::of(address.parse().unwrap()), site.parse().unwrap(), Source::Ping, now)
    };
    let rows: Vec<Row> = (0..NETWORKS)
        .flat_map(|n| {
            let (eu, us) = (format!("20.0.{n}.1"), format!("20.1.{n}.1"));
            [row(eu.clone(), "eu", 10), row(eu, "us", 90), row(us.clone(), "us", 10), row(us, "eu", 90)]
        })
        .collect();
    std::fs::create_dir_all(home.data()).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = Store::open(&home.data()).await.unwrap();
        store.put_catchment(&rows).await.unwrap();
        store.close().await;
    });
}

#[test]
fn a_client_gets_the_nearest_region_and_a_dial_moves_half() {
    if Command::new("dig").arg("-v").output().is_err() {
        println!("skipped: dig is not there (Debian's package bind9-dnsutils)");
        return;
    }
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    plant(&home);
    let _control = ControlHere::start_with(&home, &bus, &["--name-server"]);
    home.account();
    let dns = free_port();
    let edge = |name, region, ip| {
        let listen = format!("{ip}:{dns}");
        EdgeHere::join_with(&home, name, region, ip, &["--listen-dns", &listen])
    };
    let (eu, us) = (edge("eu-1", "eu", "127.0.0.1"), edge("us-1", "us", "127.0.0.2"));
    let name = format!("api.{DOMAIN}");
    let ask = |server: &EdgeHere, client: &str| {
        let mut command = Command::new("dig");
        command.args([
            &format!("@{}", server.ip),
            "-p",
            &dns.to_string(),
            "+norec",
            &format!("+subnet={client}"),
            &name,
        ]);
        let said = text(&command.output().unwrap().stdout);
        let answers = said.lines().filter(|line| line.contains("\tIN\tA\t"));
        let mut addresses: Vec<String> =
            answers.filter_map(|line| line.rsplit('\t').next()).map(str::to_owned).collect();
        addresses.sort();
        let scope = said.lines().find_map(|line| line.strip_prefix("; CLIENT-SUBNET: ")).map(str::to_owned);
        (addresses.join(" "), scope.unwrap_or_default())
    };
    let (near_eu, near_us) = ("20.0.7.0/24", "20.1.7.0/24");
    // Setting dials makes everything anew, for the regions that have joined since.
    let dials = home.json(&["anycast", "dial", "--answers", "edges"]);
    assert_eq!((dials["networks"].as_u64(), dials["is_steering"].as_bool()), (Some(2 * NETWORKS as u64), Some(true)));
    for edge in [&eu, &us] {
        wait_until("the region of a client", || (ask(edge, near_eu).0 == eu.ip).then_some(()));
        wait_until("the region of another client", || (ask(edge, near_us).0 == us.ip).then_some(()));
        assert_eq!(ask(edge, near_eu), (eu.ip.to_owned(), "20.0.7.0/24/24".to_owned()));
        let (everybody, scope) = ask(edge, "99.0.0.0/24");
        assert_eq!(everybody, format!("{} {}", eu.ip, us.ip), "nothing was measured there");
        assert_eq!(scope, "99.0.0.0/24/2");
        assert_eq!(ask(edge, "10.0.0.0/24").1, "10.0.0.0/24/0", "a private network says nothing");
    }

    // Half of what went to eu goes to us, and control says the same of each client.
    home.json(&["anycast", "dial", "eu=50"]);
    let networks: Vec<String> = (0..NETWORKS).map(|n| format!("20.0.{n}.0/24")).collect();
    wait_until("the dial", || {
        let kept = networks.iter().filter(|network| ask(&us, network).0 == eu.ip).count();
        (kept == NETWORKS / 2).then_some(())
    });
    for network in networks.iter().take(6) {
        let found = home.json(&["anycast", "resolve", network, "--name", &name]);
        let region = if ask(&us, network).0 == eu.ip { "eu" } else { "us" };
        assert_eq!((found["region"].as_str(), found["nearest"].as_str()), (Some(region), Some("eu")), "{found}");
        assert_eq!(found["reason"], "subnet");
    }
    assert_eq!(ask(&eu, near_us).0, us.ip, "who was near us stays there");
    let shown = text(&home.run(&["anycast", "dial"]).stdout);
    assert!(shown.contains("eu      50 %"), "{shown}");
    let refused = home.run(&["anycast", "dial", "eu=0,us=0"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("dials that leave nothing"));
    let noted = home.run(&["anycast", "dial", "mars=10"]);
    assert!(text(&noted.stderr).contains("no edge is in the region mars now"), "{noted:?}");
    home.json(&["anycast", "dial", "--off"]);
    wait_until("no dial", || networks.iter().all(|network| ask(&us, network).0 == eu.ip).then_some(()));

    // A region that is drained gets nobody.
    home.json(&["edge", "drain", "eu-1"]);
    wait_until("the other region", || (ask(&us, near_eu).0 == us.ip).then_some(()));
}
