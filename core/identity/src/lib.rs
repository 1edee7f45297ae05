//! How a login travels: sealed texts that only this installation can make and read.
//!
//! A browser carries them between the edges and the place where people log in, in cookies and, for moments, in
//! redirects. What is sealed is encrypted and says what it is for, so that none passes for another; times are checked
//! against a `now` that is an argument, and random numbers are arguments.

mod seal;
mod ticket;

pub use seal::{NONCE_BYTES, Purpose, Sealer};
pub use ticket::{
    Binding, CLOCK_LEEWAY_SECONDS, GRANT_SECONDS, Grant, LOGIN_SECONDS, LoginRequest, MAX_RETURN_TO_BYTES,
    SocketCookie, safe_return_to,
};
