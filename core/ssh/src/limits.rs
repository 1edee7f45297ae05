//! The limits of one connection.

use std::time::Duration;

/// The longest version line of a client, in bytes with its line end (RFC 4253 section 4.2).
pub(crate) const MAX_VERSION_BYTES: usize = 255;
/// The longest packet, in bytes without its tag (RFC 4253 section 6.1).
pub(crate) const MAX_PACKET_BYTES: usize = 35_000;
/// Bound on bytes from a client before its login.
pub(crate) const MAX_BYTES_BEFORE_LOGIN: u64 = 1 << 20;
/// Bound on packets from a client before its login.
pub(crate) const MAX_PACKETS_BEFORE_LOGIN: u64 = 1_024;
/// Bound on key exchanges before a login, because each costs the server more than the client.
pub(crate) const MAX_EXCHANGES_BEFORE_LOGIN: usize = 4;
/// The longest user name, in bytes. Longer ones are refused without the driver.
pub const MAX_USER_BYTES: usize = 255;
/// The longest key or certificate of a user, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 16 * 1_024;

/// The initial window of a channel, in bytes.
pub const FIRST_WINDOW_BYTES: u32 = 256 * 1_024;
/// The largest window of a channel, in bytes.
pub const MAX_WINDOW_BYTES: u32 = 8 * 1_024 * 1_024;
/// Bound on the growth of all windows of a connection together, in bytes.
pub const MAX_GROWN_BYTES: usize = 64 * 1_024 * 1_024;
/// The longest data of one packet, in bytes, in both directions; the limit of OpenSSH.
pub(crate) const MAX_DATA_BYTES: u32 = 32 * 1_024;
/// Waiting data is joined up to this size, in bytes, so that many small packets need little memory.
pub(crate) const JOINED_BYTES: usize = 32 * 1_024;

/// Unsent packets in bytes, above which channels accept no more data.
pub const MAX_WAITING_BYTES: usize = 256 * 1_024;
/// Unsent packets in bytes, above which no further input is handled.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Overhead of a message that waits for the end of a key exchange: its entry, padding and tag.
pub(crate) const DEFERRED_OVERHEAD_BYTES: usize = 64;
/// Bound on messages that wait for the end of a key exchange, in bytes.
pub(crate) const MAX_DEFERRED_BYTES: usize = 1 << 20;
/// Unanswered forward requests of a client, above which no further input is handled.
pub(crate) const MAX_REQUESTS: usize = 32;
/// Bound on unanswered probes.
pub(crate) const MAX_PINGS: usize = 64;
/// Bound on channels of one connection, including those that the client has not closed.
pub(crate) const MAX_CHANNELS: usize = 16_384;
/// Bound on sessions of one connection.
pub(crate) const MAX_SESSIONS: usize = 4;

/// Bound on bytes of one direction under one set of keys (RFC 4253 section 9).
pub const MAX_REKEY_BYTES: u64 = 1 << 30;
/// Bound on packets of one direction under one set of keys; a quarter of RFC 4344 section 3.1.
pub(crate) const MAX_REKEY_PACKETS: u64 = 1 << 29;
/// The longest use of one set of keys.
pub const REKEY_TIME: Duration = Duration::from_secs(3_600);
/// Time that a client has for a key exchange, including data in flight before it.
pub(crate) const EXCHANGE_TIME: Duration = Duration::from_secs(900);
