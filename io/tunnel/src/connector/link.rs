//! The connector's end of a session between two edges, run by the edge that accepted the call.

use std::{future::Future, pin::pin, sync::Arc};

use tokio::{runtime::Handle, sync::mpsc};

use super::{
    ConnectorConfig, ConnectorEvent, Dial, OriginHandler,
    session::{ConnectorSession, SessionEvent},
    supervisor::{ConnectorContext, MAX_QUEUED_NEWS},
};
use crate::BoxedCarrier;

/// Runs the connector's end of a session on a connection that another edge has made. `origin` serves the streams that
/// the edge opens, for any tunnel; `dial` opens legs. Events of requests go to `events`. The configuration's tunnels
/// and drain time are not used.
///
/// Once `leaving` completes, the edge learns that no new streams are accepted. Returns the reason when the session
/// ends. Needs a tokio runtime.
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
            Some((_, news_event)) = news.recv() => match news_event {
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
    while let Ok((_, news_event)) = news.try_recv() {
        if let SessionEvent::Ended { why: ended } = news_event {
            why = ended;
        }
    }
    why
}
