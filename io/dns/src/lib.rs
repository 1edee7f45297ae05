//! The name server on the network: `core/zone` answers, this crate has the sockets.
//!
//! - [`bind()`] opens ports; sockets of systemd or of a former process do as well.
//! - [`Server::start`] runs one thread for each UDP socket, and a task for each TCP connection.
//! - [`Server::set_zones`], [`Server::change_view`] and [`Server::set_settings`] take effect with the next query.
//! - [`notify()`] tells secondaries of a change.
//! - [`Counters`] are for metrics.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use sallyport_dns::{Server, ServerConfig, bind};
//! use sallyport_zone::{Settings, Zones};
//!
//! let (udp, tcp) = bind("0.0.0.0:53".parse()?, 2, false)?;
//! let zones = Arc::new(Zones::default());
//! let server = Server::start(&ServerConfig::default(), zones, Arc::new(Settings::default()), udp, vec![tcp])?;
//! server.change_view(|view| {
//!     // The edges that are healthy now. Errors say what does not fit.
//!     let _ = view.set_group("all", 20, &["192.0.2.1".parse().expect("an address")], None);
//! });
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! A thread looks at one number for each batch of queries, and takes the new zones and view only if it has changed. So
//! queries wait for no lock.

mod bind;
mod counters;
mod current;
mod notify;
mod server;
mod tcp;
mod udp;

pub use bind::{MAX_UDP_SOCKETS, bind, bind_tcp, bind_udp};
pub use counters::Counters;
pub use notify::{NotifyError, notify};
pub use server::{Server, ServerConfig, StartError};
pub use tcp::TcpLimits;
