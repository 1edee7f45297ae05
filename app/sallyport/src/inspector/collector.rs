//! The thread that reads what the connector copies. It has work that would hold up connections, such as the search for
//! secrets in bodies.

use std::{collections::HashMap, sync::Arc};

use anyhow::Context as _;
use sallyport_connector::{CaptureEvent, Captured, CapturedStream, RelayedFrom, Wanted};
use sallyport_inspect::{From, StreamEvent, StreamOpen, StreamProtocol};

use super::{Shared, now};

/// Starts the thread, which ends when no connector captures any more.
///
/// # Errors
/// The system cannot start it.
pub(super) fn start(shared: Arc<Shared>, mut captured: Captured) -> anyhow::Result<()> {
    let thread = std::thread::Builder::new().name("inspector".to_owned());
    let run = move || {
        let mut wanted = HashMap::new();
        while let Some(event) = captured.blocking_next() {
            take(&shared, &mut wanted, event);
        }
    };
    thread.spawn(run).context("cannot start a thread for the inspector")?;
    Ok(())
}

fn take(shared: &Shared, wanted: &mut HashMap<u64, Arc<Wanted>>, event: CaptureEvent) {
    let (event, seen) = match event {
        CaptureEvent::Opened(stream) => (opened(shared, wanted, stream), None),
        CaptureEvent::Bytes { stream, from, offset, data } => {
            (StreamEvent::Bytes { stream, from: sender(from), offset, data }, Some(stream))
        }
        CaptureEvent::Ended(stream, from) => (StreamEvent::Ended(stream, sender(from)), None),
        CaptureEvent::Closed(stream, reason) => {
            wanted.remove(&stream);
            (StreamEvent::Closed(stream, reason), None)
        }
    };
    let mut inspector = shared.inspector.lock();
    inspector.handle(event, now());
    if let Some(stream) = seen
        && let Some(wanted) = wanted.get(&stream)
    {
        // The head of a response may end the interest in the request's body, and the other way round.
        for from in [RelayedFrom::Client, RelayedFrom::Service] {
            wanted.set(from, inspector.unwanted_until(stream, sender(from)));
        }
    }
    shared.tell(&mut inspector);
}

fn opened(shared: &Shared, wanted: &mut HashMap<u64, Arc<Wanted>>, stream: CapturedStream) -> StreamEvent {
    let edge = stream.edge.map(|edge| edge.to_string());
    let source = shared.source(stream.tunnel, edge, stream.client.to_string());
    wanted.insert(stream.number, stream.wanted);
    let protocol = if stream.is_http2 { StreamProtocol::Http2 } else { StreamProtocol::Http1 };
    StreamEvent::Opened(stream.number, StreamOpen { protocol, source, replay_of: None })
}

fn sender(from: RelayedFrom) -> From {
    match from {
        RelayedFrom::Client => From::Client,
        RelayedFrom::Service => From::Service,
    }
}
