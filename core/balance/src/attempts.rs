//! The candidates that a request has tried.

/// Candidates that one request tries before it is answered with an error.
pub const MAX_ATTEMPTS: usize = 4;

/// The candidates that one request has tried: each at most once, and at most [`MAX_ATTEMPTS`].
#[derive(Debug, Clone)]
pub struct Attempts<K> {
    tried: [Option<K>; MAX_ATTEMPTS],
}

impl<K: PartialEq> Attempts<K> {
    /// No candidate was tried yet.
    #[must_use]
    pub fn new() -> Self {
        Self { tried: [const { None }; MAX_ATTEMPTS] }
    }

    /// Whether the candidate may be tried: it was not tried yet, and an attempt is left.
    #[must_use]
    pub fn may_try(&self, key: &K) -> bool {
        !self.is_exhausted() && !self.tried.iter().flatten().any(|tried| tried == key)
    }

    /// Records an attempt; false, without a change, if the candidate [may not](Self::may_try) be tried.
    pub fn record(&mut self, key: K) -> bool {
        if !self.may_try(&key) {
            return false;
        }
        match self.tried.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(key);
                true
            }
            None => false,
        }
    }

    /// Number of tried candidates.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tried.iter().flatten().count()
    }

    /// Whether no attempt is left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.count() == MAX_ATTEMPTS
    }
}

impl<K: PartialEq> Default for Attempts<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_candidate_is_tried_once_and_at_most_four_are() {
        let mut attempts = Attempts::default();
        assert!(attempts.record(7) && !attempts.record(7));
        assert_eq!(attempts.count(), 1);
        assert!(!attempts.may_try(&7) && attempts.may_try(&8));
        assert!(attempts.record(8) && attempts.record(9) && !attempts.is_exhausted() && attempts.record(10));
        assert!(attempts.is_exhausted());
        assert!(!attempts.may_try(&11) && !attempts.record(11));
        assert_eq!(attempts.count(), MAX_ATTEMPTS);
    }
}
