//! Stock ssh clients as connectors: their logins and their forwards.
//!
//! May use `state`, `origins`.

pub(crate) mod metrics;

use std::{
    collections::HashMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_api::{AuditEvent, AuditLogin};
use sallyport_bus::{SshLogins, ssh_login_name};
use sallyport_model::{
    AccountId, OriginHealth, SHA1_REFUSED, SocketId, SocketName, SocketRoute, SocketType, SshTunnelLogin, TunnelId,
    TunnelPresence,
};
use sallyport_ssh::{
    Attempt, BoxFuture, Certificate, Connection, Credential, Forward, ForwardRefusal, Granted, PublicKey, SshConfig,
    SshGate, SshServer, TrustedAuthority, Verdict,
    ssh_key::{HashAlg, public::KeyData},
};
use sallyport_tunnel::EdgeTunnels;
use tokio::task::JoinSet;

use crate::{
    origins::transport::{OriginTransport, SshTransport},
    state::EdgeState,
};

/// The login of clients without an account, followed by the fingerprint of their key, if they have presented one.
const GUEST: &str = "guest";
/// How long the client of a former login has to answer when the same key asks for the same port again.
const MAX_SILENCE: Duration = Duration::from_secs(2);
/// How long the route of a new forward may take from control to this edge.
const MAX_ROUTE_WAIT: Duration = Duration::from_secs(5);
/// How often the owner of an account is warned that a client signs with SHA-1.
const SHA1_WARNING_PERIOD: Duration = Duration::from_secs(600);
/// How many owners are warned in that time.
const MAX_SHA1_WARNINGS: usize = 1_024;
/// The connector's program in the directory.
const AGENT: &str = "ssh";
const KEY_REMOVED: &str = "the key that this login came with was removed from the account";
const TUNNEL_DELETED: &str = "the tunnel was deleted";
const LOGIN_UNKNOWN: &str = "this login is not valid here: log in again";

/// The target of an ssh client's forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// The socket.
    pub socket: SocketId,
    /// The tunnel that the forward serves.
    pub tunnel: TunnelId,
    /// Whether the tunnel, and maybe the socket, exist only as long as the forward.
    pub temporary: bool,
    /// The URL of the socket.
    pub url: String,
    /// The socket's own port, if it has one.
    pub port: Option<u16>,
}

/// An ssh client that requests a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshCaller<'a> {
    /// The account of its login; `None` for a guest.
    pub account: Option<AccountId>,
    /// The fingerprint of the key that it has proven to hold.
    pub key: Option<&'a str>,
    /// The one tunnel that it may serve, after a login by certificate.
    pub only: Option<SshTunnelLogin>,
    /// Its address.
    pub address: IpAddr,
}

/// Decides about forwards; implemented by control.
pub trait SshForwardAuthorizer: Send + Sync + 'static {
    /// The target of a forward. Makes what is needed, for as long as the forward lives.
    fn target<'a>(
        &'a self,
        caller: SshCaller<'a>,
        address: &'a str,
        port: u32,
    ) -> BoxFuture<'a, Result<SshTarget, String>>;

    /// The forward with this target has ended.
    fn ended(&self, target: SshTarget) -> BoxFuture<'_, ()>;
}

/// The settings of the ssh server.
pub struct SshSettings {
    /// The server's keys and bounds; `guests` admits clients without an account.
    pub config: SshConfig,
    /// The keys of the accounts.
    pub logins: SshLogins,
    /// The authority of the accepted certificates, each for one tunnel.
    pub authority: TrustedAuthority,
    /// Decides about forwards.
    pub authorizer: Arc<dyn SshForwardAuthorizer>,
    /// A port for ssh alone, besides the shared one.
    pub listener: Option<tokio::net::TcpListener>,
}

impl std::fmt::Debug for SshSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshSettings").finish_non_exhaustive()
    }
}

