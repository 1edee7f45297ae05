//! The server's side of SSH 2.0 (RFC 4250 to 4254) for `ssh -R`, as a sans-IO state machine.
//!
//! [`Server`] is one connection of a client. It reads no clock and no socket. Its driver decides about logins and the
//! meaning of forwards:
//!
//! ```
//! # use std::{sync::Arc, time::Instant};
//! # use sallyport_ssh_proto::{Answer, Config, Event, Server};
//! # fn drive(
//! #     server: &mut Server,
//! #     received: &mut Vec<u8>,
//! #     written: &mut Vec<u8>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let done = server.handle_input(received, Instant::now())?;
//! received.drain(..done);
//! while let Some(event) = server.poll_event() {
//!     match event {
//!         Event::Login(login) if login.user == "ann" => server.answer_login(Answer::Accept),
//!         Event::Login(_) => server.answer_login(Answer::Refuse),
//!         Event::Forward { port, .. } => server.answer_request(Some(port)),
//!         _ => {}
//!     }
//! }
//! server.swap_output(written); // and write it
//! # Ok(())
//! # }
//! ```
//!
//! [`Server::open_forwarded`] opens a stream to the client's origin; [`Server::read`] and [`Server::write`] move its
//! data. Each channel has a window of 256 KiB, up to 8 MiB for readers that wait for data. The window opens when data
//! has been used, so a slow reader delays only its own channel.
//!
//! Everything held for a client has a bound, a low one before its login. Key exchange is strict if the client supports
//! it. All cryptographic primitives are AWS-LC's; the `ssh-key` crate has the formats of keys and certificates.

mod algorithms;
mod channel;
mod cipher;
mod error;
mod event;
mod host_key;
mod kex;
mod limits;
mod message;
mod output;
mod packet;
pub mod proof;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wire;

pub use error::{Error, Result};
pub use event::{Answer, ChannelId, Credential, Event, Login, SessionRequest};
pub use host_key::HostKey;
pub use limits::{
    FIRST_WINDOW_BYTES, MAX_GROWN_BYTES, MAX_REKEY_BYTES, MAX_USER_BYTES, MAX_WAITING_BYTES, MAX_WINDOW_BYTES,
    REKEY_TIME,
};
pub use server::{Config, Random, Read, Server, Written};
pub use ssh_key;
