//! `multipath`: one TCP connection over one link, over three links by equal-cost routes, and by MPTCP.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use socket2::Protocol;

use super::transfer::{CHUNK_BYTES, Transfer};
use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
    links::{Link, Shape, Space},
};

/// The links of the article: 100 Mbit/s each.
const SHAPE: Shape = Shape { rate_bits: 100_000_000, delay: Duration::from_millis(5), loss_percent: 0.0 };
const DEVICES: [&str; 3] = ["link1", "link2", "link3"];
/// The receiver at its first link, and behind all links.
const AT_FIRST: Ipv4Addr = Ipv4Addr::new(10, 73, 1, 2);
const BEHIND_ALL: Ipv4Addr = Ipv4Addr::new(10, 73, 0, 2);

/// How each variant travels: its name, the receiver's address, the protocol, and how many more subflows MPTCP may have.
const VARIANTS: [(&str, Ipv4Addr, Protocol, u8); 4] = [
    ("TCP, one link", AT_FIRST, Protocol::TCP, 0),
    ("TCP, three links by equal-cost routes", BEHIND_ALL, Protocol::TCP, 0),
    ("MPTCP, one link", AT_FIRST, Protocol::MPTCP, 0),
    ("MPTCP, three links", AT_FIRST, Protocol::MPTCP, 8),
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Multipath {
    _links: Vec<Link>,
    sender: Arc<Space>,
    receiver: Arc<Space>,
    rounds: u32,
    time: Duration,
}

impl Multipath {
    /// Makes the links, and the routes over all of them.
    pub(in crate::measurements) fn new(scale: Scale) -> Result<Self, RunError> {
        let (rounds, seconds) = match scale {
            Scale::Full => (3, 8),
            Scale::Quick => (1, 3),
        };
        let (sender, receiver) = (Arc::new(Space::new()?), Arc::new(Space::new()?));
        let (mut links, mut hops, mut signals) = (Vec::new(), String::new(), String::new());
        for (number, device) in (1..).zip(DEVICES) {
            let [near, far] = [1, 2].map(|end| format!("10.73.{number}.{end}"));
            let ends = [(&sender, format!("{near}/24")), (&receiver, format!("{far}/24"))];
            links.push(Link::new(device, ends.each_ref().map(|(space, address)| (*space, &**address)), SHAPE)?);
            hops += &format!(" nexthop via {far}");
            if number > 1 {
                signals += &format!("mptcp endpoint add {far} signal\n");
            }
        }
        receiver.ip(&format!("addr add {BEHIND_ALL}/32 dev lo\n{signals}"))?;
        sender.ip(&format!("route add {BEHIND_ALL}/32{hops}\n"))?;
        sender.set(&[("ipv4/fib_multipath_hash_policy", "1")])?;
        Ok(Self { _links: links, sender, receiver, rounds, time: Duration::from_secs(seconds) })
    }
}

const fn goodput(variant: &'static str) -> Place {
    Place { variant, column: "goodput" }
}

impl Measurement for Multipath {
    fn design(&self) -> Design {
        let over_one =
            |sentence, variant, bounds| Claim::within(sentence, goodput(variant), goodput("TCP, one link"), bounds);
        Design {
            columns: vec![Column { name: "goodput", unit: "Mbit/s" }],
            variants: VARIANTS.map(|(name, ..)| name.to_owned()).to_vec(),
            claims: vec![
                over_one(
                    "equal-cost routes keep a connection on one link",
                    "TCP, three links by equal-cost routes",
                    (0.7, 1.3),
                ),
                over_one("MPTCP costs little on one link", "MPTCP, one link", (0.8, 1.2)),
                over_one("MPTCP carries nearly the sum of three links", "MPTCP, three links", (2.2, 3.5)),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, to, protocol, subflows) = VARIANTS[variant];
        for space in [&self.sender, &self.receiver] {
            space.ip(&format!("mptcp limits set subflows {subflows} add_addr_accepted {subflows}\n"))?;
        }
        let transfer = Transfer { to, protocol, congestion: "cubic", time: self.time, message: CHUNK_BYTES };
        Ok(vec![transfer.run(&self.sender, &self.receiver)?])
    }
}
