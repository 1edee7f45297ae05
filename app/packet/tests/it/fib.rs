//! The lookup `fib` with real packets: the process follows the kernel's routes.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    neighbors::notice_soon,
    rig::{Rig, done, text},
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that ends with the test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        Self(child)
    }

    /// Sends a signal to the program itself.
    fn signal(&self, name: &str) {
        done(Command::new("kill").args([name, &self.0.id().to_string()]));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts `router run`, and waits until the devices have the program.
pub(crate) fn run(rig: &Rig, args: &[&str]) -> Running {
    let mut command = rig.packet(&[&["router", "run"], args].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (mut line, mut stdout) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("forwarding") || line.contains("replaced in place"), "{line}");
    // The program ends where nobody reads the rest.
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    Running(child)
}

/// A router with the tables of a file, beside the two ports.
fn run_with(rig: &Rig, lines: &str) -> Running {
    let file = format!("lookup = \"fib\"\n{lines}\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n");
    let file = rig.write("router.toml", &file);
    run(rig, &["--config", file.to_str().unwrap()])
}

pub(crate) fn status(rig: &Rig) -> Value {
    serde_json::from_str(&done(&mut rig.packet(&["router", "show", "status", "-o", "json"]))).unwrap()
}

fn number(rig: &Rig, name: &str) -> u64 {
    status(rig)["numbers"][name].as_u64().unwrap()
}

/// Waits until the function has something, and returns it.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What would become of a packet from `gen`.
pub(crate) fn explained(rig: &Rig, to: &str) -> Value {
    let from = if to.contains(':') { "fd00::2" } else { "10.0.0.2" };
    let args = ["explain", "-o", "json", from, to, "udp", "5000", "53", "--from", "d0"];
    serde_json::from_str(&done(&mut rig.packet(&args))).unwrap()
}

/// Waits until packets to an address have this reason.
pub(crate) fn wait_reason(rig: &Rig, to: &str, reason: &str) -> Value {
    wait(&format!("{reason} for {to}"), || Some(explained(rig, to)).filter(|found| found["reason"] == reason))
}

fn batch(rig: &Rig, lines: &str) {
    let file = rig.write("batch", lines);
    done(Command::new("ip").args(["-n", &rig.namespace("dut"), "-batch", file.to_str().unwrap()]));
}

#[test]
fn packets_of_both_families_go_by_the_table_and_explain_says_so() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    let refused = rig.run(&["router", "up", "--dev", "d0,d1", "--lookup", "fib"]);
    assert!(refused.status.code() == Some(2), "{}", text(&refused.stderr));
    let metrics = rig.path("metrics.prom");
    let router = run_with(&rig, &format!("metrics = {metrics:?}"));
    let shown = status(&rig);
    assert_eq!((&shown["lookup"], &shown["is_followed"]), (&"fib".into(), &true.into()), "{shown}");
    for to in ["192.0.2.7", "fd00:2::7"] {
        let found = explained(&rig, to);
        assert_eq!((&found["reason"], &found["to"]), (&"forwarded".into(), &"d1".into()), "{found}");
    }
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    assert_eq!(rig.probe("fd00:2::7", &[]), "echo 32");
    rig.wait_count("d0", "forwarded", 2);
    // What the kernel answers, and what vanishes.
    for (route, to, reason) in [
        ("blackhole 203.0.113.0/25", "203.0.113.1", "blackhole"),
        ("prohibit 203.0.113.128/25", "203.0.113.129", "prohibit"),
        ("unreachable fd00:9::/64", "fd00:9::1", "unreachable"),
        ("198.51.100.0/24 via 10.0.1.99", "198.51.100.1", "neighbor"),
        ("100.64.0.0/10 via 10.0.1.2 mtu 1000", "100.64.0.1", "not-routed"),
    ] {
        rig.ip("dut", &format!("route add {route}"));
        wait_reason(&rig, to, reason);
    }
    assert_eq!(explained(&rig, "10.0.0.1")["reason"], "not-routed", "this machine");
    assert_eq!(explained(&rig, "8.8.8.8")["reason"], "not-routed", "no route");
    rig.ip("dut", "route add default via 10.0.1.2");
    wait_reason(&rig, "8.8.8.8", "forwarded");
    rig.ip("dut", "route del default via 10.0.1.2");
    wait_reason(&rig, "8.8.8.8", "not-routed");
    // An MTU, and forwarding that is switched off.
    rig.ip("dut", "link set d1 mtu 1400");
    let big = ["explain", "-o", "json", "10.0.0.2", "192.0.2.7", "udp", "1", "2", "--size", "1450", "--from", "d0"];
    wait("the new MTU", || {
        let found: Value = serde_json::from_str(&done(&mut rig.packet(&big))).unwrap();
        (found["reason"] == "too-big" && found["mtu"] == 1400).then_some(())
    });
    done(rig.inside("dut", "sysctl").args(["-qw", "net.ipv4.conf.d0.forwarding=0"]));
    wait_reason(&rig, "192.0.2.7", "forwarding-off");
    // A second process, and metrics.
    let second = rig.run(&["router", "run", "--dev", "d0,d1"]);
    assert!(second.status.code() == Some(5) && text(&second.stderr).contains("another process"));
    let second = rig.run(&["router", "up", "--dev", "d0,d1"]);
    assert!(second.status.code() == Some(5) && text(&second.stderr).contains("a process follows"));
    wait("metrics", || {
        let text = std::fs::read_to_string(&metrics).ok()?;
        let line = "sallyport_packet_packets_total{port=\"d0\",action=\"forward\",reason=\"forwarded\"} 2";
        (text.contains(line) && text.contains("sallyport_packet_fib_listings ")).then_some(())
    });
    drop(router);
    let change = rig.up(&["--dev", "d0,d1"]);
    assert_eq!(change["replaced"], serde_json::json!(["d0", "d1"]));
    assert_eq!(status(&rig)["lookup"], "kernel");
}

