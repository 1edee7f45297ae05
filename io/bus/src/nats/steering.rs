//! Loads and quotas over core NATS. The bus does not store them: a later message replaces a lost one.
//!
//! All edges may share one user of the bus. So each message has a code by a key that its edge and the controls alone
//! have (HMAC-SHA-256, RFC 2104). Another edge can neither report for it nor assign quotas to it.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use async_nats::{Message, Subscriber};
use aws_lc_rs::hmac;
use futures_core::Stream as _;
use sallyport_model::EdgeId;
use sallyport_steer::report::{LoadReport, MAX_MESSAGE_BYTES, QuotaAssignment};
use tokio::sync::{broadcast, watch};
use tracing::{debug, warn};

use super::{Nats, OPEN_AGAIN};
use crate::Steering;

/// The length of a code, in bytes.
const CODE_BYTES: usize = 32;
/// The largest message with its code, in bytes.
const MAX_SEALED_BYTES: usize = MAX_MESSAGE_BYTES + CODE_BYTES;
/// Prefixes of subjects; the edge's id follows.
const LOADS: &str = "sallyport.load.";
const QUOTAS: &str = "sallyport.quota.";

/// The key of one edge for messages about steering.
#[derive(Clone)]
pub struct SteeringKey(Arc<hmac::Key>);

impl std::fmt::Debug for SteeringKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SteeringKey(..)")
    }
}

impl SteeringKey {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Derives the bytes of an edge's key from a secret of the installation.
    #[must_use]
    pub fn derive(secret: &[u8; 32], edge: EdgeId) -> [u8; 32] {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), edge.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(derived.as_ref());
        bytes
    }

    /// The code, and the message. The code covers the subject, so that no message counts as one of the other kind.
    fn seal(&self, subject: &str, body: &[u8]) -> Vec<u8> {
        let code = hmac::sign(&self.0, &covered(subject, body));
        [code.as_ref(), body].concat()
    }

    /// The message, if its code is right.
    fn open<'a>(&self, subject: &str, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (code, body) = sealed.split_at_checked(CODE_BYTES)?;
        hmac::verify(&self.0, &covered(subject, body), code).ok()?;
        Some(body)
    }
}

fn covered(subject: &str, body: &[u8]) -> Vec<u8> {
    [subject.as_bytes(), &[0], body].concat()
}

async fn next(messages: &mut Subscriber) -> Option<Message> {
    poll_fn(|context| Pin::new(&mut *messages).poll_next(context)).await
}

