//! The rules of HTTP at the edge: which requests are refused, how header fields are forwarded, and error pages.
//!
//! The crate is pure: it maps bytes and header fields to decisions and header fields, and reads no clock and no random
//! source.
//!
//! - [`refuse`] checks a parsed request of any HTTP version, and returns the requested host.
//! - [`forward`] turns the header fields of clients into those for origins, and back.
//! - [`path`] finds the service that serves a path; [`rewrite`] applies the changes of a socket's owner.
//! - [`websocket`] turns WebSockets by extended CONNECT into upgrades, and back.
//! - [`host`] parses hosts, [`basic`] parses basic authentication, [`page`] writes error pages.
//! - [`limits`], [`lengths`], [`syntax`] and [`connection`] are rules that the HTTP/1 and HTTP/2 servers share.

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
pub mod websocket;

pub use refusal::RequestRefusal;
pub use refuse::RequestHost;
pub use request_id::RequestId;
