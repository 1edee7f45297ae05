//! Attempts that controls count together, so that an attacker gains nothing from several controls.
//!
//! Each control counts attempts and sends them to the others, which count them too. A lost message allows one more
//! attempt. While the bus is away, each control counts alone.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use sallyport_model::{AccountId, PersonId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// How many messages may wait; further ones are lost.
const MAX_WAITING: usize = 1_024;

/// An attempt that a control counted, as controls send it to each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CountedAttempt {
    /// An attempt to log in to an account.
    Login { email: String, client: IpAddr },
    /// The login was right.
    LoginRight { email: String, client: IpAddr },
    /// An attempt to log in as a person.
    PersonLogin { client: IpAddr },
    /// The login was right.
    PersonLoginRight { client: IpAddr },
    /// An attempt to log in as this person.
    Attempt { organisation: AccountId, address: String, client: IpAddr },
    /// The password was right, and a code has to follow.
    AttemptGoesOn { organisation: AccountId, address: String, client: IpAddr },
    /// The login was right.
    AttemptRight { organisation: AccountId, address: String, client: IpAddr },
    /// The person has proved from this client to own the address.
    Proved { organisation: AccountId, address: String, client: IpAddr },
    /// All waits of this person end.
    Unlocked { organisation: AccountId, address: String },
    /// An account was made.
    Account { client: IpAddr },
    /// A message went to this person.
    Message { person: PersonId },
    /// A message about an account went to this address.
    AccountMessage { address: String },
    /// A code of an invitation was tried.
    Code { account: AccountId },
    /// A code of a device login was tried.
    Guess { client: IpAddr },
    /// The code was right.
    GuessRight { client: IpAddr },
}

/// Sends counted attempts to the other controls, once [`AttemptGossip::begin`] was called.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttemptGossip(Arc<OnceLock<mpsc::Sender<Vec<u8>>>>);

impl AttemptGossip {
    /// Starts sending. Returns the receiver of messages; `None` when sending has started before.
    pub(crate) fn begin(&self) -> Option<mpsc::Receiver<Vec<u8>>> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        self.0.set(sender).ok().map(|()| receiver)
    }

    /// Sends a counted attempt.
    pub(crate) fn send(&self, counted: impl FnOnce() -> CountedAttempt) {
        if let Some(sender) = self.0.get()
            && let Ok(word) = serde_json::to_vec(&counted())
        {
            // A lost message allows one more attempt.
            let _ = sender.try_send(word);
        }
    }
}
