//! HTTP with clients: from the first byte of a request to the last byte of its response.
//!
//! May use every room below: `access`, `record`, `state`, `origins`, `body`, `policy`, `client`, `metrics`, `config`,
//! `lifecycle`, `util`.
//!
//! [`request::serve`] takes a request through its nine named steps. `h1`, `h2` and `h3` read requests and write
//! responses. [`RequestContext`](context::RequestContext) follows a request to its record. An idle HTTP/1 connection
//! keeps only its [`ServerIo`](h1::io::ServerIo) after a tenth of a second.

pub(crate) mod alt_svc;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod error_page;
pub(crate) mod response_body;

pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod h3;
pub(crate) mod local;
pub(crate) mod multiplexed;
pub(crate) mod request;
pub(crate) mod send_bound;
pub(crate) mod server;
pub(crate) mod tunnel_websocket;
pub(crate) mod upgrade;
pub(crate) mod wire_state;
