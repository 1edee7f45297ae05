//! The document of a policy: a file of TOML, or JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::Deserialize;

use super::{Action, Device, Endpoint, MAX_LIST, MAX_NAMED_NETWORKS, Policy, PolicyError, Rule, Service, Side, Way};
use crate::{
    address::{self, AddressError},
    name::{Name, NameError},
};

/// The document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The name of the network.
    network: Name,
    /// Networks of anyone, by name.
    #[serde(default)]
    sets: BTreeMap<Name, Vec<Prefix>>,
    #[serde(default, rename = "endpoint")]
    endpoints: Vec<EndpointSection>,
    #[serde(default)]
    allow: Vec<RuleSection>,
    #[serde(default)]
    deny: Vec<RuleSection>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointSection {
    name: Name,
    addresses: Vec<Address>,
    #[serde(default)]
    routes: Vec<Network>,
    #[serde(default)]
    groups: BTreeSet<Name>,
    #[serde(default)]
    device: Option<DeviceName>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSection {
    name: Name,
    #[serde(default)]
    from: Option<Vec<Party>>,
    #[serde(default)]
    to: Option<Vec<Party>>,
    #[serde(default)]
    services: Option<Vec<Service>>,
}

/// Any network, or one address.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Prefix(IpNet);

impl TryFrom<String> for Prefix {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        address::prefix(&text).map(Self)
    }
}

/// A network of machines.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Network(IpNet);

impl TryFrom<String> for Network {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        address::network(&text).map(Self)
    }
}

/// An address of a machine.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Address(IpAddr);

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        address::address(&text).map(Self)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct DeviceName(Device);

impl TryFrom<String> for DeviceName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Device::try_from(name).map(Self)
    }
}

/// Whom a rule names: an endpoint or a group by its name, a set by `@name`, or a network.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
enum Party {
    Name(Name),
    Set(Name),
    Network(IpNet),
}

impl TryFrom<String> for Party {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(set) = text.strip_prefix('@') {
            return set.parse().map(Self::Set).map_err(|error: NameError| error.to_string());
        }
        // No name has one of these, and each network does.
        if text.contains(['.', ':', '/']) {
            return address::prefix(&text).map(Self::Network).map_err(|error| error.to_string());
        }
        text.parse().map(Self::Name).map_err(|error: NameError| error.to_string())
    }
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// A name that the document does not explain.
    #[error("the rule {rule} names {name}, which is no endpoint and no group of an endpoint")]
    UnknownName {
        /// Name of the rule.
        rule: Name,
        /// The name.
        name: Name,
    },
    /// A set that the document does not have.
    #[error("the rule {rule} names the set {set}, which is not under sets")]
    UnknownSet {
        /// Name of the rule.
        rule: Name,
        /// Name of the set.
        set: Name,
    },
    /// A list that names nobody.
    #[error("`{field}` of the rule {rule} is empty, so that the rule has no effect: leave it out for everyone")]
    Nobody {
        /// Name of the rule.
        rule: Name,
        /// The list.
        field: &'static str,
    },
    /// A set without a network.
    #[error("the set {0} is empty")]
    EmptySet(Name),
    /// A list is too long.
    #[error("a list of the rule {0} has more than {MAX_LIST} entries: put networks into a set")]
    LongList(Name),
    /// The rules name too many networks.
    #[error("the rules name more than {MAX_NAMED_NETWORKS} networks, those of their sets included")]
    ManyNetworks,
    /// A document of another network.
    #[error("the document is of the network {found}, and this network is {expected}")]
    OtherNetwork {
        /// The name in the document.
        found: Name,
        /// The name of the network.
        expected: Name,
    },
    /// Endpoints in a document of a network that has machines of its own.
    #[error("the machines of the network are its endpoints: leave [[endpoint]] out")]
    OwnEndpoints,
    /// The policy is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Why a text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It is no document.
    #[error("{}{message}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Syntax {
        /// The line, counted from 1.
        line: Option<usize>,
        /// What is wrong there.
        message: String,
    },
    /// The document is wrong.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// What a name in a rule means that no endpoint and no group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It is a mistake.
    IsRefused,
    /// It stands for nobody yet, or nobody any more.
    IsNobody,
}

