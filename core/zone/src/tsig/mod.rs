//! Signed queries and answers (TSIG, RFC 8945).
//!
//! May use: `name`, `query`.

use std::{collections::HashMap, fmt};

use hickory_proto::{
    rr::{
        Name as ParsedName, TSigResponseContext, TSigner,
        rdata::tsig::{TSIG, TsigAlgorithm, TsigError, make_tsig_record},
    },
    serialize::binary::{BinEncodable as _, BinEncoder},
};

use crate::name::{Name, NameBuf};

/// The most keys of a server.
pub const MAX_TSIG_KEYS: usize = 1_024;
/// How far the clocks of both sides may be apart, in seconds (RFC 8945 section 10).
const FUDGE_SECONDS: u16 = 300;
/// The shortest secret, in bytes: half of what SHA-256 gives.
const MIN_SECRET_BYTES: usize = 16;
/// Room for a TSIG record beside its names, in bytes.
const RECORD_BYTES: usize = 200;

/// How messages are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TsigHash {
    /// HMAC-SHA256.
    Sha256,
    /// HMAC-SHA512.
    Sha512,
}

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TsigKeyError {
    /// The secret is short.
    #[error("the secret of the TSIG key {0} has less than {MIN_SECRET_BYTES} bytes")]
    ShortSecret(Name),
    /// There are too many.
    #[error("a server has at most {MAX_TSIG_KEYS} TSIG keys")]
    TooMany,
    /// The key does not fit its algorithm.
    #[error("the TSIG key {0} cannot be used")]
    Unusable(Name),
}

/// The keys that a server shares with its secondaries.
#[derive(Clone, Default)]
pub struct TsigKeys {
    by_name: HashMap<Name, TSigner>,
}

impl TsigKeys {
    /// Adds a key, in place of one with the same name.
    ///
    /// # Errors
    /// The secret is too short, or there are too many keys.
    pub fn insert(&mut self, name: Name, hash: TsigHash, secret: &[u8]) -> Result<(), TsigKeyError> {
        if secret.len() < MIN_SECRET_BYTES {
            return Err(TsigKeyError::ShortSecret(name));
        }
        if self.by_name.len() >= MAX_TSIG_KEYS && !self.by_name.contains_key(&name) {
            return Err(TsigKeyError::TooMany);
        }
        let algorithm = match hash {
            TsigHash::Sha256 => TsigAlgorithm::HmacSha256,
            TsigHash::Sha512 => TsigAlgorithm::HmacSha512,
        };
        let unusable = || TsigKeyError::Unusable(name.clone());
        let parsed = ParsedName::from_labels(name.labels()).map_err(|_| unusable())?;
        let signer = TSigner::new(secret.to_vec(), algorithm, parsed, FUDGE_SECONDS).map_err(|_| unusable())?;
        self.by_name.insert(name, signer);
        Ok(())
    }

    /// Whether a key has this name.
    #[must_use]
    pub fn contains(&self, name: &Name) -> bool {
        self.by_name.contains_key(name)
    }

    /// Checks the signature of a query that was read, with its TSIG record at `at`. `now` is in seconds since 1970.
    pub(crate) fn check(&self, query: &[u8], at: usize, now: u64) -> TsigCheck {
        let Some(name) = query.get(at..).and_then(NameBuf::read) else { return TsigCheck::Malformed };
        let name = Name::from_wire(name.as_wire());
        let id = query.first_chunk::<2>().map_or(0, |id| u16::from_be_bytes(*id));
        let Some(signer) = self.by_name.get(&name) else {
            let parsed = ParsedName::from_labels(name.labels()).unwrap_or_default();
            return TsigCheck::Failed(TsigFailure::Context(TSigResponseContext::unknown_key(id, now, parsed)));
        };
        if algorithm_at(query, at).is_none_or(|algorithm| algorithm != algorithm_name(signer)) {
            //= RFC 8945 section 5.2.1
            //# If a non-forwarding server does not recognize the key or algorithm used by the client [...], the server
            //# MUST generate an error response with RCODE 9 (NOTAUTH) and TSIG ERROR 17 (BADKEY).
            let context = TSigResponseContext::unknown_key(id, now, signer.signer_name().clone());
            return TsigCheck::Failed(TsigFailure::Context(context));
        }
        let Ok((mac, _, times)) = signer.verify_message_byte(query, None, true) else {
            let context = TSigResponseContext::bad_signature(id, now, signer.clone());
            return TsigCheck::Failed(TsigFailure::Context(context));
        };
        // Both ends are within the fudge (RFC 8945 section 5.2.3).
        if now < times.start || now > times.end {
            let signed_at = times.start.saturating_add(FUDGE_SECONDS.into());
            let failure = WrongTime { signer: signer.clone(), mac, id, signed_at, now };
            return TsigCheck::Failed(TsigFailure::WrongTime(failure));
        }
        TsigCheck::Valid(TsigSession { name, signer: signer.clone(), previous_mac: mac, id, is_first: true })
    }

    /// Begins a signed exchange of our own: signs the query. Answers are checked by its caller.
    pub(crate) fn sign_query(&self, key: &Name, message: &mut Vec<u8>, now: u64) -> Option<()> {
        let signer = self.by_name.get(key)?;
        let id = message.first_chunk::<2>().map(|id| u16::from_be_bytes(*id))?;
        // A query has no MAC before it: what is signed is the message and the variables.
        let stub = TSIG::new(signer.algorithm().clone(), now, FUDGE_SECONDS, Vec::new(), id, None, Vec::new());
        let mut signed = message.clone();
        let mut variables = Vec::new();
        stub.emit_tsig_for_mac(&mut BinEncoder::new(&mut variables), signer.signer_name()).ok()?;
        signed.extend(variables);
        let mac = signer.sign(&signed).ok()?;
        append(signer, stub.set_mac(mac), message)
    }
}

