//! A line of the log: an event, the hash of the previous line, and its own hash.

use sallyport_api::AuditEvent;
use sha2::{Digest as _, Sha256};

pub(crate) type Hash = [u8; 32];

/// The previous hash of the first event.
pub(crate) const START: Hash = [0; 32];

const HASH_KEY: &str = ",\"hash\":\"";
const PREV_KEY: &str = ",\"prev\":\"";
const LINE_END: &str = "\"}";
const HASH_DIGITS: usize = 64;

/// A line with its line end, and its hash.
pub(crate) struct Chained {
    pub(crate) line: String,
    pub(crate) hash: Hash,
}

/// Encodes the event as the next line.
pub(crate) fn chain(mut event: AuditEvent, seq: u64, prev: &Hash) -> Option<Chained> {
    event.seq = seq;
    event.prev = hex(prev);
    event.hash.clear();
    let mut line = serde_json::to_string(&event).ok()?;
    let hashed = line.len().checked_sub(HASH_KEY.len() + LINE_END.len())?;
    line.truncate(hashed);
    let hash = digest(line.as_bytes());
    line.push_str(HASH_KEY);
    line.push_str(&hex(&hash));
    line.push_str(LINE_END);
    line.push('\n');
    Some(Chained { line, hash })
}

/// The position of a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) prev: Hash,
    pub(crate) hash: Hash,
    /// Whether the line itself records missing events.
    pub(crate) is_gap: bool,
}

/// A defect of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The line is malformed.
    Form,
    /// The hash does not match the content.
    Changed,
}

/// Parses a line without its line end.
pub(crate) fn read(line: &[u8]) -> Result<Link, Damage> {
    let text = str::from_utf8(line).map_err(|_| Damage::Form)?;
    let (hashed, hash) = before_digits(text.strip_suffix(LINE_END).ok_or(Damage::Form)?, HASH_KEY)?;
    let (_, prev) = before_digits(hashed.strip_suffix('"').ok_or(Damage::Form)?, PREV_KEY)?;
    if digest(hashed.as_bytes()) != hash {
        return Err(Damage::Changed);
    }
    let rest = hashed.strip_prefix("{\"seq\":").ok_or(Damage::Form)?;
    let (seq, rest) = rest.split_once(',').ok_or(Damage::Form)?;
    let seq = seq.parse().map_err(|_| Damage::Form)?;
    let is_gap = rest.split(',').nth(1) == Some("\"kind\":\"gap\"");
    Ok(Link { seq, prev, hash, is_gap })
}

/// Splits `…<key><64 digits>`.
fn before_digits<'a>(text: &'a str, key: &str) -> Result<(&'a str, Hash), Damage> {
    let at = text.len().checked_sub(HASH_DIGITS).filter(|at| text.is_char_boundary(*at)).ok_or(Damage::Form)?;
    let (before, digits) = text.split_at(at);
    Ok((before.strip_suffix(key).ok_or(Damage::Form)?, unhex(digits).ok_or(Damage::Form)?))
}

pub(crate) fn digest(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != HASH_DIGITS || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut hash = START;
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}
