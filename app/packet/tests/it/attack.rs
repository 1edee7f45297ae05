//! Attacks: packets that look for a way around the checks of the router, and neighbours on its machine.

use std::{
    fs,
    io::{BufRead as _, Read as _},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use serde_json::Value;

use crate::{
    fib::{run, status, wait_reason},
    hostile::sealed,
    rig::{Rig, done, text},
};

/// The word of the packet that ends a watch.
const MARK: &str = "the last one";

/// The address of a device, as digits.
fn mac(rig: &Rig, name: &str, device: &str) -> String {
    let link: Value = serde_json::from_str(&rig.ip(name, &format!("-j link show {device}"))).unwrap();
    link[0]["address"].as_str().unwrap().replace(':', "")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends frames from one machine, then the last packet by way of a socket, and tells whose packets have come through.
fn came_through(rig: &mut Rig, (from, to): (&str, &str), frames: &[String], last: &str) -> Vec<String> {
    let device = |name: &str| if name == "gen" { "g0" } else { "s0" };
    let mut seen = rig.serve(to, &["watch", device(to), MARK]);
    let frames: Vec<_> = frames.iter().map(String::as_str).collect();
    done(&mut rig.python(from, &[&["several", device(from)], frames.as_slice()].concat()));
    done(&mut rig.python(from, &["say", last, MARK]));
    let mut printed = String::new();
    seen.read_to_string(&mut printed).unwrap();
    assert!(printed.ends_with("end\n"), "{printed}");
    printed.lines().filter(|line| *line != "end").map(str::to_owned).collect()
}

/// A packet of UDP to port 9, in digits of IPv4.
fn udp(source: &str, destination: &str) -> String {
    format!("4500001c0001000040110000 {source} {destination} 0035000900080000")
}

#[test]
fn no_tag_and_no_special_address_hides_a_source_from_its_check() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    rig.ip("dut", "route add 169.254.1.1/32 via 10.0.1.2");
    rig.ip("dut", "route add 240.1.2.3/32 via 10.0.1.2");
    let file = rig.write("router.toml", "[[port]]\ndev = \"d0\"\nurpf = \"strict\"\n[[port]]\ndev = \"d1\"\n");
    rig.up(&["--config", file.to_str().unwrap()]);
    let own = mac(&rig, "dut", "d0");
    // 203.0.113.66 is no neighbour of this port.
    let (spoofed, victim) = ("cb007142", "c0000207");
    let frames = [
        ("0800", udp(spoofed, victim)),
        ("8100 0000 0800", udp(spoofed, victim)),
        ("88a8 0000 0800", udp(spoofed, victim)),
        ("8100 0000 8100 0000 0800", udp(spoofed, victim)),
        ("8100 0000 88a8 0000 0800", udp(spoofed, victim)),
        ("88a8 0000 8100 0000 0800", udp(spoofed, victim)),
        ("0800", udp("a9fe0707", victim)),
        ("0800", udp(spoofed, "a9fe0101")),
        ("0800", udp(spoofed, "f0010203")),
    ];
    let frames: Vec<_> = frames.iter().map(|(tags, ip)| sealed_behind(&own, tags, ip)).collect();
    let seen = came_through(&mut rig, ("gen", "sink"), &frames, "192.0.2.7");
    assert_eq!(seen, Vec::<String>::new(), "spoofed packets came through");
    rig.wait_count("d0", "urpf", 5);
    rig.wait_count("d0", "malformed", 4);
    // The kernel delivers a frame for a group of hosts, if the packet is for this machine.
    let group = |mac: &str, source: &str| sealed_behind(mac, "0800", &udp(source, "0a000001"));
    let frames = [group("ffffffffffff", spoofed), group("01005e000009", spoofed), group("ffffffffffff", "0a000002")];
    let file = rig.write("group", &frames.map(|frame| frame + "\n").concat());
    done(&mut rig.python("gen", &["frames", "g0", file.to_str().unwrap()]));
    rig.wait_count("d0", "other-host", 1);
    assert_eq!(rig.count("d0", "urpf"), 7);
}

/// A frame to the router with these tags, and the right sum of its header.
fn sealed_behind(own: &str, tags: &str, ip: &str) -> String {
    let plain = hex(&sealed(&format!("{own} 020000000007 0800 {ip}")));
    let tags = tags.replace(' ', "");
    format!("{}{tags}{}", &plain[..24], &plain[28..])
}

#[test]
fn an_address_of_ipv6_that_looks_like_ipv4_passes_no_policy() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    rig.write(
        "policy.toml",
        "default = \"drop\"\n[[rule]]\nname = \"inside\"\naction = \"accept\"\nfrom = [\"10.0.0.0/24\"]\n\
         [[rule]]\nname = \"last\"\naction = \"accept\"\nports = [7]\nprotocol = \"udp\"\n",
    );
    let file = "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\nurpf = \"strict\"\n";
    let file = rig.write("router.toml", file);
    // As on a real edge: everything unknown is outside.
    rig.ip("dut", "-6 route add default via fd00:1::2");
    rig.up(&["--config", file.to_str().unwrap()]);
    let own = mac(&rig, "dut", "d1");
    let frame = format!(
        "{own}02000000000786dd6000000000081140 00000000000000000000ffff0a000042 fd000000000000000000000000000002 \
         0035003500080000"
    );
    let seen = came_through(&mut rig, ("sink", "gen"), &[frame.replace(' ', "")], "fd00::2");
    assert_eq!(seen, Vec::<String>::new(), "a stranger came in as 10.0.0.66");
    rig.wait_count("d1", "martian", 1);
}

