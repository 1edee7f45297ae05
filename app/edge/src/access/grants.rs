//! The grants that were used: a grant logs in one browser, once.

use std::collections::HashMap;

/// How many used grants are remembered. With more than this in a minute, logins fail until some grants expire.
const MAX_USED_GRANTS: usize = 65_536;

/// The used grants that have not expired.
#[derive(Debug, Default)]
pub(super) struct UsedGrants {
    /// When each expires, in seconds since 1970.
    until: HashMap<[u8; 16], i64>,
}

impl UsedGrants {
    /// Marks this grant as used until it expires at `good_until`. Returns false if it was used before, or if there is
    /// no room.
    pub(super) fn uses(&mut self, id: [u8; 16], good_until: i64, now: i64) -> bool {
        if self.until.len() >= MAX_USED_GRANTS {
            self.until.retain(|_, until| *until >= now);
        }
        if self.until.len() >= MAX_USED_GRANTS || self.until.contains_key(&id) {
            return false;
        }
        self.until.insert(id, good_until);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_used_once_and_many_do_not_push_it_out() {
        let mut used = UsedGrants::default();
        assert!(used.uses([7; 16], 160, 100) && !used.uses([7; 16], 160, 100));
        for number in 0..MAX_USED_GRANTS as u128 {
            used.uses((number << 8).to_be_bytes(), 160, 100);
        }
        assert!(used.until.len() <= MAX_USED_GRANTS);
        assert!(!used.uses([7; 16], 160, 160), "a used grant is kept while it would be valid");
        assert!(!used.uses([8; 16], 160, 160), "a full table accepts no further grant");
        assert!(used.uses([8; 16], 221, 161), "what is old makes room");
    }
}
