//! Tests of the plan.

use super::*;
use crate::{anycast::AnycastOptions, topology::TopologyOptions};

fn plan(options: &TopologyOptions) -> Plan {
    Plan::new(Topology::new(options).unwrap())
}

fn places() -> Paths {
    Paths { root: "/run/lab".into() }
}

fn launch(plan: &Plan, name: &str) -> Launch {
    let programs = Programs {
        lab: "/bin/l".into(),
        sallyport: "/bin/s".into(),
        nats_server: "/bin/n".into(),
        postgres: Some("/pg".into()),
    };
    let tunnels = (0..9).map(|number| (format!("tun{number}"), format!("spt_{number}"))).collect();
    let secrets = Secrets { socket: "soc".into(), tunnels, ..Secrets::default() };
    plan.launch(plan.processes_of(name)[0], &programs, &places(), &secrets)
}

#[test]
fn names_and_addresses_differ() {
    let plan = plan(&TopologyOptions { regions: 6, edges: 8, controls: 4, ..TopologyOptions::default() });
    assert_eq!(plan.nodes.len(), 3 + 1 + 4 + 48 + 12);
    let mut addresses: Vec<_> = plan.nodes.iter().map(|node| node.address).collect();
    let mut names: Vec<_> = plan.processes.iter().map(|process| process.name.clone()).collect();
    let (all, processes) = (addresses.len(), names.len());
    addresses.sort();
    addresses.dedup();
    names.sort();
    names.dedup();
    assert_eq!((addresses.len(), names.len()), (all, processes));
    // The kernel's bound is that of a file name; the shorter one for display does not matter.
    assert!(plan.nodes.iter().all(|node| plan.namespace(node).len() < 64));
}

#[test]
fn the_bus_and_the_controls_are_spread_over_regions() {
    let three = plan(&TopologyOptions::default());
    let region = |plan: &Plan, name: &str| plan.node(name).unwrap().region;
    assert_eq!(["nats-1", "nats-2", "nats-3"].map(|name| region(&three, name)), [0, 1, 2]);
    assert_eq!(["control-1", "control-2"].map(|name| region(&three, name)), [0, 1]);
    let one = plan(&TopologyOptions { regions: 1, ..TopologyOptions::default() });
    assert!(one.nodes.iter().all(|node| node.region == 0));
    assert_eq!(one.node("control-2").unwrap().address, Ipv4Addr::new(10, 77, 1, 32));
}

#[test]
fn a_name_is_a_process_a_node_or_a_region() {
    let plan = plan(&TopologyOptions::default());
    let processes = |name: &str| plan.processes_of(name).iter().map(|process| process.name.clone()).collect::<Vec<_>>();
    assert_eq!(processes("eu-1"), ["eu-1"]);
    assert_eq!(processes("eu-origin"), ["eu-origin", "eu-connector"]);
    assert_eq!(processes("eu-connector"), ["eu-connector"]);
    assert!(processes("eu").is_empty() && processes("eu-client").is_empty());
    assert_eq!(plan.part("us"), Some(Part::Region(1)));
    assert_eq!(plan.part("nats-1"), Some(Part::Node(0)));
    assert_eq!(plan.part("eu-connector"), None);
    assert_eq!(plan.name_of(Part::Region(2)), "ap");
    assert!(plan.names().contains(&"ap-client".to_owned()) && plan.names().contains(&"eu-connector".to_owned()));
}

#[test]
fn public_names_lead_to_the_nearest_edge_first_and_on_a_control_to_itself() {
    let plan = plan(&TopologyOptions::default());
    let leads = |node: &str, name: &str| -> Vec<String> {
        let hosts = plan.hosts(plan.node(node).unwrap(), &["calm-bay-1.lab.test".to_owned()]);
        let lines = hosts.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(_, known)| *known == name).map(|(address, _)| address.to_owned()).collect()
    };
    assert_eq!(leads("us-client", "calm-bay-1.lab.test"), ["10.77.2.11", "10.77.1.11", "10.77.3.11"]);
    assert_eq!(leads("ap-client", "api.lab.test"), ["10.77.3.11", "10.77.2.11", "10.77.1.11"]);
    assert_eq!(leads("control-2", "api.lab.test"), ["10.77.2.32"]);
    assert_eq!(leads("eu-1", "api.lab.test"), ["127.0.0.1"]);
    assert_eq!(leads("eu-client", "us-1"), ["10.77.2.11"]);
}

