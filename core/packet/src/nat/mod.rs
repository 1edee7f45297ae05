//! NAT44 of sources and destinations (RFC 4787, 5382, 5508). Uses the parser, checksums and the reasons of the router.

mod config;
mod edit;
mod nft;
mod sessions;
mod translate;

pub use config::{Filtering, MAX_FORWARDS, MAX_POOL, NatConfig, NatConfigError, PortForward, Timeouts};
pub use nft::{NAT_TABLE, nft_removal, nft_rules};
pub use sessions::{Endpoint, Event, MAX_EVENTS, MAX_SESSIONS, Session, SessionState};
pub use translate::{Direction, Nat, Translation};
