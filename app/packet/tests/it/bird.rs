//! BIRD fills the kernel's routes over eBGP, RPKI filters them, and the table follows.

use std::{fs, path::Path, process::Stdio, time::Instant};

use crate::{
    fib::{Running, explained, run, status, wait, wait_reason},
    rig::{Rig, done},
};

/// Why the tests with BIRD cannot run here.
fn lacks(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| !["/usr/sbin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(program).exists()))
        .collect();
    if !missing.is_empty() {
        eprintln!("skipped: {missing:?} are not there; scripts/need bird stayrtr installs them");
    }
    !missing.is_empty()
}

/// BIRD in a namespace, with this configuration.
fn bird(rig: &Rig, name: &str, config: &str) -> Running {
    let file = rig.write(&format!("{name}.conf"), config);
    let mut command = rig.inside(name, "/usr/sbin/bird");
    let socket = rig.path(&format!("{name}.ctl"));
    command.arg("-f").arg("-c").arg(file).arg("-s").arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::new(command.spawn().unwrap());
    wait("BIRD's socket", || socket.exists().then_some(()));
    running
}

/// The neighbour, which announces these prefixes.
fn neighbor(prefixes: &[&str]) -> String {
    let routes: String = prefixes.iter().map(|prefix| format!("route {prefix} unreachable;")).collect();
    format!(
        "router id 10.0.1.2; protocol device {{}} protocol static {{ ipv4; {routes} }}
         protocol bgp {{ local 10.0.1.2 as 65002; neighbor 10.0.1.1 as 65001; error wait time 1, 2;
           connect delay time 1; ipv4 {{ import all; export all; }}; }}"
    )
}

/// The router itself, with a filter of what it imports.
fn own(parts: &str, filter: &str) -> String {
    format!(
        "router id 10.0.1.1; protocol device {{}} {parts}
         protocol kernel {{ ipv4 {{ export all; }}; }}
         protocol bgp {{ local 10.0.1.1 as 65001; neighbor 10.0.1.2 as 65002; error wait time 1, 2;
           connect delay time 1; ipv4 {{ import table on; import filter {{ {filter} }}; export none; }}; }}"
    )
}

#[test]
fn routes_of_bird_reach_the_table_and_stay_when_it_is_gone() {
    let Some(mut rig) = Rig::new() else { return };
    if lacks(&["bird"]) {
        return;
    }
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    rig.ip("sink", "addr add 198.51.100.7/32 dev lo");
    let _router = run(&rig, &["--dev", "d0,d1", "--lookup", "fib"]);
    assert_eq!(explained(&rig, "198.51.100.7")["reason"], "not-routed");
    let far = bird(&rig, "sink", &neighbor(&["198.51.100.0/24", "203.0.113.0/24"]));
    let near = bird(&rig, "dut", &own("", "accept;"));
    wait_reason(&rig, "198.51.100.7", "forwarded");
    wait_reason(&rig, "203.0.113.1", "forwarded");
    assert_eq!(rig.probe("198.51.100.7", &[]), "echo 32");
    assert!(rig.count("d0", "forwarded") >= 1);
    // Killed, BIRD takes back nothing.
    drop(near);
    let socket = rig.path("dut.ctl");
    let shown = done(&mut rig.packet(&["router", "show", "status", "--bird", socket.to_str().unwrap()]));
    assert!(shown.contains("its 2 routes stay as they are"), "{shown}");
    assert_eq!(status(&rig)["bird_routes"], 2);
    assert_eq!(rig.probe("198.51.100.7", &[]), "echo 32");
    // A new one takes over, and withdraws what its neighbour does not announce any more.
    drop(far);
    let _far = bird(&rig, "sink", &neighbor(&["198.51.100.0/24"]));
    fs::remove_file(&socket).ok();
    let _near = bird(&rig, "dut", &own("", "accept;"));
    wait_reason(&rig, "203.0.113.1", "not-routed");
    wait_reason(&rig, "198.51.100.7", "forwarded");
}

#[test]
fn a_route_that_rpki_refuses_is_not_in_the_table_and_a_changed_authorisation_reaches_it() {
    let Some(rig) = Rig::new() else { return };
    if lacks(&["bird", "stayrtr"]) {
        return;
    }
    rig.resolve();
    done(rig.inside("dut", "ip").args(["link", "set", "lo", "up"]));
    let cache = |owner: u32| {
        let roa = |prefix: &str, owner: u32| {
            format!("{{\"prefix\":\"{prefix}\",\"maxLength\":24,\"asn\":\"AS{owner}\",\"ta\":\"test\"}}")
        };
        let roas = [roa("198.51.100.0/24", 65002), roa("203.0.113.0/24", owner)].join(",");
        let next = rig.write("roa.next", &format!("{{\"metadata\":{{}},\"roas\":[{roas}]}}"));
        fs::rename(next, rig.path("roa.json")).unwrap();
    };
    cache(65009);
    let mut server = rig.inside("dut", "stayrtr");
    server.arg("-cache").arg(rig.path("roa.json")).args(["-bind", "127.0.0.1:8282", "-checktime=false"]);
    server.args(["-refresh", "1", "-metrics.addr", ""]).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Running::new(server.spawn().unwrap());
    let _router = run(&rig, &["--dev", "d0,d1", "--lookup", "fib"]);
    let rpki = "roa4 table owners;
        protocol rpki { roa4 { table owners; }; remote 127.0.0.1 port 8282; retry keep 1; refresh keep 1; }";
    let filter = "if roa_check(owners, net, bgp_path.last) != ROA_VALID then reject; accept;";
    let _far = bird(&rig, "sink", &neighbor(&["198.51.100.0/24", "203.0.113.0/24"]));
    let _near = bird(&rig, "dut", &own(rpki, filter));
    wait_reason(&rig, "198.51.100.1", "forwarded");
    assert_eq!(explained(&rig, "203.0.113.1")["reason"], "not-routed", "its origin is not the owner");
    cache(65002);
    let changed = Instant::now();
    wait_reason(&rig, "203.0.113.1", "forwarded");
    println!("a changed authorisation reached the table after {:.1?}", changed.elapsed());
    cache(65009);
    let changed = Instant::now();
    wait_reason(&rig, "203.0.113.1", "not-routed");
    println!("its end reached the table after {:.1?}", changed.elapsed());
    assert_eq!(explained(&rig, "198.51.100.1")["reason"], "forwarded");
}
