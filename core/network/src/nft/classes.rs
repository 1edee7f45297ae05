//! Endpoints under which the same rules are filed share a chain.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::policy::{Action, Endpoint, Policy, Way};

/// The classes of endpoints of one action and one side.
pub(super) struct Classes<'a> {
    /// Name of the chain by its rules.
    chains: BTreeMap<&'a [usize], String>,
    /// Endpoints with rules.
    members: Vec<(&'a Endpoint, &'a [usize])>,
}

impl<'a> Classes<'a> {
    pub(super) fn of(policy: &'a Policy, action: Action, way: Way) -> Self {
        let all = policy.endpoints().iter().enumerate();
        let filed = all.map(|(place, endpoint)| (endpoint, policy.filing().of_endpoint(action, way, place)));
        let members: Vec<_> = filed.filter(|(_, rules)| !rules.is_empty()).collect();
        let mut chains = BTreeMap::new();
        for (_, rules) in &members {
            let number = chains.len() + 1;
            chains.entry(*rules).or_insert_with(|| format!("{}-{}-{number}", action.as_str(), way.as_str()));
        }
        Self { chains, members }
    }

    /// The chains with their rules.
    pub(super) fn chains(&self) -> impl Iterator<Item = (&str, &'a [usize])> {
        self.chains.iter().map(|(rules, name)| (name.as_str(), *rules))
    }

    /// The networks of endpoints with the chain of their class.
    pub(super) fn members(&self) -> impl Iterator<Item = (IpNet, &str)> {
        self.members
            .iter()
            .flat_map(|(endpoint, rules)| endpoint.networks.iter().map(|net| (*net, self.chains[rules].as_str())))
    }
}
