//! The bus between machines: two key-value buckets of NATS JetStream, and requests.
//!
//! May use every file of this crate.
//!
//! Control writes [`CONFIG_BUCKET`] ([`publish_config`]), and edges follow it ([`follow_config`]). Edges write their
//! tunnels into [`DIRECTORY_BUCKET`], and every machine follows it ([`follow_directory`]). Each of these functions runs
//! until dropped. While the bus is unavailable they wait; changes of that time are written and read afterwards.
//!
//! Questions of control to edges are requests of core NATS ([`answer_asks`]), beside the buckets.

mod asks;
mod audit;
mod buckets;
mod controls;
mod directory;
mod follow;
pub(crate) mod permits;
mod publish;
mod steering;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{
    Auth, ConnectErrorKind, ConnectOptions, Event,
    jetstream::{self, context::ContextBuilder},
};
use parking_lot::RwLock;
use tokio::{net::TcpStream, sync::watch, task::JoinSet};
use tracing::{debug, info, warn};

pub use asks::answer_asks;
pub use audit::{AUDIT_STREAM, AUDIT_STREAM_AGE, MAX_AUDIT_STREAM_BYTES, publish_audit, take_audit};
pub use controls::exchange_control_messages;
pub use directory::{DirectoryRole, follow_directory};
pub use follow::{ConfigProgress, follow_config};
pub use publish::{ConfigSource, PublishStats, SourceFuture, prepare, publish_config};
pub use steering::{SteeringKey, carry_steering_of_control, carry_steering_of_edge};

/// The configuration of edges.
pub const CONFIG_BUCKET: &str = "sallyport_config";
/// Which edges announce which prefix.
pub const ANYCAST_BUCKET: &str = "sallyport_anycast";
/// The tunnels that edges hold.
pub const DIRECTORY_BUCKET: &str = "sallyport_directory";
/// Prefix of the inboxes of edges; that of controls is `_INBOX`. The bus can be configured to let edges read nothing
/// else.
const EDGE_INBOX: &str = "_INBOX.sallyport-edge";
/// Time that the bus has to answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// Timeout of a connection attempt.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Bounds of the search for the nearest machine of the bus: time, number of machines, and the default port.
const REACH_TIME: Duration = Duration::from_secs(1);
const MAX_SERVERS_TRIED: usize = 16;
const DEFAULT_PORT: u16 = 4222;
/// Interval of pings on an idle connection.
const PING_EVERY: Duration = Duration::from_secs(5);
/// The longest pause between connection attempts.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a bucket that could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(500);

/// Credentials for the bus.
#[derive(Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BusCredentials {
    /// None.
    #[default]
    None,
    /// A user and a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl std::fmt::Debug for BusCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BusCredentials(..)")
    }
}

/// Configuration of the connection to the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusConfig {
    /// Machines of the bus, such as `nats://10.0.0.1:4222`; `tls://` requires TLS.
    pub servers: Vec<String>,
    /// The credentials.
    pub credentials: BusCredentials,
    /// Path of the CA certificate of the bus in PEM; `None` uses the system's CAs. With a path, TLS is required.
    pub ca: Option<PathBuf>,
    /// Name of this client, as shown by the bus.
    pub name: String,
    /// Whether an edge connects. Its inboxes are below `_INBOX.sallyport-edge`, so that the bus can be configured to
    /// let edges read nothing else.
    pub is_edge: bool,
}

/// Reason why there is no connection to the bus.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No machine is configured, or an address is malformed.
    #[error("{servers:?} is not a valid bus address: expected nats://HOST:PORT or tls://HOST:PORT")]
    Address {
        /// The configured value.
        servers: String,
    },
    /// The bus refuses the credentials.
    #[error("the bus at {servers} refuses the credentials: check its user and password, or its token")]
    Credentials {
        /// The machines of the bus.
        servers: String,
    },
    /// The certificate of the bus is not trusted.
    #[error("the bus at {servers} cannot be trusted: {source}")]
    Tls {
        /// The machines of the bus.
        servers: String,
        /// The cause.
        source: async_nats::ConnectError,
    },
    /// The connection cannot be attempted.
    #[error("cannot connect to the bus at {servers}: {source}")]
    Other {
        /// The machines of the bus.
        servers: String,
        /// The cause.
        source: async_nats::ConnectError,
    },
}

/// The state of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Whether the connection is established.
    pub is_up: bool,
    /// Time of the last change.
    pub since: Instant,
    /// Whether the bus is reachable but refuses the credentials.
    pub is_refused: bool,
    /// Number of connections so far.
    count: u64,
}

