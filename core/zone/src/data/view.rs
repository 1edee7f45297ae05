//! What changes without a new zone: addresses of edges, with their HTTPS records, addresses of other names, and the
//! answers to ACME challenges.

use std::{cell::Cell, collections::HashMap, net::IpAddr, sync::Arc};

use sallyport_model::ALL_EDGES;

use super::{
    https::HttpPorts,
    steering::{Steered, Steering},
};
use crate::{
    name::Name,
    query::ClientSubnet,
    record::{RecordSet, RecordType},
    steer::{Asking, Choice},
};

/// The most groups of edges, and the most other names whose addresses are kept.
pub const MAX_GROUPS: usize = 100_000;
/// The most addresses of a group or of another name.
pub const MAX_ADDRESSES: usize = 256;
/// The most addresses of one answer: it fits into every UDP message, with a signature.
const MAX_ADDRESSES_OF_ANSWER: usize = 16;
/// The most names with answers to challenges at one time.
pub const MAX_CHALLENGES: usize = 100_000;
/// The most values of one challenge's name: orders for a name and for its wildcard may run at the same time.
const MAX_CHALLENGE_VALUES: usize = 16;
/// The longest value, in bytes: one string of a TXT record.
const MAX_CHALLENGE_BYTES: usize = 255;

/// Why something does not fit into the view.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// Too many addresses.
    #[error("{0} has more than {MAX_ADDRESSES} addresses")]
    TooManyAddresses(String),
    /// Too many groups or names.
    #[error("the view has more than {MAX_GROUPS} groups or names")]
    TooManyGroups,
    /// Too many challenges.
    #[error("more than {MAX_CHALLENGES} names have challenges at one time")]
    TooManyChallenges,
    /// Values of a challenge.
    #[error("{0} has more than {MAX_CHALLENGE_VALUES} values, or one of more than {MAX_CHALLENGE_BYTES} bytes")]
    Challenge(Name),
}

/// The addresses of a group, as sets of records, and the HTTPS records that belong to them. Clients of different
/// networks may get different ones of many addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSets {
    v4: Vec<RecordSet>,
    v6: Vec<RecordSet>,
    https: Option<RecordSet>,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The address of the resolver.
    pub address: IpAddr,
    /// The network of its client, if the resolver names it.
    pub subnet: Option<ClientSubnet>,
}

impl Client {
    /// The client's one of so many shares, by its network.
    fn share(&self, shares: usize) -> usize {
        if shares <= 1 {
            return 0;
        }
        let network = match self.address.to_canonical() {
            IpAddr::V4(address) => u64::from(u32::from(address) >> 8),
            IpAddr::V6(address) => (u128::from(address) >> 72) as u64,
        };
        // Multiplication by the golden ratio spreads neighbours.
        (network.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % shares
    }
}

/// A client, and what was chosen for it while its query is answered.
#[derive(Debug, Clone)]
pub struct Asker {
    client: Client,
    choice: Cell<Option<(Choice, Steered)>>,
}

impl Asker {
    /// A client for which nothing was chosen yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, choice: Cell::new(None) }
    }

    /// Who asks.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What was chosen, if the answer depends on it.
    #[must_use]
    pub fn steered(&self) -> Option<(Choice, Steered)> {
        self.choice.get()
    }
}

/// What is known now. A view never changes; a new one takes its place.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How clients of the group of all edges are steered.
    steering: Option<Arc<Steering>>,
    groups: HashMap<Box<str>, AddressSets>,
    aliases: HashMap<Name, AddressSets>,
    /// TXT records by name. A name without is above one of them.
    challenges: HashMap<Box<[u8]>, Option<RecordSet>>,
}

impl AddressSets {
    pub(super) fn new(ttl: u32, addresses: &[IpAddr], ports: Option<HttpPorts>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in addresses {
            match address.to_canonical() {
                IpAddr::V4(address) => v4.push(address.octets().to_vec()),
                IpAddr::V6(address) => v6.push(address.octets().to_vec()),
            }
        }
        let sets = |rtype, mut data: Vec<Vec<u8>>| -> Vec<RecordSet> {
            data.sort();
            data.dedup();
            let parts = data.len().div_ceil(MAX_ADDRESSES_OF_ANSWER).max(1);
            let per_part = data.len().div_ceil(parts).max(1);
            data.chunks(per_part).filter_map(|part| RecordSet::new(rtype, ttl, part.to_vec(), None).ok()).collect()
        };
        Self {
            v4: sets(RecordType::A, v4),
            v6: sets(RecordType::AAAA, v6),
            https: ports.and_then(|ports| ports.records(ttl)),
        }
    }

    /// The set of this type, A, AAAA or HTTPS, for this client. The resolvers of one network always get the same one.
    #[must_use]
    pub fn set(&self, rtype: RecordType, client: &Client) -> Option<&RecordSet> {
        let sets = match rtype {
            RecordType::A => &self.v4,
            RecordType::AAAA => &self.v6,
            RecordType::HTTPS => return self.https.as_ref(),
            _ => return None,
        };
        sets.get(client.share(sets.len()))
    }

