//! The bounds of one connection.

use std::time::Duration;

/// The longest version line of a client, in bytes with its end (RFC 4253 section 4.2).
pub(crate) const MAX_VERSION_BYTES: usize = 255;
/// The longest packet that is taken, in bytes without tag (RFC 4253 section 6.1).
pub(crate) const MAX_PACKET_BYTES: usize = 35_000;
/// The most that a client sends before its login, in bytes.
pub(crate) const MAX_BYTES_BEFORE_LOGIN: u64 = 1 << 20;
/// The packets that a client sends before its login, at most.
pub(crate) const MAX_PACKETS_BEFORE_LOGIN: u64 = 1_024;
/// Key exchanges before a login, at most; each costs the server more than the client.
pub(crate) const MAX_EXCHANGES_BEFORE_LOGIN: usize = 4;
/// The longest name of a user, in bytes. The driver is not asked about longer ones.
pub const MAX_USER_BYTES: usize = 255;
/// The longest key or certificate of a user, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 16 * 1_024;

/// The window that a channel begins with, in bytes.
pub const FIRST_WINDOW_BYTES: u32 = 256 * 1_024;
/// The largest window of a channel, in bytes.
pub const MAX_WINDOW_BYTES: u32 = 8 * 1_024 * 1_024;
/// By how much the windows of all channels of a connection may have grown together, in bytes.
pub const MAX_GROWN_BYTES: usize = 64 * 1_024 * 1_024;
/// The most data of one packet, in bytes, both ways; OpenSSH sends at most this.
pub(crate) const MAX_DATA_BYTES: u32 = 32 * 1_024;
/// Data that waits is joined up to this size, in bytes, so that many small packets take little room.
pub(crate) const JOINED_BYTES: usize = 32 * 1_024;

/// Packets that wait to be written, in bytes, until channels take no more data.
pub const MAX_WAITING_BYTES: usize = 256 * 1_024;
/// Packets that wait to be written, in bytes, until no more of the client is read.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 20;
/// What a message takes that waits for the end of a key exchange, beside its bytes: its place, padding and tag.
pub(crate) const HELD_OVERHEAD_BYTES: usize = 64;
/// Messages that wait for the end of a key exchange, in bytes.
pub(crate) const MAX_HELD_BYTES: usize = 1 << 20;
/// Requests of a client for forwards that wait for an answer, until no more of the client is read.
pub(crate) const MAX_REQUESTS: usize = 32;
/// Questions to a client that wait for an answer, at most.
pub(crate) const MAX_PINGS: usize = 64;
/// Channels of one connection, at most, with those that the client has not closed.
pub(crate) const MAX_CHANNELS: usize = 16_384;
/// Channels of sessions of one connection, at most.
pub(crate) const MAX_SESSIONS: usize = 4;

/// The most that one set of keys protects, in bytes of one direction (RFC 4253 section 9).
pub const MAX_REKEY_BYTES: u64 = 1 << 30;
/// The most packets that one set of keys protects in one direction; a quarter of RFC 4344 section 3.1.
pub(crate) const MAX_REKEY_PACKETS: u64 = 1 << 29;
/// How long one set of keys is used.
pub const REKEY_TIME: Duration = Duration::from_secs(3_600);
/// How long a client has for a key exchange. What was on its way before comes first.
pub(crate) const EXCHANGE_TIME: Duration = Duration::from_secs(900);