#[test]
fn sources_are_checked_by_the_table() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["count"]));
    let _router = run(&rig, &["--dev", "d0,d1", "--lookup", "fib", "--urpf", "strict"]);
    rig.ip("gen", "addr add 10.0.1.77/32 dev lo");
    rig.ip("gen", "addr add 198.51.100.5/32 dev lo");
    rig.probe("192.0.2.7", &["source=10.0.1.77", "answer=0"]);
    rig.probe("192.0.2.7", &["source=198.51.100.5", "answer=0"]);
    rig.wait_count("d0", "urpf", 2);
    rig.probe("192.0.2.7", &["answer=0"]);
    rig.wait_count("d0", "forwarded", 1);
}

#[test]
fn an_object_that_is_replaced_and_a_neighbour_that_fails_reroute_all_prefixes_by_few_writes() {
    let Some(rig) = Rig::new() else { return };
    rig.wire("sink", "s1", "d2");
    rig.ip("dut", "addr add 10.0.2.1/24 dev d2");
    rig.resolve();
    rig.ip("sink", "addr add 10.0.2.2/24 dev s1");
    done(rig.inside("dut", "ping").args(["-c", "1", "-W", "30", "10.0.2.2"]));
    rig.ip("dut", "nexthop add id 1 via 10.0.1.2 dev d1");
    rig.ip("dut", "nexthop add id 2 via 10.0.2.2 dev d2");
    rig.ip("dut", "nexthop add id 9 group 1,1/2,3");
    let (count, mut lines) = (2_000, String::new());
    for index in 0..count {
        let (upper, lower) = (index / 250, index % 250);
        writeln!(lines, "route add 100.{upper}.{lower}.0/24 nhid 1").unwrap();
        writeln!(lines, "route add 101.{upper}.{lower}.0/24 nhid 9").unwrap();
    }
    batch(&rig, &lines);
    // The kernel adds a route for the own address of each link once nobody else claims it, which would be written later.
    rig.wait_for(|| {
        let own = rig.ip("dut", "-6 addr show scope link");
        own.matches("inet6 fe80").count() >= 3 && !own.contains("tentative")
    });
    let _router = run(&rig, &["--dev", "d0,d1,d2", "--lookup", "fib"]);
    assert!(number(&rig, "prefixes") >= 2 * count);
    let written = || ["written_tables", "written_next_hops", "written_groups"].map(|name| number(&rig, name));
    let to = |address: &str| explained(&rig, address)["to"].as_str().map(str::to_owned);
    assert_eq!(to("100.7.249.1").as_deref(), Some("d1"));
    let before = written();
    rig.ip("dut", "nexthop replace id 1 via 10.0.2.2 dev d2");
    wait("the object", || (to("100.7.249.1")? == "d2").then_some(()));
    assert_eq!(to("100.0.0.1").as_deref(), Some("d2"));
    wait("the writes", || (written()[1] > before[1]).then_some(()));
    let after = written();
    println!("{count} prefixes rerouted; elements written: {before:?} before, {after:?} after");
    assert_eq!(after[0], before[0], "no prefix was written");
    assert!(after[1] - before[1] <= 2 && after[2] - before[2] <= 1, "{before:?} {after:?}");
    // Weights: flows to many hosts, of which one member of the group has a quarter.
    rig.ip("dut", "nexthop replace id 1 via 10.0.1.2 dev d1");
    wait("the object", || (to("100.7.249.1")? == "d1").then_some(()));
    let by_d2 = |hosts: u32| (0..hosts).filter(|host| to(&format!("101.0.0.{host}")).as_deref() == Some("d2")).count();
    let share = by_d2(48);
    println!("of 48 flows, {share} take the next hop with weight 3 of 4");
    // 36 are expected, and 24 with equal weights. The hash of a flow is always the same.
    assert!((29..=43).contains(&share), "{share}");
    // The host behind d2 falls silent.
    let before = written();
    notice_soon(&rig, "d2");
    rig.ip("sink", "addr del 10.0.2.2/24 dev s1");
    wait("the group without the member", || (written()[2] > before[2]).then_some(()));
    assert_eq!(by_d2(12), 0, "all flows take the member that answers");
    let after = written();
    assert_eq!((after[0], after[2] - before[2]), (before[0], 1), "one group was written, and no prefix");
    // A device that goes down takes its routes along, without a word for each.
    rig.ip("dut", "link set d1 down");
    wait("the routes' end", || (explained(&rig, "100.0.0.1")["reason"] == "not-routed").then_some(()));
    wait("the listing", || (number(&rig, "prefixes") < 2 * count).then_some(()));
}

