//! The record layer of TLS 1.3 (RFC 8446 sections 5 and 6), and the handshake before it: bytes in, bytes out.
//!
//! 1. [`Handshake`] takes bytes from the peer and returns bytes to send, until the handshake is over. rustls implements
//!    the handshake: messages, certificates, keys, session tickets.
//! 2. [`Handshake::finish`] gives an [`Established`] connection with its [`RecordLayer`].
//! 3. [`RecordLayer::open`] decrypts a record in place, and [`RecordLayer::seal_data`] encrypts one in place. The
//!    caller owns all buffers, so an idle connection holds none.
//!
//! Key updates, session tickets and alerts are handled here; [`RecordLayer::take_outgoing`] has the records to send for
//! them. Nothing here reads a clock or a socket: rustls gets time and randomness from its configuration.

mod error;
mod handshake;
mod key;
mod record;
mod record_layer;

pub use error::{HandshakeError, RecordError};
pub use handshake::{Established, Handshake, Step};
pub use record::{ContentType, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_PLAIN_BYTES, OVERHEAD_BYTES, whole_record};
pub use record_layer::{Opened, Received, RecordLayer};
