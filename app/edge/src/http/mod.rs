//! HTTP with clients: from the first byte of a request to the last byte of its answer.
//!
//! Uses every room above which it stands: `access`, `record`, `origins`, `body`, `policy`.

pub(crate) mod answer_body;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod error_page;
pub(crate) mod guarded_io;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod local;
pub(crate) mod request;
pub(crate) mod send_bound;
pub(crate) mod server;
pub(crate) mod tunnel_websocket;
pub(crate) mod upgrade;
