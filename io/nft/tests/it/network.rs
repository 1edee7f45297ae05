//! Policies of networks: the kernel decides as the model does, and flows that are no longer allowed end.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::IpAddr,
    process::{ChildStdin, ChildStdout, Stdio},
};

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use sallyport_network::{
    nft::{DEFAULT_COUNTER, SPOOFED_COUNTER, compile, counter_name, removal, table_name},
    policy::{Decision, Document, Flow, Policy},
};
use sallyport_nft::{apply, counters, cut, flows, tables};
use sallyport_packet_model::testing::Frame;
use serde_json::{Value, json};

use crate::network_rig::{Rig, wait_for};

/// How many policies the kernel judges.
const POLICIES: u32 = 16;
/// How many packets each of them meets.
const PACKETS: usize = 250;
/// Addresses of endpoints, of what lies behind them, of sets and of strangers.
const ADDRESSES: [&str; 18] = [
    "10.20.0.10",
    "10.20.0.11",
    "10.20.0.12",
    "10.20.0.13",
    "10.30.0.1",
    "10.31.200.7",
    "10.20.0.15",
    "198.51.100.9",
    "203.0.113.1",
    "192.0.2.200",
    "fd00:20::10",
    "fd00:20::11",
    "fd00:20::12",
    "fd00:20::13",
    "fd00:31::7",
    "fd00:20::99",
    "2001:db8:5::1",
    "2001:db8::1",
];
const PARTIES: [&str; 11] =
    ["e0", "e1", "e2", "e3", "g0", "g1", "@partners", "@mixed", "10.20.0.8/29", "fd00:20::/64", "203.0.113.1"];
const SERVICES: [&str; 8] = ["tcp", "udp", "icmp", "tcp/22", "tcp/80-443", "udp/22-100", "udp/443", "tcp/100-5000"];
const PORTS: [u16; 6] = [22, 80, 100, 443, 5000, 5001];

