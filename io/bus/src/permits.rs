//! Permits for withdrawing a prefix: documents that edges change by compare-and-set.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use ipnet::IpNet;
use parking_lot::Mutex;
use sallyport_anycast::floor::{Announcer, Demand, Permits, Verdict, Withdrawal};
use sallyport_model::EdgeName;

use crate::nats::{Nats, permits::PermitDocument};

/// Attempts to change a document that others change at the same time.
const MAX_TRIES: usize = 8;

/// Why a document was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermitFailure {
    /// The edge goes on announcing, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The document cannot be read or written.
    #[error("{0}")]
    Away(String),
}

/// The documents: in memory on one machine, or on the bus. Clones share them.
#[derive(Debug, Clone)]
pub struct AnycastPermits(Source);

#[derive(Debug, Clone)]
enum Source {
    Here(Arc<Mutex<HashMap<IpNet, Permits>>>),
    Bus(Box<Nats>),
}

impl AnycastPermits {
    /// Documents of one machine.
    #[must_use]
    pub fn here() -> Self {
        Self(Source::Here(Arc::default()))
    }

    /// Documents on the bus, which all edges share.
    #[must_use]
    pub fn over(nats: Nats) -> Self {
        Self(Source::Bus(Box::new(nats)))
    }

    /// Records that an edge announces a prefix. Edges that are gone make place if there are too many.
    ///
    /// # Errors
    /// [`PermitFailure::Away`]
    pub async fn announce(
        &self,
        prefix: IpNet,
        edge: &EdgeName,
        as_one: &Announcer,
        live: &BTreeSet<EdgeName>,
    ) -> Result<(), PermitFailure> {
        let change = |permits: &Permits| {
            if permits.announcers().get(edge) == Some(as_one) {
                return Ok(None);
            }
            let next = permits.announce(edge, as_one.clone(), live);
            next.map(Some).map_err(|error| PermitFailure::Away(error.to_string()))
        };
        self.change(prefix, change).await
    }

    /// Takes an edge out of those that announce a prefix, if enough are left. When this returns without an error, the
    /// edge may withdraw.
    ///
    /// # Errors
    /// [`PermitFailure`]
    pub async fn withdraw(
        &self,
        prefix: IpNet,
        edge: &EdgeName,
        why: Withdrawal,
        live: &BTreeSet<EdgeName>,
        demand: Demand,
    ) -> Result<(), PermitFailure> {
        let change = |permits: &Permits| match permits.withdraw(edge, why, live, demand) {
            Verdict::Granted(next) => Ok((next != *permits).then_some(next)),
            Verdict::Refused(sentence) => Err(PermitFailure::Refused(sentence)),
        };
        self.change(prefix, change).await
    }

    /// Changes a document: in place of the one that was read, or not at all.
    async fn change(
        &self,
        prefix: IpNet,
        change: impl Fn(&Permits) -> Result<Option<Permits>, PermitFailure>,
    ) -> Result<(), PermitFailure> {
        match &self.0 {
            Source::Here(known) => {
                let mut known = known.lock();
                let permits = known.entry(prefix).or_insert_with(|| Permits::new(prefix));
                if let Some(next) = change(permits)? {
                    *permits = next;
                }
                Ok(())
            }
            Source::Bus(nats) => {
                for _ in 0..MAX_TRIES {
                    let document = PermitDocument::read(nats, prefix).await.map_err(PermitFailure::Away)?;
                    let Some(next) = change(document.permits())? else { return Ok(()) };
                    if document.replace(&next).await.map_err(PermitFailure::Away)? {
                        return Ok(());
                    }
                }
                Err(PermitFailure::Away("other edges keep changing the permits of the prefix".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_site_is_refused_and_a_broken_edge_is_not() {
        let permits = AnycastPermits::here();
        let prefix: IpNet = "198.51.100.0/24".parse().unwrap();
        let (one, two): (EdgeName, EdgeName) = ("eu-1".parse().unwrap(), "us-1".parse().unwrap());
        let live: BTreeSet<EdgeName> = [one.clone(), two.clone()].into();
        let as_one = |region: &str| Announcer { region: Some(region.parse().unwrap()), capacity: 0 };
        permits.announce(prefix, &one, &as_one("eu"), &live).await.unwrap();
        permits.announce(prefix, &two, &as_one("us"), &live).await.unwrap();
        let demand = Demand { min_sites: 1, requests: 0 };
        permits.withdraw(prefix, &one, Withdrawal::ByPermit, &live, demand).await.unwrap();
        let refused = permits.withdraw(prefix, &two, Withdrawal::ByPermit, &live, demand).await.unwrap_err();
        assert!(matches!(&refused, PermitFailure::Refused(why) if why.contains("at least 1 site")), "{refused}");
        // Its answer was lost, and it asks again.
        permits.withdraw(prefix, &one, Withdrawal::ByPermit, &live, demand).await.unwrap();
        permits.withdraw(prefix, &two, Withdrawal::Local, &live, demand).await.unwrap();
    }
}
