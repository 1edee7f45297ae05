//! Round trips by ICMP echo (RFC 792, RFC 4443) that nobody off the path can fool: messages, tokens, the classification
//! of replies, and statistics.
//!
//! [`Echoes`] is the state machine. Its driver sends each [`Request`], and passes on the kernel's transmit stamps and
//! every received message. Packets contain no time: the time of sending is kept here. Each request has a random nonce
//! and a token, and a reply is believed only with both. Clocks and randomness are arguments.

mod echoes;
mod packet;
mod round_trip;
mod statistics;
mod token;

pub use echoes::{
    BeginError, Echoes, MAX_REMEMBERED, MAX_TIMEOUT, MAX_WAITING, Received, Rejected, Rejection, Request, Verdict,
};
pub use packet::{EchoMessage, Family, Form, HEADER_BYTES, MAX_DATA_BYTES, Malformed, parse, reply, request};
pub use round_trip::{Moment, RoundTrip, Source};
pub use statistics::{MAX_SAMPLES, Statistics, Summary};
pub use token::{Key, MIN_DATA_BYTES};
