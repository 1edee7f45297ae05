//! `sallyport ping` on real paths, in network namespaces that each test makes.

use std::{
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    process::{Output, Stdio},
};

use sallyport_ping::Family;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::{
    harness::{Home, text},
    hostile,
    networks::{FarNetwork, Sockets, must, run_within},
};

const NOBODY: [&str; 5] = ["setpriv", "--reuid", "65534", "--regid", "65534"];

#[test]
fn this_machine_is_measured_by_echo_and_by_connect() {
    run_within(Sockets::Ping, &[], "ping::within_this_machine");
    run_within(Sockets::Raw, &[], "ping::within_this_machine");
}

#[test]
fn a_hostile_host_is_counted_and_fools_nobody() {
    run_within(Sockets::Ping, &[], "ping::within_a_hostile_network");
}

#[test]
fn without_privileges_one_sentence_says_what_to_do() {
    let nobody = [&NOBODY[..], &["--clear-groups"]].concat();
    run_within(Sockets::Raw, &nobody, "ping::within_a_closed_machine");
    run_within(Sockets::Ping, &nobody, "ping::within_an_open_machine");
}

#[test]
fn bad_input_gets_one_sentence() {
    let home = Home::new();
    for (args, code, sentence) in [
        (&["nosuch.invalid"][..], 6, "the name nosuch.invalid has no address"),
        (&["127.0.0.1", "-6"], 6, "127.0.0.1 has no IPv6 address"),
        (&["http://127.0.0.1"], 2, "expected HOST, HOST:PORT or [ADDRESS]:PORT"),
        (&["127.0.0.1:0"], 2, "with a port from 1 to 65535"),
        (&["::1:x"], 2, "expected HOST, HOST:PORT or [ADDRESS]:PORT"),
        (&["224.0.0.1"], 2, "224.0.0.1 is not the address of one host"),
        (&["127.0.0.1", "-c", "many"], 2, "expected a number of probes from 0 to 1000000000"),
        (&["127.0.0.1", "-c", "-1"], 2, "unexpected argument '-1' found"),
        (&["127.0.0.1", "-s", "65508"], 2, "expected a number of bytes from 16 to 65507"),
        (&["127.0.0.1", "-s", "15"], 2, "expected a number of bytes from 16 to 65507"),
        (&["127.0.0.1", "-i", "0s"], 2, "expected a time greater than zero"),
        (&["127.0.0.1", "-W", "2h"], 2, "--timeout is at most 3600s"),
        (&["127.0.0.1", "-W", "1h", "-i", "200ms"], 2, "more than 8192 probes would wait"),
        (&["127.0.0.1", "-4", "-6"], 2, "cannot be used with '-6'"),
        (&[], 2, "required"),
    ] {
        let output = home.run(&[&["ping"], args].concat());
        failed(&output, code, sentence);
        assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
    }
}

/// Asserts this exit code, and this text on the standard error.
#[track_caller]
fn failed(output: &Output, code: i32, sentence: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(sentence), "{sentence:?} is not in: {stderr}");
}

#[test]
#[ignore = "runs within the networks of this_machine_is_measured_by_echo_and_by_connect"]
fn within_this_machine() {
    let home = Home::new();
    for (host, first) in [
        ("127.0.0.1", "PING 127.0.0.1: 56 data bytes"),
        ("::1", "PING ::1: 56 data bytes"),
        ("localhost", "PING localhost (127.0.0.1): 56 data bytes"),
    ] {
        let output = home.run(&["ping", host, "-c", "3", "-i", "200ms"]);
        let shown = text(&output.stdout);
        let lines: Vec<_> = shown.lines().collect();
        assert!(output.status.success() && lines.len() >= 9, "{shown}");
        assert_eq!((lines[0], lines[4], lines[6]), (first, "", "3 sent, 3 answered, 0% loss"));
        assert!(lines[1].starts_with("64 bytes from ") && lines[1].contains("icmp_seq=1 time="), "{shown}");
        assert!(lines[7].starts_with("round trip min/avg/max/mdev = "), "{shown}");
        assert!(lines[8].starts_with("round trip p50/p90/p99 = "), "{shown}");
    }
    let quiet = home.run(&["ping", "localhost", "-6", "-q", "-c", "1", "-s", "65507"]);
    assert_eq!(text(&quiet.stdout).lines().next(), Some("PING localhost (::1): 65507 data bytes"));
    assert!(!text(&quiet.stdout).contains("icmp_seq"));

    let found = home.json(&["ping", "127.0.0.1", "-c", "200", "-i", "1ms"]);
    let none = json!({"duplicates": 0, "forged": 0, "late": 0, "truncated": 0, "other_sender": 0, "damaged": 0});
    assert_eq!((&found["sent"], &found["answered"], &found["rejected"]), (&json!(200), &json!(200), &none));
    // The wall clock of a machine may really jump: no assertion about `clock_jumps`.
    // Two processors of a busy machine may deliver two answers the other way around.
    assert!(found["reordered"].as_u64().unwrap() <= 4, "{found}");
    assert!(found["round_trip_ms"]["p99"].as_f64().unwrap() > 0.0);

    let listener = TcpListener::bind("[::1]:0").unwrap();
    let open = listener.local_addr().unwrap().to_string();
    let shown = text(&home.run(&["ping", &open, "-c", "1"]).stdout);
    assert!(shown.contains(&format!("connected to {open}: seq=1 time=")), "{shown}");
    let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    closed.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = closed.local_addr().unwrap().as_socket().unwrap().port();
    let refused = home.run(&["ping", &format!("localhost:{port}"), "-c", "1"]);
    assert!(refused.status.success(), "a refusal is an answer");
    let shown = text(&refused.stdout);
    assert!(shown.contains(&format!("refused by 127.0.0.1:{port}: seq=1 time=")), "{shown}");
    assert!(shown.contains("(an answer: the port is closed)"), "{shown}");

    unanswered(&home);
    interrupted(&home);
}