#[test]
fn a_rule_about_all_of_ipv6_is_not_about_ipv4() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    rig.write("policy.toml", "default = \"drop\"\n[[rule]]\nname = \"six\"\naction = \"accept\"\nfrom = [\"::/0\"]\n");
    let file = rig.write("router.toml", "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n");
    rig.up(&["--config", file.to_str().unwrap()]);
    assert_eq!(rig.probe("fd00:2::7", &[]), "echo 32");
    rig.probe("192.0.2.7", &["answer=0"]);
    rig.wait_count("d0", "policy", 1);
}

#[test]
fn an_error_about_one_host_leads_to_no_other() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    rig.write(
        "policy.toml",
        "default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = [\"established\", \
         \"related\"]\n[[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\n",
    );
    let file = rig.write("router.toml", "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n");
    rig.up(&["--config", file.to_str().unwrap()]);
    drop(rig.serve("sink", &["echo"]));
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    let link = mac(&rig, "gen", "g0");
    let link: Vec<_> = (0..6).map(|at| &link[at * 2..at * 2 + 2]).collect();
    rig.ip("dut", &format!("neigh replace 10.0.0.3 lladdr {} dev d0 nud permanent", link.join(":")));
    let own = mac(&rig, "dut", "d1");
    let before = rig.count("d1", "forwarded");
    // The peer of one host knows a flow, and quotes it to another host.
    let error = |to: &str| {
        let quoted = "450000200001000040110000 0a000002 0a000102 13880009000c0000";
        let ip = format!("450000380001000040010000 0a000102 {to} 0301000000000000 {quoted}");
        hex(&sealed(&format!("{own} 020000000007 0800 {ip}")))
    };
    done(&mut rig.python("sink", &["several", "s0", &error("0a000003"), &error("0a000002")]));
    rig.wait_count("d1", "forwarded", before + 1);
    rig.wait_count("d1", "policy", 1);
}

