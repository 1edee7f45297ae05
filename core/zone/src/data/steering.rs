//! How clients of all edges are steered: the table of what was measured, and the regions that have edges now.

use std::{net::IpAddr, sync::Arc};

use sallyport_model::{MAX_STEERED_REGIONS, RegionName};

use super::{https::HttpPorts, view::AddressSets};
use crate::steer::{Asking, Choice, ChoiceReason, Keep, SteeringTable, choose};

/// The shortest and the longest time that others may keep an answer that was chosen for a client, in seconds.
const TTL_SECONDS: (u32, u32) = (30, 60);
/// The number by which metrics know the regions without a number of their own, and the addresses for everybody.
pub const OTHER_REGION: u8 = MAX_STEERED_REGIONS as u8;
/// How many such numbers there are.
pub const REGION_SLOTS: usize = MAX_STEERED_REGIONS + 1;

/// A region that has edges now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub region: RegionName,
    /// The addresses of its edges, or its anycast addresses.
    pub addresses: Vec<IpAddr>,
    /// The ports at which all of these edges serve HTTP.
    pub ports: Option<HttpPorts>,
    /// How much of what comes to the region stays there.
    pub keep: Keep,
    /// The number by which metrics know it.
    pub slot: u8,
}

/// How an answer was chosen, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Steered {
    /// The number by which metrics know the region.
    pub slot: u8,
    /// What the choice rests on.
    pub reason: ChoiceReason,
}

/// How clients of the group of all edges are steered now.
#[derive(Debug)]
pub struct Steering {
    table: Arc<SteeringTable>,
    /// The regions that have edges, by their places in the table.
    sites: Vec<Option<(AddressSets, Keep, u8)>>,
    /// The addresses for clients of which nothing is known. `None`: those of all edges.
    global: Option<AddressSets>,
}

impl Steering {
    /// Steers by this table among the regions that have edges now. `None`: there are not two, or nothing was measured.
    ///
    /// Where some region has addresses of IPv4, those without are left out: their clients might have IPv4 alone.
    #[must_use]
    pub fn new(
        table: Arc<SteeringTable>,
        sites: &[Site],
        (global, global_ports): (&[IpAddr], Option<HttpPorts>),
        ttl: u32,
    ) -> Option<Self> {
        let ttl = ttl.clamp(TTL_SECONDS.0, TTL_SECONDS.1);
        let sets: Vec<_> = sites.iter().map(|site| AddressSets::new(ttl, &site.addresses, site.ports)).collect();
        let is_v4 = sets.iter().any(AddressSets::has_v4);
        let of = |name: &RegionName| {
            let (site, sets) = sites.iter().zip(&sets).find(|(site, _)| site.region == *name)?;
            let is_whole = !sets.is_empty() && (sets.has_v4() || !is_v4);
            is_whole.then(|| (sets.clone(), site.keep, site.slot))
        };
        let known: Vec<_> = table.names().iter().map(of).collect();
        if table.is_empty() || known.iter().flatten().count() < 2 {
            return None;
        }
        let global = AddressSets::new(ttl, global, global_ports);
        Some(Self { table, sites: known, global: Some(global).filter(|global| !global.is_empty()) })
    }

    /// What was measured.
    #[must_use]
    pub fn table(&self) -> &Arc<SteeringTable> {
        &self.table
    }

    fn site(&self, region: u8) -> Option<&(AddressSets, Keep, u8)> {
        self.sites.get(usize::from(region)).and_then(Option::as_ref)
    }

    /// Chooses for who asks.
    #[must_use]
    pub fn choose(&self, asking: &Asking) -> (Choice, Steered) {
        let choice = choose(&self.table, asking, |region| self.site(region).map(|(_, keep, _)| *keep));
        let slot = choice.region.and_then(|region| self.site(region)).map_or(OTHER_REGION, |(_, _, slot)| *slot);
        (choice, Steered { slot: slot.min(OTHER_REGION), reason: choice.reason })
    }

    /// The name of a region of a choice.
    #[must_use]
    pub fn name(&self, region: Option<u8>) -> Option<&RegionName> {
        self.table.names().get(usize::from(region?))
    }

    /// The addresses of a choice. `None`: those of all edges.
    pub(super) fn addresses(&self, choice: &Choice) -> Option<&AddressSets> {
        match choice.region {
            Some(region) => self.site(region).map(|(sets, ..)| sets),
            None => self.global.as_ref(),
        }
    }
}
