//! The measurements themselves, one file for each article.

mod congestion;
mod connectx;
mod multipath;
mod ping;
mod transfer;
mod udp;
mod window;

pub(super) use congestion::Congestion;
pub(super) use connectx::Connectx;
pub(super) use multipath::Multipath;
pub(super) use ping::Ping;
pub(super) use udp::Udp;
pub(super) use window::Window;
