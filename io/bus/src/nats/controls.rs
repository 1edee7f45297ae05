//! Messages between controls over core NATS: fast, and lost for a control that is offline.

use std::{future::poll_fn, pin::Pin};

use async_nats::{Message, Subscriber};
use futures_core::Stream as _;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{Nats, OPEN_AGAIN};

/// Subject of messages between controls.
const SUBJECT: &str = "sallyport.controls";
/// The longest message in bytes.
const MAX_MESSAGE_BYTES: usize = 4_096;

async fn next(messages: &mut Subscriber) -> Option<Message> {
    poll_fn(|context| Pin::new(&mut *messages).poll_next(context)).await
}

/// Sends the messages from `outbox` to all other controls, and calls `receive` with theirs, until dropped. `own`
/// identifies this control's own messages.
pub async fn exchange_control_messages(
    nats: Nats,
    own: [u8; 16],
    mut outbox: mpsc::Receiver<Vec<u8>>,
    receive: impl Fn(&[u8]),
) {
    let client = nats.jetstream.client();
    loop {
        let mut messages = match client.subscribe(SUBJECT).await {
            Ok(messages) => messages,
            Err(error) => {
                warn!(%error, "cannot subscribe to the other controls: trying again");
                tokio::time::sleep(OPEN_AGAIN).await;
                continue;
            }
        };
        loop {
            tokio::select! {
                body = outbox.recv() => {
                    let Some(body) = body else { return };
                    // A message must not be delivered late, when the bus is available again.
                    if nats.link().is_up && body.len() <= MAX_MESSAGE_BYTES {
                        let message = [&own[..], &body].concat();
                        if let Err(error) = client.publish(SUBJECT, message.into()).await {
                            debug!(%error, "a message to the other controls could not be sent");
                        }
                    }
                }
                message = next(&mut messages) => {
                    let Some(message) = message else { break };
                    // An edge can have the bus deliver entries of the directory here; they keep their own subject.
                    if message.subject.as_str() != SUBJECT {
                        continue;
                    }
                    match message.payload.split_at_checked(own.len()) {
                        Some((by, body)) if by != own.as_slice() && body.len() <= MAX_MESSAGE_BYTES => receive(body),
                        _ => {}
                    }
                }
            }
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}
