//! The bounds of the server, and the algorithms it speaks.

use std::{borrow::Cow, time::Duration};

use russh::{
    Limits, MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex,
    keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey},
    mac,
};

/// The window that a client's stream begins with, in bytes: what may be under way before the reader has taken it. It
/// grows for readers that are faster than their stream.
pub(crate) const FIRST_WINDOW_BYTES: u32 = 256 * 1_024;
/// The largest window of a stream, in bytes.
pub(crate) const MAX_WINDOW_BYTES: u32 = 8 * 1_024 * 1_024;
/// By how much the windows of all streams of a connection may have grown together, in bytes.
pub(crate) const MAX_GROWN_BYTES: usize = 64 * 1_024 * 1_024;
/// The most that may pass before keys are exchanged anew, in bytes (RFC 4253 section 9).
const MAX_REKEY_BYTES: usize = 1 << 30;
/// How long one set of keys is used.
const REKEY_TIME: Duration = Duration::from_secs(3_600);
/// The largest packet that is taken, in bytes; OpenSSH sends at most this.
const MAX_PACKET_BYTES: u32 = 32 * 1_024;
/// Packets of all channels that wait to be encrypted, at most.
const MAX_QUEUED_PACKETS: usize = 32;
/// How long the answer to a refused key takes, whatever was wrong with it.
const REFUSAL_TIME: Duration = Duration::from_millis(250);
/// The smallest RSA key that may log in, in bits.
pub(crate) const MIN_RSA_BITS: usize = 2_048;
/// How long the gate may take for one answer.
pub(crate) const GATE_TIME: Duration = Duration::from_secs(10);
/// Shells and commands that may be open at once on one connection.
pub(crate) const MAX_SESSION_CHANNELS: usize = 4;

/// What an [`SshServer`](crate::SshServer) allows.
#[derive(Debug, Clone)]
pub struct SshConfig {
    /// The keys that prove who the server is, one of each kind ([`HostKeys`](crate::HostKeys) has them).
    pub host_keys: Vec<PrivateKey>,
    /// Shown by every client before the login.
    pub banner: Option<String>,
    /// Shown by clients whose keys were all refused: how to log in. They are asked nothing (keyboard-interactive without
    /// a question, RFC 4256 section 3.2) and then refused; those that log in never see it.
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
            rekey_bytes: MAX_REKEY_BYTES,
            idle: Duration::from_secs(600),
        }
    }

    /// How long nothing may move towards a client that should be reading.
    pub(crate) fn write_stall(&self) -> Duration {
        self.keepalive.saturating_mul(u32::try_from(self.keepalive_missed).unwrap_or(u32::MAX).saturating_add(1))
    }

    pub(crate) fn to_russh(&self) -> russh::server::Config {
        let methods: &[MethodKind] = if self.guests || self.login_hint.is_some() {
            &[MethodKind::PublicKey, MethodKind::KeyboardInteractive]
        } else {
            &[MethodKind::PublicKey]
        };
        let rekey_bytes = self.rekey_bytes.min(MAX_REKEY_BYTES);
        russh::server::Config {
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-Sallyport")),
            methods: MethodSet::from(methods),
            auth_rejection_time: REFUSAL_TIME,
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: self.host_keys.clone(),
            window_size: FIRST_WINDOW_BYTES,
            limits: Limits::new(rekey_bytes, rekey_bytes, REKEY_TIME),
            maximum_packet_size: MAX_PACKET_BYTES,
            // The library's own queue to a channel's reader; data does not pass through it (see `stream`).
            channel_buffer_size: 4,
            event_buffer_size: MAX_QUEUED_PACKETS,
            preferred: preferred(),
            // The question which methods there are is counted as well.
            max_auth_attempts: self.max_auth_attempts.saturating_add(1),
            // Writes that stall and clients that are gone are found by `cut` and by keepalives.
            inactivity_timeout: None,
            keepalive_interval: Some(self.keepalive),
            keepalive_max: self.keepalive_missed,
            ..russh::server::Config::default()
        }
    }
}

/// Key exchanges, ciphers and signatures of today: no SHA-1, no CBC, no finite-field groups, no compression.
fn preferred() -> Preferred {
    const KEX: &[kex::Name] = &[
        kex::MLKEM768X25519_SHA256,
        kex::CURVE25519,
        kex::CURVE25519_PRE_RFC_8731,
        kex::ECDH_SHA2_NISTP256,
        kex::EXTENSION_SUPPORT_AS_SERVER,
        kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
    ];
    // Counter mode, with encrypt-then-MAC only, is for clients that know no AEAD: Paramiko before 3.5, which the original
    // mysocketctl may run on.
    const CIPHERS: &[cipher::Name] = &[
        cipher::CHACHA20_POLY1305,
        cipher::AES_256_GCM,
        cipher::AES_128_GCM,
        cipher::AES_256_CTR,
        cipher::AES_128_CTR,
    ];
    const MACS: &[mac::Name] = &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM];
    const COMPRESSION: &[compression::Name] = &[compression::NONE];
    Preferred {
        kex: Cow::Borrowed(KEX),
        // For host keys, and told to clients as what they may log in with (RFC 8308 section 3.1).
        key: Cow::Owned(vec![
            Algorithm::Ed25519,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
            Algorithm::SkEd25519,
            Algorithm::SkEcdsaSha2NistP256,
            Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
            Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
        ]),
        cipher: Cow::Borrowed(CIPHERS),
        mac: Cow::Borrowed(MACS),
        compression: Cow::Borrowed(COMPRESSION),
        ..Preferred::DEFAULT
    }
}
