//! Regional dials: which region's origins take a flow.

use std::{collections::BTreeMap, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use sallyport_balance::regions::{self, Dial, Group};
use sallyport_model::{RegionName, SocketSettings};

/// How many regions have labels of their own in metrics; others count as `other`.
const MAX_LABELLED_REGIONS: usize = 64;

/// The label of origins without a known region.
const UNKNOWN: &str = "unknown";

/// The origins of one region.
#[derive(Debug, Clone, Copy, Default)]
struct RegionGroup {
    is_usable: bool,
    round_trip: Option<Duration>,
}

/// The groups of one selection.
pub(crate) struct Dials<'a> {
    settings: &'a SocketSettings,
    own: Option<&'a RegionName>,
    groups: BTreeMap<Option<&'a RegionName>, RegionGroup>,
}

/// Why a flow goes to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The nearest region that can take it.
    Near,
    /// A nearer region has passed it on, by its dial.
    Dialed,
    /// Only regions with a dial of zero can take it.
    Spare,
}

impl<'a> Dials<'a> {
    /// The dials of a socket, seen from an edge in this region; no origin yet.
    pub(crate) fn new(settings: &'a SocketSettings, own: Option<&'a RegionName>) -> Self {
        Self { settings, own, groups: BTreeMap::new() }
    }

    /// The region in which an origin counts: that of its edge if its own is unknown.
    pub(crate) fn region_of(&self, region: Option<&'a RegionName>) -> Option<&'a RegionName> {
        region.or(self.own)
    }

    /// Whether origins of this region keep returning clients.
    pub(crate) fn is_open(&self, region: Option<&'a RegionName>) -> bool {
        self.settings.dial(self.region_of(region)) > 0
    }

    /// Adds an origin.
    pub(crate) fn add(&mut self, region: Option<&'a RegionName>, round_trip: Option<Duration>, is_usable: bool) {
        let group = self.groups.entry(self.region_of(region)).or_default();
        group.is_usable |= is_usable;
        group.round_trip = [group.round_trip, round_trip].into_iter().flatten().min();
    }

    /// The region for the flow with this roll, and why; `None` if no origin can take it.
    pub(crate) fn choose(&self, roll: u64) -> Option<(Option<&'a RegionName>, Why)> {
        let mut order: Vec<_> = self.groups.iter().map(|(region, group)| (*region, *group)).collect();
        // The own region first, then by round trip, then by name.
        order.sort_by_key(|(region, group)| (*region != self.own, group.round_trip.unwrap_or(Duration::MAX)));
        let dial = |region| Dial::new(self.settings.dial(region)).unwrap_or_default();
        let groups: Vec<_> =
            order.iter().map(|(region, group)| Group { dial: dial(*region), is_usable: group.is_usable }).collect();
        let place = regions::choose(&groups, roll)?;
        let is_nearest = groups.iter().position(|group| group.is_usable) == Some(place);
        let why = match groups[place].dial {
            Dial::CLOSED => Why::Spare,
            _ if is_nearest => Why::Near,
            _ => Why::Dialed,
        };
        Some((order[place].0, why))
    }
}

/// The roll of a client's hash: stable for the client, and independent of the choice of the origin.
pub(crate) fn roll_of(hash: u64) -> u64 {
    // The finalizer of SplitMix64.
    let mut value = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RegionLabels {
    region: String,
    why: &'static str,
}

/// The metrics of sockets with regional dials.
#[derive(Debug, Clone, Default)]
pub(crate) struct RegionMetrics {
    flows: Family<RegionLabels, Counter>,
    known: std::sync::Arc<parking_lot::Mutex<std::collections::BTreeSet<String>>>,
}

impl RegionMetrics {
    /// Counts a flow that went to this region.
    pub(crate) fn record(&self, region: Option<&RegionName>, why: Why) {
        let name = region.map_or(UNKNOWN, RegionName::as_str);
        let region = {
            let mut known = self.known.lock();
            if known.contains(name) {
                name
            } else if known.len() < MAX_LABELLED_REGIONS {
                known.insert(name.to_owned());
                name
            } else {
                "other"
            }
        };
        let why = match why {
            Why::Near => "near",
            Why::Dialed => "dialed",
            Why::Spare => "spare",
        };
        self.flows.get_or_create(&RegionLabels { region: region.to_owned(), why }).inc();
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let edge = registry.sub_registry_with_prefix("sallyport_edge");
        let help = "Requests, connections and flows of sockets that have dials, by the region whose origins took them";
        edge.register("region_flows", help, self.flows.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str) -> RegionName {
        name.parse().unwrap()
    }

    #[test]
    fn the_own_region_is_chosen_first_then_the_nearest_measured_region() {
        let [eu, us, ap] = ["eu", "us", "ap"].map(region);
        let mut settings = SocketSettings::default();
        settings.regions.insert(eu.clone(), sallyport_model::EndpointGroup { dial: 50, ..Default::default() });
        let mut dials = Dials::new(&settings, Some(&eu));
        dials.add(Some(&ap), None, true);
        dials.add(Some(&us), Some(Duration::from_millis(80)), true);
        assert_eq!(dials.choose(0), Some((Some(&us), Why::Near)), "no edge is in eu");
        dials.add(None, None, true);
        assert_eq!(
            dials.choose(0),
            Some((Some(&eu), Why::Near)),
            "an origin without a region counts in the region of the edge"
        );
        assert_eq!(dials.choose(u64::MAX), Some((Some(&us), Why::Dialed)));
        assert!(dials.is_open(Some(&eu)) && dials.is_open(None));
    }

    #[test]
    fn a_region_that_is_dialed_down_to_nothing_serves_when_no_other_can() {
        let [eu, us] = ["eu", "us"].map(region);
        let mut settings = SocketSettings::default();
        settings.regions.insert(eu.clone(), sallyport_model::EndpointGroup { dial: 0, ..Default::default() });
        let mut dials = Dials::new(&settings, Some(&eu));
        assert_eq!(dials.choose(0), None);
        dials.add(None, None, true);
        assert_eq!(dials.choose(0), Some((Some(&eu), Why::Spare)));
        assert!(!dials.is_open(None), "clients do not stay there");
        dials.add(Some(&us), None, true);
        assert_eq!(dials.choose(0), Some((Some(&us), Why::Dialed)));
    }
}
