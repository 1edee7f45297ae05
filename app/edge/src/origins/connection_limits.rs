//! How many connections of one client an origin is asked for at once.
//!
//! Each takes its connector the processor, a file, and some of the service's patience, in the order in which they were asked
//! for. A client that asks for thousands has them, a number at a time; whoever comes meanwhile does not wait for the rest.

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

/// How many connections of one client an origin has been asked for and has not taken, at most.
pub(crate) const MAX_OPENINGS_PER_CLIENT: usize = 128;

/// The connections that one origin is asked for, by client.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    /// Those that ask.
    by_party: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// One connection that the origin is asked for; given back when dropped.
#[derive(Debug)]
pub(crate) struct OpeningPlace {
    openings: Arc<Openings>,
    party: IpAddr,
    of_party: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Openings {
    /// A place for one more connection, once the client has not got too many.
    pub(crate) async fn enter(self: &Arc<Self>, address: IpAddr) -> OpeningPlace {
        let party = party(address);
        let of_party = {
            let mut by_party = self.by_party.lock();
            by_party.entry(party).or_insert_with(|| Arc::new(Semaphore::new(MAX_OPENINGS_PER_CLIENT))).clone()
        };
        // Also whoever gives up waiting leaves nothing behind.
        let mut place = OpeningPlace { openings: self.clone(), party, of_party: of_party.clone(), permit: None };
        // It is never closed.
        place.permit = of_party.acquire_owned().await.ok();
        place
    }
}

impl Drop for OpeningPlace {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut by_party = self.openings.by_party.lock();
        // One is in the map and one is ours.
        if Arc::strong_count(&self.of_party) == 2 {
            by_party.remove(&self.party);
        }
    }
}

/// A place that is kept until the origin has said whether it takes the connection.
pub(crate) struct UntilTaken {
    /// Gone when it is not needed any more.
    _place: OpeningPlace,
    establishment: Establishment,
    /// Told where nobody reads the stream meanwhile.
    told: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl UntilTaken {
    pub(crate) fn new(place: OpeningPlace, establishment: Establishment) -> Self {
        let told = establishment.clone();
        Self { _place: place, establishment, told: Box::pin(async move { drop(told.wait().await) }) }
    }

    /// Ready when the origin has said it. To be polled behind whatever reads the stream.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.establishment.peek().is_some() { Poll::Ready(()) } else { self.told.as_mut().poll(cx) }
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
    async fn who_asks_for_too_many_waits_and_others_do_not() {
        let openings = Arc::<Openings>::default();
        let mut places = Vec::new();
        for _ in 0..MAX_OPENINGS_PER_CLIENT {
            places.push(openings.enter(address(1)).await);
        }
        let mut next = pin!(openings.enter(address(1)));
        assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
        let other = openings.enter(address(2)).await;
        let establishment = Establishment::default();
        let mut taken = UntilTaken::new(places.pop().unwrap(), establishment.clone());
        assert!(poll_fn(|cx| Poll::Ready(taken.poll(cx).is_pending())).await);
        establishment.succeed();
        poll_fn(|cx| taken.poll(cx)).await;
        drop(taken);
        let next = next.await;
        drop((next, other, places));
        assert!(openings.by_party.lock().is_empty(), "nothing is kept of who has none");
        // Nor of who gave up waiting.
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
