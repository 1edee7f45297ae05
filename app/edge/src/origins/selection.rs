//! The selection of an origin: the usable ones, of these the nearest, and of these the hinted one or the one with the
//! least load.

use std::{cmp::Ordering, sync::Arc, time::Duration};

use sallyport_balance::{
    Rotation,
    affinity::AffinityCode,
    nearness::{Nearness, compare_ways, nearest},
};
use sallyport_model::{OriginRef, RegionName, SocketSettings};

use crate::origins::{
    affinity::AffinityHint,
    dials::{Dials, Why},
    origin::Origin,
    set::Origins,
};

/// The input of a selection.
pub(crate) struct Choice<'a, C> {
    /// The origins of the socket.
    pub(crate) origins: &'a Origins,
    /// The region of this edge.
    pub(crate) own: Option<&'a RegionName>,
    /// The origin that the client prefers.
    pub(crate) hint: &'a AffinityHint,
    /// The name of an origin in affinity cookies.
    pub(crate) code: C,
    /// The settings of a socket with regional dials, and the number that distributes its flows.
    pub(crate) dialed: Option<(&'a SocketSettings, u64)>,
}

/// The outcome of a selection.
pub(crate) struct Chosen {
    pub(crate) origin: Arc<Origin>,
    /// Why its region was selected, if regional dials apply.
    pub(crate) why: Option<Why>,
}

impl From<Arc<Origin>> for Chosen {
    fn from(origin: Arc<Origin>) -> Self {
        Self { origin, why: None }
    }
}

/// Origins in the order in which they are preferred.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    pub(crate) origins: Vec<Arc<Origin>>,
    /// Whether the first one is that to which the client returns.
    pub(crate) has_hinted: bool,
}

/// An origin that may be selected.
struct Candidate<'a> {
    origin: &'a Arc<Origin>,
    nearness: Nearness<&'a RegionName>,
    round_trip: Option<Duration>,
}