/// A connection to the bus that reconnects by itself. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Nats {
    jetstream: jetstream::Context,
    link: Arc<watch::Sender<Link>>,
    credentials: Arc<RwLock<BusCredentials>>,
}

impl Nats {
    /// Connects. If the bus is unavailable, logs a warning and keeps trying.
    ///
    /// # Errors
    /// The address, the credentials or the certificate are wrong.
    pub async fn connect(config: &BusConfig) -> Result<Self, BusError> {
        Self::connected(config, false).await
    }

    /// Like [`Nats::connect`], but also keeps trying when the bus refuses the credentials: the bus may accept them
    /// later, or there may be others ([`Nats::use_credentials`]).
    ///
    /// # Errors
    /// The address or the certificate is wrong.
    pub async fn connect_patiently(config: &BusConfig) -> Result<Self, BusError> {
        Self::connected(config, true).await
    }

    async fn connected(config: &BusConfig, is_patient: bool) -> Result<Self, BusError> {
        let servers = config.servers.join(",");
        let is_good = |server: &String| {
            let rest = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '/', ' ']))
        };
        if config.servers.is_empty() || !config.servers.iter().all(is_good) {
            return Err(BusError::Address { servers });
        }
        let link =
            Arc::new(watch::Sender::new(Link { is_up: false, since: Instant::now(), is_refused: false, count: 0 }));
        let credentials = Arc::new(RwLock::new(config.credentials.clone()));
        let config = &BusConfig { servers: nearest_first(&config.servers).await, ..config.clone() };
        let tried = options(config, &credentials, &link).connect(config.servers.as_slice()).await;
        let client = match tried {
            Ok(client) => client,
            Err(source) => match source.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    if !is_patient {
                        return Err(BusError::Credentials { servers });
                    }
                    log_refusal(&link);
                    retried(config, &credentials, &link, servers).await?
                }
                ConnectErrorKind::ServerParse => return Err(BusError::Address { servers }),
                ConnectErrorKind::Tls => return Err(BusError::Tls { servers, source }),
                ConnectErrorKind::Io | ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => {
                    if is_of_tls(&source) {
                        return Err(BusError::Tls { servers, source });
                    }
                    warn!(%servers, error = %source, "the bus does not answer: trying until it answers");
                    retried(config, &credentials, &link, servers).await?
                }
                ConnectErrorKind::MaxReconnects => return Err(BusError::Other { servers, source }),
            },
        };
        let jetstream = ContextBuilder::new().timeout(ANSWER_TIME).build(client);
        Ok(Self { jetstream, link, credentials })
    }

    /// Uses these credentials from the next connection on.
    pub fn use_credentials(&self, credentials: BusCredentials) {
        *self.credentials.write() = credentials;
    }

    /// The current state of the connection.
    #[must_use]
    pub fn link(&self) -> Link {
        *self.link.borrow()
    }

    /// Resolves when there is a connection; returns its number.
    async fn up(&self) -> u64 {
        let mut link = self.link.subscribe();
        let count = link.wait_for(|link| link.is_up).await.map(|link| link.count).ok();
        match count {
            Some(count) => count,
            // The sender lives as long as `self`.
            None => std::future::pending().await,
        }
    }

    /// Resolves when this connection has ended, whether or not there is a new one.
    async fn over(&self, count: u64) {
        let mut link = self.link.subscribe();
        let is_over = link.wait_for(|link| !link.is_up || link.count != count).await.is_ok();
        if !is_over {
            std::future::pending::<()>().await;
        }
    }
}

/// The machines of the bus, sorted by connection time; unreachable ones come last in their given order. A distant
/// machine would add detours.
async fn nearest_first(servers: &[String]) -> Vec<String> {
    if servers.len() < 2 {
        return servers.to_vec();
    }
    let began = Instant::now();
    let mut tried = JoinSet::new();
    for (at, server) in servers.iter().take(MAX_SERVERS_TRIED).enumerate() {
        let place = server.split_once("://").map_or(server.as_str(), |(_, place)| place).to_owned();
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = if has_port { place } else { format!("{place}:{DEFAULT_PORT}") };
        tried.spawn(async move { TcpStream::connect(place).await.is_ok().then(|| (began.elapsed(), at)) });
    }
    let mut reached = Vec::new();
    let all = async {
        while let Some(done) = tried.join_next().await {
            reached.extend(done.ok().flatten());
        }
    };
    let _ = tokio::time::timeout(REACH_TIME, all).await;
    reached.sort_unstable();
    let first = reached.iter().filter_map(|(_, at)| servers.get(*at));
    let last = servers.iter().enumerate().filter(|(at, _)| !reached.iter().any(|(_, other)| other == at));
    first.chain(last.map(|(_, server)| server)).cloned().collect()
}

