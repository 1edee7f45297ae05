//! Which tunnels may attach, and which are detached.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, OnceLock, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use sallyport_bus::{Directory, RouteChange, RouteChanges, Routes};
use sallyport_model::{CredentialHash, OriginHealth, SocketId, SocketRoute, SocketType, TunnelId, TunnelPresence};
use sallyport_tunnel::{Admission, Admitted, EdgeTunnels, SessionId, TunnelHandle};
use sallyport_wire::{NOT_YET_KNOWN, Refusal};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    origins::{pool::Sockets, transport::Holder},
    ssh::SshTunnels,
    tunnels::lookup::{TunnelLookup, TunnelStatus},
};

/// Admits tunnels by their credentials, and updates sockets and directory.
pub(crate) struct TunnelAdmission {
    domain: String,
    public_port: u16,
    routes: Routes,
    directory: Directory,
    sockets: Arc<Sockets>,
    /// Asks control about unknown tunnels, if control is on another machine.
    lookup: OnceLock<Arc<TunnelLookup>>,
    /// The tunnels of stock ssh clients, if the edge serves them.
    ssh: OnceLock<Weak<SshTunnels>>,
    /// The socket and credential of each tunnel that is attached or about to attach.
    admitted: Mutex<HashMap<TunnelId, (SocketId, CredentialHash)>>,
    /// The socket where each tunnel was last found, so that a reconnect need not search all routes.
    found: Mutex<HashMap<TunnelId, SocketId>>,
}

/// For how many tunnels the socket is remembered.
const MAX_FOUND: usize = 65_536;

impl TunnelAdmission {
    /// Admission to the sockets of these routes.
    pub(crate) fn new(
        domain: String,
        public_port: u16,
        routes: Routes,
        directory: Directory,
        sockets: Arc<Sockets>,
    ) -> Self {
        let (admitted, found) = (Mutex::default(), Mutex::default());
        let (lookup, ssh) = (OnceLock::new(), OnceLock::new());
        Self { domain, public_port, routes, directory, sockets, lookup, ssh, admitted, found }
    }

    /// Sets the lookup that runs before a tunnel is refused for good.
    pub(crate) fn set_lookup(&self, lookup: Arc<TunnelLookup>) {
        let _ = self.lookup.set(lookup);
    }

    /// The refusal of a tunnel that is unknown here or has another credential. Final only if control has confirmed.
    fn refusal(&self, tunnel: TunnelId, credential: CredentialHash, known_here: TunnelStatus) -> Refusal {
        let status = match self.lookup.get() {
            Some(lookup) => lookup.status(tunnel, credential),
            None => Some(known_here),
        };
        match status {
            Some(TunnelStatus::Unknown) => {
                Refusal::new("unknown-tunnel", &format!("there is no tunnel {tunnel}: create one first"), false)
            }
            Some(TunnelStatus::BadCredential) => {
                Refusal::new("bad-credential", &format!("the credential is not that of tunnel {tunnel}"), false)
            }
            Some(TunnelStatus::Exists | TunnelStatus::Away) | None => {
                Refusal::new(NOT_YET_KNOWN, &format!("this edge does not know tunnel {tunnel} yet"), true)
            }
        }
    }

    /// Sets the ssh tunnels. A connector that attaches replaces their clients.
    pub(crate) fn set_ssh_tunnels(&self, ssh: Weak<SshTunnels>) {
        let _ = self.ssh.set(ssh);
    }

    fn route_of(&self, tunnel: TunnelId) -> Option<(Arc<SocketRoute>, CredentialHash)> {
        let credential = |route: &SocketRoute| route.tunnel(tunnel).map(|tunnel| tunnel.credential);
        let known = self.found.lock().get(&tunnel).copied();
        if let Some(route) = known.and_then(|socket| self.routes.get(socket))
            && let Some(hash) = credential(&route)
        {
            return Some((route, hash));
        }
        let all = self.routes.all();
        let (route, hash) = all.iter().find_map(|route| Some((route.clone(), credential(route)?)))?;
        // After a restart many tunnels come back at once, and a search for each would be slow.
        let mut found = self.found.lock();
        if found.len() >= MAX_FOUND {
            found.clear();
        }
        let tunnels = all.iter().flat_map(|route| route.tunnels.iter().map(|tunnel| (tunnel.id, route.id)));
        let room = MAX_FOUND - found.len();
        found.extend(tunnels.take(room));
        found.insert(tunnel, route.id);
        Some((route, hash))
    }

