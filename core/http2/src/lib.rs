//! The server's side of HTTP/2 (RFC 9113), and its header compression (RFC 7541), as sans-IO state machines.
//!
//! [`Server`] is one connection of a client. [`Server::handle_input`] takes received bytes, and
//! [`Server::poll_request`] returns the heads of requests. The responder reads a request's body by
//! [`Server::poll_body`]. It sends the response by [`Server::send_head`], [`Server::send_data`] and
//! [`Server::send_trailers`], within [`Server::room`]. [`Server::output`] has the bytes to write. Nothing here reads a
//! clock or a socket.
//!
//! HTTP/3 has the same fields and the same rules for messages: `core/http3` uses [`head`], and the strings and numbers
//! of [`hpack`].
//!
//! Everything held for a client has a bound: requests, bytes of bodies, heads, and unwritten output. At the last bound
//! no further input is handled.

mod code;
mod frame;
pub mod head;
pub mod hpack;
mod input;
mod output;
mod response;
mod server;
mod settings;
mod stream;
mod upload;

pub use code::{ErrorCode, Fault};
pub use head::HeadRefusal;
pub use output::Output;
pub use response::Room;
pub use server::{Config, NewRequest, Server, Signal, StreamId};
pub use upload::Piece;
