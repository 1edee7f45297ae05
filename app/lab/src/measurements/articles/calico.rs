//! `calico`: what rules cost a packet, as a flat list, as a set, and as the maps that a policy is compiled into.
//!
//! A sender in one namespace has the rules, and a receiver in another has none. The packet is allowed by the last rule.
//! A pair of veth devices hands a packet over within the system call that sends it, so the processor time of the
//! sending thread has all of its cost, and other programs do not count.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, UdpSocket},
    process::Command,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use sallyport_network::{nft::compile, policy::Document};
use serde_json::json;

use crate::{
    kernel,
    measurements::{
        NFT, Scale,
        frame::{Claim, Column, Design, Measurement, Place, RunError},
        links::{Space, connect},
    },
};

const SENDER: &str = "10.72.0.1";
const RECEIVER: &str = "10.72.0.2";
/// The addresses of the rules, all of which the receiver has.
const SERVICES: &str = "10.80.0.0/16";
const PORT: u16 = 9;
/// Packets that fill the receiver's buffer, so that all that are counted end in the same way.
const WARM_UP: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(30);
const PACKET: [u8; 18] = [7; 18];

/// How rules are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// No rules.
    None,
    /// One after the other.
    Flat,
    /// One rule with a set.
    Set,
    /// A policy of Sallyport, with maps to the rules of each endpoint.
    Policy,
}

const NO_RULES: &str = "no rules";
const VARIANTS: [(&str, Form, u32); 13] = [
    (NO_RULES, Form::None, 0),
    ("flat list, 10 rules", Form::Flat, 10),
    ("flat list, 100 rules", Form::Flat, 100),
    ("flat list, 1,000 rules", Form::Flat, 1_000),
    ("flat list, 10,000 rules", Form::Flat, 10_000),
    ("set, 10 rules", Form::Set, 10),
    ("set, 100 rules", Form::Set, 100),
    ("set, 1,000 rules", Form::Set, 1_000),
    ("set, 10,000 rules", Form::Set, 10_000),
    ("our policy, 10 rules", Form::Policy, 10),
    ("our policy, 100 rules", Form::Policy, 100),
    ("our policy, 1,000 rules", Form::Policy, 1_000),
    ("our policy, 10,000 rules", Form::Policy, 10_000),
];
/// The numbers of rules of a quick run.
const QUICK_RULES: [u32; 3] = [0, 10, 1_000];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Calico {
    variants: Vec<(&'static str, Form, u32)>,
    packets: u32,
    rounds: u32,
    scale: Scale,
}

impl Calico {
    /// Chooses the numbers of rules and packets.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (packets, rounds) = match scale {
            Scale::Full => (20_000, 3),
            Scale::Quick => (2_000, 1),
        };
        let is_in = |(.., rules): &(&str, Form, u32)| scale == Scale::Full || QUICK_RULES.contains(rules);
        let variants = VARIANTS.into_iter().filter(is_in);
        Self { variants: variants.collect(), packets, rounds, scale }
    }
}

const fn first(variant: &'static str) -> Place {
    Place { variant, column: "new flow" }
}

const fn known(variant: &'static str) -> Place {
    Place { variant, column: "known flow" }
}

