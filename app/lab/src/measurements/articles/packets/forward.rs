//! `forward`: what a packet costs in the kernel's own forwarding, with connection tracking, and with source NAT by
//! nftables and by iptables.

use std::process::Command;

use super::bed::{Bed, Cost, Flows, TRANSLATED};
use crate::{
    kernel,
    measurements::{
        IPTABLES, NFT, Scale,
        frame::{Claim, Column, Design, Measurement, Place, RunError},
    },
};

/// Rules that have the kernel track connections.
const TRACKED: &str = "table ip measured {
    chain forward {
        type filter hook forward priority 0
        ct state invalid drop
        ct state established,related accept
    }
}
";

/// What the router does besides forwarding.
#[derive(Debug, Clone, Copy)]
enum Besides {
    Nothing,
    Tracking,
    NatByNftables,
    NatByIptables,
}

const VARIANTS: [(&str, Besides, Flows); 8] = [
    ("kernel, 1 flow", Besides::Nothing, Flows::Of(1)),
    ("kernel, 10,000 flows", Besides::Nothing, Flows::Of(10_000)),
    ("conntrack, 1 flow", Besides::Tracking, Flows::Of(1)),
    ("conntrack, 10,000 flows", Besides::Tracking, Flows::Of(10_000)),
    ("SNAT by nftables, 1 flow", Besides::NatByNftables, Flows::Of(1)),
    ("SNAT by nftables, 10,000 flows", Besides::NatByNftables, Flows::Of(10_000)),
    ("SNAT by iptables, 1 flow", Besides::NatByIptables, Flows::Of(1)),
    ("SNAT by iptables, 10,000 flows", Besides::NatByIptables, Flows::Of(10_000)),
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Forward {
    variants: Vec<(&'static str, Besides, Flows)>,
    frames: u32,
    rounds: u32,
}

impl Forward {
    /// Chooses the number of frames. A quick run has many flows only.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (frames, rounds) = match scale {
            Scale::Full => (500_000, 3),
            Scale::Quick => (50_000, 1),
        };
        let is_in = |(.., flows): &(&str, Besides, Flows)| scale == Scale::Full || *flows != Flows::Of(1);
        Self { variants: VARIANTS.into_iter().filter(is_in).collect(), frames, rounds }
    }
}

/// The columns of what a packet costs.
pub(super) fn columns() -> Vec<Column> {
    let column = |name, unit| Column { name, unit };
    vec![column("cost", "ns a packet"), column("rate", "Mpps a processor"), column("arrived", "%")]
}

/// Their figures. The rate is of a processor that does nothing else.
pub(super) fn figures(cost: Cost) -> Vec<f64> {
    vec![cost.net_ns, 1e3 / cost.net_ns.max(1.0), cost.arrived_percent]
}

const fn cost(variant: &'static str) -> Place {
    Place { variant, column: "cost" }
}

impl Measurement for Forward {
    fn design(&self) -> Design {
        let costs = |sentence, figure, by, ratio| Claim::at_least(sentence, cost(figure), cost(by), ratio);
        Design {
            columns: columns(),
            variants: self.variants.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            claims: vec![
                costs("connection tracking costs", "conntrack, 10,000 flows", "kernel, 10,000 flows", 1.2),
                costs("NAT by nftables costs", "SNAT by nftables, 10,000 flows", "kernel, 10,000 flows", 1.2),
                costs("NAT by iptables costs", "SNAT by iptables, 10,000 flows", "kernel, 10,000 flows", 1.2),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, besides, flows) = self.variants[variant];
        let bed = Bed::new()?;
        let nft = |rules: &str| {
            NFT.version()?;
            bed.router.within(|| Ok(kernel::run(Command::new(NFT.program).args(["-f", "-"]), rules)?))
        };
        match besides {
            Besides::Nothing => String::new(),
            Besides::Tracking => nft(TRACKED)?,
            Besides::NatByNftables => {
                let chain = "type nat hook postrouting priority 100";
                let rule = format!("oifname d1 snat to {TRANSLATED}");
                nft(&format!("table ip measured {{\nchain postrouting {{\n{chain}\n{rule}\n}}\n}}\n"))?
            }
            Besides::NatByIptables => {
                IPTABLES.version()?;
                let words =
                    ["-w", "-t", "nat", "-A", "POSTROUTING", "-o", "d1", "-j", "SNAT", "--to-source", TRANSLATED];
                bed.router.within(|| Ok(kernel::run(Command::new(IPTABLES.program).args(words), "")?))?
            }
        };
        Ok(figures(bed.cost(flows, self.frames)?))
    }
}
