//! [`Establishment`]: the shared result of opening a stream.

use std::sync::{Arc, OnceLock};

use sallyport_wire::{FailureReason, OpenFailure};
use tokio::sync::Notify;

/// The answer to the opening of a stream; clones share the answer.
///
/// The answer is set when it is read: on a leg by the reader of the [`TunnelStream`](crate::TunnelStream), on the
/// control connection by the session's driver. Therefore wait for the answer only while something reads the stream.
#[derive(Clone, Debug, Default)]
pub struct Establishment {
    shared: Arc<EstablishmentState>,
}

#[derive(Debug, Default)]
struct EstablishmentState {
    outcome: OnceLock<Outcome>,
    answered: Notify,
}

#[derive(Debug)]
enum Outcome {
    Opened,
    Failed(OpenFailure),
    Lost(OpenFailure),
}

impl Establishment {
    /// The answer, if there is one yet.
    #[must_use]
    pub fn peek(&self) -> Option<Result<(), OpenFailure>> {
        self.shared.outcome.get().map(|outcome| match outcome {
            Outcome::Opened => Ok(()),
            Outcome::Failed(failure) | Outcome::Lost(failure) => Err(failure.clone()),
        })
    }

    /// Waits for the answer. Cancel safe.
    ///
    /// # Errors
    /// The connector did not reach the origin, or the tunnel was lost before the answer.
    pub async fn wait(&self) -> Result<(), OpenFailure> {
        loop {
            let mut answered = std::pin::pin!(self.shared.answered.notified());
            answered.as_mut().enable();
            if let Some(outcome) = self.peek() {
                return outcome;
            }
            answered.await;
        }
    }

    /// Whether the carrier ended before the connector answered. The origin may have received anything then: repeat the
    /// request elsewhere only if a repetition does no harm.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.shared.outcome.get(), Some(Outcome::Lost(_)))
    }

    /// Sets the answer "connected", for streams without a tunnel.
    pub fn succeed(&self) {
        self.set(Outcome::Opened);
    }

    /// Sets a failure, for streams without a tunnel.
    pub fn fail(&self, failure: OpenFailure) {
        self.set(Outcome::Failed(failure));
    }

    pub(crate) fn lose(&self, why: &str) {
        if self.shared.outcome.get().is_none() {
            let message = format!("the tunnel was lost before the origin answered: {why}");
            self.set(Outcome::Lost(OpenFailure { reason: FailureReason::Other, message }));
        }
    }

    /// Sets the answer unless there is one already.
    fn set(&self, outcome: Outcome) {
        if self.shared.outcome.set(outcome).is_ok() {
            self.shared.answered.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_answer_reaches_every_waiter_and_stands() {
        let establishment = Establishment::default();
        assert_eq!(establishment.peek(), None);
        let waiting = tokio::spawn({
            let establishment = establishment.clone();
            async move { establishment.wait().await }
        });
        tokio::task::yield_now().await;
        establishment.succeed();
        establishment.lose("too late");
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(establishment.wait().await, Ok(()));
        assert!(!establishment.is_lost());
    }

    #[test]
    fn a_lost_carrier_is_distinguished_from_a_refusing_origin() {
        let lost = Establishment::default();
        lost.lose("connection reset");
        assert!(lost.is_lost());
        assert!(lost.peek().unwrap().unwrap_err().message.contains("the tunnel was lost"));
        let failed = Establishment::default();
        failed.fail(OpenFailure { reason: FailureReason::Refused, message: "nothing listens".into() });
        assert!(!failed.is_lost());
    }
}
