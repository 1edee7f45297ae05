//! Configuration and limits of the server.

use std::time::Duration;

use sallyport_ssh_proto::{Config, HostKey, MAX_REKEY_BYTES, REKEY_TIME, ssh_key::PrivateKey};
use tracing::warn;

/// Delay of the answer to a refused key, whatever the reason.
pub(crate) const REFUSAL_TIME: Duration = Duration::from_millis(250);
/// The smallest accepted RSA key, in bits.
pub(crate) const MIN_RSA_BITS: usize = 2_048;
/// Timeout of a decision of the gate.
pub(crate) const GATE_TIME: Duration = Duration::from_secs(10);

/// Configuration of an [`SshServer`](crate::SshServer).
#[derive(Debug, Clone)]
pub struct SshConfig {
    /// The server's host keys, one of each kind ([`HostKeys`](crate::HostKeys) has them).
    pub host_keys: Vec<PrivateKey>,
    /// Banner that clients display before the login.
    pub banner: Option<String>,
    /// Hint for clients after all their keys were refused. It is sent as keyboard-interactive instructions without a
    /// prompt (RFC 4256 section 3.2), followed by the refusal; clients that log in never see it.
    pub login_hint: Option<String>,
    /// Lines at the start of every shell.
    pub greeting: Vec<String>,
    /// Whether clients may log in without a key after their keys were refused
    /// ([`Credential::Guest`](crate::Credential::Guest)).
    pub guests: bool,
    /// Time of silence after which a client is probed.
    pub keepalive: Duration,
    /// Unanswered probes after which a client is disconnected, also if it accepts no data for as long.
    pub keepalive_missed: usize,
    /// Bound on connections.
    pub max_connections: usize,
    /// Bound on connections from one address (a /64 for IPv6).
    pub max_connections_per_address: usize,
    /// Bound on connections before their login.
    pub max_unauthenticated: usize,
    /// Time that a client has to log in, from its first packet.
    pub auth_time: Duration,
    /// Refused attempts after which a connection is closed.
    pub max_auth_attempts: usize,
    /// Bound on forwards of one connection.
    pub max_forwards_per_connection: usize,
    /// Bound on streams of one connection.
    pub max_streams_per_connection: usize,
    /// Time that the client has to reach its origin.
    pub open_time: Duration,
    /// Bytes in one direction after which keys are exchanged again, at most 1 GiB; also every hour.
    pub rekey_bytes: usize,
    /// Time without a forward after which a connection is closed.
    pub idle: Duration,
}

impl SshConfig {
    /// The default configuration with these host keys.
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

    /// Time without progress after which a client that should read is disconnected.
    pub(crate) fn write_stall(&self) -> Duration {
        self.keepalive.saturating_mul(u32::try_from(self.keepalive_missed).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// The configuration of the protocol. Host keys that cannot sign are left out.
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
            // The initial query of the supported methods counts as a refusal.
            max_refusals: self.max_auth_attempts.saturating_add(1),
            keepalive: self.keepalive,
            keepalive_missed: self.keepalive_missed,
            rekey_bytes: self.rekey_bytes as u64,
            rekey_time: REKEY_TIME,
        }
    }
}
