//! `ssh -R` as a tunnel: the server's side of SSH, without business rules. `core/ssh` implements the protocol; this
//! crate adds a transport, a clock, and streams.
//!
//! A client logs in with a key and requests `tcpip-forward`s (RFC 4254 section 7.1). The user of this crate opens
//! streams to the client's origin through a [`Forward`] (section 7.2). The [`SshGate`] decides about logins, the
//! meaning of forwards, and the source of their traffic. A shell shows the connection's [`Console`]: address lines and
//! a live log.
//!
//! ```text
//! ssh -R ──tcp──► SshServer::serve_connection ── authenticate, forward ──► SshGate
//!                        │                                                   │ keeps the Forward
//!                        ◄── forwarded-tcpip channel ── Forward::open ◄──────┘
//! ```
//!
//! Only forwards are offered: no commands, no subsystems, no agent or X11 forwarding, no connections from the client
//! into the server's network.
//!
//! Flow control is per channel: a visitor that reads slowly fills the window of its own channel (256 KiB, up to 8 MiB
//! for fast readers), and nothing else on the connection waits for it.
//! [`serve_connection`](SshServer::serve_connection) ends when the connection does.

mod authority;
mod config;
mod connection;
mod console;
mod forward;
mod gate;
mod handler;
mod host_keys;
mod link;
#[cfg(test)]
mod proof_tests;
mod server;
mod session;
mod shell;
mod stats;
mod stream;
mod transport;

use std::{future::Future, pin::Pin};

pub use authority::{
    MAX_CLOCK_DIFFERENCE, SignError, TrustedAuthority, USER_AUTHORITY_FILE, UserAuthority, VALID_AHEAD,
};
pub use config::SshConfig;
pub use connection::Connection;
pub use console::{Console, MAX_CONSOLE_LINE_BYTES, MAX_CONSOLE_LINES};
pub use forward::{Forward, OpenError};
pub use gate::{Attempt, Credential, ForwardRefusal, Granted, SshGate, Verdict};
pub use host_keys::{ECDSA_KEY_FILE, ED25519_KEY_FILE, HostKeyError, HostKeys};
pub use sallyport_ssh_proto::ssh_key::{self, Certificate, PrivateKey, PublicKey};
pub use server::{ConnectionEnd, SshServer};
pub use stats::SshStats;
pub use stream::SshStream;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
