//! The bus between machines: two key-value buckets of NATS JetStream.
//!
//! Control writes [`CONFIG_BUCKET`] ([`publish_config`]), edges follow it ([`follow_config`]). Edges write into
//! [`DIRECTORY_BUCKET`] what they hold, and everybody follows that ([`follow_directory`]). Each of these runs until it is dropped:
//! while the bus is away it waits, and what happened meanwhile is written and read when it is back.
//!
//! What control asks edges at the moment travels beside the buckets, as requests of core NATS ([`answer_asks`]).

mod asks;
mod audit;
mod buckets;
mod controls;
mod directory;
mod follow;
mod publish;

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
pub use controls::talk_to_controls;
pub use directory::{DirectoryRole, follow_directory};
pub use follow::{ConfigProgress, follow_config};
pub use publish::{ConfigSource, PublishStats, SourceFuture, prepare, publish_config};

/// What edges need to know.
pub const CONFIG_BUCKET: &str = "sallyport_config";
/// Which edge holds what.
pub const DIRECTORY_BUCKET: &str = "sallyport_directory";
/// Beneath which edges are answered. That of controls is `_INBOX`: the bus can be told to let edges hear nothing else.
const EDGE_INBOX: &str = "_INBOX.sallyport-edge";
/// How long the bus may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// How long an attempt to connect may take.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// How long machines of the bus are tried for which is the nearest, how many, and at which port where none is said.
const REACH_TIME: Duration = Duration::from_secs(1);
const MAX_SERVERS_TRIED: usize = 16;
const DEFAULT_PORT: u16 = 4222;
/// How often a quiet connection is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(5);
/// The longest pause between attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait before a bucket is opened again that could not be.
const OPEN_AGAIN: Duration = Duration::from_millis(500);

/// By what the bus knows us.
#[derive(Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BusCredentials {
    /// It asks for nothing.
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

/// Where the bus is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusConfig {
    /// Its machines, such as `nats://10.0.0.1:4222`; `tls://` asks for TLS.
    pub servers: Vec<String>,
    /// By what it knows us.
    pub credentials: BusCredentials,
    /// The authority of its certificates in PEM; that of the system when absent. With one, TLS is asked for.
    pub ca: Option<PathBuf>,
    /// What it is told that we are called.
    pub name: String,
    /// Whether an edge connects: it is answered beneath `_INBOX.sallyport-edge`, so that the bus can be told to let edges hear
    /// nothing else.
    pub is_edge: bool,
}

/// Why there is no connection to the bus.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No machine was named, or in a way that cannot be.
    #[error("{servers:?} is no address of a bus: expected nats://HOST:PORT or tls://HOST:PORT")]
    Address {
        /// What was given.
        servers: String,
    },
    /// It does not take our credentials.
    #[error("the bus at {servers} refuses the credentials: check its user and password, or its token")]
    Credentials {
        /// Where.
        servers: String,
    },
    /// It cannot be trusted.
    #[error("the bus at {servers} cannot be trusted: {source}")]
    Tls {
        /// Where.
        servers: String,
        /// Why.
        source: async_nats::ConnectError,
    },
    /// The connection cannot even be tried.
    #[error("cannot connect to the bus at {servers}: {source}")]
    Other {
        /// Where.
        servers: String,
        /// Why.
        source: async_nats::ConnectError,
    },
}

/// The state of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Whether there is one.
    pub is_up: bool,
    /// Since when it is so.
    pub since: Instant,
    /// Whether the bus is there, and refuses the credentials.
    pub is_refused: bool,
    /// How many connections there were.
    count: u64,
}

/// A connection to the bus, which is made again for as long as this lives. Clones share it.
#[derive(Clone, Debug)]
pub struct Nats {
    jetstream: jetstream::Context,
    link: Arc<watch::Sender<Link>>,
    credentials: Arc<RwLock<BusCredentials>>,
}

impl Nats {
    /// Connects. When the bus is away that is said in the log, and tried for as long as it takes.
    ///
    /// # Errors
    /// The address, the credentials or the certificate are wrong.
    pub async fn connect(config: &BusConfig) -> Result<Self, BusError> {
        Self::connected(config, false).await
    }

