//! Whether who was let in still may, for as long as a flow lasts.

use std::{net::IpAddr, sync::Arc, time::Duration};

use sallyport_model::{Identity, SocketId};
use tokio::sync::watch;

use super::{Access, AccessRequest, now};

use crate::{origins::pool::SocketPool, policy::judge};

/// How often flows are judged again where nothing has changed but the time: logins, tokens and policies end.
const JUDGE_AGAIN: Duration = Duration::from_secs(5);

/// What a flow was let in with.
pub(crate) struct AccessRevalidation {
    access: Arc<Access>,
    pool: Arc<SocketPool>,
    socket: SocketId,
    client: IpAddr,
    request: Option<Box<(http::Method, String)>>,
    port: u16,
    identity: Option<Identity>,
    /// Whether it was let in when nothing was asked, and is judged for the first time now.
    is_late: bool,
    calls: watch::Receiver<()>,
}

impl AccessRevalidation {
    /// A flow to this socket. To be made before the flow is judged for the first time, so that nothing is missed.
    pub(crate) fn new(access: &Arc<Access>, pool: &Arc<SocketPool>, client: IpAddr, port: u16) -> Self {
        let (socket, calls) = (pool.socket(), pool.calls());
        let (access, pool) = (access.clone(), pool.clone());
        Self { access, pool, socket, client, request: None, port, identity: None, is_late: false, calls }
    }

    /// It is a request for this.
    pub(crate) fn set_request(&mut self, method: &http::Method, path: &str) {
        self.request = Some(Box::new((method.clone(), path.to_owned())));
    }

    /// It was let in before the socket asked anything.
    pub(crate) fn set_due(&mut self) {
        self.is_late = true;
    }

    /// It belongs to them.
    pub(crate) fn set_identity(&mut self, identity: Option<Identity>) {
        self.identity = identity;
    }

    /// Resolves when the flow may not go on.
    pub(crate) async fn over(mut self) {
        self.until_over().await;
    }

    /// The same for who keeps it: what a future takes in is held twice. Cancel safe.
    pub(crate) async fn until_over(&mut self) {
        loop {
            if !std::mem::take(&mut self.is_late) && self.calls.changed().await.is_err() {
                // Nobody calls any more: the socket's pool is gone.
                std::future::pending::<()>().await;
            }
            if !self.holds() {
                self.access.state.metrics.identity("revoked");
                return;
            }
        }
    }

    /// Whether the flow would be let in now.
    fn holds(&self) -> bool {
        // Nobody may go on at a socket that is gone.
        let Some(route) = self.access.state.routes.get(self.socket) else { return false };
        let rules = self.pool.rules(&route);
        let Some(judge) = rules.judge() else { return true };
        let now = now();
        let identity = match (judge.asks(), &self.identity) {
            // What the socket does not ask for, it does not know.
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
        let asked = AccessRequest { client: self.client, method, path, port: self.port };
        judge.decide(identity.as_ref(), &asked, self.access.state.config.geo.as_deref(), now).allowed
    }
}

/// Has the flows judged again whenever somebody may be nobody now, and every few seconds, for as long as the access serves.
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
