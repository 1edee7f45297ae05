//! The bounds of the server.

use std::time::Duration;

use sallyport_ssh_proto::{Config, HostKey, MAX_REKEY_BYTES, REKEY_TIME, ssh_key::PrivateKey};
use tracing::warn;

/// How long the answer to a refused key takes, whatever was wrong with it.
pub(crate) const REFUSAL_TIME: Duration = Duration::from_millis(250);
/// The smallest RSA key that may log in, in bits.
pub(crate) const MIN_RSA_BITS: usize = 2_048;
/// How long the gate may take for one answer.
pub(crate) const GATE_TIME: Duration = Duration::from_secs(10);

/// What an [`SshServer`](crate::SshServer) allows.
#[derive(Debug, Clone)]
pub struct SshConfig {
    /// The keys that prove who the server is, one of each kind ([`HostKeys`](crate::HostKeys) has them).
    pub host_keys: Vec<PrivateKey>,
    /// Shown by every client before the login.
    pub banner: Option<String>,
    /// Shown by clients whose keys were all refused: how to log in. They are asked nothing (keyboard-interactive
    /// without a question, RFC 4256 section 3.2) and then refused; those that log in never see it.
    pub login_hint: Option<String>,
    /// Shown at the head of every shell.
    pub greeting: Vec<String>,
    /// Let clients whose keys were refused try without one ([`Credential::Guest`](crate::Credential::Guest)).
    pub guests: bool,
    /// A client that says nothing for so long is asked whether it is there.
    pub keepalive: Duration,
    /// After so many questions without an answer the client is given up, and also when it takes no data for as long.
    pub keepalive_missed: usize,
    /// Connections at once.
    pub max_connections: usize,
    /// Connections at once from one address (a /64 for IPv6).
    pub max_connections_per_address: usize,
    /// Connections at once that have not logged in.
    pub max_unauthenticated: usize,
    /// How long a client has to log in, from its first packet.
    pub auth_time: Duration,
    /// Refusals until the connection is ended.
    pub max_auth_attempts: usize,
    /// Forwards at once on one connection.
    pub max_forwards_per_connection: usize,
    /// Streams at once on one connection.
    pub max_streams_per_connection: usize,
    /// How long the client has to reach its origin.
    pub open_time: Duration,
    /// Keys are exchanged anew after so many bytes in one direction, at most a gibibyte; and every hour.
    pub rekey_bytes: usize,
    /// A connection that has had no forward for so long is ended.
    pub idle: Duration,
}

impl SshConfig {
    /// The defaults, with these host keys.
    pub fn new(host_keys: Vec<PrivateKey>) -> Self {
        Self {
            host_keys,
            banner: None,
            login_hint: None,
            greeting: Vec::new(),
            guests: false,
            keepalive: Duration::from_secs(15),
            keepalive_missed: 3,
            max_connections: 1_024,
            max_connections_per_address: 64,
            max_unauthenticated: 128,
            auth_time: Duration::from_secs(20),
            max_auth_attempts: 6,
            max_forwards_per_connection: 16,
            max_streams_per_connection: 1_024,
            open_time: Duration::from_secs(10),
            rekey_bytes: MAX_REKEY_BYTES as usize,
            idle: Duration::from_secs(600),
        }
    }

    /// How long nothing may move towards a client that should be reading.
    pub(crate) fn write_stall(&self) -> Duration {
        self.keepalive.saturating_mul(u32::try_from(self.keepalive_missed).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// The same for the protocol. A host key that it cannot sign with is left out.
    pub(crate) fn to_protocol(&self) -> Config {
        let host_keys = self.host_keys.iter().filter_map(|key| match HostKey::new(key) {
            Ok(key) => Some(key),
            Err(error) => {
                warn!(%error, "a host key is not used");
                None
            }
        });
        Config {
            version: "SSH-2.0-Sallyport".to_owned(),
            host_keys: host_keys.collect(),
            banner: self.banner.clone(),
            is_interactive: self.guests || self.login_hint.is_some(),
            // The question which methods there are is counted as well.
            max_refusals: self.max_auth_attempts.saturating_add(1),
            keepalive: self.keepalive,
            keepalive_missed: self.keepalive_missed,
            rekey_bytes: self.rekey_bytes as u64,
            rekey_time: REKEY_TIME,
        }
    }
}