fn policy(document: Value) -> Policy {
    serde_json::from_value::<Document>(document).unwrap().into_policy().unwrap()
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A list of words, or none.
type Words = Option<Vec<&'static str>>;

/// Rules with these names' beginning.
fn rules(kind: &'static str, least: usize) -> impl Strategy<Value = Vec<Value>> {
    let parties = || prop::option::of(prop::collection::vec(select(&PARTIES[..]), 1..3));
    let services = prop::option::of(prop::collection::vec(select(&SERVICES[..]), 1..3));
    let sides = (parties(), parties(), services).prop_filter("it is about somebody", |(from, to, services)| {
        from.is_some() || to.is_some() || services.is_some()
    });
    prop::collection::vec(sides, least..5).prop_map(move |rules| {
        let rule = |(number, (from, to, services)): (usize, (Words, Words, Words))| {
            let mut rule = json!({ "name": format!("{kind}{number}") });
            for (field, list) in [("from", from), ("to", to), ("services", services)] {
                if let Some(list) = list {
                    rule[field] = json!(list);
                }
            }
            rule
        };
        rules.into_iter().enumerate().map(rule).collect()
    })
}

/// Documents of four endpoints in two groups, some with a route or a device.
fn documents() -> impl Strategy<Value = Value> {
    let endpoint = (any::<bool>(), any::<bool>(), any::<bool>(), select(&["", "d0", "d1"][..]));
    (prop::collection::vec(endpoint, 4), rules("a", 1), rules("d", 0)).prop_map(|(endpoints, allow, deny)| {
        let endpoints = endpoints.into_iter().enumerate().map(|(number, (has_route, first, second, device))| {
            let mut groups = vec![];
            groups.extend((number == 0 || first).then_some("g0"));
            groups.extend((number == 1 || second).then_some("g1"));
            let mut endpoint = json!({
                "name": format!("e{number}"),
                "addresses": [format!("10.20.0.1{number}"), format!("fd00:20::1{number}")],
                "groups": groups,
            });
            if has_route {
                endpoint["routes"] = json!([format!("10.3{number}.0.0/16"), format!("fd00:3{number}::/48")]);
            }
            if !device.is_empty() {
                endpoint["device"] = json!(device);
            }
            endpoint
        });
        json!({
            "network": "random",
            "sets": {
                "partners": ["198.51.100.0/24", "2001:db8:5::/48"],
                "mixed": ["10.20.0.12", "192.0.2.128/25", "192.0.2.192/26"],
            },
            "endpoint": endpoints.collect::<Vec<_>>(),
            "allow": allow,
            "deny": deny,
        })
    })
}

/// A packet that begins a flow.
#[derive(Debug, Clone)]
struct Sent {
    source: &'static str,
    destination: &'static str,
    protocol: u8,
    port: u16,
    is_first_device: bool,
}

fn packets() -> impl Strategy<Value = Vec<Sent>> {
    let ends = (select(&ADDRESSES[..]), select(&ADDRESSES[..]))
        .prop_filter("two ends of one family", |(one, other)| one != other && one.contains(':') == other.contains(':'));
    let packet = (ends, select(&[6, 17, 1, 253][..]), select(&PORTS[..]), any::<bool>());
    let packet = packet.prop_map(|((source, destination), protocol, port, is_first_device)| {
        // Of a protocol without ports, the other direction would be an answer.
        let turns = protocol == 253 && source > destination;
        let (source, destination) = if turns { (destination, source) } else { (source, destination) };
        Sent { source, destination, protocol, port, is_first_device }
    });
    prop::collection::vec(packet, PACKETS)
}

impl Sent {
    /// The frame; `number` tells its flow from all others.
    fn frame(&self, number: u16) -> Vec<u8> {
        let (from, to) = ((self.source, 10_000 + number), (self.destination, self.port));
        match self.protocol {
            6 => Frame::tcp(from, to, 2, b""),
            17 => Frame::udp(from, to, b"x"),
            1 => Frame::echo(self.source, self.destination, false, number),
            other => Frame::new(self.source, self.destination, other, b"whatever".to_vec()),
        }
        .bytes()
    }

    /// The counter that counts the packet; none if the policy says nothing.
    fn counter(&self, policy: &Policy) -> Option<String> {
        let [source, destination] = [self.source, self.destination].map(|text| text.parse::<IpAddr>().unwrap());
        if policy.is_spoofed(source, if self.is_first_device { "d0" } else { "d1" }) {
            return Some(SPOOFED_COUNTER.to_owned());
        }
        let protocol = if self.protocol == 1 && source.is_ipv6() { 58 } else { self.protocol };
        let port = if matches!(protocol, 6 | 17) { self.port } else { 0 };
        match policy.decide(&Flow { source, destination, protocol, port }) {
            Decision::Foreign => None,
            Decision::Default => Some(DEFAULT_COUNTER.to_owned()),
            Decision::Rule(rule) => Some(counter_name(rule)),
        }
    }
}

/// What the table of the policy has counted.
fn counted(policy: &Policy) -> BTreeMap<String, u64> {
    let counters = block(counters(&table_name(policy.network()))).unwrap();
    counters.into_iter().map(|counter| (counter.name, counter.packets)).collect()
}

#[test]
fn the_kernel_decides_as_the_model_does() {
    let rig = Rig::new("a");
    rig.run_inside("network::random_policies_and_packets");
}

#[test]
#[ignore = "the_kernel_decides_as_the_model_does runs it in the namespace of its router"]
fn random_policies_and_packets() {
    let Some(rig) = Rig::inside() else { return };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: POLICIES, failure_persistence: None, max_shrink_iters: 0, ..Config::default() },
        rng,
    );
    let deciding = RefCell::new(BTreeMap::new());
    let outcome = runner.run(&(documents(), packets()), |(document, packets)| {
        let policy = policy(document);
        let mut expected: BTreeMap<_, u64> = counted_nothing(&policy);
        for packet in &packets {
            if let Some(counter) = packet.counter(&policy) {
                let kind = counter.trim_end_matches(|last: char| last.is_ascii_digit()).to_owned();
                *expected.get_mut(&counter).unwrap() += 1;
                *deciding.borrow_mut().entry(kind).or_insert(0) += 1;
            }
        }
        rig.run("conntrack -F 2>/dev/null");
        block(apply(&compile(&policy).to_string())).unwrap();
        let frames = (0..)
            .zip(&packets)
            .map(|(number, packet)| (if packet.is_first_device { "g0" } else { "g1" }, packet.frame(number)));
        let frames: Vec<_> = frames.collect();
        rig.send(&frames);
        let total: u64 = expected.values().sum();
        wait_for("the last packet", || counted(&policy).values().sum::<u64>() >= total);
        prop_assert_eq!(counted(&policy), expected);
        Ok(())
    });
    let deciding = deciding.into_inner();
    println!("what has decided: {deciding:?}");
    outcome.unwrap();
    for kind in ["allow-a", "deny-d", "default", "spoofed"] {
        assert!(deciding.get(kind).is_some_and(|count| *count > 50), "{kind} decides: {deciding:?}");
    }
    block(async {
        let name = "random".parse().unwrap();
        assert_eq!(tables("inet").await.unwrap(), [table_name(&name)]);
        apply(&removal(&name)).await.unwrap();
        apply(&removal(&name)).await.unwrap();
        assert_eq!(tables("inet").await.unwrap(), Vec::<String>::new());
        assert!(counters(&table_name(&name)).await.unwrap_err().to_string().starts_with("nft refuses the rules:"));
    });
}

