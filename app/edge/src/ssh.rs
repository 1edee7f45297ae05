//! Stock ssh clients as connectors: who may log in, and what their forwards mean.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use sallyport_bus::SshLogins;
use sallyport_model::{AccountId, SocketId, SocketType, TunnelId, TunnelPresence};
use sallyport_ssh::{
    Attempt, BoxFuture, Connection, Credential, Forward, ForwardRefusal, Granted, PublicKey, SshConfig, SshGate,
    SshServer, Verdict,
};

use crate::{
    Edge,
    way::{Holder, SshWay, Way},
};

/// The login of clients without an account.
const GUEST: &str = "guest";
/// What the directory shows as the connector's program.
const AGENT: &str = "ssh";

/// What a forward of an ssh client means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// The socket.
    pub socket: SocketId,
    /// The tunnel that the forward holds up.
    pub tunnel: TunnelId,
    /// Whether the tunnel, and maybe the socket, live only as long as the forward.
    pub temporary: bool,
    /// Where clients reach the socket.
    pub url: String,
    /// The socket's own port, where it has one.
    pub port: Option<u16>,
}

/// Whoever knows what forwards mean: control.
pub trait SshConcierge: Send + Sync + 'static {
    /// What a forward of this account means; `None` is a guest. Makes what is needed for as long as the forward lives.
    fn target<'a>(
        &'a self,
        account: Option<AccountId>,
        address: &'a str,
        port: u32,
    ) -> BoxFuture<'a, Result<SshTarget, String>>;

    /// A forward with this meaning is over.
    fn ended(&self, target: SshTarget) -> BoxFuture<'_, ()>;
}

/// How stock ssh clients are served.
pub struct SshSettings {
    /// The server's keys and bounds; `guests` says whether clients without an account may come.
    pub config: SshConfig,
    /// The keys of the accounts.
    pub logins: SshLogins,
    /// What forwards mean.
    pub concierge: Arc<dyn SshConcierge>,
    /// A port for ssh alone, beside the one that all share.
    pub listener: Option<tokio::net::TcpListener>,
}

impl std::fmt::Debug for SshSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshSettings").finish_non_exhaustive()
    }
}

/// A server for stock ssh clients of this edge.
pub(crate) fn server(edge: &Arc<Edge>, settings: SshSettings) -> (SshServer, Arc<SshTunnels>) {
    let tunnels = Arc::new(SshTunnels {
        edge: Arc::downgrade(edge),
        logins: settings.logins,
        concierge: settings.concierge,
        guests: settings.config.guests,
        held: Mutex::default(),
    });
    (SshServer::new(settings.config, tunnels.clone()), tunnels)
}

/// The tunnels that ssh clients hold up.
pub(crate) struct SshTunnels {
    edge: Weak<Edge>,
    logins: SshLogins,
    concierge: Arc<dyn SshConcierge>,
    guests: bool,
    /// By tunnel; no more than the server's connections have forwards.
    held: Mutex<HashMap<TunnelId, Held>>,
}

struct Held {
    way: Arc<SshWay>,
    target: SshTarget,
}

impl SshTunnels {
    fn may_log_in(&self, user: &str, key: &PublicKey) -> Option<AccountId> {
        let login = self.logins.get(user)?;
        let is_it = |line: &String| PublicKey::from_openssh(line).is_ok_and(|own| own.key_data() == key.key_data());
        login.keys.iter().any(is_it).then_some(login.account)
    }

