//! The API of Sallyport with the token of a file, and whether it can be used. Uses `serve`.

mod token;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sallyport_client::{ApiAddress, ApiClient, Auth, ClientConfig, ClientError, SocketRef};
use sallyport_model::{Labels, SocketId};
use sallyport_net::{Outbound, ProxyEnvironment, Shutdown, Trust};
use tokio::sync::watch;
use tracing::{info, warn};

use self::token::TokenFile;
use crate::serve::Outcome;

/// Whether the API can be used. Each text is one sentence with what to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ApiHealth {
    /// No call was answered yet.
    #[default]
    Unknown,
    /// The last call was answered.
    Fine,
    /// There is no usable token, or the API refuses it.
    NoToken(String),
    /// The API cannot be reached, or does not work.
    Away(String),
}

impl ApiHealth {
    /// The sentence about what is wrong.
    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Fine => None,
            Self::NoToken(text) | Self::Away(text) => Some(text),
        }
    }
}

/// The settings of the API.
#[derive(Debug, Clone)]
pub(crate) struct ControlOptions {
    /// Its address.
    pub(crate) address: ApiAddress,
    /// The root certificate, if it is not one of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The file of the token.
    pub(crate) token_file: PathBuf,
    /// The organisation to act for.
    pub(crate) organisation: Option<String>,
}

/// The API; clones share the client and what is known about it.
#[derive(Clone)]
pub(crate) struct ControlApi {
    options: Arc<ControlOptions>,
    state: Arc<Mutex<ControlState>>,
    health: Arc<watch::Sender<ApiHealth>>,
}

struct ControlState {
    file: TokenFile,
    client: Result<ApiClient, String>,
}

impl ControlApi {
    /// The API with the token that the file has now.
    pub(crate) fn new(options: ControlOptions) -> Self {
        let mut file = TokenFile::new(options.token_file.clone());
        let read = file.read();
        let client = read.unwrap_or(Err("the token was not read".to_owned()));
        let client = client.and_then(|token| client_of(&options, Auth::Token(token)));
        let health = match &client {
            Ok(_) => ApiHealth::Unknown,
            Err(problem) => ApiHealth::NoToken(problem.clone()),
        };
        let api = Self {
            options: Arc::new(options),
            state: Arc::new(Mutex::new(ControlState { file, client })),
            health: Arc::new(watch::channel(health.clone()).0),
        };
        if let Some(problem) = health.problem() {
            warn!("{problem}");
        }
        api
    }

    /// The client with the current token.
    ///
    /// # Errors
    /// There is no usable token: one sentence.
    pub(crate) fn client(&self) -> Result<ApiClient, String> {
        self.state.lock().client.clone()
    }

    /// What is known about the API.
    pub(crate) fn health(&self) -> ApiHealth {
        self.health.borrow().clone()
    }

    /// Reports changes of what is known.
    pub(crate) fn watch(&self) -> watch::Receiver<ApiHealth> {
        self.health.subscribe()
    }

    /// Notes what a call says about the API.
    pub(crate) fn note<T>(&self, result: &Result<T, ClientError>) {
        let health = match result {
            Ok(_) => ApiHealth::Fine,
            Err(error) => match error.status() {
                Some(401) => ApiHealth::NoToken(format!(
                    "the API refuses the token of {}: put a valid one into the Secret; `sallyport token create` creates \
                     one",
                    self.options.token_file.display()
                )),
                // Any other refusal is about one thing, and the API works.
                Some(status) if status < 500 => ApiHealth::Fine,
                _ => ApiHealth::Away(error.to_string()),
            },
        };
        self.set(health);
    }

    fn set(&self, health: ApiHealth) {
        let changed = self.health.send_if_modified(|known| {
            let is_new = *known != health;
            known.clone_from(&health);
            is_new
        });
        match (changed, health.problem()) {
            (true, Some(problem)) => warn!("{problem}"),
            (true, None) => info!(api = %self.options.address, "the API answers"),
            (false, _) => {}
        }
    }

    /// Reads the file of the token again and again, and tries the token now and then, until the shutdown.
    pub(crate) async fn keep_token(self, poll: Duration, check: Duration, shutdown: Shutdown) {
        let mut checked = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(poll) => {}
                () = shutdown.wait() => return,
            }
            let is_new = self.read_token();
            if is_new || checked.elapsed() >= check {
                checked = tokio::time::Instant::now();
                if let Ok(client) = self.client() {
                    // Every answer but one shows that the token is accepted; there is no socket with this id.
                    self.note(&client.socket(&SocketRef::Id(SocketId::from_bytes([0; 16]))).await);
                }
            }
        }
    }

    /// Reads the file; returns whether the token is another one.
    fn read_token(&self) -> bool {
        let mut state = self.state.lock();
        let Some(read) = state.file.read() else { return false };
        state.client = read.and_then(|token| client_of(&self.options, Auth::Token(token)));
        let health = match &state.client {
            Ok(_) => ApiHealth::Unknown,
            Err(problem) => ApiHealth::NoToken(problem.clone()),
        };
        drop(state);
        info!(file = %self.options.token_file.display(), "the token was read again");
        self.set(health);
        true
    }
}

/// A client with this authentication.
fn client_of(options: &ControlOptions, auth: Auth) -> Result<ApiClient, String> {
    let trust = options.trust();
    let outbound = options.outbound(options.address.host(), options.address.port())?;
    let config =
        ClientConfig { address: options.address.clone(), trust, outbound, auth, agent: crate::AGENT.to_owned() };
    let client = ApiClient::new(config).map_err(|error| error.to_string())?;
    match &options.organisation {
        Some(organisation) => client.for_organisation(organisation).map_err(|error| error.to_string()),
        None => Ok(client),
    }
}

impl ControlOptions {
    /// The trusted authorities.
    pub(crate) fn trust(&self) -> Trust {
        self.ca.clone().map_or(Trust::System, Trust::Ca)
    }

    /// The way to a host: through the proxy of the environment, if there is one.
    ///
    /// # Errors
    /// The environment names no usable proxy.
    pub(crate) fn outbound(&self, host: &str, port: u16) -> Result<Outbound, String> {
        let environment = ProxyEnvironment::read().map_err(|error| error.to_string())?;
        Ok(Outbound { proxy: environment.proxy_for(host, port).cloned(), ..Outbound::default() })
    }
}

impl ControlApi {
    /// The settings.
    pub(crate) fn options(&self) -> &ControlOptions {
        &self.options
    }
}

/// How a call ended, for the metrics.
pub(crate) fn outcome<T>(result: &Result<T, ClientError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(error) => match error.status() {
            Some(429) => Outcome::Failed,
            Some(status) if status < 500 => Outcome::Refused,
            _ => Outcome::Failed,
        },
    }
}

/// Labels for the API. One that the API would refuse is left out; those by which things are found again always fit.
pub(crate) fn labels(given: &BTreeMap<String, String>) -> Labels {
    let mut labels = Labels::default();
    for (key, value) in given {
        if let Err(error) = labels.set(key, value) {
            warn!(%error, key, "a label is left out");
        }
    }
    labels
}