impl<C: Fn(&Origin) -> AffinityCode> Choice<'_, C> {
    /// Selects one of the origins for which `fit` is true.
    pub(crate) fn make(&self, rotation: &mut Rotation<u64>, fit: impl Fn(&Arc<Origin>) -> bool) -> Option<Chosen> {
        if let Some((settings, roll)) = self.dialed {
            return self.make_dialed(rotation, settings, roll, fit);
        }
        if self.origins.are_all_here() {
            let at = self.hint.find(self.origins, &self.code, &fit);
            let at = at.or_else(|| self.take_turn(rotation, self.origins, fit))?;
            return self.origins.get(at).cloned().map(Chosen::from);
        }
        let candidates = self.candidates(fit);
        // A cookie leads back to its origin in any region.
        if let AffinityHint::Cookie(Some(_), _) = self.hint
            && let Some(at) = self.find(&candidates)
        {
            return candidates.get(at).map(|candidate| candidate.origin.clone().into());
        }
        self.of_nearest(rotation, candidates).map(Chosen::from)
    }

    /// The fit origins, each once, by distance, and by load for the weight where that is equal. If the hinted one is
    /// among them, it comes first.
    pub(crate) fn in_order(&self, fit: impl Fn(&Arc<Origin>) -> bool) -> Ordered {
        let mut candidates = self.candidates(fit);
        candidates.sort_by_cached_key(|candidate| {
            let kind = match candidate.nearness {
                Nearness::Here => 0,
                Nearness::Near => 1,
                Nearness::Far(_) => 2,
            };
            let far = (kind == 2).then(|| candidate.round_trip.unwrap_or(Duration::MAX));
            let (load, weight) = (candidate.origin.load(), candidate.origin.health_state().weight().get());
            (kind, far, u64::from(load) * 1_000 / u64::from(weight.max(1)), candidate.origin.number())
        });
        let hinted = self.find(&candidates);
        let mut origins: Vec<_> = candidates.iter().map(|candidate| candidate.origin.clone()).collect();
        if let Some(at) = hinted {
            origins[..=at].rotate_right(1);
        }
        Ordered { origins, has_hinted: hinted.is_some() }
    }

    /// Selects one in the region that the dials determine.
    fn make_dialed(
        &self,
        rotation: &mut Rotation<u64>,
        settings: &SocketSettings,
        roll: u64,
        fit: impl Fn(&Arc<Origin>) -> bool,
    ) -> Option<Chosen> {
        let mut dials = Dials::new(settings, self.own);
        for origin in self.origins.iter() {
            dials.add(origin.place().region.as_ref(), origin.handle().round_trip(), fit(origin));
        }
        let mut candidates = self.candidates(fit);
        // A client with a cookie keeps its origin, unless the region is closed.
        if let AffinityHint::Cookie(Some(_), _) = self.hint
            && let Some(found) = self.find(&candidates).and_then(|at| candidates.get(at))
            && dials.is_open(found.origin.place().region.as_ref())
        {
            return Some(found.origin.clone().into());
        }
        let (region, why) = dials.choose(roll)?;
        candidates.retain(|candidate| dials.region_of(candidate.origin.place().region.as_ref()) == region);
        let origin = self.of_nearest(rotation, candidates)?;
        Some(Chosen { origin, why: Some(why) })
    }

    /// Selects among the nearest: the hinted one, or the one with the least load.
    fn of_nearest(&self, rotation: &mut Rotation<u64>, mut candidates: Vec<Candidate<'_>>) -> Option<Arc<Origin>> {
        merge_by_weights(&mut candidates);
        let nearest = nearest(candidates.iter().map(|one| (one.nearness, one.round_trip)))?;
        candidates.retain(|candidate| candidate.nearness == nearest);
        candidates.sort_unstable_by_key(|candidate| candidate.origin.number());
        let at = self.find(&candidates);
        let at = at.or_else(|| self.take_turn(rotation, &candidates, |_| true))?;
        candidates.get(at).map(|candidate| candidate.origin.clone())
    }

    /// The fit origins, each once, by its best transport.
    fn candidates(&self, fit: impl Fn(&Arc<Origin>) -> bool) -> Vec<Candidate<'_>> {
        let candidate = |origin| Candidate {
            origin,
            nearness: Origin::place(origin).nearness(self.own),
            round_trip: origin.handle().round_trip(),
        };
        let mut candidates: Vec<_> = self.origins.iter().filter(|origin| fit(origin)).map(candidate).collect();
        candidates.sort_by(|one, other| one.id().cmp(&other.id()).then_with(|| one.compare_way(other)));
        candidates.dedup_by_key(|candidate| candidate.id());
        candidates
    }

    fn find(&self, candidates: &[Candidate<'_>]) -> Option<usize> {
        self.hint.find(candidates, &self.code, |_| true)
    }

    /// The one with the least load for its weight, in rotation if several are equal.
    fn take_turn<T: HasOrigin>(
        &self,
        rotation: &mut Rotation<u64>,
        candidates: &[T],
        fit: impl Fn(&Arc<Origin>) -> bool,
    ) -> Option<usize> {
        let (number, load) = (|one: &T| one.origin().number(), |one: &T| one.origin().load());
        let is_fit = |one: &T| fit(one.origin());
        // With equal weights, the rotation needs no look at each weight.
        if !self.origins.have_weights() {
            return rotation.choose(candidates, number, load, is_fit);
        }
        rotation.choose_weighted(candidates, number, load, |one| one.origin().health_state().weight(), is_fit)
    }
}

impl Candidate<'_> {
    /// The id by which several transports of one origin are recognized.
    fn id(&self) -> OriginRef {
        self.origin.handle().origin()
    }

    fn compare_way(&self, other: &Self) -> Ordering {
        let transport = |one: &Self| (one.origin.place().is_local, one.round_trip);
        let ((is_local, round_trip), (other_is_local, other_round_trip)) = (transport(self), transport(other));
        compare_ways((&self.nearness, is_local, round_trip), (&other.nearness, other_is_local, other_round_trip))
            // A tunnel that changes connectors is present twice for a moment; the later one counts.
            .then_with(|| other.origin.number().cmp(&self.origin.number()))
    }
}

/// Something that stands for an origin.
pub(crate) trait HasOrigin {
    fn origin(&self) -> &Arc<Origin>;
}

impl HasOrigin for Arc<Origin> {
    fn origin(&self) -> &Arc<Origin> {
        self
    }
}

impl HasOrigin for Candidate<'_> {
    fn origin(&self) -> &Arc<Origin> {
        self.origin
    }
}

/// With different weights, origins here and elsewhere in the region share flows by weight, as one group.
fn merge_by_weights(candidates: &mut [Candidate<'_>]) {
    let mut weights = candidates.iter().map(|candidate| candidate.origin.health_state().weight());
    let Some(first) = weights.next() else { return };
    if weights.all(|weight| weight == first) {
        return;
    }
    for candidate in candidates {
        if candidate.nearness == Nearness::Here {
            candidate.nearness = Nearness::Near;
        }
    }
}