fn counted_nothing(policy: &Policy) -> BTreeMap<String, u64> {
    let rules = policy.rules().iter().map(counter_name);
    let own = [DEFAULT_COUNTER, SPOOFED_COUNTER, "invalid"].map(str::to_owned);
    rules.chain(own).map(|name| (name, 0)).collect()
}

/// Holds flows to `db`: says `begun`, then for each line the outcome of one more word on the flow of this line.
const CLIENT: &str = r#"
import socket, sys
flows = {}
for family, host in ((socket.AF_INET, "10.20.0.21"), (socket.AF_INET6, "fd00:20::21")):
    for port in (22, 5432):
        flows[f"tcp {port} {family.name}"] = socket.create_connection((host, port), 30)
    flow = socket.socket(family, socket.SOCK_DGRAM)
    flow.settimeout(30)
    flow.connect((host, 53))
    flows[f"udp 53 {family.name}"] = flow
def say(flow):
    flow.send(b"word\n")
    return flow.recv(100)
for flow in flows.values():
    assert say(flow) == b"word\n"
print("begun", flush=True)
for line in sys.stdin:
    try:
        word, flow = line.strip().split(" ", 1)
        answer = say(flows[flow]) if word == "say" else flows[flow].recv(100)
        print(answer.decode().strip() or "closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"#;

/// Answers each word by the same; a line on the standard input has each connection hear of it.
const SERVER: &str = r#"
import asyncio, sys
writers = []
async def serve(reader, writer):
    writers.append(writer)
    try:
        while line := await reader.readline():
            writer.write(line)
    except OSError:
        pass
class Udp(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, peer):
        self.transport.sendto(data, peer)
async def main():
    loop = asyncio.get_running_loop()
    for host in ("10.20.0.21", "fd00:20::21"):
        for port in (22, 5432):
            await asyncio.start_server(serve, host, port)
        await loop.create_datagram_endpoint(Udp, (host, 53))
    print("ready", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        for writer in writers:
            writer.write(b"news\n")
        print("told", flush=True)
asyncio.run(main())
"#;

struct Program(ChildStdin, BufReader<ChildStdout>);

impl Program {
    fn start(rig: &mut Rig, node: &str, program: &str) -> Self {
        let mut command = rig.command(node, "python3");
        let mut child = command.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pipes = Self(child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        rig.programs.push(child);
        pipes
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.0, "{line}").unwrap();
        self.line()
    }
}

#[test]
fn flows_that_are_no_longer_allowed_end() {
    let rig = Rig::new("b");
    rig.run(
        "ip -n @gen addr add 10.20.0.11/32 dev g0; ip -n @gen addr add fd00:20::11/128 dev g0 nodad
         ip -n @gen route add 10.20.0.21 dev g0; ip -n @gen route add fd00:20::21 dev g0
         ip -n @sink addr add 10.20.0.21/32 dev k0; ip -n @sink addr add fd00:20::21/128 dev k0 nodad
         ip -n @sink route add 10.20.0.11 dev k0; ip -n @sink route add fd00:20::11 dev k0
         for a in 10.20.0.21 fd00:20::21; do ip -n @gen neigh replace $a lladdr 02:00:00:00:00:01 dev g0; done
         for a in 10.20.0.11 fd00:20::11; do ip -n @sink neigh replace $a lladdr 02:00:00:00:00:01 dev k0; done
         for a in 10.20.0.11 fd00:20::11; do ip -n @router neigh replace $a lladdr 02:00:00:00:00:09 dev d0; done
         for a in 10.20.0.21 fd00:20::21; do ip -n @router neigh replace $a lladdr 02:00:00:00:00:77 dev d2; done
         ip -n @router route add 10.20.0.11 dev d0; ip -n @router route add fd00:20::11 dev d0
         ip -n @router route add 10.20.0.21 dev d2; ip -n @router route add fd00:20::21 dev d2",
    );
    rig.run_inside("network::a_policy_changes_under_flows");
}

fn shop(allow: &Value) -> Policy {
    policy(json!({
        "network": "shop",
        "endpoint": [
            { "name": "web", "addresses": ["10.20.0.11", "fd00:20::11"], "device": "d0" },
            { "name": "db", "addresses": ["10.20.0.21", "fd00:20::21"], "device": "d2" },
        ],
        "allow": allow,
    }))
}

/// Sets the policy, and cuts what it does not allow. Returns how many flows that were.
fn set(policy: &Policy) -> usize {
    block(async {
        apply(&compile(policy).to_string()).await.unwrap();
        let all = flows().await.unwrap().into_iter();
        let refused: Vec<_> = all
            .filter(|flow| {
                let (source, destination) = (flow.source, flow.answering);
                let flow = Flow { source, destination, protocol: flow.protocol, port: flow.answering_port };
                !policy.decide(&flow).is_allowed()
            })
            .collect();
        let count = refused.len();
        cut(refused).await.unwrap();
        count
    })
}

#[test]
#[ignore = "flows_that_are_no_longer_allowed_end runs it in the namespace of its router"]
fn a_policy_changes_under_flows() {
    let Some(mut rig) = Rig::inside() else { return };
    let all = json!({ "name": "all", "from": ["web"], "to": ["db"] });
    let ssh = json!({ "name": "ssh", "from": ["web"], "to": ["db"], "services": ["tcp/22"] });
    let back = json!({ "name": "back", "from": ["db"], "to": ["web"] });
    assert_eq!(set(&shop(&json!([all]))), 0);
    let mut server = Program::start(&mut rig, "sink", SERVER);
    assert_eq!(server.line(), "ready");
    let mut client = Program::start(&mut rig, "gen", CLIENT);
    assert_eq!(client.line(), "begun");
    assert_eq!(set(&shop(&json!([all]))), 0, "the same policy cuts nothing");
    assert_eq!(client.ask("say tcp 5432 AF_INET"), "word");
    // Two connections and two exchanges of UDP are no longer allowed. The other side may begin flows of its own.
    assert_eq!(set(&shop(&json!([ssh, back]))), 4);
    assert_eq!(server.ask("tell"), "told");
    for family in ["AF_INET", "AF_INET6"] {
        assert_eq!(client.ask(&format!("hear tcp 22 {family}")), "news", "allowed");
        assert_eq!(client.ask(&format!("say tcp 22 {family}")), "word", "allowed");
        let cut = client.ask(&format!("say tcp 5432 {family}"));
        assert!(["ConnectionResetError", "BrokenPipeError"].contains(&cut.as_str()), "{cut}");
        let cut = client.ask(&format!("say udp 53 {family}"));
        assert!(["OSError", "PermissionError", "ConnectionRefusedError"].contains(&cut.as_str()), "{cut}");
    }
    assert!(counted(&shop(&json!([ssh, back])))["invalid"] > 0, "the middle of a connection begins none");
}

#[test]
fn ten_thousand_endpoints_fit_into_the_kernel() {
    let rig = Rig::new("c");
    rig.run_inside("network::a_large_policy");
}

#[test]
#[ignore = "ten_thousand_endpoints_fit_into_the_kernel runs it in the namespace of its router"]
fn a_large_policy() {
    let Some(rig) = Rig::inside() else { return };
    let (mut endpoints, mut allow) = (vec![], vec![]);
    for number in 0..10_000_usize {
        let addresses =
            json!([format!("10.20.{}.{}", number / 250, 1 + number % 250), format!("fd00:20::{number:x}:1")]);
        endpoints.push(json!({ "name": format!("e{number}"), "addresses": addresses, "groups": ["all"] }));
        if number % 2 == 1 {
            let (from, to) = (format!("e{}", number - 1), format!("e{number}"));
            allow.push(json!({ "name": format!("r{number}"), "from": [from], "to": [to], "services": ["udp/7"] }));
        }
    }
    let deny = json!([{ "name": "no-mail", "from": ["all"], "services": ["tcp/25"] }]);
    let policy = policy(json!({ "network": "large", "endpoint": endpoints, "allow": allow, "deny": deny }));
    block(apply(&compile(&policy).to_string())).unwrap();
    let last =
        Sent { source: "10.20.39.249", destination: "10.20.39.250", protocol: 17, port: 7, is_first_device: true };
    rig.send(&[("g0", last.frame(1))]);
    wait_for("the packet of the last rule", || counted(&policy)["allow-r9999"] == 1);
    assert_eq!(counted(&policy)["default"], 0);
    block(apply(&removal(policy.network()))).unwrap();
}
