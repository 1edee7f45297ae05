//! Reads the TCP sockets of this network namespace by netlink (sock_diag(7)), and finds those of a process.
//!
//! Reading needs no privilege. Only Linux has sock_diag.

mod counts;
mod error;
#[cfg(any(target_os = "linux", test))]
mod info;
mod process;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod watch;

use std::net::SocketAddr;

use sallyport_tcp_window::Sample;

pub use counts::network_counts;
pub use error::SockDiagError;
pub use process::socket_inodes;
#[cfg(target_os = "linux")]
pub use reader::Reader;
#[cfg(target_os = "linux")]
pub use watch::{MAX_SAMPLES, MAX_WATCHED, Watch, Watched};

/// A connected TCP socket, as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The kernel's number of the socket (SO_COOKIE), which no later socket gets.
    pub cookie: u64,
    /// The number by which the files of a process name the socket; zero once no process has it.
    pub inode: u32,
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// Its buffers, windows and counts. The time is zero.
    pub sample: Sample,
}
