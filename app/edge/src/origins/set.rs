//! The origins of one socket, with figures that a selection would otherwise compute each time.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sallyport_balance::nearness::Nearness;
use sallyport_model::RegionName;

use crate::origins::origin::Origin;

/// The origins of one socket, in the order of their arrival, which is that of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    all: Vec<Arc<Origin>>,
    /// How many are not [here](Nearness::Here).
    elsewhere: usize,
    has_weights: AtomicBool,
}

impl Origins {
    /// Adds an origin; `own` is the region of this edge.
    pub(crate) fn push(&mut self, origin: Arc<Origin>, own: Option<&RegionName>) {
        self.all.push(origin);
        self.count(own);
    }

    /// Removes and returns the origins for which `is_it` is true.
    pub(crate) fn take(&mut self, is_it: impl Fn(&Origin) -> bool, own: Option<&RegionName>) -> Vec<Arc<Origin>> {
        let taken = self.all.extract_if(.., |origin| is_it(origin)).collect();
        self.count(own);
        taken
    }

    /// Removes and returns the first origin for which `is_it` is true.
    pub(crate) fn take_one(
        &mut self,
        is_it: impl Fn(&Origin) -> bool,
        own: Option<&RegionName>,
    ) -> Option<Arc<Origin>> {
        let at = self.all.iter().position(|origin| is_it(origin))?;
        let taken = self.all.remove(at);
        self.count(own);
        Some(taken)
    }

    fn count(&mut self, own: Option<&RegionName>) {
        let is_elsewhere = |origin: &&Arc<Origin>| origin.place().nearness(own) != Nearness::Here;
        self.elsewhere = self.all.iter().filter(is_elsewhere).count();
    }

    /// Whether all of them are here, so that none is nearer than another.
    pub(crate) fn are_all_here(&self) -> bool {
        self.elsewhere == 0
    }

    /// Reads the weights of the origins again, after they have changed.
    pub(crate) fn update_weights(&self) {
        let mut weights = self.all.iter().map(|origin| origin.health_state().weight());
        let first = weights.next();
        self.has_weights.store(weights.any(|weight| Some(weight) != first), Ordering::Relaxed);
    }

    /// Whether the weights differ.
    pub(crate) fn have_weights(&self) -> bool {
        self.has_weights.load(Ordering::Relaxed)
    }
}

impl Deref for Origins {
    type Target = [Arc<Origin>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}
