//! Questions over core NATS: a request to each edge, on a subject of its own.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Instant};

use async_nats::{Message, client::RequestErrorKind};
use futures_core::Stream as _;
use sallyport_directory::EdgeCard;
use sallyport_model::EdgeId;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::{Nats, OPEN_AGAIN};
use crate::asks::{
    ASK_TIME, Answer, Answered, Ask, AskResults, MAX_ANSWER_BYTES, MAX_ASK_BYTES, NoAnswerReason, Responder,
    UnansweredEdge, ask_bytes, read,
};

/// Room left in the largest message for the overhead of the bus, in bytes.
const MAX_OVERHEAD_BYTES: usize = 1_024;

fn subject(edge: EdgeId) -> String {
    format!("sallyport.ask.{edge}")
}

/// Answers the questions to this edge. Runs until dropped.
pub async fn answer_asks(nats: Nats, edge: EdgeId, responder: Arc<dyn Responder>) {
    let client = nats.jetstream.client();
    loop {
        // Waits while the bus is unavailable; after a reconnection the client subscribes again by itself.
        let mut asked = match client.subscribe(subject(edge)).await {
            Ok(asked) => asked,
            Err(error) => {
                warn!(%error, "cannot subscribe to questions of control: trying again");
                tokio::time::sleep(OPEN_AGAIN).await;
                continue;
            }
        };
        while let Some(message) = poll_fn(|context| Pin::new(&mut asked).poll_next(context)).await {
            let Message { payload, reply: Some(reply), subject: on, .. } = message else { continue };
            // Other clients' messages may be delivered here through an inbox; they keep their own subject.
            if on.as_str() != subject(edge) {
                continue;
            }
            let answer =
                read::<Ask>(&payload, MAX_ASK_BYTES).map_or(Answer::NotUnderstood, |ask| responder.answer(ask));
            let max_bytes = MAX_ANSWER_BYTES.min(client.max_payload().saturating_sub(MAX_OVERHEAD_BYTES));
            match answer.into_bytes(max_bytes) {
                Ok(bytes) => {
                    if let Err(error) = client.publish(reply, bytes.into()).await {
                        debug!(%error, "an answer to control could not be sent");
                    }
                }
                Err(error) => warn!(error, "an answer to control could not be sent"),
            }
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

impl Nats {
    /// Asks all of these at once. Waits at most [`ASK_TIME`] for each, and stops waiting once `is_it` accepts an
    /// answer.
    pub(crate) async fn gather(&self, asks: Vec<(Ask, Arc<EdgeCard>)>, is_it: impl Fn(&Answer) -> bool) -> AskResults {
        let mut gathered = AskResults::default();
        // A question must not be delivered late, when the bus is available again.
        if !self.link().is_up {
            let silent = |(_, edge)| UnansweredEdge { edge, why: NoAnswerReason::BusAway };
            gathered.silent = asks.into_iter().map(silent).collect();
            return gathered;
        }
        let mut asked = JoinSet::new();
        for (ask, edge) in asks {
            let nats = self.clone();
            asked.spawn(async move {
                let began = Instant::now();
                let answer = nats.ask(edge.edge, &ask).await;
                (edge, began.elapsed(), answer)
            });
        }
        while let Some(done) = asked.join_next().await {
            let Ok((edge, took, answer)) = done else { continue };
            match answer {
                Ok(answer) => {
                    let is_enough = is_it(&answer);
                    gathered.answered.push(Answered { edge: Some(edge), took, answer });
                    if is_enough {
                        return gathered;
                    }
                }
                Err(why) => gathered.silent.push(UnansweredEdge { edge, why }),
            }
        }
        gathered
    }

    async fn ask(&self, edge: EdgeId, ask: &Ask) -> Result<Answer, NoAnswerReason> {
        let bytes = ask_bytes(ask).map_err(|_| NoAnswerReason::OtherVersion)?;
        let request = async_nats::Request::new().payload(bytes.into()).timeout(None);
        let client = self.jetstream.client();
        let asked = tokio::time::timeout(ASK_TIME, client.send_request(subject(edge), request)).await;
        let asked = asked.map_err(|_| NoAnswerReason::TimedOut)?;
        let message = asked.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => NoAnswerReason::NobodyThere,
            RequestErrorKind::TimedOut => NoAnswerReason::TimedOut,
            _ => NoAnswerReason::BusAway,
        })?;
        match read(&message.payload, MAX_ANSWER_BYTES) {
            Some(Answer::NotUnderstood) | None => Err(NoAnswerReason::OtherVersion),
            Some(answer) => Ok(answer),
        }
    }
}