/// The ssh server of this edge.
pub(crate) fn server(
    state: &Arc<EdgeState>,
    tunnels: &EdgeTunnels,
    settings: SshSettings,
) -> (SshServer, Arc<SshTunnels>) {
    let tunnels = Arc::new(SshTunnels {
        state: state.clone(),
        connectors: tunnels.clone(),
        logins: settings.logins,
        authority: settings.authority,
        authorizer: settings.authorizer,
        guests: settings.config.guests,
        connections: Mutex::default(),
        promised: Mutex::default(),
        forwards: Mutex::default(),
        sha1_warnings: Mutex::default(),
    });
    (SshServer::new(settings.config, tunnels.clone()), tunnels)
}

/// The tunnels of ssh clients.
pub(crate) struct SshTunnels {
    state: Arc<EdgeState>,
    /// The tunnels of connectors.
    connectors: EdgeTunnels,
    logins: SshLogins,
    authority: TrustedAuthority,
    authorizer: Arc<dyn SshForwardAuthorizer>,
    guests: bool,
    /// Every login.
    connections: Mutex<HashMap<u64, Connection>>,
    /// Forwards that are about to be granted: at most one of each connection.
    promised: Mutex<Vec<PendingForward>>,
    /// The forwards that serve tunnels, by tunnel; bounded by the forwards of the server's connections.
    forwards: Mutex<HashMap<TunnelId, ServingForward>>,
    /// When the owner of an account was last warned that a client signs with SHA-1.
    sha1_warnings: Mutex<HashMap<AccountId, Instant>>,
}

struct ServingForward {
    transport: Arc<SshTransport>,
    target: SshTarget,
}

struct PendingForward {
    forward: Forward,
    name: SocketName,
    speaks_tls: bool,
    target: SshTarget,
}

/// The text in [`Connection::login`]: the account or [`GUEST`], the fingerprint of the key, and the tunnel if the login
/// is for one alone.
fn login_name(name: impl Display, key: &KeyData) -> String {
    format!("{name} {}", key.fingerprint(HashAlg::Sha256))
}

/// The caller of this connection. A login that cannot be parsed is no login: its restriction to one tunnel might be
/// lost otherwise.
fn caller(connection: &Connection) -> Option<SshCaller<'_>> {
    let (account, key, only) = parts_of(connection.login())?;
    Some(SshCaller { account, key, only, address: connection.peer().ip() })
}

/// The parts of a [`login_name`].
fn parts_of(login: &str) -> Option<(Option<AccountId>, Option<&str>, Option<SshTunnelLogin>)> {
    let mut words = login.splitn(3, ' ');
    let account = match words.next()? {
        GUEST => None,
        account => Some(account.parse().ok()?),
    };
    let key = words.next();
    let only = words.next().map(str::parse).transpose().ok()?;
    Some((account, key, only))
}

/// Whether both forwards belong to different logins with the same key, and ask for the same port.
fn is_alike(one: &Forward, other: &Forward) -> bool {
    let (here, there) = (one.connection(), other.connection());
    one.requested_port() == other.requested_port()
        && here != there
        && here.login() == there.login()
        && caller(&here).is_some_and(|caller| caller.key.is_some())
}

impl SshTunnels {
    /// Whether the owner of the account is warned now: refused clients come again and again.
    fn may_warn_of_sha1(&self, account: AccountId, now: Instant) -> bool {
        let mut warned = lock(&self.sha1_warnings);
        warned.retain(|_, at| now.saturating_duration_since(*at) < SHA1_WARNING_PERIOD);
        if warned.contains_key(&account) || warned.len() >= MAX_SHA1_WARNINGS {
            return false;
        }
        warned.insert(account, now);
        true
    }

    fn may_log_in(&self, user: &str, key: &PublicKey) -> Option<AccountId> {
        let login = self.logins.get(user)?;
        let is_it = |line: &String| PublicKey::from_openssh(line).is_ok_and(|own| own.key_data() == key.key_data());
        login.keys.iter().any(is_it).then_some(login.account)
    }

