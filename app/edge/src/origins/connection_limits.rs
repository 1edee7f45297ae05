//! Bounds the connections of one client that an origin has not accepted yet.
//!
//! Each pending connection costs its connector a file and processor time, in the order of arrival. With this bound, a
//! client with thousands of connections does not delay other clients.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use sallyport_tunnel::Establishment;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::lifecycle::counts::party;

/// How many pending connections of one client an origin has at most.
pub(crate) const MAX_OPENINGS_PER_CLIENT: usize = 128;

/// The pending connections of one origin, by client.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    /// The permits of clients with pending connections.
    by_party: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// The place of one pending connection, released when dropped.
#[derive(Debug)]
pub(crate) struct OpeningPlace {
    openings: Arc<Openings>,
    party: IpAddr,
    of_party: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Openings {
    /// Waits for a place.
    pub(crate) async fn enter(self: &Arc<Self>, address: IpAddr) -> OpeningPlace {
        let party = party(address);
        let of_party = {
            let mut by_party = self.by_party.lock();
            by_party.entry(party).or_insert_with(|| Arc::new(Semaphore::new(MAX_OPENINGS_PER_CLIENT))).clone()
        };
        // Made before the wait, so that a caller that gives up leaves no entry behind.
        let mut place = OpeningPlace { openings: self.clone(), party, of_party: of_party.clone(), permit: None };
        // The semaphore is never closed.
        place.permit = of_party.acquire_owned().await.ok();
        place
    }
}

impl Drop for OpeningPlace {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut by_party = self.openings.by_party.lock();
        // One reference is in the map, the other is here.
        if Arc::strong_count(&self.of_party) == 2 {
            by_party.remove(&self.party);
        }
    }
}

/// A place that is released when the origin accepts or refuses the connection.
pub(crate) struct OpeningGuard {
    /// Released by the drop.
    _place: OpeningPlace,
    establishment: Establishment,
    /// Resolves with the outcome, for callers that do not read the stream meanwhile.
    outcome: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl OpeningGuard {
    pub(crate) fn new(place: OpeningPlace, establishment: Establishment) -> Self {
        let outcome = establishment.clone();
        Self { _place: place, establishment, outcome: Box::pin(async move { drop(outcome.wait().await) }) }
    }

    /// Ready when the outcome is known. To be polled after whatever reads the stream.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.establishment.peek().is_some() { Poll::Ready(()) } else { self.outcome.as_mut().poll(cx) }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin};

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test]
    async fn a_client_with_too_many_openings_waits_and_others_do_not() {
        let openings = Arc::<Openings>::default();
        let mut places = Vec::new();
        for _ in 0..MAX_OPENINGS_PER_CLIENT {
            places.push(openings.enter(address(1)).await);
        }
        let mut next = pin!(openings.enter(address(1)));
        assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
        let other = openings.enter(address(2)).await;
        let establishment = Establishment::default();
        let mut taken = OpeningGuard::new(places.pop().unwrap(), establishment.clone());
        assert!(poll_fn(|cx| Poll::Ready(taken.poll(cx).is_pending())).await);
        establishment.succeed();
        poll_fn(|cx| taken.poll(cx)).await;
        drop(taken);
        let next = next.await;
        drop((next, other, places));
        assert!(openings.by_party.lock().is_empty(), "an address without openings has no entry");
        // Callers that gave up waiting leave no entry either.
        let all: Vec<_> = futures(&openings).await;
        {
            let mut late = pin!(openings.enter(address(1)));
            assert!(poll_fn(|cx| Poll::Ready(late.as_mut().poll(cx).is_pending())).await);
        }
        drop(all);
        assert!(openings.by_party.lock().is_empty());
    }

    async fn futures(openings: &Arc<Openings>) -> Vec<OpeningPlace> {
        let mut places = Vec::new();
        for _ in 0..MAX_OPENINGS_PER_CLIENT {
            places.push(openings.enter(address(1)).await);
        }
        places
    }
}
