//! How an origin stands among those of its socket.

use std::sync::atomic::{AtomicU16, Ordering};

use sallyport_balance::Weight;

/// The standing of one origin.
#[derive(Debug)]
pub(crate) struct Standing {
    weight: AtomicU16,
}

impl Default for Standing {
    /// One of which nothing is known: it takes its share.
    fn default() -> Self {
        Self { weight: AtomicU16::new(sallyport_model::DEFAULT_WEIGHT) }
    }
}

impl Standing {
    /// Its share beside the others.
    pub(crate) fn weight(&self) -> Weight {
        Weight::new(self.weight.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Its owner has changed its share.
    pub(crate) fn weighs(&self, weight: u16) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    /// Whether it takes new flows, as far as its owner and its checks say.
    pub(crate) fn is_fit(&self) -> bool {
        self.weight() != Weight::ZERO
    }
}