#[test]
fn fragments_without_ports_pass_no_rule_about_ports() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    rig.write(
        "policy.toml",
        "default = \"accept\"\n[[rule]]\nname = \"no shells\"\naction = \"drop\"\nprotocol = \"tcp\"\nports = [22]\n",
    );
    let file = rig.write("router.toml", "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n");
    rig.up(&["--config", file.to_str().unwrap()]);
    let own = mac(&rig, "dut", "d0");
    let header = |length: &str| {
        format!(
            "{own}02000000000786dd60000000{length}2c40 fd000000000000000000000000000002 fd000002000000000000000000000007"
        )
    };
    // The first has options alone, and the second the header of TCP with the port.
    let first = format!("{} 3c000001 00000007 0600010400000000", header("0010"));
    let second = format!("{} 3c000008 00000007 00140016 00000000 00000000 50022000 00000000", header("001c"));
    let frames = [first.replace(' ', ""), second.replace(' ', "")];
    let seen = came_through(&mut rig, ("gen", "sink"), &frames, "fd00:2::7");
    // The first one comes through, for it is no beginning of a packet (RFC 8200, section 4.5). Alone it begins nothing.
    assert!(!seen.iter().any(|line| line.contains("001400160000")), "a connection to port 22 came through: {seen:?}");
    assert_eq!(rig.count("d0", "fragment"), 2);
}

#[test]
fn nothing_leaves_with_its_inside_address() {
    for engine in ["xdp", "conntrack"] {
        let Some(mut rig) = Rig::new() else { return };
        rig.resolve();
        let file = format!(
            "[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n[nat]\nengine = \"{engine}\"\ninside = [\"10.0.0.0/24\"]\n\
             pool = [\"10.0.1.1\"]\n"
        );
        let file = rig.write("router.toml", &file);
        rig.up(&["--config", file.to_str().unwrap()]);
        let own = mac(&rig, "dut", "d0");
        // Connection tracking knows neither: a reset of no connection, and an error about no packet. Options bring
        // both to the kernel.
        let tcp = "4600002c0001000040060000 0a000002 0a000102 01010101 00140050 00000001 00000000 50042000 00000000";
        let error = "4600003400010000400100000a0000020a00010201010101 0303fcfc00000000 \
                     4500001c00010000401100000a0001020a000002 0035003500080000";
        let frames = [tcp, error].map(|ip| hex(&sealed_options(&own, ip)));
        let seen = came_through(&mut rig, ("gen", "sink"), &frames, "10.0.1.2");
        assert!(!seen.iter().any(|source| source.starts_with("10.0.0.")), "{engine}: {seen:?}");
        assert!(rig.count("d0", "options") == 2, "{engine}: the kernel had them");
    }
}

