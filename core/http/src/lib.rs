//! The rules of HTTP at a front door: which requests are refused, which header fields are passed on, what an error
//! looks like.
//!
//! Everything here is pure: bytes and header maps in, verdicts and header maps out. Nothing reads a clock or a random
//! source.
//!
//! - [`refuse`] judges a parsed request, of any HTTP version, and says which host it is for.
//! - [`forward`] turns a client's header fields into those that an origin gets, and back.
//! - [`path`] says which service of a name a path is for; [`rewrite`] makes the changes that an owner has set.
//! - [`host`] takes host names apart, [`basic`] reads basic authentication, [`page`] writes error pages.
//! - [`limits`], [`lengths`], [`syntax`] and [`connection`] are rules that the servers of HTTP/1 and HTTP/2 share.

pub mod basic;
pub mod connection;
pub mod forward;
pub mod host;
pub mod lengths;
pub mod limits;
pub mod page;
pub mod path;
mod refusal;
pub mod refuse;
mod request_id;
pub mod rewrite;
pub mod syntax;

pub use refusal::RequestRefusal;
pub use refuse::RequestHost;
pub use request_id::RequestId;