#[test]
fn routes_that_share_a_prefix_and_a_metric_lead_where_the_kernel_has_them() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.ip("dut", "neigh replace 10.0.1.3 lladdr 02:00:00:00:00:03 dev d1 nud permanent");
    let _router = run_with(&rig, "");
    let hop = |wanted: &str| {
        wait(wanted, || (explained(&rig, "203.0.113.1")["next_hop"] == wanted).then_some(()));
    };
    rig.ip("dut", "route add 203.0.113.0/24 via 10.0.1.2");
    hop("10.0.1.2");
    rig.ip("dut", "route prepend 203.0.113.0/24 via 10.0.1.3");
    hop("10.0.1.3");
    rig.ip("dut", "route del 203.0.113.0/24 via 10.0.1.3");
    hop("10.0.1.2");
    // With a type of service the kernel decides, and the other route stays.
    rig.ip("dut", "route add 203.0.113.0/24 tos 0x10 via 10.0.1.3 metric 50");
    wait_reason(&rig, "203.0.113.1", "not-routed");
    rig.ip("dut", "route del 203.0.113.0/24 tos 0x10 via 10.0.1.3 metric 50");
    hop("10.0.1.2");
    rig.ip("dut", "route del 203.0.113.0/24 via 10.0.1.2");
    wait_reason(&rig, "203.0.113.1", "not-routed");
}

#[test]
fn events_that_are_lost_are_listed_again() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    let router = run_with(&rig, "[limits]\nnetlink_bytes = 8192");
    let prefixes = number(&rig, "prefixes");
    router.signal("-STOP");
    let (count, mut lines) = (2_000, String::new());
    for index in 0..count {
        writeln!(lines, "route add 100.{}.{}.0/24 via 10.0.1.2", index / 250, index % 250).unwrap();
    }
    batch(&rig, &lines);
    assert_eq!(explained(&rig, "100.7.249.1")["reason"], "not-routed");
    router.signal("-CONT");
    wait_reason(&rig, "100.7.249.1", "forwarded");
    // Addresses of the links may come meanwhile.
    wait("all prefixes", || (number(&rig, "prefixes") >= prefixes + count).then_some(()));
    let shown = status(&rig);
    println!("{}", shown["numbers"]);
    assert!(shown["numbers"]["overruns"].as_u64() >= Some(1) && shown["numbers"]["listings"].as_u64() >= Some(2));
    batch(&rig, &lines.replace("add", "del"));
    wait("no prefixes", || (number(&rig, "prefixes") < prefixes + 50).then_some(()));
    for index in [0, 1, 999, count - 1] {
        wait_reason(&rig, &format!("100.{}.{}.1", index / 250, index % 250), "not-routed");
    }
}

