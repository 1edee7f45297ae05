//! HTTP/2 with clients: what [`sallyport_http2::Server`] makes of their bytes becomes requests, each in a task of its
//! own.

mod connection;
mod stream;

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
        connection::{Call, Client, call, linger},
        server::HttpServer,
    },
    lifecycle::{
        counts::ConnectionPlace,
        phase::{self, Phase},
    },
};

/// How many requests run at once on one connection.
const MAX_CONCURRENT_STREAMS: u32 = 200;
/// The longest header list, in bytes as RFC 9113 section 6.5.2 counts them.
const MAX_HEADER_LIST_BYTES: u32 = 65_536;
/// How much one stream may send ahead of the origin, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// How much all streams of a connection may send ahead, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// How much of all answers may wait to be written to a client, in bytes, before they wait for it.
const MAX_OUTPUT_BYTES: usize = 128 * 1024;

const CONFIG: Config = Config {
    max_concurrent_streams: MAX_CONCURRENT_STREAMS,
    stream_window_bytes: STREAM_WINDOW_BYTES,
    connection_window_bytes: CONNECTION_WINDOW_BYTES,
    max_header_list_bytes: MAX_HEADER_LIST_BYTES,
    max_output_bytes: MAX_OUTPUT_BYTES,
};

/// Serves HTTP/2 on this connection until it ends; `held` is given back then. Connections rest for long, so what is moved in
/// here is held once.
pub(crate) fn serve<S>(
    server: Arc<HttpServer>,
    io: S,
    addr: SocketAddr,
    place: Option<ConnectionPlace>,
    shown: Option<Box<ClientCertificate>>,
    held: impl Send + 'static,
) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = Client::new(&server, addr, true, place, shown);
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
        drop(held);
    }
}

/// Serves until the connection has come to its end, or the server has no more time for it: then it says false.
async fn until_end<S>(server: &HttpServer, client: &Client, connection: &mut Connection<S>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let phase = server.state.phase.subscribe();
    let mut is_going = false;
    let mut called = call(&phase, Phase::Lingering, Some(Instant::now() + server.state.config.idle_timeout));
    loop {
        let called_for = tokio::select! {
            biased;
            outcome = &mut *connection => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "an HTTP/2 connection ended early");
                }
                return true;
            }
            called = &mut called => called,
        };
        let look_at = match called_for {
            Call::Reached(Phase::Cut) => return false,
            Call::Reached(_) => None,
            Call::Look if is_going => None,
            Call::Look => {
                let now = Instant::now();
                let quiet_until = client.wire.quiet_until(server.state.config.idle_timeout);
                let look_at = quiet_until.unwrap_or(now + server.state.config.idle_timeout);
                (look_at > now && !client.has_had_its_requests(server)).then_some(look_at)
            }
        };
        called = if look_at.is_some() {
            call(&phase, Phase::Lingering, look_at)
        } else {
            Pin::new(&mut *connection).shut_down();
            // A client that does not say that it knows is not waited for.
            let again =
                (!std::mem::replace(&mut is_going, true)).then(|| Instant::now() + server.state.config.ping_interval);
            call(&phase, Phase::Cut, again)
        };
    }
}
