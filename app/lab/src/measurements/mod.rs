//! The measurements of the published articles, each as one command that leaves nothing behind.
//!
//! [`frame`] runs variants in turn and judges claims, [`drawing`] draws reports, `links` makes namespaces and paths,
//! and `articles` has the measurements. [`CATALOGUE`] names them.

mod articles;
pub mod drawing;
pub mod frame;
mod links;
mod machine;

use self::{
    articles::{
        Calico, Congestion, Connectx, Forward, Generate, Matching, Multipath, Paths, Ping, Prefixes, Steer, Udp,
        Window, Xdp,
    },
    frame::{Article, Measurement, Report, Row, RunError},
    machine::Tool,
};
use crate::{error::LabError, kernel};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All variants, in several rounds.
    Full,
    /// The most telling variants, in fewer and shorter rounds.
    Quick,
}

/// A measurement that can be run.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// The article that it repeats.
    pub article: Article,
    /// The programs that take part, besides `ip`.
    pub tools: &'static [Tool],
    /// Whether it makes network namespaces, which needs root and `ip`.
    has_namespaces: bool,
    make: fn(Scale) -> Result<Box<dyn Measurement>, RunError>,
}

const IP: Tool = Tool { program: "ip", version: "-V", how: "`apt-get install iproute2` installs it" };
const ETHTOOL: Tool = Tool { program: "ethtool", version: "--version", how: "`apt-get install ethtool` installs it" };
const IPTABLES: Tool =
    Tool { program: "iptables", version: "--version", how: "`apt-get install iptables` installs it" };
const NFT: Tool = Tool { program: "nft", version: "--version", how: "`apt-get install nftables` installs it" };
const PING: Tool = Tool { program: "ping", version: "-V", how: "`apt-get install iputils-ping` installs it" };

/// All measurements.
pub const CATALOGUE: &[Entry] = &[
    Entry {
        name: "congestion",
        about: "what cubic, reno and BBR carry over delay and losses",
        article: Article {
            title: "BBR (2020)",
            said: "Over 140 ms, cubic carries 347 and BBR 340 Mbit/s; with 1.5 % loss cubic carries 1.23 and BBR 153.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Congestion::new(scale)?)),
    },
    Entry {
        name: "ping",
        about: "what a responder that lies makes of the classic ping, and of ours",
        article: Article {
            title: "ping",
            said: "Ping keeps its time of sending in the packet: a reply with another time makes any round trip.",
        },
        tools: &[PING],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Ping::new(scale)?)),
    },
    Entry {
        name: "window",
        about: "what a receive buffer holds, charges and advertises",
        article: Article {
            title: "Receive window",
            said: "32 KiB of SO_RCVBUF are a budget of 64 KiB; without window scaling it is overrun and 13 packets are \
                   dropped; with 2 MiB the window opens from 64 to about 800 KiB.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Window::new(scale)?)),
    },
    Entry {
        name: "connectx",
        about: "how many connections the local ports carry, and which sockets are overshadowed",
        article: Article {
            title: "Ephemeral ports",
            said: "connect alone shares ports over destinations, bind before it does not; UDP sockets with \
                   SO_REUSEADDR overshadow each other.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Connectx::new(scale))),
    },
    Entry {
        name: "udp",
        about: "replies of a wildcard socket, restarts, and the cost of many sockets",
        article: Article {
            title: "UDP sockets",
            said: "A wildcard socket answers from the wrong address without PKTINFO; connected sockets stand beside an \
                   unconnected one; a restart must be prepared.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Udp::new(scale))),
    },
    Entry {
        name: "multipath",
        about: "one connection over one link, over equal-cost routes, and by MPTCP over three links",
        article: Article {
            title: "Warriors of the Net (2016)",
            said: "A bond of 100 Mbit/s links carries one connection at 94 Mbit/s, MPTCP over three links at 279.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Multipath::new(scale)?)),
    },
    Entry {
        name: "calico",
        about: "what 10 to 10,000 rules cost a packet: a flat list, a set, and our policy",
        article: Article {
            title: "Calico (2015)",
            said: "Endpoints have chains of their own, and known flows are accepted first: many rules have no effect.",
        },
        tools: &[NFT],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Calico::new(scale))),
    },
    Entry {
        name: "paths",
        about: "what a connection carries and costs: host, namespaces and TUN devices, MTU, small and large messages",
        article: Article {
            title: "Calico (2015)",
            said: "Containers by veth cost little more than bare metal; tunnels and small packets cost much more.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Paths::calico(scale))),
    },
    Entry {
        name: "tap",
        about: "what a program between two TUN devices costs: each segment, and trains of segments",
        article: Article {
            title: "TAP",
            said: "A core echoes 320,000 to 500,000 packets a second without offloads, and 2.7 million with them.",
        },
        tools: &[],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Paths::tap(scale))),
    },
    Entry {
        name: "generate",
        about: "what the packet generator sends: one flow, 10,000 flows, a mix of sizes, and by AF_XDP",
        article: Article {
            title: "Traffic generator (2020)",
            said: "A kernel that drops takes 1.4 Mpps of one flow, 6 of 10,000 on 4 cores; IMIX fills 10 Gbit/s.",
        },
        tools: &[ETHTOOL],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Generate::new(scale))),
    },
    Entry {
        name: "forward",
        about: "what a packet costs in the kernel: forwarding, connection tracking, and source NAT",
        article: Article {
            title: "Kernel throughput (2020)",
            said: "The kernel forwards 1.4 Mpps of one flow and 14 Mpps of 10,000 on 16 cores; with SNAT 3.2 on 29.",
        },
        tools: &[ETHTOOL, NFT, IPTABLES],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Forward::new(scale))),
    },
    Entry {
        name: "xdp",
        about: "what a packet costs in the kernel and in XDP: one flow, 10,000 flows, 100,000 routes",
        article: Article {
            title: "XDP router (2020)",
            said: "XDP forwards 4.6 Mpps of one flow, and 14 Mpps of 10,000 on 4 cores where the kernel takes 16.",
        },
        tools: &[ETHTOOL],
        has_namespaces: true,
        make: |scale| Ok(Box::new(Xdp::new(scale))),
    },
    Entry {
        name: "match",
        about: "the nearest of a million hashes: each compared, the article's best way, and ours",
        article: Article {
            title: "144 dimensions",
            said: "Comparing everything takes 55.5 ms a query, AVX2 16.9, and columns with saturating sums 0.728.",
        },
        tools: &[],
        has_namespaces: false,
        make: |scale| Ok(Box::new(Matching::new(scale))),
    },
    Entry {
        name: "prefixes",
        about: "what a cloud holds, each address counted once",
        article: Article {
            title: "Addresses of AWS (2020)",
            said: "100,750,168 IPv4 addresses are held, and 53 million of them are published as in use.",
        },
        tools: &[],
        has_namespaces: false,
        make: |scale| Ok(Box::new(Prefixes::new(scale))),
    },
    Entry {
        name: "steer",
        about: "what a flash crowd makes of origins: our planner beside weights, a gradient and the optimum",
        article: Article {
            title: "Smarter Global Accelerator (2019)",
            said: "Weights change by 2 % in 15 s at most, without which they swing for ever; demand follows latency.",
        },
        tools: &[],
        has_namespaces: false,
        make: |scale| Ok(Box::new(Steer::new(scale))),
    },
];