    /// Whether there is no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether there is an address of IPv4.
    pub(super) fn has_v4(&self) -> bool {
        !self.v4.is_empty()
    }
}

impl View {
    /// Sets the addresses of a group: those of its edges that are healthy now. With the ports where all of these edges
    /// serve HTTP/2 and HTTP/3, names with these addresses have HTTPS records too. Without any address the group keeps
    /// what it has, because an answer with an edge that may be down is better than none.
    ///
    /// # Errors
    /// There are too many addresses or groups.
    pub fn set_group(
        &mut self,
        group: &str,
        ttl: u32,
        addresses: &[IpAddr],
        ports: Option<HttpPorts>,
    ) -> Result<(), ViewError> {
        if addresses.len() > MAX_ADDRESSES {
            return Err(ViewError::TooManyAddresses(format!("the group {group}")));
        }
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(group) {
            return Err(ViewError::TooManyGroups);
        }
        let sets = AddressSets::new(ttl, addresses, ports);
        if !sets.is_empty() {
            self.groups.insert(group.into(), sets);
        }
        Ok(())
    }

    /// Forgets a group.
    pub fn remove_group(&mut self, group: &str) {
        self.groups.remove(group);
    }

    /// Sets the addresses of another name, for ALIAS records. Without any the name keeps its former addresses.
    ///
    /// # Errors
    /// There are too many addresses or names.
    pub fn set_alias(&mut self, target: Name, ttl: u32, addresses: &[IpAddr]) -> Result<(), ViewError> {
        if addresses.len() > MAX_ADDRESSES {
            return Err(ViewError::TooManyAddresses(target.to_string()));
        }
        if self.aliases.len() >= MAX_GROUPS && !self.aliases.contains_key(&target) {
            return Err(ViewError::TooManyGroups);
        }
        let sets = AddressSets::new(ttl, addresses, None);
        if !sets.is_empty() {
            self.aliases.insert(target, sets);
        }
        Ok(())
    }

    /// Forgets another name.
    pub fn remove_alias(&mut self, target: &Name) {
        self.aliases.remove(target);
    }

    /// Sets all TXT values for ACME challenges: names such as `_acme-challenge.www.example.com`, each with its values.
    ///
    /// # Errors
    /// There are too many names, or values of a name, or a value is too long.
    pub fn set_challenges(&mut self, ttl: u32, challenges: &[(Name, Vec<String>)]) -> Result<(), ViewError> {
        if challenges.len() > MAX_CHALLENGES {
            return Err(ViewError::TooManyChallenges);
        }
        let mut all: HashMap<Box<[u8]>, Option<RecordSet>> = HashMap::new();
        for (name, values) in challenges {
            let is_valid = values.len() <= MAX_CHALLENGE_VALUES;
            if !is_valid || values.iter().any(|value| value.len() > MAX_CHALLENGE_BYTES) {
                return Err(ViewError::Challenge(name.clone()));
            }
            let data = |value: &String| [&[value.len() as u8], value.as_bytes()].concat();
            let Ok(set) = RecordSet::new(RecordType::TXT, ttl, values.iter().map(data).collect(), None) else {
                // No value: the challenge is over.
                continue;
            };
            all.insert(name.as_wire().into(), Some(set));
            let mut above = name.parent();
            while let Some(name) = above.filter(|name| name.as_wire().len() > 1) {
                all.entry(name.as_wire().into()).or_insert(None);
                above = name.parent();
            }
        }
        self.challenges = all;
        Ok(())
    }

    /// Sets how clients of the group of all edges are steered. `None`: all get the same addresses.
    pub fn set_steering(&mut self, steering: Option<Arc<Steering>>) {
        self.steering = steering;
    }

    /// How clients of the group of all edges are steered.
    #[must_use]
    pub fn steering(&self) -> Option<&Arc<Steering>> {
        self.steering.as_ref()
    }

    /// The addresses of a group for this client. Clients of the group of all edges may be steered.
    #[must_use]
    pub fn group(&self, group: &str, asker: &Asker) -> Option<&AddressSets> {
        let everybody = self.groups.get(group);
        let Some(steering) = self.steering.as_deref().filter(|_| group == ALL_EDGES) else { return everybody };
        let (choice, _) = asker.choice.get().unwrap_or_else(|| {
            let made = steering.choose(&Asking { resolver: asker.client.address, subnet: asker.client.subnet });
            asker.choice.set(Some(made));
            made
        });
        steering.addresses(&choice).or(everybody)
    }

    /// The addresses of another name.
    #[must_use]
    pub fn alias(&self, target: &Name) -> Option<&AddressSets> {
        self.aliases.get(target)
    }

    /// The TXT record of a challenge at this name: `None`: there is nothing at or below the name.
    pub(crate) fn challenge(&self, wire: &[u8]) -> Option<Option<&RecordSet>> {
        if self.challenges.is_empty() {
            return None;
        }
        self.challenges.get(wire).map(Option::as_ref)
    }
}
