//! What answers depend on beside the query.

use std::{net::IpAddr, sync::Arc, time::Instant};

use crate::{
    data::{View, Zones},
    dnssec::{DEFAULT_CACHED_SIGNATURES, SignatureCache},
    limit::{CookieSecrets, RateConfig, SharedRateLimiter},
    tsig::TsigKeys,
};

/// The longest name or version of a server in answers, in bytes.
pub const MAX_IDENTITY_BYTES: usize = 64;

/// How a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Over UDP: the sender may be forged, and long answers are cut short.
    Udp,
    /// Over TCP.
    Tcp,
}

/// Who sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address.
    pub address: IpAddr,
    /// The transport.
    pub transport: Transport,
}

/// The time, by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The wall clock, in seconds since 1970, for signatures and cookies.
    pub unix_seconds: u64,
    /// The monotonic clock, for rates.
    pub monotonic: Instant,
}

/// A name or a version is too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} has more than {MAX_IDENTITY_BYTES} bytes")]
pub struct SettingsError(pub String);

/// What is the same for all answers of a server.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The name that the server says by `id.server`, `hostname.bind` and NSID.
    pub(crate) identity: Option<String>,
    /// The version that the server says by `version.server` and `version.bind`.
    pub(crate) version: Option<String>,
    /// The secrets of cookies. Without them there are no cookies.
    pub cookies: Option<CookieSecrets>,
    /// The keys of secondaries.
    pub tsig_keys: TsigKeys,
}

impl Settings {
    /// Sets what the server says about itself. `None`: nothing.
    ///
    /// # Errors
    /// One of them is too long.
    pub fn set_identity(&mut self, identity: Option<String>, version: Option<String>) -> Result<(), SettingsError> {
        for text in identity.iter().chain(&version) {
            if text.len() > MAX_IDENTITY_BYTES {
                return Err(SettingsError(text.clone()));
            }
        }
        (self.identity, self.version) = (identity, version);
        Ok(())
    }
}

/// What answers are made from.
#[derive(Debug, Clone, Copy)]
pub struct Serving<'a> {
    /// The zones.
    pub zones: &'a Zones,
    /// What changes without new zones.
    pub view: &'a View,
    /// The settings.
    pub settings: &'a Settings,
}

/// How a [`State`] is bounded.
#[derive(Debug, Clone)]
pub struct StateConfig {
    /// The most signatures that are kept.
    pub max_signatures: usize,
    /// Rates of answers over UDP.
    pub rate: RateConfig,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self { max_signatures: DEFAULT_CACHED_SIGNATURES, rate: RateConfig::default() }
    }
}

/// What one thread remembers from answer to answer: signatures and buffers, and the accounts of networks that threads may
/// share.
#[derive(Debug)]
pub struct State {
    pub(crate) signatures: SignatureCache,
    pub(crate) limiter: Arc<SharedRateLimiter>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) options: Vec<u8>,
}

impl State {
    /// A state without memories. The key is 16 secret random bytes.
    #[must_use]
    pub fn new(config: StateConfig, key: [u8; 16]) -> Self {
        let limiter = Arc::new(SharedRateLimiter::new(config.rate.clone(), key));
        Self::sharing(config, key, limiter)
    }

    /// A state with the accounts of networks that other threads have too.
    #[must_use]
    pub fn sharing(config: StateConfig, key: [u8; 16], limiter: Arc<SharedRateLimiter>) -> Self {
        Self {
            signatures: SignatureCache::new(config.max_signatures, key),
            limiter,
            scratch: Vec::new(),
            data: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Number of signatures that were made for answers. Each takes as long as several answers without.
    #[must_use]
    pub fn signatures_made(&self) -> u64 {
        self.signatures.made()
    }
}
