//! The record layer of TLS 1.3 (RFC 8446 sections 5 and 6), and the handshake before it: bytes in, bytes out.
//!
//! 1. [`Handshake`] takes what the peer sends and says what to send, until the handshake is over. rustls does the
//!    handshake itself: messages, certificates, keys, session tickets.
//! 2. [`Handshake::finish`] gives an [`Established`] connection with its [`RecordLayer`].
//! 3. [`RecordLayer::open`] decrypts a record where it lies, and [`RecordLayer::seal_data`] encrypts one where it lies.
//!    The caller owns all buffers, so a connection that rests holds none.
//!
//! Key updates, session tickets and alerts are handled here. What they have to send lies ready in
//! [`RecordLayer::take_outgoing`]. Nothing here reads a clock or a socket: rustls takes both time and randomness from
//! its configuration.

mod error;
mod handshake;
mod key;
mod record;
mod record_layer;

pub use error::{HandshakeError, RecordError};
pub use handshake::{Established, Handshake, Step};
pub use record::{ContentType, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_PLAIN_BYTES, OVERHEAD_BYTES, whole_record};
pub use record_layer::{Opened, Received, RecordLayer};
