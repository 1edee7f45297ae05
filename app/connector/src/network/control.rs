//! What a machine asks control while it is out of its network.

use std::{future::Future, time::Duration};

use super::NetworkEdge;

/// How long an answer may take. Without one, the machine dials the edge that it knows.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(5);

/// What answers for control about one machine.
pub trait Control: Sync {
    /// Whether the machine was removed; `false` while control does not answer.
    fn is_removed(&self) -> impl Future<Output = bool> + Send;

    /// The edge of the machine, if it is another one than before; `None` while control does not answer.
    fn other_edge(&self) -> impl Future<Output = Option<NetworkEdge>> + Send;
}

/// What a machine asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// The edge does not know the machine: is it new, or was it removed?
    IsRemoved,
    /// The edge does not answer: where is it now?
    Edge,
}

/// What control says.
pub(super) enum Answer {
    /// The machine was removed.
    Removed,
    /// Another edge serves the machine.
    Edge(NetworkEdge),
}

/// The answer to a question; `None` if nothing has changed, or control does not answer in time.
pub(super) async fn ask(control: &impl Control, question: Question) -> Option<Answer> {
    let answer = async {
        match question {
            Question::IsRemoved => control.is_removed().await.then_some(Answer::Removed),
            Question::Edge => control.other_edge().await.map(Answer::Edge),
        }
    };
    tokio::time::timeout(MAX_ANSWER_TIME, answer).await.ok().flatten()
}
