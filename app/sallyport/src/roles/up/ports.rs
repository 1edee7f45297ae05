//! The ports of `sallyport up`: one for TLS, one that redirects plain HTTP.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use sallyport_net::{ListenError, Listening, OwnPorts};
use tracing::warn;

use super::UpArgs;
use crate::{
    args::{
        listen::{DEFAULT_PORT, ListenAddress, RedirectAddress},
        server::is_of_this_machine,
    },
    daemon::Console,
};

/// The default port that redirects plain HTTP.
const DEFAULT_REDIRECT_PORT: u16 = 8080;
/// The ports at which ACME servers verify names, and at which browsers ask by default.
pub(super) const PUBLIC_PORTS: (u16, u16) = (443, 80);

/// The sockets from systemd, else newly opened ones.
pub(super) fn open(args: &UpArgs, console: Console) -> anyhow::Result<Listening> {
    if let Some(listening) = Listening::from_systemd()? {
        return Ok(listening);
    }
    let ip = if is_of_this_machine(&args.domain) { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let is_public = args.acme.acme.is_some();
    let (port, redirect_port) = if is_public { PUBLIC_PORTS } else { (DEFAULT_PORT, DEFAULT_REDIRECT_PORT) };
    let listen = args.listen.unwrap_or(ListenAddress { ip: None, port }).with_default(ip);
    let redirect = match args.listen_http {
        Some(RedirectAddress::Nowhere) => None,
        Some(RedirectAddress::At(address)) => Some((address.with_default(listen.ip()), true)),
        None => Some((SocketAddr::new(listen.ip(), redirect_port), is_public)),
    };
    let tls = sallyport_net::listen_by(listen, "--listen", args.mptcp)?;
    let redirect = match redirect {
        None => None,
        Some((address, asked_for)) => match sallyport_net::listen(address, "--listen-http") {
            Ok(listener) => Some(listener),
            Err(error) if asked_for => return Err(error.into()),
            // The default port is taken by another program, which must not prevent the start.
            Err(error) => {
                let why = match error {
                    ListenError::Taken { address, .. } => format!("port {} is taken", address.port()),
                    other => other.to_string(),
                };
                let step = "choose another port with --listen-http :PORT, or none with --listen-http none";
                if !console.print(&format!("note: {why}, so plain HTTP is not redirected: {step}")) {
                    warn!("{why}, so plain HTTP is not redirected: {step}");
                }
                None
            }
        },
    };
    Ok(Listening { tls, redirect, own: OwnPorts::default(), quic: Vec::new() })
}