/// A network in which nobody answers.
fn unanswered(home: &Home) {
    must("ip link add void type veth peer name hole; ip link set hole up; ip addr add 10.98.0.1/24 dev void");
    must("ip link set void up; ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:01 dev void");
    for host in ["10.98.0.2", "10.98.0.2:80"] {
        let output = home.run(&["ping", host, "-c", "2", "-i", "200ms", "-W", "300ms"]);
        failed(&output, 6, &format!("{host} answered none of 2 probes"));
        let shown = text(&output.stdout);
        assert!(shown.contains("seq=2: no answer within 300 ms"), "{shown}");
        assert!(shown.contains("2 sent, 0 answered, 100% loss"), "{shown}");
    }
    let output = home.run(&["ping", "10.98.0.2", "-c", "1", "-W", "100ms", "-o", "json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["lost"], &found["round_trip_ms"]), (&json!(1), &Value::Null));
    assert_eq!(output.status.code(), Some(6));
}

/// Ctrl-C ends an endless `ping` with its summary.
fn interrupted(home: &Home) {
    let mut command = home.command(&["ping", "127.0.0.1", "-c", "0", "-i", "10ms"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // More than the default count: it is endless, and lines come as they are printed.
    assert!(lines.any(|line| line.contains("icmp_seq=20 ")));
    must(&format!("kill -INT {}", child.id()));
    assert!(lines.any(|line| line.ends_with("0% loss")));
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "runs within the network of without_privileges_one_sentence_says_what_to_do"]
fn within_a_closed_machine() {
    let home = Home::new();
    for host in ["127.0.0.1", "::1"] {
        let output = home.run(&["ping", host]);
        failed(&output, 3, "sudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"");
        assert!(output.stdout.is_empty());
    }
}

#[test]
#[ignore = "runs within the network of without_privileges_one_sentence_says_what_to_do"]
fn within_an_open_machine() {
    let home = Home::new();
    assert!(home.run(&["ping", "127.0.0.1", "-c", "1"]).status.success());
    let output = home.run(&["ping", "127.0.0.1", "-i", "199ms"]);
    failed(&output, 2, "--interval is at least 200ms for users other than root");
}

#[test]
#[ignore = "runs within the network of a_hostile_host_is_counted_and_fools_nobody"]
fn within_a_hostile_network() {
    let home = Home::new();
    let far = FarNetwork::new();
    for family in [Family::V4, Family::V6] {
        let host = hostile::addresses(family)[0].to_string();
        let _responder = hostile::start(&far, family);
        // Twice each of the six manners, and an honest reply. Replies come at once, or after the next request.
        let output = home.run(&["ping", &host, "-c", "13", "-i", "1500ms", "-W", "1400ms", "-o", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&found["sent"], &found["answered"], &found["lost"]), (&json!(13), &json!(7), &json!(6)));
        let two = json!({"duplicates": 2, "forged": 2, "late": 2, "truncated": 2, "other_sender": 2, "damaged": 0});
        assert_eq!(found["rejected"], two);
        assert_eq!(found["reordered"], json!(0));
        assert!(found["round_trip_ms"]["max"].as_f64().unwrap() < 1_400.0);
    }
}
