//! Identity providers that did not answer last.

use std::collections::HashSet;

use parking_lot::Mutex;
use sallyport_model::ProviderId;

/// The number of failing providers that are remembered, so that the log names each once.
const MAX_FAILING: usize = 1_024;

/// Identity providers that did not answer last.
#[derive(Default)]
pub(crate) struct FailingProviders(Mutex<HashSet<ProviderId>>);

impl FailingProviders {
    /// Records whether the provider answered. Returns whether that is a change.
    pub(crate) fn set_failing(&self, provider: ProviderId, is_failing: bool) -> bool {
        let mut failing = self.0.lock();
        match is_failing {
            true if failing.len() >= MAX_FAILING => false,
            true => failing.insert(provider),
            false => failing.remove(&provider),
        }
    }

    /// Whether the provider did not answer last.
    pub(crate) fn contains(&self, provider: ProviderId) -> bool {
        self.0.lock().contains(&provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_once() {
        let (failing, id) = (FailingProviders::default(), ProviderId::from_random([1; 16]));
        assert!(failing.set_failing(id, true) && !failing.set_failing(id, true));
        assert!(failing.set_failing(id, false) && !failing.set_failing(id, false));
    }
}
