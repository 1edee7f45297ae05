//! The firewall of the router, as it stands.

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::{
    Router, XdpError,
    error::asked,
    pins,
    policy::{MAX_RULES, standing, standing_digest},
};

impl Router {
    /// Whether the router stands with a policy.
    #[must_use]
    pub fn has_policy(&self) -> bool {
        standing(self.pins())[0] != 0
    }

    /// The digest of the file of the policy that stands.
    #[must_use]
    pub fn policy_digest(&self) -> Option<[u8; 32]> {
        self.has_policy().then(|| standing_digest(self.pins()).0)
    }

    /// The mark of the policy that stands.
    #[must_use]
    pub fn policy_mark(&self) -> Option<[u8; 6]> {
        self.has_policy().then(|| standing_digest(self.pins()).1)
    }

    /// The packets that XDP has judged: of each rule, and of none.
    ///
    /// # Errors
    /// No router stands, or it has no policy.
    pub fn policy_hits(&self) -> Result<(Vec<u64>, u64), XdpError> {
        pins::map(self.pins(), "policy_settings")?;
        let hits = pins::map(self.pins(), "policy_hits").map_err(|_| XdpError::NoPolicy)?;
        let rules = standing(self.pins())[4..8].try_into().map_or(0, u32::from_ne_bytes);
        let read = |hits: &MapHandle, place: u32| {
            let found = hits.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY);
            let found = found.map_err(asked("read the counters of the policy"))?.unwrap_or_default();
            let numbers = found.iter().filter_map(|cpu| Some(u64::from_ne_bytes(cpu.get(..8)?.try_into().ok()?)));
            Ok::<_, XdpError>(numbers.sum())
        };
        let all: Result<Vec<u64>, _> = (0..rules).map(|place| read(&hits, place)).collect();
        Ok((all?, read(&hits, MAX_RULES as u32)?))
    }
}
