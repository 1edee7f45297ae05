//! Asks control about tunnels that this edge does not know, before it refuses them for good.
//!
//! Changes through the API reach edges one after the other. An edge that does not know a tunnel cannot tell whether the
//! tunnel was deleted or is new; control can. Until control has answered, the connector gets the refusal "not yet".

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{CredentialHash, TunnelId};
use tokio::sync::Semaphore;

/// For how many tunnels the edge queries control at once. Further connectors get "not yet".
const MAX_ASKED_AT_ONCE: usize = 16;
/// How many answers are kept.
const MAX_ANSWERS: usize = 4_096;
/// How long an answer is kept.
const ANSWER_AGE: Duration = Duration::from_secs(10);
/// After how long the edge queries control again if control did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Control's answer about a tunnel and a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelStatus {
    /// The tunnel exists, with this credential.
    Exists,
    /// The tunnel does not exist.
    Unknown,
    /// The tunnel has another credential.
    BadCredential,
    /// Control does not answer.
    Away,
}

impl TunnelStatus {
    /// The label in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exists => "known",
            Self::Unknown => "unknown",
            Self::BadCredential => "bad-credential",
            Self::Away => "control-away",
        }
    }
}

/// Asks control about a tunnel and the hash of a credential.
pub type AskTunnel =
    Arc<dyn Fn(TunnelId, CredentialHash) -> Pin<Box<dyn Future<Output = TunnelStatus> + Send>> + Send + Sync>;

type Key = (TunnelId, CredentialHash);

/// The pending questions and the latest answers.
pub(crate) struct TunnelLookup {
    ask: AskTunnel,
    answers: Mutex<HashMap<Key, Option<(TunnelStatus, Instant)>>>,
    places: Arc<Semaphore>,
    count: Box<dyn Fn(TunnelStatus) + Send + Sync>,
}

impl TunnelLookup {
    /// Asks through `ask`, and passes each answer to `count`.
    pub(crate) fn new(ask: AskTunnel, count: impl Fn(TunnelStatus) + Send + Sync + 'static) -> Arc<Self> {
        let (answers, places) = (Mutex::default(), Arc::new(Semaphore::new(MAX_ASKED_AT_ONCE)));
        Arc::new(Self { ask, answers, places, count: Box::new(count) })
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<Key, Option<(TunnelStatus, Instant)>>> {
        self.answers.lock()
    }

    /// Control's latest answer. `None` if there is none yet; the query is under way then.
    pub(crate) fn status(self: &Arc<Self>, tunnel: TunnelId, credential: CredentialHash) -> Option<TunnelStatus> {
        let key = (tunnel, credential);
        let mut answers = self.answers();
        match answers.get(&key) {
            // The query is under way.
            Some(None) => return None,
            Some(Some((status, at))) if at.elapsed() < age_of(*status) => return Some(*status),
            _ => {}
        }
        if answers.len() >= MAX_ANSWERS {
            answers.retain(|_, answer| answer.is_none_or(|(status, at)| at.elapsed() < age_of(status)));
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return None };
        if answers.len() >= MAX_ANSWERS {
            return None;
        }
        answers.insert(key, None);
        drop(answers);
        let lookup = self.clone();
        tokio::spawn(async move {
            let status = (lookup.ask)(tunnel, credential).await;
            (lookup.count)(status);
            lookup.answers().insert(key, Some((status, Instant::now())));
            drop(place);
        });
        None
    }
}

fn age_of(status: TunnelStatus) -> Duration {
    if status == TunnelStatus::Away { ASK_AGAIN } else { ANSWER_AGE }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn key(number: u32) -> Key {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        (TunnelId::from_random(id), CredentialHash([1; 32]))
    }

    #[tokio::test]
    async fn control_gets_one_query_and_its_answer_is_cached() {
        let asked = Arc::new(AtomicUsize::new(0));
        let lookup = TunnelLookup::new(
            Arc::new({
                let asked = asked.clone();
                move |_, _| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Box::pin(async { TunnelStatus::Unknown })
                }
            }),
            |_| (),
        );
        let (tunnel, credential) = key(1);
        assert_eq!(lookup.status(tunnel, credential), None);
        assert_eq!(lookup.status(tunnel, credential), None, "the answer is not there yet");
        while lookup.status(tunnel, credential).is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lookup.status(tunnel, credential), Some(TunnelStatus::Unknown));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_flood_of_unknown_tunnels_has_bounded_queries_and_memory() {
        let asked = Arc::new(AtomicUsize::new(0));
        let lookup = TunnelLookup::new(
            Arc::new({
                let asked = asked.clone();
                move |_, _| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Box::pin(std::future::pending())
                }
            }),
            |_| (),
        );
        for number in 0..10_000 {
            let (tunnel, credential) = key(number);
            assert_eq!(lookup.status(tunnel, credential), None);
        }
        tokio::task::yield_now().await;
        assert_eq!((asked.load(Ordering::Relaxed), lookup.answers().len()), (MAX_ASKED_AT_ONCE, MAX_ASKED_AT_ONCE));
    }
}