#[test]
fn controls_share_the_database_and_know_the_whole_bus_the_nearest_first() {
    let two = plan(&TopologyOptions::default());
    let args = launch(&two, "control-2").args.join(" ");
    assert!(args.starts_with("control --domain lab.test --data /run/lab/data/control-2"), "{args}");
    assert!(args.contains("--bus nats://10.77.2.42:4222,nats://10.77.1.41:4222,nats://10.77.3.43:4222"), "{args}");
    assert!(args.contains("--bus-replicas 3") && args.contains("--advertise 10.77.2.32:8444"), "{args}");
    assert!(args.contains("--database postgres://postgres@10.77.1.51:5432/postgres"), "{args}");
    assert!(args.ends_with("--key-file /run/lab/data/control-1/installation.key"), "{args}");
    assert!(!launch(&two, "control-1").args.join(" ").contains("--key-file"));
    let alone = plan(&TopologyOptions { controls: 1, database: Database::Sqlite, ..TopologyOptions::default() });
    assert!(!launch(&alone, "control-1").args.join(" ").contains("--database"));
    assert!(alone.node("postgres").is_none());
}

#[test]
fn secrets_stay_out_of_command_lines() {
    let plan = plan(&TopologyOptions::default());
    for process in &plan.processes {
        let launch = launch(&plan, &process.name);
        assert!(!launch.args.iter().any(|arg| arg.contains("spt_")), "{launch:?}");
    }
    assert_eq!(launch(&plan, "us-origin").program, Path::new("/bin/l"));
    let connector = launch(&plan, "us-connector");
    assert!(connector.env.contains(&("SALLYPORT_TUNNEL_CREDENTIAL".into(), "spt_1".into())), "{connector:?}");
    assert!(connector.args.ends_with(&["--tunnel-id".into(), "tun1".into()]));
}

#[test]
fn the_bus_is_one_cluster_and_each_of_it_has_its_own_store() {
    let plan = plan(&TopologyOptions::default());
    let config = plan.bus_config(plan.node("nats-2").unwrap(), &places());
    for wanted in [
        "server_name: nats-2",
        "listen: \"10.77.2.42:4222\"",
        "store_dir: \"/run/lab/data/nats-2/store\"",
        "\"nats://10.77.1.41:6222\", \"nats://10.77.2.42:6222\", \"nats://10.77.3.43:6222\"",
    ] {
        assert!(config.contains(wanted), "{wanted}: {config}");
    }
    let postgres = launch(&plan, "postgres");
    assert!(postgres.as_postgres && postgres.program == Path::new("/pg/postgres"));
    assert!(postgres.args.contains(&"listen_addresses=10.77.1.51".to_owned()));
}

#[test]
fn a_node_gets_its_address_on_its_device() {
    let plan = plan(&TopologyOptions::default());
    let batch = plan.set_up(plan.node("ap-1").unwrap());
    assert!(batch.contains("addr add 10.77.3.11/24 dev lab0\n") && batch.contains("route add default dev lab0"));
}

#[test]
fn in_an_anycast_laboratory_edges_announce_and_have_connectors_of_their_own() {
    let options = AnycastOptions { sites: 2, edges_per_site: 2, plant: None };
    let plan = Plan::new(Topology::anycast(LabName::default(), options).unwrap());
    let names = plan.processes_of("new-york-2").iter().map(|process| process.name.clone()).collect::<Vec<_>>();
    assert_eq!(names, ["new-york-2-bird", "new-york-2", "new-york-2-connector"]);
    let of = |name: &str| {
        let process = plan.processes.iter().find(|process| process.name == name).unwrap();
        let programs = Programs { lab: "/l".into(), sallyport: "/s".into(), nats_server: "/n".into(), postgres: None };
        let mut secrets = Secrets { tunnels: vec![Default::default(); 10], ..Secrets::default() };
        secrets.tunnels[9] = ("tun".into(), "spt".into());
        plan.launch(process, &programs, &places(), &secrets)
    };
    let edge = of("new-york-2").args.join(" ");
    assert!(edge.contains("--bird /run/lab/data/new-york-2-bird/bird.ctl"), "{edge}");
    assert!(edge.ends_with("--anycast-allow 198.51.100.0/24 --anycast-allow 2001:db8:a::/48"), "{edge}");
    let connector = of("new-york-2-connector").args.join(" ");
    assert!(connector.contains("--host 10.77.2.111 ") && connector.ends_with("--tunnel-id tun"), "{connector}");
    let control = of("control-1").args.join(" ");
    assert!(control.contains("--bus-replicas 1 ") && control.contains("--anycast-allow 198.51.100.0/24"), "{control}");
    assert!(!plan.bus_config(plan.node("nats-1").unwrap(), &places()).contains("cluster"));
    let devices = plan.devices();
    assert_eq!(devices.len(), 2 * plan.internet.as_ref().unwrap().links.len());
    assert_eq!(devices[0], ("sallyport-lab-as3356".to_owned(), "link0".to_owned()));
    assert_eq!(plan.client(0).unwrap().name, "london-client");
}
