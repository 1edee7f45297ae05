//! One signal that the process ends, for any number of tasks.

use std::sync::Arc;

use tokio::sync::watch;

/// A signal that is given once. Clones share it.
#[derive(Debug, Clone)]
pub struct Shutdown {
    sender: Arc<watch::Sender<bool>>,
}

impl Shutdown {
    /// A signal that is not given yet.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)) }
    }

    /// Returns the signal. Giving it again changes nothing.
    pub fn trigger(&self) {
        self.sender.send_replace(true);
    }

    /// Whether the signal was given.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until the signal is given; returns at once when it was. Safe to drop and call again.
    pub async fn wait(&self) {
        let mut receiver = self.sender.subscribe();
        // `self` has the sender, so the channel cannot close while this waits.
        let _ = receiver.wait_for(|given| *given).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