    /// A fresh login on the same tunnel takes the place of the old one.
    fn hold(&self, edge: &Edge, forward: &Forward, target: SshTarget) {
        let connection = forward.connection();
        let way = SshWay::new(target.tunnel, forward.clone());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        edge.sockets.pool(target.socket).arrived(Way::Ssh(way.clone()));
        edge.directory.arrived(TunnelPresence {
            tunnel: target.tunnel,
            socket: target.socket,
            connector_addr: connection.peer(),
            agent: AGENT.to_owned(),
            since: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        });
        tracing::info!(tunnel = %target.tunnel, socket = %target.socket, agent = AGENT, "a tunnel is up");
        let former = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.insert(target.tunnel, Held { way, target: target.clone() })
        };
        if let Some(former) = former {
            let before = former.way.forward().connection();
            edge.sockets.left(target.tunnel, Holder::Ssh(before.id()));
            if before != connection {
                before.disconnect("replaced by a newer login");
            }
        }
        edge.tunnels.detach(target.tunnel, "replaced", "an ssh client holds the tunnel now");
    }

    /// Lets go of what this connection holds up: all of it, or one forward.
    fn release(&self, connection: &Connection, forward: Option<&Forward>) {
        let gone: Vec<Held> = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |held: &Held| {
                let own = held.way.forward();
                own.connection() == *connection
                    && forward.is_none_or(|it| (it.address(), it.port()) == (own.address(), own.port()))
            };
            held.extract_if(|_, held| is_it(held)).map(|(_, held)| held).collect()
        };
        for Held { target, .. } in gone {
            tracing::info!(tunnel = %target.tunnel, agent = AGENT, "a tunnel is down");
            if let Some(edge) = self.edge.upgrade()
                && !edge.sockets.left(target.tunnel, Holder::Ssh(connection.id()))
            {
                edge.directory.left(target.tunnel);
            }
            let concierge = self.concierge.clone();
            tokio::spawn(async move { concierge.ended(target).await });
        }
    }

    /// Disconnects clients whose tunnel was deleted, of one socket or of all.
    pub(crate) fn look_at(&self, socket: Option<SocketId>) {
        let Some(edge) = self.edge.upgrade() else { return };
        let gone: Vec<Connection> = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let is_gone = |held: &&Held| {
                socket.is_none_or(|socket| held.target.socket == socket)
                    && edge.routes.get(held.target.socket).is_none_or(|r| r.tunnel(held.target.tunnel).is_none())
            };
            held.values().filter(is_gone).map(|held| held.way.forward().connection()).collect()
        };
        gone.iter().for_each(|connection| connection.disconnect("the tunnel was deleted"));
    }

    async fn grant(&self, connection: &Connection, forward: Forward) -> Result<Granted, ForwardRefusal> {
        let edge = self.edge.upgrade().ok_or_else(|| ForwardRefusal::new("the edge is shutting down"))?;
        let account = match connection.login() {
            GUEST => None,
            login => Some(login.parse().map_err(|_| ForwardRefusal::new("this login is not an account"))?),
        };
        let target = self.concierge.target(account, forward.address(), forward.requested_port()).await;
        let target = target.map_err(ForwardRefusal::new)?;
        let socket_type = edge.routes.get(target.socket).map(|route| route.socket_type);
        if let Some(why) = unfit(socket_type) {
            self.concierge.ended(target).await;
            return Err(ForwardRefusal::new(why));
        }
        let lines = vec![format!("{} is open", target.url)];
        let port = target.port.map_or(0, u32::from);
        self.hold(&edge, &forward, target);
        Ok(Granted { port, lines })
    }
}

/// Why an ssh forward cannot carry a socket of this type.
fn unfit(socket_type: Option<SocketType>) -> Option<&'static str> {
    match socket_type {
        None => Some("the socket was deleted"),
        Some(SocketType::Https) => Some(
            "a service behind an ssh client is spoken to in plain HTTP: ask for port 80, or use `sallyport connect \
             --type https`, which checks the service's certificate",
        ),
        Some(SocketType::Udp) => Some("ssh carries no UDP: use `sallyport connect --type udp`"),
        Some(SocketType::Http | SocketType::Tcp | SocketType::Tls) => None,
    }
}

impl SshGate for SshTunnels {
    fn authenticate<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = match attempt.credential {
            Credential::Offered(key) | Credential::Key(key) => {
                self.may_log_in(attempt.user, key).map(|account| account.to_string())
            }
            Credential::Guest if self.guests => Some(GUEST.to_owned()),
            Credential::Guest | Credential::Certificate(_) | Credential::Nothing => None,
        };
        Box::pin(std::future::ready(verdict.map_or(Verdict::Refuse, Verdict::Accept)))
    }

    fn forward<'a>(
        &'a self,
        connection: &'a Connection,
        forward: Forward,
    ) -> BoxFuture<'a, Result<Granted, ForwardRefusal>> {
        Box::pin(self.grant(connection, forward))
    }

    fn cancelled(&self, connection: &Connection, forward: &Forward) {
        self.release(connection, Some(forward));
    }

    fn closed(&self, connection: &Connection) {
        self.release(connection, None);
    }
}
