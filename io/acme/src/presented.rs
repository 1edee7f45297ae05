//! The answers that are visible, taken away when the order ends in whatever way.

use std::{sync::Arc, time::Duration};

use crate::{AcmeError, Challenge, Solver, error::harmless};

/// Time limit for taking one answer away.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers that are, or may be, visible.
pub(crate) struct Presented {
    solver: Arc<dyn Solver>,
    challenges: Vec<Challenge>,
}

impl Presented {
    pub(crate) fn new(solver: Arc<dyn Solver>) -> Self {
        Self { solver, challenges: Vec::new() }
    }

    pub(crate) async fn present(&mut self, challenge: Challenge) -> Result<(), AcmeError> {
        // First, because it may be visible even if the solver fails or is interrupted.
        self.challenges.push(challenge.clone());
        self.solver.present(&challenge).await.map_err(|reason| AcmeError::Solver(harmless(&reason)))
    }

    pub(crate) async fn remove_all(&mut self) {
        while let Some(challenge) = self.challenges.last() {
            if tokio::time::timeout(REMOVE_TIMEOUT, self.solver.remove(challenge)).await.is_err() {
                tracing::warn!(name = challenge.name, "the answer of a challenge could not be taken away in time");
            }
            self.challenges.pop();
        }
    }
}

impl Drop for Presented {
    /// The order was interrupted: a task of its own takes the answers away.
    fn drop(&mut self) {
        if self.challenges.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut left = Self { solver: self.solver.clone(), challenges: std::mem::take(&mut self.challenges) };
        runtime.spawn(async move { left.remove_all().await });
    }
}
