//! How an organisation proves that a name is its own: a TXT record that only somebody with the name can set.

use sallyport_model::{AccountId, DomainName};
use sha2::{Digest, Sha256};

use crate::registrable;

/// The label of the record: `_sallyport.app.example.com`.
pub const RECORD_LABEL: &str = "_sallyport";
/// How often the record of a verified domain is looked up, in seconds.
pub const CHECK_EVERY_SECONDS: i64 = 6 * 3_600;
/// How often the record of a domain that is not verified yet is looked up, in seconds.
pub const PENDING_CHECK_SECONDS: i64 = 60;
/// How long a verified domain is served without its record, in seconds.
pub const GRACE_SECONDS: i64 = 72 * 3_600;
/// The most names at which the record of one domain is looked for.
pub const MAX_PROOF_NAMES: usize = 8;

/// The value of the TXT record of an organisation. The value proves nothing for another organisation.
#[must_use]
pub fn proof(secret: &[u8; 32], organisation: AccountId) -> String {
    let mut hash = Sha256::new();
    hash.update(b"sallyport proof of a domain\0");
    hash.update(secret);
    hash.update(organisation.as_bytes());
    let hex: String = hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    format!("sallyport-domain={hex}")
}

/// The names at which the record proves a domain, the nearest first: the domain's own, and those of its parents up to
/// the registered name. Of a long chain of parents, those next to the registered name count: [`MAX_PROOF_NAMES`] names
/// in all.
#[must_use]
pub fn proof_names(domain: &DomainName) -> Vec<String> {
    let last = registrable(domain.base()).unwrap_or(domain.base());
    let mut names = Vec::new();
    let mut rest = domain.base();
    loop {
        names.push(format!("{RECORD_LABEL}.{rest}"));
        match rest.split_once('.') {
            Some((_, parent)) if rest != last => rest = parent,
            _ => break,
        }
    }
    let surplus = names.len().saturating_sub(MAX_PROOF_NAMES);
    names.drain(1..=surplus);
    names
}

/// What a lookup of the record found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The record with the organisation's value.
    Present,
    /// No such record: the name service has said so.
    Missing,
    /// Nothing: the name service did not answer.
    Unknown,
}

/// Whether a domain is an organisation's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ownership {
    /// Since when the domain is verified, in seconds since 1970; `None`: not yet, or no longer.
    pub verified_at: Option<i64>,
    /// Since when the record of a verified domain is missing.
    pub missing_since: Option<i64>,
}

impl Ownership {
    /// The state after a lookup. A silent name service changes nothing. Without its record, a verified domain stays
    /// verified for [`GRACE_SECONDS`].
    #[must_use]
    pub fn after(self, finding: Finding, now: i64) -> Self {
        match (finding, self.verified_at) {
            (Finding::Present, verified) => Self { verified_at: verified.or(Some(now)), missing_since: None },
            (Finding::Missing, Some(_)) => {
                let since = self.missing_since.unwrap_or(now).min(now);
                if now - since >= GRACE_SECONDS { Self::default() } else { Self { missing_since: Some(since), ..self } }
            }
            (Finding::Missing, None) | (Finding::Unknown, _) => self,
        }
    }

    /// When to look again, in seconds since 1970.
    #[must_use]
    pub fn check_at(self, checked_at: i64) -> i64 {
        let every = match (self.verified_at, self.missing_since) {
            (Some(_), None) => CHECK_EVERY_SECONDS,
            (Some(_), Some(_)) => CHECK_EVERY_SECONDS / 6,
            (None, _) => PENDING_CHECK_SECONDS,
        };
        checked_at.saturating_add(every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_proves_a_domain_for_one_organisation() {
        let (one, other) = (AccountId::from_random([1; 16]), AccountId::from_random([2; 16]));
        let value = proof(&[7; 32], one);
        assert!(value.starts_with("sallyport-domain=") && value.len() == 17 + 40);
        assert_ne!(value, proof(&[7; 32], other));
        assert_ne!(value, proof(&[8; 32], one), "nor at another installation");
    }

    #[test]
    fn the_record_may_be_at_the_name_or_at_a_parent_of_the_same_owner() {
        let names = |text: &str| proof_names(&text.parse().expect("a domain"));
        assert_eq!(names("a.example.co.uk"), ["_sallyport.a.example.co.uk", "_sallyport.example.co.uk"]);
        assert_eq!(names("*.example.com"), ["_sallyport.example.com"]);
        let deep = names(&format!("{}example.com", "a.".repeat(20)));
        assert_eq!(deep.len(), MAX_PROOF_NAMES);
        assert!(deep[0].matches("a.").count() == 20 && deep[1].matches("a.").count() == 6, "{deep:?}");
        assert_eq!(deep.last().unwrap(), "_sallyport.example.com");
    }

    #[test]
    fn a_silent_name_service_takes_no_domain_away_and_a_missing_record_does_after_a_while() {
        let now = 1_000_000;
        let verified = Ownership::default().after(Finding::Present, now);
        assert_eq!(verified, Ownership { verified_at: Some(now), missing_since: None });
        assert_eq!(verified.after(Finding::Unknown, now + 10 * GRACE_SECONDS), verified);
        let missing = verified.after(Finding::Missing, now + 10);
        assert_eq!(missing.missing_since, Some(now + 10));
        assert_eq!(missing.after(Finding::Missing, now + 9 + GRACE_SECONDS).verified_at, Some(now));
        assert_eq!(missing.after(Finding::Present, now + 20), verified, "it came back");
        assert_eq!(missing.after(Finding::Missing, now + 10 + GRACE_SECONDS), Ownership::default());
        assert!(verified.check_at(now) > missing.check_at(now));
        assert_eq!(Ownership::default().check_at(now), now + PENDING_CHECK_SECONDS);
        // A clock that is set back does not prolong the grace.
        assert_eq!(missing.after(Finding::Missing, now - 5).missing_since, Some(now - 5));
    }
}
