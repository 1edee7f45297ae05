//! HTTP/1.1 on the wire (RFC 9112), as sans-IO state machines between bytes and messages.
//!
//! [`Server`](server::Server) is one connection of a client. It reads each request head once, by the letter of the RFC,
//! and refuses a request that has two meanings. [`client`] writes requests to an origin and reads its responses.
//! [`BodyDecoder`] takes the bodies of both out of the bytes that came, without a copy.
//!
//! Nothing here reads a clock or a socket. Each input has a bound: see [`limits`].

mod body;
mod chunk_encode;
mod chunked;
pub mod client;
mod decimal;
pub mod limits;
pub mod server;

pub use body::{BodyDecoder, Framing, Piece};
pub use chunk_encode::{CHUNK_END, ChunkStart, LAST_CHUNK_END, announced_trailers, chunk_start, write_last_chunk};
pub use chunked::{ChunkError, LineError};
