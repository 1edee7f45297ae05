//! Options and values on the command line that several commands or servers share.
//! Uses `failure`.

pub(crate) mod acme;
pub(crate) mod anycast;
pub(crate) mod argv;
pub(crate) mod audit;
pub(crate) mod bus;
pub(crate) mod capacity;
pub(crate) mod dns;
pub(crate) mod domain;
pub(crate) mod inspect;
pub(crate) mod listen;
pub(crate) mod mail;
pub(crate) mod password;
pub(crate) mod port;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod site;
