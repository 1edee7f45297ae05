//! The connector's end of a session with another edge: the edge that was called.

use std::{future::Future, pin::pin, sync::Arc};

use tokio::{runtime::Handle, sync::mpsc};

use super::{
    ConnectorConfig, ConnectorEvent, Dial, OriginHandler,
    session::{ConnectorSession, SessionEvent},
    supervisor::{ConnectorContext, MAX_QUEUED_NEWS},
};
use crate::BoxedCarrier;

/// Is the connector of an edge that has made this connection: `origin` gets the streams that it opens, whatever their tunnel,
/// and `dial` reaches it for legs. What it has to tell of requests goes to `events`; of the configuration the tunnels and the
/// time to drain do not count.
///
/// After `leaving` the edge is told that no new streams are taken. Returns when the session is over, and why it is. Needs a
/// tokio runtime.
pub async fn answer_link(
    config: ConnectorConfig,
    carrier: BoxedCarrier,
    dial: Arc<dyn Dial>,
    origin: Arc<dyn OriginHandler>,
    events: mpsc::Sender<ConnectorEvent>,
    leaving: impl Future<Output = ()> + Send,
) -> String {
    let (news_in, mut news) = mpsc::channel(MAX_QUEUED_NEWS);
    let shared = Arc::new(ConnectorContext { config, origin, events, runtime: Handle::current() });
    let session = ConnectorSession::between_edges(shared, dial, news_in);
    let mut running = pin!(session.clone().run(carrier));
    let mut leaving = pin!(leaving);
    let mut is_leaving = false;
    let mut why = "it ended".to_owned();
    loop {
        tokio::select! {
            () = &mut running => break,
            Some((_, told)) = news.recv() => match told {
                SessionEvent::Ended { why: ended } => why = ended,
                SessionEvent::Refused(refusal) => why = refusal.to_string(),
                _ => {}
            },
            () = &mut leaving, if !is_leaving => {
                is_leaving = true;
                session.mux.go_away("shutting-down", "the edge is shutting down");
            }
        }
    }
    while let Ok((_, told)) = news.try_recv() {
        if let SessionEvent::Ended { why: ended } = told {
            why = ended;
        }
    }
    why
}