    /// The socket of a tunnel and the digest of the tunnel's credential, if the credential is right.
    fn proven(&self, tunnel: TunnelId, credential: &str) -> Result<(Arc<SocketRoute>, CredentialHash), Refusal> {
        let given: [u8; 32] = Sha256::digest(credential.as_bytes()).into();
        let Some((route, expected)) = self.route_of(tunnel) else {
            return Err(self.refusal(tunnel, CredentialHash(given), TunnelStatus::Unknown));
        };
        if !bool::from(given.ct_eq(&expected.0)) {
            return Err(self.refusal(tunnel, CredentialHash(given), TunnelStatus::BadCredential));
        }
        Ok((route, expected))
    }

    /// Checks a credential, without an attachment.
    ///
    /// # Errors
    /// The refusal that an attachment with this credential would get.
    pub(crate) fn check(&self, tunnel: TunnelId, credential: &str) -> Result<(), Refusal> {
        self.proven(tunnel, credential).map(drop)
    }

    /// Whether an attached tunnel may stay.
    fn may_stay(&self, tunnel: TunnelId, socket: SocketId, credential: &CredentialHash) -> bool {
        let route = self.routes.get(socket);
        route.is_some_and(|route| route.tunnel(tunnel).is_some_and(|tunnel| tunnel.credential == *credential))
    }

    /// Detaches tunnels that the routes do not allow any more, of one socket or of all.
    fn dismiss(&self, tunnels: &EdgeTunnels, of: Option<SocketId>) {
        let attached: Vec<_> = {
            let admitted = self.admitted.lock();
            let is_of = |socket: SocketId| of.is_none_or(|of| of == socket);
            admitted.iter().filter(|(_, (socket, _))| is_of(*socket)).map(|(id, entry)| (*id, *entry)).collect()
        };
        for (tunnel, (socket, credential)) in attached {
            if !self.may_stay(tunnel, socket, &credential) {
                tracing::info!(%tunnel, %socket, "a tunnel is detached: it was deleted, or its credential changed");
                tunnels.detach(tunnel, "deleted", "the tunnel was deleted, or its credential was replaced");
            }
        }
    }

    /// Follows the routes for as long as they change.
    pub(crate) async fn follow(&self, tunnels: &EdgeTunnels, mut changes: RouteChanges) {
        // Starts the health checks of existing direct origins.
        self.routes.all().iter().for_each(|route| self.sockets.changed(route));
        while let Some(change) = changes.next().await {
            match change {
                RouteChange::Changed(route) => {
                    self.dismiss(tunnels, Some(route.id));
                    self.sockets.changed(&route);
                }
                RouteChange::Removed(socket) => {
                    self.dismiss(tunnels, Some(socket));
                    self.sockets.forget(socket);
                }
                RouteChange::Missed => {
                    self.dismiss(tunnels, None);
                    self.sockets.retain(|socket| self.routes.get(socket).is_some());
                    self.routes.all().iter().for_each(|route| self.sockets.changed(route));
                }
            }
        }
    }
}

impl Admission for TunnelAdmission {
    fn admit(&self, tunnel: TunnelId, credential: &str, _peer: SocketAddr) -> Result<Admitted, Refusal> {
        let (route, expected) = self.proven(tunnel, credential)?;
        let mut admitted = self.admitted.lock();
        admitted.insert(tunnel, (route.id, expected));
        Ok(Admitted {
            socket: route.id,
            url: route.url(&self.domain, self.public_port),
            datagrams: route.socket_type == SocketType::Udp,
        })
    }

    fn attached(&self, tunnel: TunnelHandle) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        tracing::info!(tunnel = %tunnel.tunnel(), socket = %tunnel.socket(), agent = tunnel.agent(), "a tunnel is up");
        self.directory.arrived(TunnelPresence {
            tunnel: tunnel.tunnel(),
            socket: tunnel.socket(),
            connector_addr: tunnel.connector_addr(),
            agent: tunnel.agent().to_owned(),
            since: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            home: tunnel.home().cloned(),
            origin: tunnel.origin().cloned(),
            host: tunnel.host().map(str::to_owned),
            spread: tunnel.spreads_streams(),
            health: OriginHealth::default(),
            failure: None,
        });
        let id = tunnel.tunnel();
        self.sockets.pool(tunnel.socket()).arrived(tunnel.into());
        if let Some(ssh) = self.ssh.get().and_then(Weak::upgrade) {
            ssh.replaced_by_connector(id);
        }
    }

    fn detached(&self, tunnel: TunnelId, session: SessionId, reason: &str) {
        tracing::info!(%tunnel, reason, "a tunnel is down");
        // All pools are searched: the route may be gone, or the tunnel may have come back by another session.
        if !self.sockets.left(tunnel, Holder::Session(session)) {
            self.directory.left(tunnel);
            self.admitted.lock().remove(&tunnel);
        }
    }
}
