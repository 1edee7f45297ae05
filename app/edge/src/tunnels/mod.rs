//! Tunnels that connectors and ssh clients bring.
//!
//! Uses `origins`, `ssh`.

pub(crate) mod admission;
pub(crate) mod lookup;
