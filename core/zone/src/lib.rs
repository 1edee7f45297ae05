//! An authoritative name server without its sockets: a query, the zones and the view come in, the bytes of an answer go
//! out.
//!
//! - Build a [`Zone`] from [records](record::parse_record) or a master file, and put all zones into [`Zones`].
//! - Keep what changes often in a [`View`]: the addresses of the edges of each group, of the targets of ALIAS records,
//!   and the TXT values of ACME challenges.
//! - Give each thread a [`State`], and call [`answer()`] for each message. A [`Verdict`] says what to do with the answer.
//!
//! ```
//! use std::time::Instant;
//!
//! use sallyport_zone::{
//!     Name, Now, Peer, Serving, Settings, State, StateConfig, Transport, Verdict, View, Zone, Zones, answer,
//! };
//!
//! let apex = Name::from_text("example.com")?;
//! let text = "@ 300 SOA ns hostmaster 1 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n";
//! let zones = Zones::new([Zone::from_master_file(apex, text, None)?.into()])?;
//! let (view, settings) = (View::default(), Settings::default());
//! let mut state = State::new(StateConfig::default(), [0; 16]);
//! let query = b"\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02ns\x07example\x03com\x00\x00\x01\x00\x01";
//! let peer = Peer { address: [192, 0, 2, 9].into(), transport: Transport::Udp };
//! let now = Now { unix_seconds: 1_800_000_000, monotonic: Instant::now() };
//! let mut out = Vec::new();
//! let serving = Serving { zones: &zones, view: &view, settings: &settings };
//! let outcome = answer(query, &peer, &serving, &mut state, now, &mut out);
//! assert!(matches!(outcome.verdict, Verdict::Send) && out.ends_with(&[192, 0, 2, 1]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here reads a clock, a file or a random source: times and secrets are arguments. AWS-LC draws the nonces of
//! ECDSA signatures itself.

mod answer;
pub mod data;
pub mod dnssec;
pub mod limit;
pub mod name;
pub mod query;
pub mod record;
pub mod served;
pub mod steer;
pub mod transfer;
mod tsig;

pub use answer::{
    AnswerKind, DropReason, MAX_IDENTITY_BYTES, MAX_TCP_BYTES, MAX_UDP_BYTES, Now, Outcome, Peer, Rcode, Serving,
    Settings, SettingsError, State, StateConfig, Transport, Verdict, answer,
};
pub use data::{View, Zone, Zones};
pub use name::Name;
pub use record::{Record, RecordData, RecordSet, RecordType};
pub use tsig::{MAX_TSIG_KEYS, TsigHash, TsigKeyError, TsigKeys};
