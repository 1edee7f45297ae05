//! The inspector: requests and responses of tunnels, from the bytes that a connector relays.
//!
//! [`Inspector`] takes what happens on streams ([`StreamEvent`]) and what the edge records about requests. It parses
//! both directions (`conn`), takes secrets out (`redact`) and keeps exchanges within bounds (`store`). The other files
//! read exchanges: `answer` has the types of the local API, `view` shows bodies, `filter` selects, `diff` compares,
//! `export` writes curl commands and HAR files, and `replay` makes the request to send again.
//!
//! Time is an argument: [`Now`] has a clock for people and one for durations, so a turned clock bends no duration.

pub mod answer;
mod conn;
mod decode;
pub mod describe;
mod diff;
pub mod export;
mod filter;
mod inspector;
mod message;
mod multipart;
mod redact;
pub mod replay;
mod store;
mod view;

pub use decode::{Decoded, MAX_DECODED_BYTES, decode};
pub use diff::diff;
pub use filter::{Filter, FilterError};
pub use inspector::{Change, Inspector, Now, Record, StreamEvent, StreamOpen, StreamProtocol};
pub use message::{Body, Exchange, Field, Frame, FrameKind, From, Message, Protocol, Source};
pub use redact::{REDACTED, is_secret_name};
pub use store::{Bounds, MAX_BODY_BYTES, MAX_FRAME_BYTES, MAX_FRAMES, Store};
pub use view::view;