/// A frame of IPv4 with four bytes of options, and the right sum of its header.
fn sealed_options(own: &str, ip: &str) -> Vec<u8> {
    let digits: String = format!("{own}0200000000070800{ip}").replace(' ', "");
    let mut frame: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    let sum = sallyport_packet_model::checksum::full(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn strangers_cannot_fill_the_table_of_users() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    let file = "[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n[nat]\ninside = [\"10.0.0.0/24\", \"172.16.0.0/16\"]\n\
                pool = [\"10.0.1.1\"]\nmax-sessions = 2\ntimeouts = { udp = 2 }\n";
    let file = rig.write("router.toml", file);
    rig.up(&["--config", file.to_str().unwrap()]);
    let own = mac(&rig, "dut", "d0");
    let flow = |source: &str, to: &str| hex(&sealed(&format!("{own} 020000000007 0800 {}", udp(source, to)))) + "\n";
    let from = |source: &str| flow(source, "0a000102");
    // The tables have room for 1,024, and two sessions are all that there may be: those of one user.
    let first = from("0a000057") + &flow("0a000057", "c0000207");
    let flood: String = (0..2_998).map(|number| from(&format!("ac10{number:04x}"))).collect();
    let flood = rig.write("flood", &(first + &flood));
    done(&mut rig.python("gen", &["frames", "g0", flood.to_str().unwrap()]));
    rig.wait_for(|| rig.count("d0", "nat-sessions") + rig.count("d0", "forwarded") == 3_000);
    let pools =
        || -> Value { serde_json::from_str(&done(&mut rig.packet(&["nat", "show", "pools", "-o", "json"]))).unwrap() };
    rig.wait_for(|| pools()["sessions"] == 0);
    let before = rig.count("d0", "forwarded");
    // Two users that were never seen.
    let two = rig.write("two", &[from("0a000058"), from("0a000059")].concat());
    done(&mut rig.python("gen", &["frames", "g0", two.to_str().unwrap()]));
    rig.wait_count("d0", "forwarded", before + 2);
}

#[test]
fn the_state_is_for_its_owner_alone_and_one_command_changes_it() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.up(&["--dev", "d0,d1"]);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&rig.pins()), 0o700, "nobody else can lock it");
    for entry in fs::read_dir(rig.pins()).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()) & 0o077, 0);
    }
    let failed = |output: std::process::Output, words: &str| {
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
    };
    // Another command at the same moment.
    let lock = rig.pins().join("change");
    fs::create_dir(&lock).unwrap();
    let held = fs::File::open(&lock).unwrap();
    held.try_lock().unwrap();
    let busy = "another command changes this router at this moment";
    failed(rig.run(&["router", "up", "--dev", "d0,d1"]), busy);
    failed(rig.run(&["router", "down"]), busy);
    drop(held);
    done(&mut rig.packet(&["router", "down"]));
    assert!(!rig.pins().exists(), "nothing is left");
    // Another user was there first, in a bpffs that is open to all.
    let theirs = rig.pins().parent().unwrap().join("theirs");
    fs::create_dir(&theirs).unwrap();
    done(Command::new("chown").arg("65534").arg(&theirs));
    let program = env!("CARGO_BIN_EXE_sallyport-packet");
    let up = |pins: &std::path::Path| {
        rig.inside("dut", program).arg("--pins").arg(pins).args(["router", "up", "--dev", "d0,d1"]).output().unwrap()
    };
    failed(up(&theirs.join("router")), "theirs belongs to another user");
    failed(up(&theirs), "theirs belongs to another user");
    let link: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    assert_eq!(link[0]["xdp"], Value::Null, "nothing is attached");
}

