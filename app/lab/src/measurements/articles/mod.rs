//! The measurements themselves, one file for each article. `packets` has those that need a router.

mod calico;
mod congestion;
mod connectx;
mod matching;
mod multipath;
mod packets;
mod paths;
mod ping;
mod prefixes;
mod steer;
mod transfer;
mod udp;
mod window;

pub(super) use calico::Calico;
pub(super) use congestion::Congestion;
pub(super) use connectx::Connectx;
pub(super) use matching::Matching;
pub(super) use multipath::Multipath;
pub(super) use packets::{Forward, Generate, Xdp};
pub(super) use paths::Paths;
pub(super) use ping::Ping;
pub(super) use prefixes::Prefixes;
pub(super) use steer::Steer;
pub(super) use udp::Udp;
pub(super) use window::Window;
