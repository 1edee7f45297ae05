//! Regional dials: the regions of a socket's origins, and dials without effect.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_model::{EndpointGroup, RegionName, SocketId, SocketSettings};

use super::settings::SettingsChange;
use crate::{problem::ApiError, state::App};

/// The regions in which a socket's origins may be.
pub(super) struct OriginRegions {
    /// The known regions.
    regions: BTreeSet<RegionName>,
    /// Whether origins may be in unknown regions, which no dial limits.
    elsewhere: bool,
}

impl OriginRegions {
    /// Whether these dials leave no origin for any flow.
    fn is_closed_by(&self, dials: &BTreeMap<RegionName, EndpointGroup>) -> bool {
        let is_closed = |region| dials.get(region).is_some_and(|group| group.dial == 0);
        !self.elsewhere && !self.regions.is_empty() && self.regions.iter().all(is_closed)
    }
}

impl App {
    /// The possible regions of origins of this socket, or of a new one: those of joined edges and those that its
    /// origins name. `None` if the change sets no dials.
    pub(super) async fn origin_regions(
        &self,
        socket: Option<SocketId>,
        change: &SettingsChange,
    ) -> Result<Option<OriginRegions>, ApiError> {
        if !change.has_dials() {
            return Ok(None);
        }
        let mut regions: BTreeSet<_> = self.store.edges().await?.into_iter().map(|edge| edge.region).collect();
        // A single machine has no regions, and dials have no effect.
        let elsewhere = self.edges.get().is_none();
        regions.extend(socket.into_iter().flat_map(|socket| self.regions_of_origins(socket)));
        Ok(Some(OriginRegions { regions, elsewhere }))
    }

    /// The regions that the socket's origins name themselves.
    fn regions_of_origins(&self, socket: SocketId) -> Vec<RegionName> {
        let route = self.routes.get(socket);
        route.iter().flat_map(|route| &route.origins).filter_map(|origin| origin.region.clone()).collect()
    }

    /// Notes on regions and dials that have no effect at present.
    pub(super) fn notes_on_regions(&self, socket: SocketId, settings: &SocketSettings) -> Vec<String> {
        if settings.regions.is_empty() || self.fleet.stale_since().is_some() {
            return Vec::new();
        }
        if self.edges.get().is_none() {
            let note = "this installation is one machine, which is in no region: dials have no effect";
            return vec![note.to_owned()];
        }
        let of_origins = self.regions_of_origins(socket);
        let edges = self.fleet.edges();
        let is_there =
            |region: &RegionName| of_origins.contains(region) || edges.iter().any(|edge| edge.card.region == *region);
        let missing = settings.regions.keys().filter(|region| !is_there(region));
        missing.map(|region| format!("no edge is in the region {region} now: its dial has no effect")).collect()
    }
}

/// Refuses dials that leave no origin, because edges would ignore them. To stop a socket, its origins get weight 0, or
/// the socket is deleted.
pub(super) fn check_dials(served: Option<&OriginRegions>, settings: &SocketSettings) -> Result<(), ApiError> {
    if !served.is_some_and(|served| served.is_closed_by(&settings.regions)) {
        return Ok(());
    }
    let detail = "the dials of all regions that this socket is served from are 0, and edges disregard dials that leave \
                  nothing: leave one above 0, or give origins the weight 0 to let them finish what they have";
    Err(ApiError::field("regions", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(regions: &[&str], elsewhere: bool) -> OriginRegions {
        OriginRegions { regions: regions.iter().map(|name| name.parse().unwrap()).collect(), elsewhere }
    }

    fn dials(of: &[(&str, u8)]) -> BTreeMap<RegionName, EndpointGroup> {
        of.iter()
            .map(|(name, dial)| (name.parse().unwrap(), EndpointGroup { dial: *dial, ..EndpointGroup::default() }))
            .collect()
    }

    #[test]
    fn dials_sum_to_nothing_only_where_no_other_region_takes_anything() {
        let two = served(&["eu", "us"], false);
        assert!(two.is_closed_by(&dials(&[("eu", 0), ("us", 0)])));
        assert!(two.is_closed_by(&dials(&[("eu", 0), ("us", 0), ("mars", 100)])), "no origin is on mars");
        for open in [&[("eu", 0)][..], &[("eu", 0), ("us", 1)], &[]] {
            assert!(!two.is_closed_by(&dials(open)), "{open:?}");
        }
        assert!(!served(&["eu"], true).is_closed_by(&dials(&[("eu", 0)])), "tunnels are in no region");
        assert!(!served(&[], false).is_closed_by(&dials(&[("eu", 0)])), "no edge has joined yet");
    }
}