#[test]
fn packets_go_on_when_the_process_is_killed_and_a_new_one_takes_over() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    let router = run_with(&rig, "");
    router.signal("-KILL");
    drop(router);
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    rig.wait_count("d0", "forwarded", 1);
    let shown = status(&rig);
    assert_eq!((&shown["lookup"], &shown["is_followed"]), (&"fib".into(), &false.into()), "{shown}");
    assert!(shown["notes"][0].as_str().unwrap().starts_with("no process follows"), "{shown}");
    // What has changed meanwhile is found by the next process, also what is gone.
    rig.ip("dut", "route add 203.0.113.0/24 via 10.0.1.2");
    rig.ip("dut", "route del fd00:2::/64 via fd00:1::2");
    assert_eq!(explained(&rig, "203.0.113.1")["reason"], "not-routed");
    let _router = run_with(&rig, "");
    assert_eq!(explained(&rig, "203.0.113.1")["reason"], "forwarded");
    assert_eq!(explained(&rig, "fd00:2::7")["reason"], "not-routed");
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    assert_eq!(rig.count("d0", "forwarded"), 2, "the counters went on");
}

#[test]
fn a_full_table_leaves_packets_to_the_kernel_and_says_so() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    rig.ip("dut", "route del 192.0.2.0/24 via 10.0.1.2");
    rig.ip("dut", "route add 192.0.0.0/16 via 10.0.1.99");
    // The addresses of the router itself take four blocks: d0, d1, and both ends of lo's network.
    let _router = run_with(&rig, "[limits]\nipv4_blocks = 4");
    assert_eq!(number(&rig, "refused_prefixes"), 0, "{}", status(&rig));
    rig.ip("dut", "route add 192.0.2.0/25 via 10.0.1.2");
    let shown = wait("the refusal", || Some(status(&rig)).filter(|shown| shown["numbers"]["refused_prefixes"] == 1));
    assert_eq!(shown["numbers"]["covering_prefixes"], 1, "{shown}");
    assert!(shown["notes"][0].as_str().unwrap().starts_with("the table is full: the kernel forwards"), "{shown}");
    // The longer prefix decides, in the kernel.
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    assert_eq!(
        (explained(&rig, "192.0.2.7")["reason"].as_str(), rig.count("d0", "forwarded")),
        (Some("not-routed"), 0)
    );
    let listed = rig.run(&["router", "show", "routes"]);
    assert!(text(&listed.stderr).contains("the table is full"), "{}", text(&listed.stderr));
    rig.ip("dut", "route del 192.0.2.0/25 via 10.0.1.2");
    wait_reason(&rig, "192.0.2.7", "neighbor");
}

#[test]
fn routes_beyond_the_bound_of_the_process_are_counted_and_the_kernel_looks_up() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    let listed =
        |table| ["-4", "-6"].map(|family| rig.ip("dut", &format!("{family} route show table {table}")).lines().count());
    let routes: usize = ["main", "local"].map(listed).concat().iter().sum();
    // Addresses that are just there may bring a few routes more.
    let _router = run_with(&rig, &format!("[limits]\nroutes = {}", routes + 8));
    assert_eq!(number(&rig, "left_out_routes"), 0, "{}", status(&rig));
    assert_eq!(explained(&rig, "192.0.2.7")["reason"], "forwarded");
    let change =
        |word| (1..=20).for_each(|host| drop(rig.ip("dut", &format!("route {word} 203.0.113.{host} via 10.0.1.2"))));
    change("add");
    // A longer prefix that the process cannot keep must still decide.
    rig.ip("dut", "route add 192.0.2.7/32 via 10.0.1.99");
    let shown = wait("the bound", || Some(status(&rig)).filter(|shown| shown["numbers"]["left_out_routes"] != 0));
    assert!(shown["notes"][0].as_str().unwrap().contains(" routes are more than `routes` of [limits]"), "{shown}");
    assert_eq!(explained(&rig, "192.0.2.7")["reason"], "neighbor", "the kernel's longer prefix decides");
    change("del");
    rig.ip("dut", "route del 192.0.2.7/32 via 10.0.1.99");
    wait("room", || (number(&rig, "left_out_routes") == 0).then_some(()));
    assert_eq!(explained(&rig, "192.0.2.7")["reason"], "forwarded");
}

