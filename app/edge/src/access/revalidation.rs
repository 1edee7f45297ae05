//! Repeats the admission decision for as long as a flow lasts.

use std::{net::IpAddr, sync::Arc, time::Duration};

use sallyport_model::{Identity, SocketId};
use tokio::sync::watch;

use super::{Access, AccessRequest, now};

use crate::{origins::pool::SocketPool, policy::judge};

/// How often flows are evaluated again without an event: logins, tokens and policies expire.
const JUDGE_AGAIN: Duration = Duration::from_secs(5);

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// The last address at which the client is proven to receive.
    pub(crate) proven: IpAddr,
    /// Another address from which the client sends. Flows must be admitted there too.
    pub(crate) claimed: Option<IpAddr>,
}

impl Whereabouts {
    /// At this proven address.
    pub(crate) fn at(proven: IpAddr) -> Self {
        Self { proven, claimed: None }
    }

    /// The addresses at which a flow must be admitted.
    pub(crate) fn addresses(self) -> impl Iterator<Item = IpAddr> {
        std::iter::once(self.proven).chain(self.claimed)
    }
}

/// What a flow was admitted with.
pub(crate) struct AccessRevalidation {
    access: Arc<Access>,
    pool: Arc<SocketPool>,
    socket: SocketId,
    client: IpAddr,
    /// Where the client moves; `None` if it cannot move.
    moves: Option<watch::Receiver<Whereabouts>>,
    request: Option<Box<(http::Method, String)>>,
    port: u16,
    identity: Option<Identity>,
    /// The flow was admitted before the socket had policies, and is evaluated for the first time now.
    is_late: bool,
    calls: watch::Receiver<()>,
}

impl AccessRevalidation {
    /// For a flow to this socket. To be made before the first decision, so that no change is missed.
    pub(crate) fn new(access: &Arc<Access>, pool: &Arc<SocketPool>, client: IpAddr, port: u16) -> Self {
        let (socket, calls) = (pool.socket(), pool.calls());
        let (access, pool) = (access.clone(), pool.clone());
        let (moves, request, identity, is_late) = (None, None, None, false);
        Self { access, pool, socket, client, moves, request, port, identity, is_late, calls }
    }

    /// Sets where the client moves.
    pub(crate) fn set_moves(&mut self, moves: Option<watch::Receiver<Whereabouts>>) {
        self.moves = moves;
    }

    /// Sets the method and path, which policies may look at.
    pub(crate) fn set_request(&mut self, method: &http::Method, path: &str) {
        self.request = Some(Box::new((method.clone(), path.to_owned())));
    }

    /// Marks a flow that was admitted before the socket had policies.
    pub(crate) fn set_due(&mut self) {
        self.is_late = true;
    }

    /// Sets the identity that the flow was admitted with.
    pub(crate) fn set_identity(&mut self, identity: Option<Identity>) {
        self.identity = identity;
    }

    /// Resolves when the flow is no longer admitted.
    pub(crate) async fn over(mut self) {
        self.until_over().await;
    }

    /// The same by reference, which keeps the future small: a future holds moved arguments twice. Cancel safe.
    pub(crate) async fn until_over(&mut self) {
        loop {
            if !std::mem::take(&mut self.is_late) {
                self.until_changed().await;
            }
            if !self.holds() {
                self.access.state.metrics.identity("revoked");
                return;
            }
        }
    }

    /// Resolves when the decision may have changed, or the client has moved.
    async fn until_changed(&mut self) {
        let is_known = match &mut self.moves {
            None => self.calls.changed().await.is_ok(),
            Some(moves) => {
                // Boxed, because few flows can move.
                let moved = Box::pin(moves.changed());
                tokio::select! {
                    called = self.calls.changed() => called.is_ok(),
                    moved = moved => {
                        match (moved, &mut self.moves) {
                            (Ok(()), Some(moves)) => drop(moves.borrow_and_update()),
                            _ => self.moves = None,
                        }
                        true
                    }
                }
            }
        };
        if !is_known {
            // The socket's pool is gone, and with it every later event.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the flow would be admitted now.
    fn holds(&self) -> bool {
        // The socket was deleted.
        let Some(route) = self.access.state.routes.get(self.socket) else { return false };
        let rules = self.pool.rules(&route);
        let seen = self.moves.as_ref().map_or_else(|| Whereabouts::at(self.client), |moves| *moves.borrow());
        let geo = self.access.state.config.geo.as_deref();
        if seen != Whereabouts::at(self.client) && !seen.addresses().all(|address| rules.admit(address, geo)) {
            return false;
        }
        let Some(judge) = rules.judge() else { return true };
        let now = now();
        let identity = match (judge.asks(), &self.identity) {
            // Without an identity setting, the identity does not count.
            (None, _) | (_, None) => None,
            (Some(asks), Some(identity)) => {
                let identities = self.access.identity.parts().map(|parts| &parts.identities);
                let known = match identity {
                    Identity::Person(was) => identities
                        .and_then(|known| known.session(was.id))
                        .filter(|session| judge::is_good_session(session, &route, asks, now))
                        .map(Identity::Person),
                    Identity::Service(was) => identities
                        .and_then(|known| known.token(was.id))
                        .filter(|token| token.hash == was.hash && judge::is_good_token(token, &route, now))
                        .map(Identity::Service),
                };
                if known.is_none() {
                    return false;
                }
                known
            }
        };
        let (method, path) = match self.request.as_deref() {
            Some((method, path)) => (Some(method.as_str()), Some(path.as_str())),
            None => (None, None),
        };
        seen.addresses().all(|client| {
            let request = AccessRequest { client, method, path, port: self.port };
            judge.decide(identity.as_ref(), &request, geo, now).allowed
        })
    }
}

/// Starts new evaluations when logins change, and every [`JUDGE_AGAIN`]. Ends with the access.
pub(crate) async fn follow(access: &Access) {
    let mut changes = access.identity.parts().map(|parts| parts.identities.subscribe());
    let mut ticks = tokio::time::interval(JUDGE_AGAIN);
    loop {
        let change = async {
            match &mut changes {
                Some(changes) => changes.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let is_known = tokio::select! {
            is_known = change => is_known,
            _ = ticks.tick() => true,
        };
        if !is_known {
            changes = None;
        }
        access.state.sockets.all().iter().for_each(|pool| pool.call_judged());
    }
}