impl Measurement for Calico {
    fn design(&self) -> Design {
        let column = |name| Column { name, unit: "ns a packet" };
        // A quick run has 1,000 rules at most.
        let [flat, set, policy] = match self.scale {
            Scale::Full => ["flat list, 10,000 rules", "set, 10,000 rules", "our policy, 10,000 rules"],
            Scale::Quick => ["flat list, 1,000 rules", "set, 1,000 rules", "our policy, 1,000 rules"],
        };
        Design {
            columns: vec![column("new flow"), column("known flow")],
            variants: self.variants.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            claims: vec![
                Claim::at_least("the cost of a flat list grows with its rules", first(flat), first(NO_RULES), 2.0),
                Claim::within("a set costs the same however large", first(set), first("set, 10 rules"), (0.5, 2.0)),
                Claim::within(
                    "a policy costs the same however many rules it has",
                    first(policy),
                    first("our policy, 10 rules"),
                    (0.5, 2.0),
                ),
                Claim::at_least("a policy costs less than a flat list", first(flat), first(policy), 1.5),
                Claim::within(
                    "a known flow meets no rules, even of a flat list",
                    known(flat),
                    known("flat list, 10 rules"),
                    (0.5, 2.0),
                ),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, form, rules) = self.variants[variant];
        if form != Form::None {
            NFT.version()?;
        }
        let (sender, receiver) = (Space::new()?, Space::new()?);
        connect((&sender, "near", &format!("{SENDER}/24")), (&receiver, "far", &format!("{RECEIVER}/24")))?;
        receiver.ip(&format!("addr add {SERVICES} dev lo\n"))?;
        sender.ip(&format!("route add {SERVICES} via {RECEIVER}\n"))?;
        let script = script(form, rules)?;
        sender.within(|| {
            if form != Form::None {
                kernel::run(Command::new(NFT.program).args(["-f", "-"]), &script)?;
            }
            Ok(())
        })?;
        let to = address(rules.saturating_sub(1));
        let service = receiver.within(|| UdpSocket::bind((to, PORT)).map_err(RunError::io("receive packets")))?;
        sender.within(|| self.packets(to, &service))
    }
}

impl Calico {
    /// The cost of a packet of a flow without an answer, which counts as new, and of one with an answer.
    fn packets(&self, to: Ipv4Addr, service: &UdpSocket) -> Result<Vec<f64>, RunError> {
        let failed = || RunError::io("send packets");
        let client = UdpSocket::bind((SENDER, 0)).map_err(failed())?;
        client.connect((to, PORT)).map_err(failed())?;
        for socket in [&client, service] {
            socket.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        }
        let mut buffer = [0; PACKET.len()];
        // The rules let the packet through, or this fails.
        client.send(&PACKET).map_err(failed())?;
        let (_, from) = service.recv_from(&mut buffer).map_err(RunError::io("receive the first packet"))?;
        let new_ns = self.cost(&client)?;
        service.send_to(&PACKET, from).map_err(failed())?;
        client.recv(&mut buffer).map_err(RunError::io("receive the answer"))?;
        Ok(vec![new_ns, self.cost(&client)?])
    }

    /// The nanoseconds of processor time of a packet.
    fn cost(&self, client: &UdpSocket) -> Result<f64, RunError> {
        let send =
            |count| (0..count).try_for_each(|_| client.send(&PACKET).map(drop)).map_err(RunError::io("send packets"));
        send(WARM_UP)?;
        let before = thread_time();
        send(self.packets)?;
        Ok((thread_time() - before).as_secs_f64() * 1e9 / f64::from(self.packets))
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The address of a rule, from 10.80.0.1 on.
fn address(rule: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 80, 0, 1)) + rule)
}

/// The rules, as `nft` reads them. All forms accept known flows first, and drop what no rule allows.
fn script(form: Form, rules: u32) -> Result<String, RunError> {
    let mut allowed = String::new();
    let mut sets = String::new();
    match form {
        Form::None => {}
        Form::Flat => (0..rules).for_each(|rule| {
            let _ = writeln!(allowed, "ip daddr {} udp dport {PORT} accept", address(rule));
        }),
        Form::Set => {
            let elements: Vec<_> = (0..rules).map(|rule| address(rule).to_string()).collect();
            sets = format!("set services {{ type ipv4_addr; elements = {{ {} }} }}\n", elements.join(", "));
            allowed = format!("ip daddr @services udp dport {PORT} accept\n");
        }
        Form::Policy => return policy(rules),
    }
    Ok(format!(
        "table inet measured {{\n{sets}chain output {{\ntype filter hook output priority 0\nct state established \
         accept\n{allowed}ip daddr {SERVICES} drop\n}}\n}}\n"
    ))
}

/// The table of a policy with an endpoint for each rule.
fn policy(rules: u32) -> Result<String, RunError> {
    let endpoint = |rule| json!({ "name": format!("service-{rule}"), "addresses": [address(rule)] });
    let allow = |rule| {
        let (name, to) = (format!("rule-{rule}"), format!("service-{rule}"));
        json!({ "name": name, "to": [to], "services": [format!("udp/{PORT}")] })
    };
    let (endpoints, allowed): (Vec<_>, Vec<_>) = (0..rules).map(|rule| (endpoint(rule), allow(rule))).unzip();
    let document = json!({ "network": "measured", "endpoint": endpoints, "allow": allowed });
    let unfit = |error: &dyn std::fmt::Display| RunError::Unfit(format!("the policy is refused: {error}"));
    let document: Document = serde_json::from_value(document).map_err(|error| unfit(&error))?;
    let policy = document.into_policy().map_err(|error| unfit(&error))?;
    Ok(compile(&policy).to_string())
}
