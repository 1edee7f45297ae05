//! The bus between machines: two key-value buckets of NATS JetStream.
//!
//! Control writes [`CONFIG_BUCKET`] ([`publish_config`]), edges follow it ([`follow_config`]). Edges write into
//! [`DIRECTORY_BUCKET`] what they hold, and everybody follows that ([`follow_directory`]). Each of these runs until it is dropped:
//! while the bus is away it waits, and what happened meanwhile is written and read when it is back.

mod buckets;
mod directory;
mod follow;
mod publish;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::{
    ConnectErrorKind, ConnectOptions, Event,
    jetstream::{self, context::ContextBuilder},
};
use tokio::sync::watch;
use tracing::{debug, info, warn};

pub use directory::{DirectoryRole, follow_directory};
pub use follow::{ConfigFollowed, follow_config};
pub use publish::{ConfigSource, PublishStats, SourceFuture, publish_config};

/// What edges need to know.
pub const CONFIG_BUCKET: &str = "sallyport_config";
/// Which edge holds what.
pub const DIRECTORY_BUCKET: &str = "sallyport_directory";
/// How long the bus may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// How long an attempt to connect may take.
const CONNECT_TIME: Duration = Duration::from_secs(3);
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
    /// How many connections there were.
    count: u64,
}

/// A connection to the bus, which is made again for as long as this lives. Clones share it.
#[derive(Clone, Debug)]
pub struct Nats {
    jetstream: jetstream::Context,
    link: Arc<watch::Sender<Link>>,
}

impl Nats {
    /// Connects. When the bus is away that is said in the log, and tried for as long as it takes.
    ///
    /// # Errors
    /// The address, the credentials or the certificate are wrong.
    pub async fn connect(config: &BusConfig) -> Result<Self, BusError> {
        let servers = config.servers.join(",");
        let is_good = |server: &String| {
            let rest = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '/', ' ']))
        };
        if config.servers.is_empty() || !config.servers.iter().all(is_good) {
            return Err(BusError::Address { servers });
        }
        let link = Arc::new(watch::Sender::new(Link { is_up: false, since: Instant::now(), count: 0 }));
        let tried = options(config, &link).connect(config.servers.as_slice()).await;
        let client = match tried {
            Ok(client) => client,
            Err(source) => match source.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    return Err(BusError::Credentials { servers });
                }
                ConnectErrorKind::ServerParse => return Err(BusError::Address { servers }),
                ConnectErrorKind::Tls => return Err(BusError::Tls { servers, source }),
                ConnectErrorKind::Io | ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => {
                    if is_of_tls(&source) {
                        return Err(BusError::Tls { servers, source });
                    }
                    warn!(%servers, error = %source, "the bus does not answer: trying until it does");
                    let again = options(config, &link).retry_on_initial_connect();
                    let again = again.connect(config.servers.as_slice()).await;
                    again.map_err(|source| BusError::Other { servers, source })?
                }
                ConnectErrorKind::MaxReconnects => return Err(BusError::Other { servers, source }),
            },
        };
        let jetstream = ContextBuilder::new().timeout(ANSWER_TIME).build(client);
        Ok(Self { jetstream, link })
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

/// Certificates that are not believed come as errors of reading and writing.
fn is_of_tls(error: &async_nats::ConnectError) -> bool {
    let said = format!("{error:?}");
    said.contains("InvalidCertificate")
        || said.contains("invalid peer certificate")
        || said.contains("could not load certs")
}

fn options(config: &BusConfig, link: &Arc<watch::Sender<Link>>) -> ConnectOptions {
    let link = link.clone();
    let mut options = ConnectOptions::new()
        .name(&config.name)
        .connection_timeout(CONNECT_TIME)
        .request_timeout(Some(ANSWER_TIME))
        .ping_interval(PING_EVERY)
        .max_reconnects(None)
        .ignore_discovered_servers()
        .reconnect_delay_callback(|attempts| {
            let pause = Duration::from_millis(50 * u64::try_from(attempts.min(20)).unwrap_or(20));
            pause.min(MAX_PAUSE)
        })
        .event_callback(move |event| {
            told(&link, &event);
            async {}
        });
    if let Some(ca) = &config.ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    match &config.credentials {
        BusCredentials::None => options,
        BusCredentials::Password { user, password } => options.user_and_password(user.clone(), password.clone()),
        BusCredentials::Token(token) => options.token(token.clone()),
    }
}

fn told(link: &watch::Sender<Link>, event: &Event) {
    match event {
        Event::Connected => {
            let again = link.borrow().count > 0;
            link.send_modify(|link| *link = Link { is_up: true, since: Instant::now(), count: link.count + 1 });
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
        Event::ServerError(error) => warn!(%error, "the bus refuses something"),
        other => debug!(%other, "of the bus"),
    }
}
