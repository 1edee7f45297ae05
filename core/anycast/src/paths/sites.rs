//! To which site a path leads.

use std::collections::BTreeSet;

use ipnet::IpNet;
use sallyport_model::{EdgeName, RegionName};
use serde::{Deserialize, Serialize};

use super::Relation;
use crate::{
    bird::{Route, site_number},
    model::{Community, Peer, PeerRole},
};

/// A route of an own prefix, as it was heard somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The site at which it was heard.
    pub site: RegionName,
    /// The prefix.
    pub net: IpNet,
    /// The networks that passed it on, the nearest to the observer first, the origin last.
    pub as_path: Vec<u32>,
    /// Its communities.
    #[serde(default)]
    pub communities: Vec<Community>,
    /// Whether the observer is known to use it. Not known is not the same as not used.
    #[serde(default)]
    pub is_chosen: bool,
}

/// An own session with a neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The site.
    pub site: RegionName,
    /// The name of the neighbour.
    pub peer: String,
    /// The neighbour's network.
    pub remote_as: u32,
    /// The own network.
    pub local_as: u32,
    /// What the neighbour is.
    pub role: Option<PeerRole>,
    /// Whether the neighbour sends the routes on to nobody.
    pub is_no_export: bool,
}

/// To which site a path leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteFound {
    /// The community of the site says so.
    ByCommunity(RegionName),
    /// The path enters by a network with which one site alone speaks.
    BySession(RegionName),
    /// The path enters by a network with which these sites speak.
    OneOf(Vec<RegionName>),
    /// The community has a number that no site has now.
    UnknownNumber(u32),
    /// Nothing says where it leads.
    Unknown,
}

impl Heard {
    /// A route that a neighbour sent back to an edge of this site.
    #[must_use]
    pub fn of(site: RegionName, route: &Route) -> Self {
        Self {
            site,
            net: route.net,
            as_path: route.as_path.clone(),
            communities: route.communities.clone(),
            is_chosen: false,
        }
    }
}

impl Session {
    /// The sessions of neighbours at edges. Edges without a region have no site to speak of.
    #[must_use]
    pub fn all(peers: &[Peer], edges: &[(EdgeName, Option<RegionName>)]) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for peer in peers {
            for (edge, region) in edges {
                let Some(site) = region.as_ref().filter(|_| peer.place.has(edge, region.as_ref())) else { continue };
                let session = Self {
                    site: site.clone(),
                    peer: peer.name.clone(),
                    remote_as: peer.remote_as,
                    local_as: peer.local_as,
                    role: peer.role,
                    is_no_export: peer.is_no_export || peer.communities.contains(&Community::NO_EXPORT),
                };
                if !found.contains(&session) {
                    found.push(session);
                }
            }
        }
        found
    }

    /// What the neighbour is to the own network.
    #[must_use]
    pub fn relation(&self) -> Option<Relation> {
        self.role.map(|role| match role {
            PeerRole::Provider => Relation::Provider,
            PeerRole::Peer | PeerRole::RouteServer => Relation::Peer,
            PeerRole::Customer => Relation::Customer,
        })
    }
}

impl SiteFound {
    /// Where this route leads.
    pub(super) fn of(heard: &Heard, sessions: &[Session], sites: &[RegionName]) -> Self {
        let is_own = |number: &u32| sessions.iter().any(|session| session.local_as == *number);
        let tag = heard.communities.iter().find_map(|community| match community {
            Community::Large(admin, 1, number) if is_own(admin) => Some(*number),
            _ => None,
        });
        if let Some(number) = tag {
            let found = sites.iter().find(|site| site_number(site.as_str()) == number);
            return found.map_or(Self::UnknownNumber(number), |site| Self::ByCommunity(site.clone()));
        }
        let Some(entry) = entry(&heard.as_path) else { return Self::Unknown };
        let all: BTreeSet<&RegionName> =
            sessions.iter().filter(|session| session.remote_as == entry).map(|session| &session.site).collect();
        let mut all: Vec<RegionName> = all.into_iter().cloned().collect();
        match all.len() {
            0 => Self::Unknown,
            1 => Self::BySession(all.remove(0)),
            _ => Self::OneOf(all),
        }
    }

    /// The site, if it is one.
    #[must_use]
    pub fn site(&self) -> Option<&RegionName> {
        match self {
            Self::ByCommunity(site) | Self::BySession(site) => Some(site),
            _ => None,
        }
    }
}

/// The network by which a path enters: the last one before the origin, or none if the observer speaks with the origin.
pub(super) fn entry(path: &[u32]) -> Option<u32> {
    let origin = path.last()?;
    path.iter().rev().find(|number| *number != origin).copied()
}
