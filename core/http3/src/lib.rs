//! The server's side of HTTP/3 (RFC 9114), and its field compression (RFC 9204), as sans-IO state machines.
//!
//! QUIC carries streams and their flow control. [`Connection`] is what the streams of one connection share: the control
//! stream, GOAWAY, and the counts of its bounds. [`UniStream`] is one of the client's unidirectional streams.
//! [`RequestStream`] is the client's side of a request: [`RequestStream::handle_input`] takes received bytes, and
//! [`RequestStream::poll`] returns the head, the body and the trailers. [`response`] writes the frames of a response.
//! Nothing here reads a clock or a socket.
//!
//! Everything held for a client has a bound: one received piece and one unfinished head for each request, one short
//! frame for the control stream. Frames that are skipped, or that change nothing, are counted for the stream and for
//! the connection.

mod code;
mod connection;
mod frame;
pub mod qpack;
mod request;
pub mod response;
mod settings;
mod unidirectional;

pub use code::{ErrorCode, Fault};
pub use connection::{Connection, StreamId};
pub use request::{Config, Piece, RequestStream};
pub use sallyport_http2::head::{HeadRefusal, RequestHead};
pub use unidirectional::{Reading, UniStream};
