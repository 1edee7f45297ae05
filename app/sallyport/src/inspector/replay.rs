//! Sends a request again, directly to the service.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sallyport_inspect::{
    From, StreamEvent, StreamOpen, StreamProtocol,
    answer::{Problem, Replay},
    replay,
};
use sallyport_model::TunnelId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Shared, now};

/// How long the service may take for all of its response.
const MAX_TIME: Duration = Duration::from_secs(60);
/// How much of a response is read, in bytes.
const MAX_RESPONSE_BYTES: u64 = 256 * 1024 * 1024;
/// The bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// Begins to send the exchange again, and returns the id of the new one.
///
/// # Errors
/// It cannot be sent again.
pub(super) fn start(shared: &Arc<Shared>, id: u64, changes: &Replay) -> Result<u64, Problem> {
    let mut inspector = shared.inspector.lock();
    let exchange = inspector.store().get(id).ok_or_else(|| super::routes::no_exchange(id))?;
    let request = Bytes::from(replay::request(exchange, changes)?);
    let mut source = exchange.source.clone();
    let tunnel = source.tunnel.as_deref().and_then(|tunnel| tunnel.parse::<TunnelId>().ok());
    (source.edge, source.client) = (None, Some("inspector".to_owned()));
    let stream = shared.next_replay();
    let (protocol, replay_of) = (StreamProtocol::Http1, Some(id));
    inspector.handle(StreamEvent::Opened(stream, StreamOpen { protocol, source, replay_of }), now());
    let event = StreamEvent::Bytes { stream, from: From::Client, offset: 0, data: request.clone() };
    inspector.handle(event, now());
    let new = inspector.store().newest().next().filter(|new| new.replay_of == Some(id)).map(|new| new.id);
    shared.tell(&mut inspector);
    drop(inspector);
    let Some(new) = new else {
        let (title, detail) = ("It cannot be sent again".to_owned(), "Too many connections are inspected.".to_owned());
        return Err(Problem { status: 503, title, detail, needs_confirmation: false });
    };
    let shared = shared.clone();
    tokio::spawn(async move {
        let sent = tokio::time::timeout(MAX_TIME, send(&shared, stream, tunnel, new, &request)).await;
        let late = || Err(format!("the service did not finish its response within {MAX_TIME:?}"));
        let reason = sent.unwrap_or_else(|_| late()).err();
        let mut inspector = shared.inspector.lock();
        inspector.handle(StreamEvent::Closed(stream, reason), now());
        shared.tell(&mut inspector);
    });
    Ok(new)
}

async fn send(shared: &Shared, stream: u64, tunnel: Option<TunnelId>, id: u64, request: &[u8]) -> Result<(), String> {
    let services = shared.services.lock().clone();
    let (Some(services), Some(tunnel)) = (services, tunnel) else {
        return Err("the service is no longer served here".to_owned());
    };
    let connection = services.connect(tunnel).await?;
    let (mut from_service, mut to_service) = tokio::io::split(connection);
    // The service may answer before it has read all.
    let write = async {
        let written = to_service.write_all(request).await;
        match written {
            Ok(()) => to_service.flush().await,
            Err(error) => Err(error),
        }
    };
    let read = async {
        let (mut offset, mut piece) = (0, vec![0; READ_BYTES]);
        while offset < MAX_RESPONSE_BYTES {
            let read = from_service.read(&mut piece).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Ok(());
            }
            let data = Bytes::copy_from_slice(&piece[..read]);
            let mut inspector = shared.inspector.lock();
            inspector.handle(StreamEvent::Bytes { stream, from: From::Service, offset, data }, now());
            offset += read as u64;
            let is_over = inspector.store().get(id).is_none_or(|exchange| exchange.duration_us.is_some());
            shared.tell(&mut inspector);
            if is_over {
                return Ok(());
            }
        }
        Err("the response is too long to be read".to_owned())
    };
    tokio::pin!(read);
    tokio::select! {
        outcome = &mut read => outcome,
        written = write => match written {
            Ok(()) => read.await,
            // What the service said before it closed may explain it.
            Err(error) => read.await.and(Err(error.to_string())),
        },
    }
}