impl Document {
    /// A document of TOML.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn from_toml(text: &str) -> Result<Self, TextError> {
        toml::from_str(text).map_err(|error| TextError::Syntax {
            line: error.span().map(|span| text[..span.start].matches('\n').count() + 1),
            message: error.message().replace('\n', " "),
        })
    }

    /// The policy between the document's endpoints.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn into_policy(mut self) -> Result<Policy, DocumentError> {
        let endpoints: Vec<_> =
            std::mem::take(&mut self.endpoints).into_iter().map(EndpointSection::endpoint).collect();
        if endpoints.is_empty() {
            return Err(PolicyError::NoEndpoint.into());
        }
        self.among(endpoints, Unknown::IsRefused, usize::MAX)
    }

    /// The policy between the machines of a network. The document has no endpoints.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn with_endpoints(
        self,
        network: &Name,
        endpoints: Vec<Endpoint>,
        unknown: Unknown,
    ) -> Result<Policy, DocumentError> {
        if self.network != *network {
            return Err(DocumentError::OtherNetwork { found: self.network, expected: network.clone() });
        }
        if !self.endpoints.is_empty() {
            return Err(DocumentError::OwnEndpoints);
        }
        self.among(endpoints, unknown, MAX_NAMED_NETWORKS)
    }

    fn among(self, endpoints: Vec<Endpoint>, unknown: Unknown, most_networks: usize) -> Result<Policy, DocumentError> {
        if let Some((name, _)) = self.sets.iter().find(|(_, set)| set.is_empty()) {
            return Err(DocumentError::EmptySet(name.clone()));
        }
        let mut members: BTreeMap<Name, BTreeSet<usize>> = BTreeMap::new();
        for (place, endpoint) in endpoints.iter().enumerate() {
            for name in endpoint.groups.iter().chain([&endpoint.name]) {
                members.entry(name.clone()).or_default().insert(place);
            }
        }
        let known = Known { members, sets: self.sets, unknown };
        let denied = self.deny.into_iter().map(|section| (Action::Deny, section));
        let sections = denied.chain(self.allow.into_iter().map(|section| (Action::Allow, section)));
        let mut rules = Vec::new();
        let mut named = 0;
        for (action, section) in sections {
            let rule = known.rule(action, section)?;
            named += [&rule.from, &rule.to].into_iter().map(networks_of).sum::<usize>();
            if named > most_networks {
                return Err(DocumentError::ManyNetworks);
            }
            rules.push(rule);
        }
        Ok(Policy::new(self.network, endpoints, rules)?)
    }
}

impl EndpointSection {
    fn endpoint(self) -> Endpoint {
        let own = self.addresses.iter().map(|address| IpNet::from(address.0));
        Endpoint {
            name: self.name,
            networks: own.chain(self.routes.iter().map(|route| route.0)).collect(),
            groups: self.groups,
            device: self.device.map(|device| device.0),
        }
    }
}

/// What the names of a document mean.
struct Known {
    members: BTreeMap<Name, BTreeSet<usize>>,
    sets: BTreeMap<Name, Vec<Prefix>>,
    unknown: Unknown,
}

impl Known {
    fn rule(&self, action: Action, section: RuleSection) -> Result<Rule, DocumentError> {
        let rule = &section.name;
        if section.services.as_ref().is_some_and(Vec::is_empty) {
            return Err(DocumentError::Nobody { rule: rule.clone(), field: "services" });
        }
        Ok(Rule {
            action,
            from: self.side(rule, Way::From, section.from.as_deref())?,
            to: self.side(rule, Way::To, section.to.as_deref())?,
            services: section.services.unwrap_or_default(),
            name: section.name,
        })
    }

    fn side(&self, rule: &Name, way: Way, parties: Option<&[Party]>) -> Result<Side, DocumentError> {
        let Some(parties) = parties else { return Ok(Side::Anyone) };
        if parties.is_empty() {
            return Err(DocumentError::Nobody { rule: rule.clone(), field: way.as_str() });
        }
        if parties.len() > MAX_LIST {
            return Err(DocumentError::LongList(rule.clone()));
        }
        let (mut endpoints, mut networks) = (BTreeSet::new(), Vec::new());
        for party in parties {
            match party {
                Party::Name(name) => {
                    let places = self.members.get(name);
                    if places.is_none() && self.unknown == Unknown::IsRefused {
                        return Err(DocumentError::UnknownName { rule: rule.clone(), name: name.clone() });
                    }
                    endpoints.extend(places.into_iter().flatten());
                }
                Party::Set(set) => {
                    let unknown = || DocumentError::UnknownSet { rule: rule.clone(), set: set.clone() };
                    networks.extend(self.sets.get(set).ok_or_else(unknown)?.iter().map(|prefix| prefix.0));
                }
                Party::Network(net) => networks.push(*net),
            }
        }
        networks.sort_unstable();
        networks.dedup();
        Ok(Side::Some { endpoints, networks })
    }
}

/// How many networks a side of a rule names.
fn networks_of(side: &Side) -> usize {
    match side {
        Side::Anyone => 0,
        Side::Some { networks, .. } => networks.len(),
    }
}