impl fmt::Debug for TsigKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// The name of the algorithm in the TSIG record at `at`.
fn algorithm_at(query: &[u8], at: usize) -> Option<Vec<u8>> {
    /// Type, class, TTL and length of a record.
    const FIXED_BYTES: usize = 10;
    let owner = NameBuf::read(query.get(at..)?)?.as_wire().len();
    Some(NameBuf::read(query.get(at + owner + FIXED_BYTES..)?)?.as_wire().to_vec())
}

/// The name of a key's algorithm, as messages have it.
fn algorithm_name(signer: &TSigner) -> Vec<u8> {
    let label: &[u8] = match signer.algorithm() {
        TsigAlgorithm::HmacSha512 => b"hmac-sha512",
        _ => b"hmac-sha256",
    };
    [&[label.len() as u8], label, &[0]].concat()
}

/// What a signature of a query says.
pub(crate) enum TsigCheck {
    /// It is by this key, and answers are signed by it too.
    Valid(TsigSession),
    /// It is by no key of ours, wrong, or too old. The answer is NOTAUTH and says which.
    Failed(TsigFailure),
    /// The record cannot be read.
    Malformed,
}

/// A signature that was not accepted.
pub(crate) enum TsigFailure {
    /// By no key of ours, or wrong.
    Context(TSigResponseContext),
    /// Right, and from another time.
    WrongTime(WrongTime),
}

/// A right signature from another time.
pub(crate) struct WrongTime {
    signer: TSigner,
    mac: Vec<u8>,
    id: u16,
    /// When the query was signed, by the clock of the client.
    signed_at: u64,
    now: u64,
}

impl WrongTime {
    // The time of the client is repeated, and the server's is in the other data (RFC 8945 section 5.2.3).
    fn append(&self, message: &mut Vec<u8>) -> Option<()> {
        let server_time = self.now.to_be_bytes()[2..].to_vec();
        let (algorithm, error) = (self.signer.algorithm().clone(), Some(TsigError::BadTime));
        let stub = TSIG::new(algorithm, self.signed_at, FUDGE_SECONDS, Vec::new(), self.id, error, server_time);
        let to_sign = self.signer.encode_response_tbs(&self.mac, message, &stub).ok()?;
        append(&self.signer, stub.set_mac(self.signer.sign(&to_sign).ok()?), message)
    }
}

impl TsigFailure {
    /// Appends the TSIG record to the answer.
    pub(crate) fn append(self, message: &mut Vec<u8>) {
        match self {
            Self::Context(context) => {
                if let Ok(record) = context.sign(message) {
                    append_record(&record, message);
                }
            }
            // An answer without the record is refused by the other side.
            Self::WrongTime(failure) => drop(failure.append(message)),
        }
    }
}

/// The answers to one signed query, which may be several messages.
pub(crate) struct TsigSession {
    name: Name,
    signer: TSigner,
    previous_mac: Vec<u8>,
    id: u16,
    is_first: bool,
}

impl TsigSession {
    /// The name of the key.
    pub(crate) fn key_name(&self) -> &Name {
        &self.name
    }

    /// The most bytes that a signature adds to a message.
    pub(crate) fn record_len(&self) -> usize {
        self.name.as_wire().len() + RECORD_BYTES
    }

    /// Signs a message: appends a TSIG record.
    pub(crate) fn sign(&mut self, message: &mut Vec<u8>, now: u64) {
        let stub =
            TSIG::new(self.signer.algorithm().clone(), now, FUDGE_SECONDS, Vec::new(), self.id, None, Vec::new());
        let to_sign = if self.is_first {
            self.signer.encode_response_tbs(&self.previous_mac, message, &stub).unwrap_or_default()
        } else {
            // Further messages sign the MAC before them, and of the variables the time alone (RFC 8945 section
            // 5.3.1).
            let mut bytes = (self.previous_mac.len() as u16).to_be_bytes().to_vec();
            bytes.extend(&self.previous_mac);
            bytes.extend(&*message);
            bytes.extend(&now.to_be_bytes()[2..]);
            bytes.extend(FUDGE_SECONDS.to_be_bytes());
            bytes
        };
        self.is_first = false;
        let Ok(mac) = self.signer.sign(&to_sign) else { return };
        self.previous_mac.clone_from(&mac);
        // An append that fails leaves the message unsigned, and the other side refuses it.
        let _ = append(&self.signer, stub.set_mac(mac), message);
    }
}

impl fmt::Debug for TsigSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TsigSession").field("name", &self.name).finish_non_exhaustive()
    }
}

fn append(signer: &TSigner, tsig: TSIG, message: &mut Vec<u8>) -> Option<()> {
    append_record(&make_tsig_record(signer.signer_name().clone(), tsig), message).then_some(())
}

fn append_record(record: &hickory_proto::rr::Record<TSIG>, message: &mut Vec<u8>) -> bool {
    let mut bytes = Vec::new();
    if record.emit(&mut BinEncoder::new(&mut bytes)).is_err() || message.len() < 12 {
        return false;
    }
    message.extend(bytes);
    let count = u16::from_be_bytes([message[10], message[11]]).saturating_add(1);
    message[10..12].copy_from_slice(&count.to_be_bytes());
    true
}