#[test]
fn the_router_never_stands_without_its_rules_and_leaves_none() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.write("policy.toml", "default = \"drop\"\n");
    let file = rig.write(
        "router.toml",
        "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n[nat]\ninside = [\"10.0.0.0/24\"]\n\
         pool = [\"10.0.1.1\"]\n",
    );
    let tables = || done(rig.inside("dut", "nft").args(["list", "tables"]));
    // Without nft, nothing is attached.
    let without = rig
        .inside("dut", "env")
        .args(["PATH=/nonexistent", env!("CARGO_BIN_EXE_sallyport-packet"), "--pins"])
        .arg(rig.pins())
        .args(["router", "up", "--config", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = text(&without.stderr);
    assert!(
        !without.status.success() && said.contains("its part of the policy: the program nft is not there"),
        "{said}"
    );
    let link: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    assert_eq!(link[0]["xdp"], Value::Null, "no router without its policy");
    // A device that cannot be a port: the rules go again.
    let slow = fs::read_to_string(&file).unwrap().replace("[nat]", "[[port]]\ndev = \"lo\"\n[nat]");
    let slow = rig.write("slow.toml", &slow);
    let output = rig.run(&["router", "up", "--config", slow.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("only in generic mode"), "{}", text(&output.stderr));
    assert_eq!(tables(), "", "a run that failed has left rules");
    // A `down` that was killed has left its rules, and so has an `up`.
    rig.up(&["--config", file.to_str().unwrap()]);
    assert!(tables().contains("sallyport_policy") && tables().contains("sallyport_nat"));
    let rules = rig.write("rules.nft", &done(rig.inside("dut", "nft").args(["list", "ruleset"])));
    let stale = || done(rig.inside("dut", "nft").arg("-f").arg(&rules));
    done(&mut rig.packet(&["router", "down"]));
    assert_eq!(tables(), "");
    stale();
    let again = rig.run(&["router", "down"]);
    assert!(text(&again.stderr).contains("no router stands here"), "{}", text(&again.stderr));
    assert_eq!(tables(), "", "down removes rules that stand alone");
    stale();
    rig.up(&["--dev", "d0,d1"]);
    assert_eq!(tables(), "", "a router without a policy has none in the kernel");
}

#[test]
fn a_rule_that_comes_later_is_followed_by_the_kernel() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    let mut run = rig.packet(&["router", "run", "--dev", "d0,d1", "--lookup", "fib", "--urpf", "strict"]);
    let mut child = run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    rig.keep(child);
    assert!(lines.next().unwrap().unwrap().starts_with("following the kernel"));
    for (family, to) in [("-4", "192.0.2.7"), ("-6", "fd00:2::7")] {
        wait_reason(&rig, to, "forwarded");
        rig.ip("dut", &format!("{family} route add blackhole {to} table 100"));
        rig.ip("dut", &format!("{family} rule add to {to} priority 77 table 100"));
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains("the kernel looks up until the rule is gone"), "{said}");
        wait_reason(&rig, to, "blackhole");
        let shown = status(&rig);
        assert!(shown["notes"][0].as_str().unwrap().contains("`ip rule` has 1 rules"), "{shown}");
        rig.ip("dut", &format!("{family} rule del to {to} priority 77 table 100"));
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains("the lookup fib goes on"), "{said}");
        wait_reason(&rig, to, "forwarded");
    }
}

#[test]
fn rules_change_nothing_where_that_is_asked_for() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.ip("dut", "rule add to 192.0.2.7 priority 77 blackhole");
    let args = ["--dev", "d0,d1", "--lookup", "fib"];
    let refused = rig.run(&[&["router", "run"], &args[..]].concat());
    let said = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(5) && said.contains("or let them change nothing by --ignore-rules"),
        "{said}"
    );
    let _router = run(&rig, &[&args[..], &["--ignore-rules"]].concat());
    wait_reason(&rig, "192.0.2.7", "forwarded");
}

#[test]
fn a_changed_address_of_a_port_is_said() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0,d1"]);
    assert_eq!(status(&rig)["notes"], serde_json::json!([]));
    rig.ip("dut", "link set d0 address 02:00:00:00:0d:00");
    let shown = status(&rig);
    let said = shown["notes"][0].as_str().unwrap();
    assert!(said.starts_with("d0 has another address than when the router came up"), "{shown}");
    rig.up(&["--dev", "d0,d1"]);
    assert_eq!(status(&rig)["notes"], serde_json::json!([]));
}

#[test]
fn metrics_follow_no_link_of_another_user() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    let (metrics, secret) = (rig.path("m.prom"), rig.write("secret", "untouched"));
    std::os::unix::fs::symlink(&secret, rig.path("m.next")).unwrap();
    let mut run = rig.packet(&["router", "run", "--dev", "d0,d1", "--metrics", metrics.to_str().unwrap()]);
    let mut child = run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    rig.keep(child);
    assert!(line.starts_with("following the kernel"), "{line}");
    rig.wait_for(|| fs::read_to_string(&metrics).is_ok_and(|text| text.contains("sallyport_packet_fib_")));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
}