#[test]
fn addresses_and_vlans_of_devices_are_followed() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    let vlan = |rig: &Rig| {
        rig.ip("dut", "link add v200 type veth peer name v200p");
        rig.ip("dut", "link set v200p up");
        rig.ip("dut", "link set v200 up");
        rig.ip("dut", "addr add 10.200.0.1/24 dev v200");
        rig.ip("dut", "neigh replace 10.200.0.9 lladdr 02:00:00:00:00:99 dev v200 nud permanent");
    };
    vlan(&rig);
    let _router = run_with(&rig, "[[vlan]]\ndev = \"v200\"\nport = \"d1\"\nid = 200");
    let found = explained(&rig, "10.200.0.9");
    assert_eq!((&found["reason"], &found["to"]), (&"forwarded".into(), &"v200".into()), "{found}");
    // Another device of the same name: another index and another address.
    rig.ip("dut", "link del v200");
    wait_reason(&rig, "10.200.0.9", "not-routed");
    vlan(&rig);
    let found = wait_reason(&rig, "10.200.0.9", "forwarded");
    assert_eq!(found["to"], "v200", "{found}");
    // The address of a port.
    rig.ip("dut", "link set d0 address 02:00:00:00:0d:00");
    rig.ip("gen", "neigh replace 10.0.0.1 lladdr 02:00:00:00:0d:00 dev g0 nud permanent");
    let before = rig.count("d0", "forwarded");
    wait("packets to the new address", || {
        assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
        (rig.count("d0", "forwarded") > before).then_some(())
    });
}

#[test]
fn the_process_outlives_its_metrics_and_ends_with_its_router() {
    let Some(rig) = Rig::new() else { return };
    let folder = rig.path("metrics");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("router.prom");
    let wrong = rig.run(&["router", "run", "--dev", "d0,d1", "--metrics", "/proc/nothing/router.prom"]);
    let said = text(&wrong.stderr);
    assert!(said.contains("cannot write the metrics to /proc/nothing/router.prom: No such file"), "{said}");
    assert!(said.contains("make its folder, or name another file"), "{said}");
    assert!(!rig.pins().exists(), "the file is tried first");
    let args = ["router", "run", "--dev", "d0,d1", "--lookup", "fib", "--metrics", file.to_str().unwrap()];
    let mut child = rig.packet(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut router = Running(child);
    let mut said = |words: &str| {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "{words} is not said");
        }
    };
    wait("metrics", || std::fs::read_to_string(&file).ok().filter(|text| text.contains("sallyport_packet_fib_")));
    std::fs::remove_dir_all(&folder).unwrap();
    said("; the router goes on");
    rig.ip("dut", "route add blackhole 203.0.113.0/24");
    wait_reason(&rig, "203.0.113.1", "blackhole");
    std::fs::create_dir(&folder).unwrap();
    wait("metrics once more", || std::fs::read_to_string(&file).ok().filter(|text| !text.is_empty()));
    done(&mut rig.packet(&["router", "down"]));
    said("the router was taken down, so this process ends");
    assert!(router.0.wait().unwrap().success());
}

