//! TCP: names and addresses, opening and connecting sockets, their options, and streams around them.
//!
//! May use no other room.

mod acceptor;
mod congestion;
mod connect;
mod listen;
mod pass_writes;
mod path;
mod read_ahead;
mod relay;
mod replay;
mod reset_watcher;
mod resolve;
mod round_trip;
mod shard_stream;
mod socket_options;

pub use acceptor::Acceptor;
pub use congestion::{Congestion, CongestionError};
pub(crate) use connect::{SocketChoice, connect_host, display_host_port};
pub use connect::{connect_tcp_as, connect_tcp_to};
pub use listen::{BACKLOG, ListenError, listen, listen_by};
pub(crate) use listen::{adopt_listener, why_not_open};
pub use path::TcpPath;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use path::tcp_path;
pub use read_ahead::ReadAhead;
pub use relay::{Pace, RelayCounts, RelayEnd, RelayError, Side, Unpaced, relay};
pub use replay::{MAX_REPLAY_BYTES, ReplayStream};
pub use reset_watcher::ResetWatcher;
pub use resolve::{MAX_ADDRESSES, resolve};
pub use round_trip::shortest_round_trip;
pub use shard_stream::ShardTcpStream;
pub use socket_options::{acknowledge, keep_for_end, set_notsent_lowat, set_user_timeout};