/// The next of the bus's own messages; `None` if it can be given up.
async fn received<T: Clone>(messages: &mut broadcast::Receiver<T>) -> Option<T> {
    loop {
        match messages.recv().await {
            Ok(message) => return Some(message),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}

impl Nats {
    /// Sends a message that must not be delivered late, when the bus is available again.
    async fn send_now(&self, subject: String, body: Vec<u8>) {
        if self.link().is_up
            && let Err(error) = self.jetstream.client().publish(subject, body.into()).await
        {
            debug!(%error, "a message about steering could not be sent");
        }
    }

    async fn subscribed(&self, subject: &str) -> Subscriber {
        loop {
            match self.jetstream.client().subscribe(subject.to_owned()).await {
                Ok(messages) => return messages,
                Err(error) => {
                    warn!(%error, subject, "cannot subscribe to messages about steering: trying again");
                    tokio::time::sleep(OPEN_AGAIN).await;
                }
            }
        }
    }
}

/// Carries the reports of this edge to the controls, and its quotas back, until dropped. Without a key, nothing is
/// carried.
pub async fn carry_steering_of_edge(
    nats: Nats,
    edge: EdgeId,
    key: watch::Receiver<Option<SteeringKey>>,
    steering: Steering,
) {
    let (load, quota) = (format!("{LOADS}{edge}"), format!("{QUOTAS}{edge}"));
    let (mut reports, mut relayed) = (steering.subscribe_loads(), steering.subscribe_relayed());
    loop {
        let mut messages = nats.subscribed(&quota).await;
        loop {
            tokio::select! {
                report = received(&mut reports) => {
                    let Some(report) = report else { return };
                    let key = key.borrow().clone();
                    if let (Some(key), Ok(bytes)) = (key, report.to_bytes()) {
                        let sealed = key.seal(&load, &bytes);
                        steering.set_sealed(&sealed);
                        nats.send_now(load.clone(), sealed).await;
                    }
                }
                relayed = received(&mut relayed) => {
                    let Some((of, sealed)) = relayed else { return };
                    if sealed.len() <= MAX_SEALED_BYTES {
                        nats.send_now(format!("{LOADS}{of}"), sealed.to_vec()).await;
                    }
                }
                message = next(&mut messages) => {
                    let Some(message) = message else { break };
                    let key = key.borrow().clone();
                    // Entries of the directory may be delivered here; they keep their own subject.
                    let is_own = message.subject.as_str() == quota;
                    let body = key.as_ref().filter(|_| is_own).and_then(|key| key.open(&quota, &message.payload));
                    match body.map(QuotaAssignment::from_bytes) {
                        Some(Ok(assignment)) if assignment.edge == edge => {
                            steering.record_leader_heard();
                            steering.assign(assignment);
                        }
                        Some(Err(error)) => debug!(%error, "quotas are not understood"),
                        Some(Ok(_)) | None => debug!("quotas without a right code are dropped"),
                    }
                }
            }
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Carries the quotas of this control to the edges, and their reports back, until dropped. `secret` is that of the
/// installation, from which the keys of edges are derived; `refused` is called for each report without a right code.
pub async fn carry_steering_of_control(nats: Nats, secret: [u8; 32], steering: Steering, refused: impl Fn()) {
    let mut quotas = steering.subscribe_quotas();
    let key_of = |edge: EdgeId| SteeringKey::new(&SteeringKey::derive(&secret, edge));
    loop {
        let mut messages = nats.subscribed(&format!("{LOADS}*")).await;
        loop {
            tokio::select! {
                assignment = received(&mut quotas) => {
                    let Some(assignment) = assignment else { return };
                    let subject = format!("{QUOTAS}{}", assignment.edge);
                    if let Ok(bytes) = assignment.to_bytes() {
                        let sealed = key_of(assignment.edge).seal(&subject, &bytes);
                        nats.send_now(subject, sealed).await;
                    }
                }
                message = next(&mut messages) => {
                    let Some(message) = message else { break };
                    let subject = message.subject.as_str();
                    let Some(edge) = subject.strip_prefix(LOADS).and_then(|edge| edge.parse().ok()) else { continue };
                    let key = key_of(edge);
                    match key.open(subject, &message.payload).map(LoadReport::from_bytes) {
                        Some(Ok(report)) if report.edge == edge => steering.report(report),
                        Some(Err(error)) => {
                            refused();
                            debug!(%edge, %error, "a report of load is not understood");
                        }
                        Some(Ok(_)) | None => {
                            refused();
                            debug!(%edge, "a report of load without a right code is dropped");
                        }
                    }
                }
            }
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_for_its_edge_and_its_kind_alone() {
        let (one, other) = (EdgeId::from_random([1; 16]), EdgeId::from_random([2; 16]));
        let key = |edge| SteeringKey::new(&SteeringKey::derive(&[7; 32], edge));
        let sealed = key(one).seal("sallyport.load.1", b"body");
        assert_eq!(key(one).open("sallyport.load.1", &sealed), Some(&b"body"[..]));
        assert_eq!(key(other).open("sallyport.load.1", &sealed), None);
        assert_eq!(key(one).open("sallyport.quota.1", &sealed), None);
        for damaged in [&sealed[..sealed.len() - 1], &sealed[1..], &[], &[0; CODE_BYTES]] {
            assert_eq!(key(one).open("sallyport.load.1", damaged), None);
        }
        assert_ne!(SteeringKey::derive(&[7; 32], one), SteeringKey::derive(&[8; 32], one));
    }
}
