//! The ports of `sallyport edge`: one for TLS, and optionally one that redirects plain HTTP.

use std::net::Ipv6Addr;

use sallyport_net::{Listening, OwnPorts};

use super::EdgeArgs;
use crate::args::listen::RedirectAddress;

/// The sockets from systemd, else newly opened ones.
///
/// # Errors
/// A port is taken, or not allowed.
pub(super) fn open(args: &EdgeArgs) -> anyhow::Result<Listening> {
    if let Some(listening) = Listening::from_systemd()? {
        return Ok(listening);
    }
    let tls = sallyport_net::listen(args.listen.with_default(Ipv6Addr::UNSPECIFIED.into()), "--listen")?;
    let redirect = match args.listen_http {
        RedirectAddress::Nowhere => None,
        RedirectAddress::At(at) => {
            let ip = tls.local_addr()?.ip();
            Some(sallyport_net::listen(at.with_default(ip), "--listen-http")?)
        }
    };
    Ok(Listening { tls, redirect, own: OwnPorts::default(), quic: Vec::new() })
}
