//! The name server on real sockets, beside other programs of DNS where they are installed.

mod knot;
mod sockets;
mod support;
mod transfers;
mod validation;
