//! What commands of a balancer leave for one another, in a map of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_cli::failure::Failure;
use sallyport_packet_model::balance::{BalanceConfig, EdgeState, Numbers, Tables};
use sallyport_xdp::balance::Balancer;
use serde::{Deserialize, Serialize};

/// What stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct State {
    /// The configuration.
    pub(super) config: BalanceConfig,
    /// The numbers of edges, machines and sites.
    numbers: Numbers,
    /// Edges that `drain` has drained, whatever the file says.
    pub(super) drained: BTreeSet<String>,
}

impl State {
    /// What stands; nothing where no balancer does.
    pub(super) fn standing(balancer: &Balancer) -> anyhow::Result<Option<Self>> {
        if !balancer.is_up() {
            return Ok(None);
        }
        // The state of another version may be another one: the file has all that matters.
        Ok(Some(serde_json::from_slice(&balancer.state()?).unwrap_or_default()))
    }

    /// What stands, with another configuration.
    pub(super) fn with_config(mut self, config: BalanceConfig) -> Self {
        self.drained.retain(|name| config.edges.iter().any(|edge| edge.name == *name));
        self.config = config;
        self
    }

    /// The configuration with drained edges.
    pub(super) fn effective(&self) -> BalanceConfig {
        let mut config = self.config.clone();
        for edge in &mut config.edges {
            if edge.state == EdgeState::Serving && self.drained.contains(&edge.name) {
                edge.state = EdgeState::Draining;
            }
        }
        config
    }

    /// Makes the tables.
    pub(super) fn compile(&mut self) -> Result<Tables, Failure> {
        let config = self.effective();
        config.compile(&mut self.numbers).map_err(|error| Failure::usage(error.to_string()))
    }

    /// The names of edges, machines and sites by their numbers.
    pub(super) fn names(&self) -> BTreeMap<u16, &str> {
        self.config.targets().map(|target| (self.numbers.number(target.1), target.0)).collect()
    }

    /// The bytes for the map.
    pub(super) fn to_bytes(&self) -> anyhow::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }
}
