//! HTTP/2 as a server speaks it (RFC 9113), and the compression of its header fields (RFC 7541), as pure state
//! machines: bytes come in, requests and bytes come out.
//!
//! [`Server`] is one connection of a client. What the client sends is given to [`Server::handle_input`], and the heads
//! of requests are taken by [`Server::poll_request`]; who serves one takes its body by [`Server::read`], and says its
//! answer by [`Server::send_head`], [`Server::send_data`] and [`Server::send_trailers`], as far as [`Server::room`]
//! lets it. What is to be written lies in [`Server::output`]. Nothing here reads a clock or a socket.
//!
//! Whatever a client does, what is held for it has a bound: of requests, of bytes of bodies, of heads, and of what
//! waits to be written to it, past which nothing of what it sends is looked at.

mod answer;
mod code;
mod frame;
mod head;
pub mod hpack;
mod input;
mod output;
mod server;
mod settings;
mod stream;
mod upload;

pub use answer::Room;
pub use code::{ErrorCode, Fault};
pub use head::HeadRefusal;
pub use output::Output;
pub use server::{Config, NewRequest, Server, Signal, StreamId};
pub use upload::Read;