#[test]
fn what_the_table_cannot_follow_is_refused() {
    let Some(rig) = Rig::new() else { return };
    // Priorities of the rules that every machine has say nothing: others can have them too.
    for rule in [
        "from 10.9.9.9 table 100",
        "priority 0 table 100",
        "priority 32766 table 100",
        "from 10.9.9.9 priority 32767 table 253",
        "not from 10.9.9.9 priority 32766 table 254",
        "priority 32766 suppress_prefixlength 0 table 254",
    ] {
        rig.ip("dut", &format!("rule add {rule}"));
        let output = rig.run(&["router", "run", "--dev", "d0,d1", "--lookup", "fib"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(5) && said.contains("`ip rule` has 1 rules more"), "{rule}: {said}");
        rig.ip("dut", &format!("rule del {rule}"));
    }
    assert!(Path::new(&rig.pins()).read_dir().map_or(0, Iterator::count) == 0, "no state stays");
}

#[test]
fn no_packet_is_lost_while_next_hops_are_replaced() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    // The hosts of a network behind `gen`, which has two gateways with one address of the link.
    let link: Value = serde_json::from_str(&rig.ip("gen", "-j link show g0")).unwrap();
    let gateway = link[0]["address"].as_str().unwrap();
    rig.ip("dut", &format!("neigh replace 10.0.0.3 lladdr {gateway} dev d0 nud permanent"));
    rig.ip("dut", "nexthop add id 1 via 10.0.0.2 dev d0");
    rig.ip("dut", "nexthop add id 2 via 10.0.1.2 dev d1");
    rig.ip("dut", "route add 10.50.0.0/16 nhid 1");
    rig.ip("dut", "route add 10.51.0.0/16 via 10.0.0.2");
    rig.ip("dut", "route add 198.51.100.0/24 nhid 2");
    let router = run(&rig, &["--dev", "d0,d1", "--lookup", "fib", "--urpf", "strict"]);
    let own: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    let own = own[0]["address"].as_str().unwrap().replace(':', "");
    let mut frames = String::new();
    const FRAMES: u64 = 60_000;
    for index in 0..FRAMES {
        let (source, to) = if index % 2 == 0 { ("0a320001", "c6336407") } else { ("0a330001", "c0000207") };
        let ip = format!("4500001c0001000040110000 {source} {to} 0035000900080000");
        let frame = crate::hostile::sealed(&format!("{own} 020000000007 0800 {ip}"));
        frames.extend(frame.iter().map(|byte| format!("{byte:02x}")));
        frames.push('\n');
    }
    let file = rig.write("traffic", &frames);
    // Objects, and routes whose way gets another number.
    let turn = |gateway: u32| {
        format!(
            "nexthop replace id 1 via 10.0.0.{gateway} dev d0\nnexthop replace id 2 via 10.0.1.2 dev d1\n\
             route replace 10.51.0.0/16 via 10.0.0.{gateway}\n"
        )
    };
    let turns = (turn(3) + &turn(2)).repeat(250);
    let mut sending = rig.python("gen", &["frames", "g0", file.to_str().unwrap()]).spawn().unwrap();
    let mut rounds = 0;
    while sending.try_wait().unwrap().is_none() {
        batch(&rig, &turns);
        rounds += 1;
    }
    drop(router);
    let replaced = rounds * 1_500;
    rig.wait_for(|| rig.counts("d0").values().sum::<u64>() >= FRAMES);
    let counts = rig.counts("d0");
    println!("{FRAMES} packets, and {replaced} replacements: {counts:?}");
    assert_eq!((counts.get("urpf"), counts.get("not-routed")), (None, None), "{counts:?}");
    assert!(counts["forwarded"] >= FRAMES, "{counts:?}");
}

#[test]
fn full_tables_of_next_hops_groups_and_neighbours_are_said_and_packets_go_by_the_kernel() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    let router = run_with(&rig, "[limits]\nnext_hops = 8\ngroups = 1\nneighbors = 8");
    let free = |name: &str| status(&rig)["numbers"][name] == 0;
    assert!(["refused_next_hops", "refused_neighbors"].into_iter().all(free), "{}", status(&rig));
    let mut lines = String::new();
    for index in 10..40 {
        writeln!(lines, "neigh add 10.0.1.{index} lladdr 02:00:00:00:00:{index} dev d1 nud permanent").unwrap();
        writeln!(lines, "route add 100.64.{index}.0/24 via 10.0.1.{index}").unwrap();
    }
    for index in 0..2 {
        writeln!(lines, "route add 100.65.{index}.0/24 nexthop via 10.0.1.2 nexthop via 10.0.1.{}", 10 + index)
            .unwrap();
    }
    batch(&rig, &lines);
    let shown = wait("the refusals", || {
        let shown = status(&rig);
        let number = |name: &str| shown["numbers"][name].as_u64().unwrap();
        (number("refused_next_hops") >= 20 && number("refused_neighbors") >= 20).then_some(shown)
    });
    let notes: Vec<_> = shown["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    for words in ["next hops found no room: the kernel forwards", "neighbours found no room: the kernel forwards"] {
        assert_eq!(notes.iter().filter(|note| note.contains(words)).count(), 1, "{notes:?}");
    }
    // What has its room goes on, the kernel has the rest, and room that is left is used again.
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    assert_eq!(explained(&rig, "100.64.39.1")["reason"], "not-routed", "the kernel");
    batch(&rig, &lines.lines().rev().map(|line| line.replacen("add", "del", 1) + "\n").collect::<String>());
    rig.ip("dut", "route add 100.66.0.0/16 via 10.0.1.2");
    wait_reason(&rig, "100.66.0.1", "forwarded");
    wait("the room", || ["refused_next_hops", "refused_neighbors"].into_iter().all(free).then_some(()));
    drop(router);
}
