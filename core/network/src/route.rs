//! A network as edges know it: its machines, their leases, and its policy. Uses names and policies.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use sallyport_model::{AccountId, CredentialHash, MachineId, NetworkId};
use serde::{Deserialize, Serialize};

use crate::{
    name::Name,
    policy::{Document, Endpoint, Policy, TextError, Unknown},
};

/// A network as edges know it: sufficient to carry its packets while control is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRoute {
    /// The network.
    pub id: NetworkId,
    /// Its organisation.
    pub account: AccountId,
    /// Its name, which no other network of the organisation has.
    pub name: Name,
    /// Ranges of addresses, one of each family.
    pub ranges: Vec<IpNet>,
    /// The policy's document in TOML, without endpoints; see [`NetworkRoute::policy`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The machines, by name.
    #[serde(default)]
    pub machines: Vec<MachineRoute>,
}

/// A machine of a network as edges know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRoute {
    /// The machine.
    pub id: MachineId,
    /// Its name, which no other machine of the network has.
    pub name: Name,
    /// The hash of its credential.
    pub credential: CredentialHash,
    /// One address of each range of the network.
    pub addresses: Vec<IpAddr>,
    /// Networks that others reach through the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<IpNet>,
    /// Groups that policies name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Name>,
    /// Whether others reach every address outside of the network through the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exit: bool,
}

impl MachineRoute {
    /// The machine as an endpoint of a policy.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let own = self.addresses.iter().map(|address| IpNet::from(*address));
        Endpoint {
            name: self.name.clone(),
            networks: own.chain(self.routes.iter().copied()).collect(),
            groups: self.groups.iter().cloned().collect::<BTreeSet<_>>(),
            device: None,
        }
    }
}

impl NetworkRoute {
    /// The policy with the present machines; `None` if none is set, and each machine may talk to each other. Names of
    /// machines and groups that have gone stand for nobody.
    ///
    /// # Errors
    /// The document is none that fits the machines: nothing is allowed.
    pub fn policy(&self) -> Result<Option<Policy>, TextError> {
        self.policy.as_deref().map(|text| self.check_policy(text, Unknown::IsNobody)).transpose()
    }

    /// What a document would mean as the policy of this network.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check_policy(&self, text: &str, unknown: Unknown) -> Result<Policy, TextError> {
        let endpoints = self.machines.iter().map(MachineRoute::endpoint).collect();
        Ok(Document::from_toml(text)?.with_endpoints(&self.name, endpoints, unknown)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Flow;

    const POLICY: &str = r#"
        network = "shop"
        [[allow]]
        name = "sql"
        from = ["web"]
        to = ["db"]
        services = ["tcp/5432"]
    "#;

    fn machine(number: u8, name: &str, groups: &[&str]) -> MachineRoute {
        MachineRoute {
            id: MachineId::from_random([number; 16]),
            name: name.parse().unwrap(),
            credential: CredentialHash([number; 32]),
            addresses: vec![[10, 20, 0, number].into()],
            routes: Vec::new(),
            groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
            is_exit: false,
        }
    }

    fn shop() -> NetworkRoute {
        NetworkRoute {
            id: NetworkId::from_random([1; 16]),
            account: AccountId::from_random([2; 16]),
            name: "shop".parse().unwrap(),
            ranges: vec!["10.20.0.0/24".parse().unwrap()],
            policy: Some(POLICY.to_owned()),
            machines: vec![machine(1, "web-1", &["web"]), machine(2, "db", &[])],
        }
    }

    fn is_allowed(network: &NetworkRoute, from: &str, to: &str, port: u16) -> bool {
        let policy = network.policy().unwrap().unwrap();
        let flow = Flow { source: from.parse().unwrap(), destination: to.parse().unwrap(), protocol: 6, port };
        policy.decide(&flow).is_allowed()
    }

    #[test]
    fn the_policy_holds_for_the_present_machines() {
        let mut shop = shop();
        assert!(is_allowed(&shop, "10.20.0.1", "10.20.0.2", 5432));
        assert!(!is_allowed(&shop, "10.20.0.2", "10.20.0.1", 5432));
        // The only machine of the group goes, and the rule allows nobody.
        shop.machines.remove(0);
        assert!(!is_allowed(&shop, "10.20.0.1", "10.20.0.2", 5432));
        shop.machines.push(machine(3, "web-2", &["web"]));
        assert!(is_allowed(&shop, "10.20.0.3", "10.20.0.2", 5432));
        shop.policy = None;
        assert!(shop.policy().unwrap().is_none());
    }

    #[test]
    fn a_document_fits_its_network_or_is_refused() {
        let shop = shop();
        let said = |text: &str| shop.check_policy(text, Unknown::IsRefused).unwrap_err().to_string();
        assert!(shop.check_policy(POLICY, Unknown::IsRefused).is_ok());
        let unknown = POLICY.replace("\"db\"", "\"dbs\"");
        assert!(said(&unknown).contains("the rule sql names dbs, which is no endpoint"));
        assert!(shop.check_policy(&unknown, Unknown::IsNobody).is_ok());
        assert!(said(&POLICY.replace("shop", "office")).contains("is of the network office, and this network is shop"));
        let own = format!("{POLICY}\n[[endpoint]]\nname = \"x\"\naddresses = [\"10.20.0.9\"]");
        assert!(said(&own).contains("the machines of the network are its endpoints"));
        assert!(said(&POLICY.replace("tcp/5432", "tcp/0")).contains("line 7: "));
        assert!(said("network").starts_with("line 1: "));
        // A set counts once for each side that names it, and once however often a side does so.
        let prefixes: String = (0..2_049).map(|n| format!("'10.{}.{}.0/24',", n / 256, n % 256)).collect();
        let large = |sides: &str| format!("network = 'shop'\n[sets]\nx = [{prefixes}]\n[[allow]]\nname = 'x'\n{sides}");
        assert!(shop.check_policy(&large("to = ['@x', '@x', '@x']"), Unknown::IsRefused).is_ok());
        assert!(said(&large("from = ['@x']\nto = ['@x']")).contains("more than 4096 networks"));
    }

    #[test]
    fn a_network_is_read_as_it_is_written() {
        let shop = shop();
        let text = serde_json::to_string(&shop).unwrap();
        assert_eq!(serde_json::from_str::<NetworkRoute>(&text).unwrap(), shop);
    }
}