#[test]
fn a_capture_is_for_its_owner_and_follows_no_link() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0,d1"]);
    let (secret, link, file) = (rig.write("secret", "untouched"), rig.path("link"), rig.write("old.pcapng", "old"));
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let dump = |to: &std::path::Path| rig.run(&["dump", "-c", "1", "-w", to.to_str().unwrap()]);
    let refused = dump(&link);
    let said = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(5) && said.contains("link is a symbolic link: name the file itself"),
        "{said}"
    );
    let hard = rig.path("hard");
    fs::hard_link(&secret, &hard).unwrap();
    let said = text(&dump(&hard).stderr);
    assert!(said.contains("has another name too"), "{said}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
    // A file of this user that others can read is emptied, and others cannot read it any more.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut child = rig.packet(&["dump", "-w", file.to_str().unwrap()]).spawn().unwrap();
    rig.wait_for(|| fs::read(&file).is_ok_and(|bytes| bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a])));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    done(Command::new("kill").args(["-INT", &child.id().to_string()]));
    assert!(child.wait().unwrap().success());
}

#[test]
fn connection_tracking_is_left_as_it_was() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    let ports = "[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n";
    let nat = |engine: &str| {
        format!("{ports}[nat]\nengine = \"{engine}\"\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n")
    };
    let (shared, own) = (rig.write("shared.toml", &nat("conntrack")), rig.write("own.toml", &nat("xdp")));
    let name = "net.netfilter.nf_conntrack_tcp_be_liberal";
    let liberal = || done(rig.inside("dut", "sysctl").args(["-n", name])).trim().to_owned();
    for before in ["0", "1"] {
        done(rig.inside("dut", "sysctl").args(["-qw", &format!("{name}={before}")]));
        // A change keeps what was before the first.
        for _ in 0..2 {
            rig.up(&["--config", shared.to_str().unwrap()]);
            assert_eq!(liberal(), "1");
        }
        rig.up(&["--config", own.to_str().unwrap()]);
        assert_eq!(liberal(), before, "another engine");
        rig.up(&["--config", shared.to_str().unwrap()]);
        done(&mut rig.packet(&["router", "down"]));
        assert_eq!(liberal(), before, "down");
    }
}

#[test]
fn an_answer_to_a_host_whose_address_is_asked_for_passes_the_policy() {
    for nat in ["", "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n"] {
        let Some(mut rig) = Rig::new() else { return };
        rig.resolve();
        drop(rig.serve("sink", &["echo"]));
        let policy = "default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = \
                      [\"established\"]\n[[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\n";
        rig.write("policy.toml", policy);
        let file = format!("policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n{nat}");
        let file = rig.write("router.toml", &file);
        rig.up(&["--config", file.to_str().unwrap()]);
        // The host never asks for its router by itself, and its router has forgotten it.
        let own: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
        let own = own[0]["address"].as_str().unwrap();
        rig.ip("gen", &format!("neigh replace 10.0.0.1 lladdr {own} dev g0 nud permanent"));
        assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
        rig.ip("dut", "neigh del 10.0.0.2 dev d0");
        assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32", "the first answer comes: {nat}");
        assert!(rig.count("d1", "neighbor") >= 1);
        // Nobody else is let in by that: a stranger's packet to a host that is asked for.
        rig.ip("dut", "neigh del 10.0.0.2 dev d0");
        let before = rig.count("d1", "policy") + rig.count("d1", "nat-no-mapping");
        done(&mut rig.python("sink", &["probe", if nat.is_empty() { "10.0.0.2" } else { "10.0.1.1" }, "answer=0"]));
        rig.wait_for(|| rig.count("d1", "policy") + rig.count("d1", "nat-no-mapping") == before + 1);
        // Another file with as many rules is not the policy of this router.
        let other = rig.write("other.toml", &policy.replace("\"d0\"", "\"d1\""));
        let shown = rig.run(&["policy", "show", other.to_str().unwrap()]);
        let said = text(&shown.stderr);
        assert!(
            shown.status.code() == Some(2) && said.contains("has a policy of 2 rules, which is not that of"),
            "{said}"
        );
        let same = rig.write("same.toml", &format!("# a comment\n{policy}"));
        done(&mut rig.packet(&["policy", "show", same.to_str().unwrap()]));
    }
}
