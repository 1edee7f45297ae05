//! The process: its open ports, how the next process takes them over, systemd, and its end.
//!
//! May use `tcp` and `udp`.

mod figures;
mod listening;
mod own_ports;
mod shutdown;
mod systemd;
mod takeover;

pub use figures::process_figures;
pub use listening::Listening;
pub use own_ports::{MAX_PASSED_PORTS, OpenPort, OwnPorts};
pub use shutdown::Shutdown;
pub use systemd::{notify_main_process, notify_ready, notify_status, notify_stopping};
pub use takeover::{HandOver, PassedPort, Successor, Takeover, TakeoverError, TakeoverOffer, TakeoverRequest};