    /// The login for which this certificate is valid at `now`, in seconds since 1970.
    fn login_by_certificate(&self, user: &str, certificate: &Certificate, now: u64) -> Option<String> {
        let only: SshTunnelLogin = self.authority.vouches_for(certificate, user, now)?.parse().ok()?;
        let is_there = ssh_login_name(only.account) == user && self.has_tunnel(only);
        is_there.then(|| format!("{} {only}", login_name(only.account, certificate.public_key())))
    }

    /// Whether the tunnel of this login still exists.
    fn has_tunnel(&self, only: SshTunnelLogin) -> bool {
        let route = self.state.routes.get(only.socket);
        route.is_some_and(|route| route.account == only.account && route.tunnel(only.tunnel).is_some())
    }

    /// Disconnects the client if its key or tunnel was removed.
    fn check(&self, connection: &Connection) {
        let Some(caller) = caller(connection) else { return connection.disconnect(LOGIN_UNKNOWN) };
        match caller.only {
            Some(only) if !self.has_tunnel(only) => connection.disconnect(TUNNEL_DELETED),
            None if !self.has_key(caller) => connection.disconnect(KEY_REMOVED),
            _ => {}
        }
    }

    /// Whether the account still has the key of this login.
    fn has_key(&self, caller: SshCaller<'_>) -> bool {
        let (Some(account), Some(fingerprint)) = (caller.account, caller.key) else {
            return true;
        };
        let Some(login) = self.logins.get(&account.to_string()) else { return false };
        let is_it = |line: &String| {
            PublicKey::from_openssh(line).is_ok_and(|own| own.fingerprint(HashAlg::Sha256).to_string() == fingerprint)
        };
        login.keys.iter().any(is_it)
    }