    /// [`Nats::connect`], but credentials that the bus refuses are said in the log, and tried for as long as it takes: it may take
    /// them again, or there may be others ([`Nats::use_credentials`]).
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
                    tell_refusal(&link);
                    retried(config, &credentials, &link, servers).await?
                }
                ConnectErrorKind::ServerParse => return Err(BusError::Address { servers }),
                ConnectErrorKind::Tls => return Err(BusError::Tls { servers, source }),
                ConnectErrorKind::Io | ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => {
                    if is_of_tls(&source) {
                        return Err(BusError::Tls { servers, source });
                    }
                    warn!(%servers, error = %source, "the bus does not answer: trying until it does");
                    retried(config, &credentials, &link, servers).await?
                }
                ConnectErrorKind::MaxReconnects => return Err(BusError::Other { servers, source }),
            },
        };
        let jetstream = ContextBuilder::new().timeout(ANSWER_TIME).build(client);
        Ok(Self { jetstream, link, credentials })
    }

    /// Shows these credentials from the next connection on.
    pub fn use_credentials(&self, credentials: BusCredentials) {
        *self.credentials.write() = credentials;
    }

    /// The state of the connection now.
    #[must_use]
    pub fn link(&self) -> Link {
        *self.link.borrow()
    }

    /// Resolves when there is a connection; gives which one it is.
    async fn up(&self) -> u64 {
        let mut link = self.link.subscribe();
        let count = link.wait_for(|link| link.is_up).await.map(|link| link.count).ok();
        match count {
            Some(count) => count,
            // The sender lives as long as this does.
            None => std::future::pending().await,
        }
    }

    /// Resolves when this connection has ended, whether or not there is another one.
    async fn over(&self, count: u64) {
        let mut link = self.link.subscribe();
        let is_over = link.wait_for(|link| !link.is_up || link.count != count).await.is_ok();
        if !is_over {
            std::future::pending::<()>().await;
        }
    }
}

/// The machines of the bus, those first that are reached soonest; those that are not come last, as they were given. What goes by a
/// machine that is far away makes detours.
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

/// Certificates that are not believed come as errors of reading and writing.
fn is_of_tls(error: &async_nats::ConnectError) -> bool {
    let said = format!("{error:?}");
    said.contains("InvalidCertificate")
        || said.contains("invalid peer certificate")
        || said.contains("could not load certs")
}

/// A connection that is tried for as long as it takes.
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
            told(&link, &event);
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

/// Says once that the bus is there and refuses the credentials.
fn tell_refusal(link: &watch::Sender<Link>) {
    if link.send_if_modified(|link| !link.is_up && !std::mem::replace(&mut link.is_refused, true)) {
        warn!(
            "the bus refuses the credentials: what is known is served on; give it those that it knows, or this machine others"
        );
    }
}

fn told(link: &watch::Sender<Link>, event: &Event) {
    match event {
        Event::Connected => {
            let again = link.borrow().count > 0;
            link.send_modify(|link| {
                *link = Link { is_up: true, since: Instant::now(), is_refused: false, count: link.count + 1 }
            });
            if again {
                info!("the bus is there again");
            }
        }
        Event::Disconnected | Event::Closed => {
            if link.borrow().is_up {
                warn!("the bus is away: what is known is served on");
            }
            link.send_if_modified(|link| {
                let was_up = std::mem::replace(&mut link.is_up, false);
                if was_up {
                    link.since = Instant::now();
                }
                was_up
            });
        }
        Event::ClientError(error) if error.to_string().contains("authorization violation") => tell_refusal(link),
        Event::ServerError(error) => warn!(%error, "the bus refuses something"),
        other => debug!(%other, "of the bus"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_of_the_bus_that_is_reached_comes_before_those_that_are_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = format!("nats://{}", listener.local_addr().unwrap());
        // Port 1 of this machine takes nobody, and no name ends in `invalid` (RFC 6761 section 6.4).
        let (away, unknown) = ("nats://127.0.0.1:1".to_owned(), "tls://bus.invalid".to_owned());
        let servers = [away.clone(), there.clone(), unknown.clone()];
        assert_eq!(nearest_first(&servers).await, [there, away.clone(), unknown]);
        assert_eq!(nearest_first(std::slice::from_ref(&away)).await, [away], "there is nothing to choose");
    }
}
