//! HTTP/2 with clients, by [`sallyport_http2::Server`]. Each request has a task of its own.
//!
//! May use what `http` may use, and the connection state of `http`.

mod connection;
mod stream;
mod websocket;

use std::{net::SocketAddr, pin::Pin, sync::Arc};

use sallyport_http2::Config;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use self::connection::Connection;

use crate::{
    client::certificate::ClientCertificate,
    http::{
        connection::{Client, ConnectionEvent, linger, next_event},
        multiplexed::{CONNECTION_WINDOW_BYTES, MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_BYTES, STREAM_WINDOW_BYTES},
        server::HttpServer,
    },
    lifecycle::{
        counts::ConnectionPlace,
        phase::{self, Phase},
    },
};

/// How many bytes of responses may wait to be written to a client, before the responses wait.
const MAX_OUTPUT_BYTES: usize = 128 * 1024;

const CONFIG: Config = Config {
    max_concurrent_streams: MAX_CONCURRENT_STREAMS,
    stream_window_bytes: STREAM_WINDOW_BYTES,
    connection_window_bytes: CONNECTION_WINDOW_BYTES,
    max_header_list_bytes: MAX_HEADER_LIST_BYTES,
    max_output_bytes: MAX_OUTPUT_BYTES,
};

/// Serves HTTP/2 on this connection until it ends, and then drops `guard`. The arguments are moved out of the async
/// block, because a future would hold them twice for the life of the connection.
pub(crate) fn serve<S>(
    server: Arc<HttpServer>,
    io: S,
    addr: SocketAddr,
    place: Option<ConnectionPlace>,
    certificate: Option<Box<ClientCertificate>>,
    guard: impl Send + 'static,
) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = Client::new(&server, addr, true, place, certificate);
    let mut connection = Connection::new(server.clone(), client.clone(), io);
    async move {
        if until_end(&server, &client, &mut connection).await
            && let Some(io) = connection.unread()
        {
            let mut phase = server.state.phase.subscribe();
            tokio::select! {
                () = linger(io) => {}
                () = phase::cut(&mut phase) => {}
            }
        }
        drop(guard);
    }
}

/// Serves until the connection has ended. Returns false if the connection is cut.
async fn until_end<S>(server: &HttpServer, client: &Client, connection: &mut Connection<S>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let phase = server.state.phase.subscribe();
    let mut is_shutting_down = false;
    let mut next = next_event(&phase, Phase::Lingering, Some(Instant::now() + server.state.config.idle_timeout));
    loop {
        let event = tokio::select! {
            biased;
            outcome = &mut *connection => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "an HTTP/2 connection ended early");
                }
                return true;
            }
            next = &mut next => next,
        };
        let check_at = match event {
            ConnectionEvent::PhaseReached(Phase::Cut) => return false,
            ConnectionEvent::PhaseReached(_) => None,
            ConnectionEvent::CheckDue if is_shutting_down => None,
            ConnectionEvent::CheckDue => {
                let now = Instant::now();
                let quiet_until = client.wire.quiet_until(server.state.config.idle_timeout);
                let check_at = quiet_until.unwrap_or(now + server.state.config.idle_timeout);
                (check_at > now && !client.has_reached_max_requests(server)).then_some(check_at)
            }
        };
        next = if check_at.is_some() {
            next_event(&phase, Phase::Lingering, check_at)
        } else {
            Pin::new(&mut *connection).graceful_shutdown();
            // A client that does not confirm the shutdown is not waited for.
            let again = (!std::mem::replace(&mut is_shutting_down, true))
                .then(|| Instant::now() + server.state.config.ping_interval);
            next_event(&phase, Phase::Cut, again)
        };
    }
}
