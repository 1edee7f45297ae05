//! HTTP/3 with clients, by [`sallyport_http3`] over QUIC. Each request has a task of its own.
//!
//! May use what `http` may use, and the connection state of `http`.

mod clients;
mod connection;
mod stream;
#[cfg(test)]
mod tests;
mod websocket;

use std::{net::SocketAddr, sync::Arc};

use sallyport_http3::Config;

use self::connection::Connection;

use crate::{
    http::{multiplexed::MAX_HEADER_LIST_BYTES, server::HttpServer},
    lifecycle::counts::ConnectionPlace,
};

/// The longest frame with a head, in bytes: a head that is too long is answered, but an endless one is not.
const MAX_HEAD_FRAME_BYTES: u64 = 128 * 1024;
/// How many unidirectional streams a client may have: three of HTTP/3, and some of unknown types.
const MAX_CONCURRENT_UNI_STREAMS: u32 = 8;

const CONFIG: Config =
    Config { max_head_bytes: MAX_HEADER_LIST_BYTES as u64, max_head_frame_bytes: MAX_HEAD_FRAME_BYTES };

/// Serves HTTP/3 on this connection until it ends, and then drops `guard`. `addr` is the client's address at the
/// beginning; requests after a migration have the new one.
pub(crate) fn serve(
    server: Arc<HttpServer>,
    connection: quinn::Connection,
    addr: SocketAddr,
    place: Option<ConnectionPlace>,
    guard: impl Send + 'static,
) -> impl Future<Output = ()> + Send {
    let mut connection = Connection::new(server, connection, addr, place);
    async move {
        connection.run().await;
        drop((connection, guard));
    }
}
