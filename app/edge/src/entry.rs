//! Who may enter a socket, and how much of it one may use.

use std::{
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use sallyport_model::SocketRoute;
use sallyport_net::Pace;

use crate::{Edge, flow_record::Verdict, rules::Rules, sockets::SocketPool};

/// Why a flow may not enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barred {
    /// Its address is not let in.
    Denied,
}

impl From<Barred> for Verdict {
    fn from(barred: Barred) -> Self {
        match barred {
            Barred::Denied => Self::Denied,
        }
    }
}

/// What a flow got when it was let in; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Pass {}

/// Whether a flow from this address may enter the socket now.
///
/// # Errors
/// Why not.
pub(crate) async fn may_enter(
    edge: &Edge,
    route: &Arc<SocketRoute>,
    pool: &Arc<SocketPool>,
    client: IpAddr,
) -> Result<Pass, Barred> {
    let rules = check_address(edge, route, pool, client)?;
    take_place(pool, &rules, client).await
}

/// Whether the access list lets this address in.
///
/// # Errors
/// [`Barred::Denied`].
pub(crate) fn check_address(
    edge: &Edge,
    route: &Arc<SocketRoute>,
    pool: &Arc<SocketPool>,
    client: IpAddr,
) -> Result<Arc<Rules>, Barred> {
    let rules = pool.rules(route);
    if rules.admit(client, edge.config.geo.as_deref()) { Ok(rules) } else { Err(Barred::Denied) }
}

/// What is left to do for one whose address is let in.
///
/// # Errors
/// Why there is no room.
pub(crate) async fn take_place(_pool: &Arc<SocketPool>, _rules: &Rules, _client: IpAddr) -> Result<Pass, Barred> {
    Ok(Pass::default())
}

impl Pace for Pass {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn moved(&mut self, _bytes: usize) {}
}