impl Entry {
    /// Runs the measurement, in this many rounds or as many as it needs. `tell` hears of each run.
    ///
    /// # Errors
    /// The measurement makes namespaces, and this process is not root, or `ip` is missing. What else is missing stands
    /// in the report.
    pub fn measure(&self, scale: Scale, rounds: Option<u32>, tell: &mut dyn FnMut(&str)) -> Result<Report, LabError> {
        if self.has_namespaces {
            if !kernel::is_root() {
                return Err(LabError::NotRoot);
            }
            IP.version().map_err(|_| LabError::Missing { program: IP.program, how: IP.how })?;
        }
        let mut report = Report {
            name: self.name,
            article: self.article,
            machine: machine::machine(self.tools),
            is_quick: scale == Scale::Quick,
            rounds: 0,
            columns: Vec::new(),
            rows: Vec::new(),
            verdicts: Vec::new(),
            drawing: String::new(),
        };
        match (self.make)(scale) {
            Ok(mut measurement) => {
                let design = measurement.design();
                (report.columns, report.rounds) = (design.columns, rounds.unwrap_or(design.rounds));
                (report.rows, report.verdicts) =
                    frame::measure(&mut *measurement, report.rounds, &mut machine::others(), tell);
                report.drawing = measurement.drawing().unwrap_or_else(|| drawing::bars(&report, 0));
            }
            Err(error) => {
                let row = Row {
                    variant: "all".to_owned(),
                    figures: Vec::new(),
                    is_disturbed: false,
                    missing: Some(error.to_string()),
                };
                report.rows.push(row);
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{frame::Design, *};

    #[test]
    fn names_are_unique_and_claims_are_about_what_is_measured() {
        let names: BTreeSet<_> = CATALOGUE.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        if !kernel::is_root() {
            println!("skipped: the measurements make namespaces, which need root");
            return;
        }
        for (entry, scale) in CATALOGUE.iter().flat_map(|entry| [(entry, Scale::Full), (entry, Scale::Quick)]) {
            let Design { columns, variants, claims, rounds } = (entry.make)(scale).unwrap().design();
            assert!(rounds > 0 && !claims.is_empty(), "{}", entry.name);
            for place in claims.iter().flat_map(|claim| [claim.figure, claim.by]) {
                assert!(columns.iter().any(|column| column.name == place.column), "{}: {place:?}", entry.name);
                assert!(variants.iter().any(|variant| variant == place.variant), "{}: {place:?}", entry.name);
            }
        }
    }
}
