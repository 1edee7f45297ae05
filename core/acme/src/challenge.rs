//! The kinds of challenges, and the order in which they are tried.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A way to prove to a CA that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChallengeKind {
    /// The CA opens a TLS connection with the protocol `acme-tls/1` to port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// The CA asks port 80 for a file (RFC 8555, section 8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// The CA looks up a TXT record (RFC 8555, section 8.4).
    #[serde(rename = "dns-01")]
    Dns01,
}

/// The order in which kinds are tried: the cheapest first. The first two need one connection to an edge.
const PREFERENCE: [ChallengeKind; 3] = [ChallengeKind::TlsAlpn01, ChallengeKind::Http01, ChallengeKind::Dns01];

impl ChallengeKind {
    /// The name in the protocol, as in the registry of RFC 8555, section 9.7.8.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
        }
    }
}

impl fmt::Display for ChallengeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kinds to try for these names, best first. A kind that failed moves to the end, the latest failure last.
///
/// `available` holds the kinds that the installation can answer, and `failed` the kinds that failed, oldest first. The
/// result is empty if none can prove the names: a wildcard without DNS-01.
#[must_use]
pub fn challenge_kinds(names: &[String], available: &[ChallengeKind], failed: &[ChallengeKind]) -> Vec<ChallengeKind> {
    let all_wildcards = !names.is_empty() && names.iter().all(|name| name.starts_with("*."));
    // CAs offer nothing but DNS-01 for a wildcard.
    let is_usable = |kind: ChallengeKind| available.contains(&kind) && (!all_wildcards || kind == ChallengeKind::Dns01);
    let mut kinds: Vec<_> = PREFERENCE.into_iter().filter(|kind| is_usable(*kind)).collect();
    let has_wildcard = names.iter().any(|name| name.starts_with("*."));
    if has_wildcard && !kinds.contains(&ChallengeKind::Dns01) {
        return Vec::new();
    }
    kinds.sort_by_key(|kind| failed.iter().rposition(|failed| failed == kind).map_or(0, |place| place + 1));
    kinds
}

#[cfg(test)]
mod tests {
    use super::{
        ChallengeKind::{Dns01, Http01, TlsAlpn01},
        *,
    };

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_cheapest_kind_that_is_available_comes_first() {
        let plain = names(&["a.test"]);
        assert_eq!(challenge_kinds(&plain, &[Dns01, Http01, TlsAlpn01], &[]), [TlsAlpn01, Http01, Dns01]);
        assert_eq!(challenge_kinds(&plain, &[Dns01, Http01], &[]), [Http01, Dns01]);
        assert_eq!(challenge_kinds(&plain, &[], &[]), []);
    }

    #[test]
    fn a_wildcard_needs_dns() {
        assert_eq!(challenge_kinds(&names(&["*.a.test"]), &[Dns01, Http01, TlsAlpn01], &[]), [Dns01]);
        assert_eq!(challenge_kinds(&names(&["*.a.test"]), &[Http01, TlsAlpn01], &[]), []);
        assert_eq!(challenge_kinds(&names(&["a.test", "*.a.test"]), &[Http01], &[]), []);
        assert_eq!(challenge_kinds(&names(&["a.test", "*.a.test"]), &[Http01, Dns01], &[]), [Http01, Dns01]);
    }

    #[test]
    fn kinds_that_failed_take_turns() {
        let plain = names(&["a.test"]);
        let all = [TlsAlpn01, Http01, Dns01];
        assert_eq!(challenge_kinds(&plain, &all, &[TlsAlpn01]), [Http01, Dns01, TlsAlpn01]);
        assert_eq!(challenge_kinds(&plain, &all, &[TlsAlpn01, Http01]), [Dns01, TlsAlpn01, Http01]);
        assert_eq!(challenge_kinds(&plain, &all, &[TlsAlpn01, Http01, Dns01]), [TlsAlpn01, Http01, Dns01]);
        assert_eq!(challenge_kinds(&plain, &all, &[Http01, Dns01, TlsAlpn01]), [Http01, Dns01, TlsAlpn01]);
    }
}
