//! The origins of one socket that this edge knows, and what a choice among them would otherwise find out each time.

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
    /// Another one came, to an edge in this region.
    pub(crate) fn push(&mut self, origin: Arc<Origin>, own: Option<&RegionName>) {
        self.all.push(origin);
        self.count(own);
    }

    /// Takes those out that are of this kind.
    pub(crate) fn take(&mut self, is_it: impl Fn(&Origin) -> bool, own: Option<&RegionName>) -> Vec<Arc<Origin>> {
        let taken = self.all.extract_if(.., |origin| is_it(origin)).collect();
        self.count(own);
        taken
    }

    /// Takes the first one out that is this.
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

    /// They were told their weights.
    pub(crate) fn were_told_weights(&self) {
        let mut weights = self.all.iter().map(|origin| origin.health_state().weight());
        let first = weights.next();
        self.has_weights.store(weights.any(|weight| Some(weight) != first), Ordering::Relaxed);
    }

    /// Whether the owner gave weights that differ.
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