    /// Changes whenever logins may have become valid or invalid.
    pub(crate) fn login_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.logins.subscribe()
    }

    /// Disconnects clients with a removed key.
    pub(crate) fn look_at_logins(&self) {
        let logged_in: Vec<Connection> = lock(&self.connections).values().cloned().collect();
        logged_in.iter().for_each(|connection| self.check(connection));
    }

    /// Lets the forward serve its tunnel. It replaces the forward of an older login on the same tunnel, or of the same
    /// key on the same socket. The older forward finishes what it serves.
    fn hold(&self, promised: PendingForward) {
        let PendingForward { forward, name, speaks_tls, target } = promised;
        let connection = forward.connection();
        let transport = SshTransport::new(target.tunnel, name, speaks_tls, forward);
        self.state.sockets.pool(target.socket).arrived(OriginTransport::Ssh(transport.clone()));
        self.state.directory.arrived(TunnelPresence {
            tunnel: target.tunnel,
            socket: target.socket,
            connector_addr: connection.peer(),
            agent: AGENT.to_owned(),
            since: i64::try_from(unix_seconds()).unwrap_or(i64::MAX),
            home: None,
            origin: None,
            host: None,
            spread: false,
            health: OriginHealth::default(),
            failure: None,
        });
        tracing::info!(tunnel = %target.tunnel, socket = %target.socket, agent = AGENT, "a tunnel is up");
        let (tunnel, socket, holder) = (target.tunnel, target.socket, transport.holder());
        let is_former = |serving: &ServingForward| {
            serving.target.socket == socket
                && serving.target.temporary
                && is_alike(serving.transport.forward(), transport.forward())
        };
        let former: Vec<ServingForward> = {
            let mut forwards = lock(&self.forwards);
            let mut former: Vec<ServingForward> =
                forwards.extract_if(|_, serving| is_former(serving)).map(|(_, serving)| serving).collect();
            former.extend(forwards.insert(tunnel, ServingForward { transport: transport.clone(), target }));
            former
        };
        former.into_iter().for_each(|former| self.replace(former, "a newer login"));
        if lock(&self.forwards).get(&tunnel).is_some_and(|serving| serving.transport.holder() == holder) {
            self.connectors.detach(tunnel, "replaced", "replaced by an ssh client, which holds the tunnel now");
        }
    }

    /// A connector has attached the tunnel: the forward that served it finishes.
    pub(crate) fn replaced_by_connector(&self, tunnel: TunnelId) {
        let former = lock(&self.forwards).remove(&tunnel);
        if let Some(former) = former {
            self.replace(former, "a connector");
        }
    }

    /// Ends a forward for new requests, and sends its client the reason. The client is disconnected unless it serves
    /// something else.
    fn replace(&self, former: ServingForward, by: &str) {
        let ServingForward { transport, target } = former;
        let before = transport.forward().connection();
        if !self.state.sockets.left(target.tunnel, transport.holder()) {
            self.state.directory.left(target.tunnel);
        }
        if lock(&self.forwards).values().any(|serving| serving.transport.forward().connection() == before) {
            before.console().line(&format!("{}: replaced by {by}", target.url));
        } else {
            before.retire(&format!("replaced by {by}"), self.state.config.shutdown_grace);
        }
        self.end(target);
    }

    /// Releases the forwards of this client's former login, if that login does not answer. Their names and ports are
    /// then free for the client.
    async fn release_former(&self, forward: &Forward) {
        let former: Vec<Connection> = {
            let forwards = lock(&self.forwards);
            let is_it =
                |serving: &&ServingForward| serving.target.temporary && is_alike(serving.transport.forward(), forward);
            forwards.values().filter(is_it).map(|serving| serving.transport.forward().connection()).collect()
        };
        let mut asking = JoinSet::new();
        for connection in former {
            asking.spawn(async move { (connection.answers_within(MAX_SILENCE).await, connection) });
        }
        while let Some(Ok((is_there, connection))) = asking.join_next().await {
            if !is_there {
                connection.disconnect("replaced by a newer login: this one answered no more");
                for target in self.let_go(&connection, None) {
                    self.authorizer.ended(target).await;
                }
            }
        }
    }

    /// Releases the forwards of this connection, or one of them.
    fn release(&self, connection: &Connection, forward: Option<&Forward>) {
        self.let_go(connection, forward).into_iter().for_each(|target| self.end(target));
    }

    /// Like [`Self::release`], without a message to control. Returns the ended targets.
    fn let_go(&self, connection: &Connection, forward: Option<&Forward>) -> Vec<SshTarget> {
        let is_it = |own: &Forward| own.connection() == *connection && forward.is_none_or(|it| it == own);
        let promised = lock(&self.promised).extract_if(.., |promised| is_it(&promised.forward)).collect::<Vec<_>>();
        let mut over: Vec<SshTarget> = promised.into_iter().map(|promised| promised.target).collect();
        let gone: Vec<ServingForward> = lock(&self.forwards)
            .extract_if(|_, serving| is_it(serving.transport.forward()))
            .map(|(_, serving)| serving)
            .collect();
        for ServingForward { target, transport } in gone {
            tracing::info!(tunnel = %target.tunnel, agent = AGENT, "a tunnel is down");
            if !self.state.sockets.left(target.tunnel, transport.holder()) {
                self.state.directory.left(target.tunnel);
            }
            over.push(target);
        }
        over
    }

    /// Reports to control that this forward has ended.
    fn end(&self, target: SshTarget) {
        let authorizer = self.authorizer.clone();
        tokio::spawn(async move { authorizer.ended(target).await });
    }

    /// Whether this connection has a forward that serves the tunnel.
    fn holds(&self, connection: &Connection, tunnel: TunnelId) -> bool {
        lock(&self.forwards).get(&tunnel).is_some_and(|serving| serving.transport.forward().connection() == *connection)
    }

    /// Whether this connection has a forward, or one that is about to be granted.
    fn serves(&self, connection: &Connection) -> bool {
        lock(&self.promised).iter().any(|promised| promised.forward.connection() == *connection)
            || lock(&self.forwards).values().any(|serving| serving.transport.forward().connection() == *connection)
    }

    /// Disconnects clients of deleted tunnels, of one socket or of all. Clients that serve another tunnel as well
    /// get a line instead.
    pub(crate) fn look_at(&self, socket: Option<SocketId>) {
        self.look_at_logins_for(socket);
        let is_gone = |target: &SshTarget| {
            self.state.routes.get(target.socket).is_none_or(|route| route.tunnel(target.tunnel).is_none())
        };
        let forwards = lock(&self.forwards);
        let of_socket = |serving: &&ServingForward| socket.is_none_or(|socket| serving.target.socket == socket);
        for gone in forwards.values().filter(of_socket).filter(|serving| is_gone(&serving.target)) {
            let connection = gone.transport.forward().connection();
            let serves_more = |serving: &ServingForward| {
                serving.transport.forward().connection() == connection && !is_gone(&serving.target)
            };
            if forwards.values().any(serves_more) {
                connection.console().line(&format!("{} is closed: the tunnel was deleted", gone.target.url));
            } else {
                connection.disconnect(TUNNEL_DELETED);
            }
        }
    }

    /// Disconnects clients with a login for a deleted tunnel, whether or not they serve the tunnel.
    fn look_at_logins_for(&self, socket: Option<SocketId>) {
        let is_for = |connection: &&Connection| {
            let only = caller(connection).and_then(|caller| caller.only);
            only.is_some_and(|only| socket.is_none_or(|socket| only.socket == socket))
        };
        let logged_in: Vec<Connection> = lock(&self.connections).values().filter(is_for).cloned().collect();
        logged_in.iter().for_each(|connection| self.check(connection));
    }

    async fn grant(&self, connection: &Connection, forward: Forward) -> Result<Granted, ForwardRefusal> {
        let caller = caller(connection).ok_or_else(|| ForwardRefusal::new(LOGIN_UNKNOWN))?;
        self.release_former(&forward).await;
        let target = self.authorizer.target(caller, forward.address(), forward.requested_port()).await;
        let target = target.map_err(ForwardRefusal::new)?;
        if self.holds(connection, target.tunnel) {
            return Err(ForwardRefusal::new(
                "this login serves that tunnel already: a second tunnel takes a second -R",
            ));
        }
        let route = match served(&self.state, &target).await {
            Some(route) if route.socket_type != SocketType::Udp => route,
            route => {
                self.authorizer.ended(target).await;
                return Err(ForwardRefusal::new(match route {
                    Some(_) => "ssh carries no UDP: use `sallyport connect --type udp`",
                    None => "the socket was deleted",
                }));
            }
        };
        let (name, speaks_tls) = (route.name.clone(), route.socket_type == SocketType::Https);
        let port = target.port.map_or(0, u32::from);
        let mut lines = vec![format!("{} is open  (-R {})", target.url, forward.requested_port())];
        if caller.account.is_none() && !self.serves(connection) {
            lines.push(guest_note(caller));
        }
        lock(&self.promised).push(PendingForward { forward, name, speaks_tls, target });
        Ok(Granted { port, lines })
    }
}

