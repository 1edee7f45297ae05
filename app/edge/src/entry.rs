//! Who may enter a socket, and how much of it one may use.

use std::{
    net::IpAddr,
    task::{Context, Poll},
};

use sallyport_model::SocketRoute;
use sallyport_net::Pace;

use crate::{Edge, flow_record::Verdict, sockets::SocketPool};

/// What a flow got when it was let in; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Pass {}

/// Whether a flow from this address may enter the socket now.
///
/// # Errors
/// Why not.
pub(crate) async fn may_enter(
    _edge: &Edge,
    _route: &SocketRoute,
    _pool: &SocketPool,
    _client: IpAddr,
) -> Result<Pass, Verdict> {
    Ok(Pass::default())
}

impl Pace for Pass {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn moved(&mut self, _bytes: usize) {}
}
