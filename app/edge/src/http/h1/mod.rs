//! HTTP/1 with clients, by [`sallyport_http1::server::Server`]. All requests of a connection run in its task, one after
//! the other.
//!
//! May use what `http` may use, and the connection state of `http`.

mod connection;
pub(crate) mod io;
mod upload;

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http::Response;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::Instant,
};

use self::{
    connection::{Connection, Outcome},
    io::{ClientTimeouts, ServerIo},
};

use crate::{
    body::upload::ClientBody,
    client::certificate::ClientCertificate,
    http::{
        connection::{Client, ClientStream, ConnectionEvent, MAX_CLOSE, linger, next_event},
        response_body::ResponseBody,
        server::HttpServer,
        wire_state::WireState,
    },
    lifecycle::{
        counts::ConnectionPlace,
        phase::{self, Phase},
    },
};

/// How long a connection is at rest before it releases the memory of requests, and how often a busy one is checked.
const REST_AFTER: Duration = Duration::from_millis(100);
const BUSY_PERIOD: Duration = Duration::from_secs(1);

/// Serves HTTP/1 on this connection until it ends.
///
/// An idle connection keeps only its [`ServerIo`]. The state of requests is several times as large. It is allocated for
/// a request, and freed when the connection rests.
pub(crate) async fn serve(
    server: Arc<HttpServer>,
    io: ClientStream,
    addr: SocketAddr,
    place: Option<ConnectionPlace>,
    certificate: Option<Box<ClientCertificate>>,
) {
    let client = Client::new(&server, addr, false, place, certificate);
    let timeouts = ClientTimeouts { idle: server.state.config.idle_timeout, head: server.state.config.header_timeout };
    let io = ServerIo::new(io, client.wire.clone(), timeouts);
    let mut io = io.with_socket(|stream| stream.socket());
    let mut phase = server.state.phase.subscribe();
    let mut is_new = true;
    loop {
        let closing = async {
            if is_new {
                server.state.phase.idle_must_close(&mut phase).await
            } else {
                phase::reached(&mut phase, Phase::Closing).await
            }
        };
        let waited = tokio::select! {
            biased;
            waited = io.wait() => waited,
            () = closing => Ok(false),
        };
        is_new = false;
        match waited {
            Ok(true) => {}
            Ok(false) => {
                let _ = tokio::time::timeout(MAX_CLOSE, io.shutdown()).await;
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "an HTTP/1 connection failed");
                return;
            }
        }
        match Box::pin(serve_until_rest(&server, &client, io, &mut phase)).await {
            Some(rested) => io = rested,
            None => return,
        }
    }
}

/// Serves until the connection ends, or has been at rest for [`REST_AFTER`]. Returns a connection at rest.
async fn serve_until_rest(
    server: &Arc<HttpServer>,
    client: &Arc<Client>,
    io: ServerIo<ClientStream>,
    phase: &mut watch::Receiver<Phase>,
) -> Option<ServerIo<ClientStream>> {
    let mut connection = Connection::new(io);
    let ended = {
        let mut served = pin!(connection.serve(server, client));
        let mut next = next_event(phase, Phase::Closing, Some(Instant::now() + REST_AFTER));
        loop {
            let event = tokio::select! {
                biased;
                ended = &mut served => break Some(ended),
                event = &mut next => event,
            };
            let quiet_until = client.wire.quiet_until(REST_AFTER).filter(|_| client.wire.is_at_rest());
            next = match event {
                ConnectionEvent::PhaseReached(Phase::Cut) => return None,
                ConnectionEvent::PhaseReached(_) if quiet_until.is_some() => break None,
                ConnectionEvent::PhaseReached(_) => {
                    client.wire.set_closing();
                    next_event(phase, Phase::Cut, None)
                }
                ConnectionEvent::CheckDue => {
                    let now = Instant::now();
                    match quiet_until {
                        Some(due) if due <= now => break None,
                        due => next_event(phase, Phase::Closing, Some(due.unwrap_or(now + BUSY_PERIOD))),
                    }
                }
            };
        }
    };
    match ended {
        None => return Some(connection.into_io()),
        Some(Ok(Outcome::Close)) => tokio::select! {
            () = end(connection.into_io(), &client.wire) => {}
            () = phase::cut(phase) => {}
        },
        Some(Ok(Outcome::Switch(upgraded))) => {
            let (stream, early_data) = connection.into_upgraded();
            upgraded.start(server, client.clone(), stream, early_data);
        }
        Some(Err(error)) => tracing::debug!(%error, "an HTTP/1 connection ended early"),
    }
    None
}

/// Responds to one request, and closes the connection. A client that ends its side behind the request gets the response
/// too. Returns whether a response was written.
pub(crate) async fn respond_once<S: AsyncRead + AsyncWrite + Unpin>(
    io: ServerIo<S>,
    wire: &WireState,
    respond: impl FnOnce(&http::Request<ClientBody>) -> Response<ResponseBody>,
) -> bool {
    let mut connection = Connection::new(io);
    let outcome = match connection.next_request(|| false).await {
        Ok(Some(next)) => {
            let request = connection.begin_request(next);
            connection.disable_keep_alive();
            connection.respond(respond(&request), false).await.map(|_| true)
        }
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(has_responded) => {
            // Further bytes of the client are not read, and must not reset the connection (RFC 9112 section 9.6).
            wire.mark_unread();
            end(connection.into_io(), wire).await;
            has_responded
        }
        Err(error) => {
            tracing::debug!(%error, "a plain HTTP connection ended early");
            false
        }
    }
}

/// Closes a connection behind its last response.
async fn end<S: AsyncRead + AsyncWrite + Unpin>(mut io: ServerIo<S>, wire: &WireState) {
    let _ = tokio::time::timeout(MAX_CLOSE, io.shutdown()).await;
    if wire.has_unread() {
        linger(io.into_stream()).await;
    }
}
