//! The state of a laboratory.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{
    process::{Life, Used},
    relay::Wiring,
    state::Lab,
    wires::Part,
};

/// The state of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// The region of its node.
    pub region: String,
    /// The address of its node.
    pub address: Ipv4Addr,
    /// Its process id, as last started.
    pub pid: Option<i32>,
    /// How it is.
    pub life: Life,
    /// What it used.
    pub used: Option<Used>,
}

/// The state of a laboratory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The name.
    pub name: String,
    /// The name of its socket.
    pub host: String,
    /// All processes.
    pub processes: Vec<ProcessStatus>,
    /// Cuts, in words.
    pub cuts: Vec<String>,
    /// What is slowed, in words.
    pub slowed: Vec<String>,
    /// The state of the wires; `None` if they do not answer.
    pub wiring: Option<Wiring>,
}

impl Lab {
    /// The present state.
    #[must_use]
    pub fn status(&self) -> Status {
        let processes = self.plan.processes.iter().map(|process| {
            let node = &self.plan.nodes[process.node];
            let started = self.state.started.get(&process.name);
            ProcessStatus {
                name: process.name.clone(),
                node: node.name.clone(),
                region: self.plan.topology.regions[node.region].to_string(),
                address: node.address,
                pid: started.map(|started| started.pid),
                life: started.map_or(Life::Gone, |started| started.life()),
                used: started.and_then(|started| started.used()),
            }
        });
        let wiring = self.wiring().ok();
        let words = |part: Part| self.plan.name_of(part);
        let (cuts, slowed) = wiring.as_ref().map_or_else(Default::default, |wiring| {
            let cuts = wiring.cuts.iter().map(|cut| match cut.other {
                Some(other) => format!("{} from {}", words(cut.one), words(other)),
                None => format!("{} from everything", words(cut.one)),
            });
            let slowed = wiring.slowed.iter().map(|(part, link)| {
                let rate = link.rate_bits.map_or_else(String::new, |rate| format!(", {rate} bit/s"));
                format!("{} by {:?}, {} % lost{rate}", words(*part), link.delay, link.loss_percent)
            });
            (cuts.collect(), slowed.collect())
        });
        Status {
            name: self.plan.topology.name.to_string(),
            host: self.secrets.host.clone(),
            processes: processes.collect(),
            cuts,
            slowed,
            wiring,
        }
    }
}