/// Whether the error is about the certificate; such errors arrive as I/O errors.
fn is_of_tls(error: &async_nats::ConnectError) -> bool {
    let text = format!("{error:?}");
    text.contains("InvalidCertificate")
        || text.contains("invalid peer certificate")
        || text.contains("could not load certs")
}

/// A connection that keeps trying.
async fn retried(
    config: &BusConfig,
    credentials: &Arc<RwLock<BusCredentials>>,
    link: &Arc<watch::Sender<Link>>,
    servers: String,
) -> Result<async_nats::Client, BusError> {
    let options = options(config, credentials, link).retry_on_initial_connect();
    let connected = options.connect(config.servers.as_slice()).await;
    connected.map_err(|source| BusError::Other { servers, source })
}

fn options(
    config: &BusConfig,
    credentials: &Arc<RwLock<BusCredentials>>,
    link: &Arc<watch::Sender<Link>>,
) -> ConnectOptions {
    let (link, credentials) = (link.clone(), credentials.clone());
    let mut options = ConnectOptions::with_auth_callback(move |_| {
        let auth = auth(&credentials.read());
        std::future::ready(Ok(auth))
    });
    options = options
        .name(&config.name)
        .connection_timeout(CONNECT_TIME)
        .request_timeout(Some(ANSWER_TIME))
        .ping_interval(PING_EVERY)
        .max_reconnects(None)
        .ignore_discovered_servers()
        .retain_servers_order()
        .reconnect_delay_callback(|attempts| {
            let pause = Duration::from_millis(50 * u64::try_from(attempts.min(20)).unwrap_or(20));
            pause.min(MAX_PAUSE)
        })
        .event_callback(move |event| {
            record_event(&link, &event);
            async {}
        });
    if config.is_edge {
        options = options.custom_inbox_prefix(EDGE_INBOX);
    }
    if let Some(ca) = &config.ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    options
}

fn auth(credentials: &BusCredentials) -> Auth {
    let mut auth = Auth::new();
    match credentials {
        BusCredentials::None => {}
        BusCredentials::Password { user, password } => {
            auth.username = Some(user.clone());
            auth.password = Some(password.clone());
        }
        BusCredentials::Token(token) => auth.token = Some(token.clone()),
    }
    auth
}

/// Logs once that the bus refuses the credentials.
fn log_refusal(link: &watch::Sender<Link>) {
    if link.send_if_modified(|link| !link.is_up && !std::mem::replace(&mut link.is_refused, true)) {
        warn!(
            "the bus refuses the credentials: serving the known configuration; correct the credentials of the bus or \
             of this machine"
        );
    }
}

fn record_event(link: &watch::Sender<Link>, event: &Event) {
    match event {
        Event::Connected => {
            let again = link.borrow().count > 0;
            link.send_modify(|link| {
                *link = Link { is_up: true, since: Instant::now(), is_refused: false, count: link.count + 1 }
            });
            if again {
                info!("the bus is available again");
            }
        }
        Event::Disconnected | Event::Closed => {
            if link.borrow().is_up {
                warn!("the bus is unavailable: serving the known configuration");
            }
            link.send_if_modified(|link| {
                let was_up = std::mem::replace(&mut link.is_up, false);
                if was_up {
                    link.since = Instant::now();
                }
                was_up
            });
        }
        Event::ClientError(error) if error.to_string().contains("authorization violation") => log_refusal(link),
        Event::ServerError(error) => warn!(%error, "the bus reports an error"),
        other => debug!(%other, "event of the bus connection"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_of_the_bus_that_is_reached_comes_before_those_that_are_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = format!("nats://{}", listener.local_addr().unwrap());
        // Port 1 of this machine is closed, and no name ends in `invalid` (RFC 6761 section 6.4).
        let (away, unknown) = ("nats://127.0.0.1:1".to_owned(), "tls://bus.invalid".to_owned());
        let servers = [away.clone(), there.clone(), unknown.clone()];
        assert_eq!(nearest_first(&servers).await, [there, away.clone(), unknown]);
        assert_eq!(nearest_first(std::slice::from_ref(&away)).await, [away], "there is nothing to choose");
    }
}
