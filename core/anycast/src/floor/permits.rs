//! The document of a prefix.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use ipnet::IpNet;
use sallyport_model::{EdgeName, RegionName};
use serde::{Deserialize, Serialize};

/// The form of the document.
const FORM: u16 = 1;
/// The most edges that announce a prefix.
pub const MAX_ANNOUNCERS: usize = 1024;
/// The longest document, in bytes.
pub const MAX_PERMITS_BYTES: usize = 256 << 10;

/// The edges that announce a prefix and have no permit to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permits {
    form: u16,
    prefix: IpNet,
    #[serde(default)]
    announcers: BTreeMap<EdgeName, Announcer>,
}

/// An edge that announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcer {
    /// Its region, which is its site. An edge without one is a site of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// How many requests a second it can carry. 0: nobody knows.
    #[serde(default)]
    pub capacity: u64,
}

/// Why an edge wants to stop announcing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The edge itself is broken. This is never refused.
    Local,
    /// An order, or a cause that may be that of all edges.
    ByPermit,
}

/// What has to be left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The fewest sites.
    pub min_sites: u16,
    /// How many requests a second there are.
    pub requests: u64,
}

/// The answer to a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The edge may stop once this document is written.
    Granted(Permits),
    /// The edge goes on, for this reason.
    Refused(String),
}

/// A document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermitsError {
    /// No JSON of this form.
    #[error("the permits of a prefix cannot be read: {0}")]
    Json(String),
    /// A newer form.
    #[error("the permits of a prefix have the form {0}, and this program knows the form {FORM}: update it")]
    Form(u16),
    /// Another prefix.
    #[error("the permits are of {0}, not of {1}")]
    OtherPrefix(IpNet, IpNet),
    /// Too long.
    #[error("the permits of a prefix have more than {MAX_PERMITS_BYTES} bytes or {MAX_ANNOUNCERS} edges")]
    TooLong,
}

/// The name of a prefix's document on the bus: its numbers, which every bus takes.
#[must_use]
pub fn key(prefix: IpNet) -> String {
    match prefix {
        IpNet::V4(net) => format!("v4-{:08x}-{}", net.network().to_bits(), net.prefix_len()),
        IpNet::V6(net) => format!("v6-{:032x}-{}", net.network().to_bits(), net.prefix_len()),
    }
}

/// What of the announcers is left.
struct Left {
    sites: usize,
    capacity: Option<u64>,
}

impl Permits {
    /// The document of a prefix that nobody announces.
    #[must_use]
    pub fn new(prefix: IpNet) -> Self {
        Self { form: FORM, prefix, announcers: BTreeMap::new() }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// It is none of this prefix.
    pub fn from_bytes(prefix: IpNet, bytes: &[u8]) -> Result<Self, PermitsError> {
        if bytes.len() > MAX_PERMITS_BYTES {
            return Err(PermitsError::TooLong);
        }
        #[derive(Deserialize)]
        struct Form {
            form: u16,
        }
        let json = |error: serde_json::Error| PermitsError::Json(error.to_string().chars().take(200).collect());
        let form: Form = serde_json::from_slice(bytes).map_err(json)?;
        if form.form != FORM {
            return Err(PermitsError::Form(form.form));
        }
        let permits: Self = serde_json::from_slice(bytes).map_err(json)?;
        if permits.prefix != prefix {
            return Err(PermitsError::OtherPrefix(permits.prefix, prefix));
        }
        if permits.announcers.len() > MAX_ANNOUNCERS {
            return Err(PermitsError::TooLong);
        }
        Ok(permits)
    }

    /// Writes the document.
    ///
    /// # Errors
    /// It is too long.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PermitsError> {
        let bytes = serde_json::to_vec(self).map_err(|error| PermitsError::Json(error.to_string()))?;
        if bytes.len() > MAX_PERMITS_BYTES { Err(PermitsError::TooLong) } else { Ok(bytes) }
    }

    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> IpNet {
        self.prefix
    }

    /// The edges that announce it.
    #[must_use]
    pub fn announcers(&self) -> &BTreeMap<EdgeName, Announcer> {
        &self.announcers
    }

    /// An edge announces: its neighbours have the route. Edges that are gone make place if there are too many.
    ///
    /// # Errors
    /// There are too many edges.
    pub fn announce(
        &self,
        edge: &EdgeName,
        as_one: Announcer,
        live: &BTreeSet<EdgeName>,
    ) -> Result<Self, PermitsError> {
        let mut next = self.clone();
        next.announcers.insert(edge.clone(), as_one);
        if next.announcers.len() > MAX_ANNOUNCERS {
            next.announcers.retain(|name, _| name == edge || live.contains(name));
        }
        if next.announcers.len() > MAX_ANNOUNCERS { Err(PermitsError::TooLong) } else { Ok(next) }
    }

    /// An edge wants to stop. Only edges that are live count for what is left. An edge that is not named was granted
    /// it before, and its answer was lost.
    #[must_use]
    pub fn withdraw(&self, edge: &EdgeName, why: Withdrawal, live: &BTreeSet<EdgeName>, demand: Demand) -> Verdict {
        let mut next = self.clone();
        if next.announcers.remove(edge).is_none() || why == Withdrawal::Local {
            return Verdict::Granted(next);
        }
        let left = next.left(live);
        if left.sites < usize::from(demand.min_sites) {
            let sentence = format!(
                "{} would be announced by {} of at least {}",
                self.prefix,
                Sites(left.sites),
                Sites(usize::from(demand.min_sites)),
            );
            return Verdict::Refused(sentence);
        }
        match left.capacity {
            Some(capacity) if capacity < demand.requests => Verdict::Refused(format!(
                "the edges left for {} carry {capacity} requests a second, and there are {}",
                self.prefix, demand.requests,
            )),
            _ => Verdict::Granted(next),
        }
    }

    fn left(&self, live: &BTreeSet<EdgeName>) -> Left {
        let counted = || self.announcers.iter().filter(|(name, _)| live.contains(*name));
        // Regions and edges may have the same names.
        let sites: BTreeSet<(bool, &str)> = counted()
            .map(|(name, one)| one.region.as_ref().map_or((false, name.as_str()), |region| (true, region.as_str())))
            .collect();
        let is_known = counted().all(|(_, one)| one.capacity > 0);
        let sum = counted().fold(0u64, |sum, (_, one)| sum.saturating_add(one.capacity));
        Left { sites: sites.len(), capacity: is_known.then_some(sum) }
    }
}

struct Sites(usize);

impl fmt::Display for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} site{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
#[path = "permits_tests.rs"]
mod tests;
