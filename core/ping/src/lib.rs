//! Round trips by ICMP echo (RFC 792, RFC 4443) that nobody off the path can fool: messages, tokens, the classification
//! of replies, and statistics. Also the record of a way that is measured for long, and the text that names a host.
//!
//! [`Catcher`] is for requests whose replies come to several machines.
//!
//! [`Echoes`] is the state machine. Its driver sends each [`Request`], and passes on the kernel's transmit stamps and
//! every received message. Packets contain no time: the time of sending is kept here. Each request has a random nonce
//! and a token, and a reply is believed only with both. Clocks and randomness are arguments.

mod catcher;
mod echoes;
mod floor;
mod packet;
mod round_trip;
mod statistics;
mod target;
mod token;
mod way;

pub use catcher::{Catcher, Caught, CaughtCounts, MAX_TARGETS};
pub use echoes::{
    BeginError, Echoes, MAX_REMEMBERED, MAX_TIMEOUT, MAX_WAITING, Received, Rejected, Rejection, Request, Verdict,
};
pub use floor::WindowedMin;
pub use packet::{EchoMessage, Family, Form, HEADER_BYTES, MAX_DATA_BYTES, Malformed, parse, reply, request};
pub use round_trip::{Moment, RoundTrip, Source};
pub use statistics::{MAX_SAMPLES, Statistics, Summary};
pub use target::{MAX_HOST_BYTES, Target, TargetError, is_one_host};
pub use token::{Key, MIN_DATA_BYTES};
pub use way::{MAX_ROUND_TRIP, Spread, WAY_FLOOR_WINDOW, WAY_OUTCOMES, WayRecord, WaySummary};