/// The route of a forward, once it has reached this edge over the bus; after [`MAX_ROUTE_WAIT`] the route that this
/// edge has.
async fn served(state: &EdgeState, target: &SshTarget) -> Option<Arc<SocketRoute>> {
    let mut changes = state.routes.subscribe();
    let known = || state.routes.get(target.socket);
    let is_whole = |route: &Arc<SocketRoute>| route.tunnel(target.tunnel).is_some();
    let waiting = async {
        loop {
            if let Some(route) = known().filter(is_whole) {
                return Some(route);
            }
            changes.next().await?;
        }
    };
    tokio::time::timeout(MAX_ROUTE_WAIT, waiting).await.unwrap_or_else(|_| known())
}

/// The note to a guest, once for all its forwards.
fn guest_note(caller: SshCaller<'_>) -> String {
    let again = match caller.key {
        Some(_) => "log in with the same key to get their names again",
        None => "with a key you would get their names again",
    };
    format!("guest login: its sockets are deleted when the login ends; {again}")
}

impl SshGate for SshTunnels {
    fn authenticate<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = match attempt.credential {
            Credential::Offered(key) | Credential::Key(key) => match self.may_log_in(attempt.user, key) {
                Some(account) => Some(login_name(account, key.key_data())),
                // A guest's key grants no access; it only identifies a guest that reconnects. A client with an account
                // may have tried the wrong key first.
                None if self.guests && self.logins.get(attempt.user).is_none() => {
                    Some(login_name(GUEST, key.key_data()))
                }
                None => None,
            },
            Credential::OfferedCertificate(certificate) | Credential::Certificate(certificate) => {
                self.login_by_certificate(attempt.user, certificate, unix_seconds())
            }
            Credential::Guest if self.guests => Some(GUEST.to_owned()),
            Credential::Guest | Credential::Nothing => None,
        };
        Box::pin(std::future::ready(verdict.map_or(Verdict::Refuse, Verdict::Accept)))
    }

    fn refused_sha1(&self, user: &str, key: &PublicKey, peer: SocketAddr) {
        let Some(account) = self.may_log_in(user, key) else { return };
        if !self.may_warn_of_sha1(account, Instant::now()) {
            return;
        }
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        tracing::warn!(%account, fingerprint, "an ssh client is refused: {SHA1_REFUSED}");
        let audit = self.state.config.audit.clone();
        if let Some(audit) = audit {
            let login = AuditLogin {
                identity: fingerprint,
                provider: "ssh-key".to_owned(),
                outcome: "refused".to_owned(),
                reason: Some(SHA1_REFUSED.to_owned()),
                client: Some(peer),
            };
            audit.sink.record(AuditEvent::login(SystemTime::now().into(), Some(account), login));
        }
    }

    fn opened(&self, connection: &Connection) {
        lock(&self.connections).insert(connection.id(), connection.clone());
        // The key or the tunnel may have been removed since the check.
        self.check(connection);
    }

    fn forward<'a>(
        &'a self,
        connection: &'a Connection,
        forward: Forward,
    ) -> BoxFuture<'a, Result<Granted, ForwardRefusal>> {
        Box::pin(self.grant(connection, forward))
    }

    fn granted(&self, forward: &Forward) {
        let promised = {
            let mut promised = lock(&self.promised);
            promised.iter().position(|promised| promised.forward == *forward).map(|place| promised.swap_remove(place))
        };
        if let Some(promised) = promised {
            self.hold(promised);
        }
    }

    fn cancelled(&self, connection: &Connection, forward: &Forward) {
        self.release(connection, Some(forward));
    }

    fn closed(&self, connection: &Connection) {
        lock(&self.connections).remove(&connection.id());
        self.release(connection, None);
    }
}

/// The time, in seconds since 1970 (UTC).
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_with_an_unreadable_part_is_no_login() {
        let account = AccountId::from_random([1; 16]);
        let only =
            SshTunnelLogin { account, socket: SocketId::from_random([2; 16]), tunnel: TunnelId::from_random([3; 16]) };
        assert_eq!(parts_of("guest"), Some((None, None, None)));
        assert_eq!(parts_of("guest SHA256:x"), Some((None, Some("SHA256:x"), None)));
        assert_eq!(parts_of(&format!("{account} SHA256:x")), Some((Some(account), Some("SHA256:x"), None)));
        assert_eq!(
            parts_of(&format!("{account} SHA256:x {only}")),
            Some((Some(account), Some("SHA256:x"), Some(only)))
        );
        for wrong in [
            String::new(),
            "ann SHA256:x".to_owned(),
            format!("{account} SHA256:x {only} y"),
            format!("{account} SHA256:x "),
        ] {
            assert_eq!(parts_of(&wrong), None, "{wrong:?}");
        }
    }
}
