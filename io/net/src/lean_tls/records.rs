//! The record layer of a TLS 1.3 connection after its handshake (RFC 8446 sections 4.6, 5 and 6), in buffers of the caller.
//!
//! The keys, their updates and the tickets are rustls'; the ciphers are those that rustls has from AWS-LC.

use std::{fmt, ops::Range};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, Error, ExtractedSecrets, SupportedCipherSuite,
    client::ClientConnectionData,
    crypto::cipher::{Iv, Nonce, make_tls13_aad},
    kernel::KernelConnection,
    server::ServerConnectionData,
};

/// Length of a record's header.
pub(super) const HEADER_BYTES: usize = 5;
/// How much one record carries at most.
pub(super) const MAX_PLAIN_BYTES: usize = 16_384;
/// The tag of every cipher that TLS 1.3 has here.
const TAG_BYTES: usize = 16;
/// What a record adds to what it carries: its header, a byte that says what it carries, and the tag.
pub(super) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// The longest record, sealed, that holds nothing for the reader: an update of keys.
pub(super) const MAX_IDLE_SEALED_BYTES: usize = message::HEADER_BYTES + KEY_UPDATE_BYTES + 1 + TAG_BYTES;
/// How long the body of an update of keys is (RFC 8446 section 4.6.3).
const KEY_UPDATE_BYTES: usize = 1;
const NO_KEY_UPDATE: &str = "an update of keys that cannot be read";
//= RFC 8446 section 5.2: "The length MUST NOT exceed 2^14 + 256 bytes."
const MAX_SEALED_BYTES: usize = MAX_PLAIN_BYTES + 256;
/// How long a message of the handshake may be when it comes in pieces: tickets and updates of keys are far below that.
const MAX_MESSAGE_BYTES: usize = 65_536;
/// How many records in a row may carry nothing for the reader.
const MAX_RECORDS_FOR_NOTHING: u8 = 32;
/// How many tickets a server may send.
const MAX_TICKETS: u8 = 32;

/// What a record carries (RFC 8446 section 5.1).
mod kind {
    pub(super) const ALERT: u8 = 21;
    pub(super) const HANDSHAKE: u8 = 22;
    pub(super) const APPLICATION_DATA: u8 = 23;
}

/// Messages that come after the handshake (RFC 8446 section 4).
mod message {
    pub(super) const NEW_SESSION_TICKET: u8 = 4;
    pub(super) const KEY_UPDATE: u8 = 24;
    pub(super) const HEADER_BYTES: usize = 4;
}

/// A record that must not be.
#[derive(Debug)]
pub(super) struct RecordError {
    what: &'static str,
    alert: AlertDescription,
    /// The other side has said so itself.
    is_theirs: bool,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.what, self.alert)
    }
}

impl std::error::Error for RecordError {}

fn wrong(alert: AlertDescription, what: &'static str) -> RecordError {
    RecordError { what, alert, is_theirs: false }
}

fn unexpected(what: &'static str) -> RecordError {
    wrong(AlertDescription::UnexpectedMessage, what)
}

/// The keys could not be made, which they always can.
fn no_keys(_: impl fmt::Debug) -> RecordError {
    wrong(AlertDescription::InternalError, "there are no keys for the connection")
}

/// What rustls keeps of the connection.
pub(super) enum Kernel {
    Client(Box<KernelConnection<ClientConnectionData>>),
    Server(Box<KernelConnection<ServerConnectionData>>),
}

impl Kernel {
    fn update_read_keys(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Self::Client(kernel) => kernel.update_rx_secret(),
            Self::Server(kernel) => kernel.update_rx_secret(),
        }
    }

    fn update_write_keys(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Self::Client(kernel) => kernel.update_tx_secret(),
            Self::Server(kernel) => kernel.update_tx_secret(),
        }
    }

    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Client(kernel) => kernel.negotiated_cipher_suite(),
            Self::Server(kernel) => kernel.negotiated_cipher_suite(),
        }
    }
}

/// The key of one direction, and how many records it was used for.
struct Keys {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl Keys {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(no_keys("a cipher that is not known")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(no_keys)?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// The nonce of the next record: no two of a key have the same (RFC 8446 section 5.3).
    fn next_nonce(&mut self) -> aead::Nonce {
        let nonce = Nonce::new(&self.iv, self.sequence);
        self.sequence += 1;
        aead::Nonce::assume_unique_for_key(nonce.0)
    }
}

/// What was in a record, and how long that was with all that belongs to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// So much of the bytes is done with.
    pub(super) taken: usize,
    pub(super) what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// What the other side wrote is here in the bytes.
    Data(Range<usize>),
    /// Nothing for the reader.
    Nothing,
    /// The other side writes nothing more.
    End,
}

/// Seals and opens the records of one connection.
pub(super) struct Records {
    kernel: Kernel,
    read: Keys,
    write: Keys,
    /// How many records a key is good for.
    max_records: u64,
    /// A message of the handshake that is not all there.
    message: Vec<u8>,
    /// Sealed records that must leave before what is sealed next.
    answers: Vec<u8>,
    /// Nothing is said any more.
    is_over: bool,
    /// How many records in a row carried nothing for the reader.
    for_nothing: u8,
    tickets: u8,
}

impl Records {
    pub(super) fn new(secrets: ExtractedSecrets, kernel: Kernel) -> Result<Self, RecordError> {
        let SupportedCipherSuite::Tls13(suite) = kernel.suite() else { return Err(no_keys("it is not TLS 1.3")) };
        Ok(Self {
            read: Keys::new(secrets.rx)?,
            write: Keys::new(secrets.tx)?,
            max_records: suite.common.confidentiality_limit,
            kernel,
            message: Vec::new(),
            answers: Vec::new(),
            is_over: false,
            for_nothing: 0,
            tickets: 0,
        })
    }

    /// Records that must leave before what is sealed next.
    pub(super) fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.answers)
    }

    /// Seals what is at `HEADER_BYTES` of the room as one record that begins at its start; says how long that is.
    pub(super) fn seal_data(&mut self, room: &mut [u8], len: usize) -> Result<usize, RecordError> {
        self.seal(kind::APPLICATION_DATA, room, len)
    }

    fn seal(&mut self, kind: u8, room: &mut [u8], len: usize) -> Result<usize, RecordError> {
        let header = make_tls13_aad(len + 1 + TAG_BYTES);
        let (front, rest) = room.split_at_mut(HEADER_BYTES);
        front.copy_from_slice(&header);
        rest[len] = kind;
        let (inner, tag) = rest.split_at_mut(len + 1);
        let nonce = self.write.next_nonce();
        let sealed = self.write.key.seal_in_place_separate_tag(nonce, Aad::from(header), inner).map_err(no_keys)?;
        tag[..TAG_BYTES].copy_from_slice(sealed.as_ref());
        Ok(len + OVERHEAD_BYTES)
    }

    /// Makes sure that so many records can be sealed with a good key: an update of it may be among the answers then.
    pub(super) fn prepare(&mut self, records: u64) -> Result<(), RecordError> {
        // One more for the update itself, and one for the last word.
        if self.write.sequence.saturating_add(records + 2) > self.max_records && self.write.sequence > 0 {
            self.update_write_key()?;
        }
        Ok(())
    }

    fn update_write_key(&mut self) -> Result<(), RecordError> {
        const NOT_REQUESTED: u8 = 0;
        self.answer(kind::HANDSHAKE, &[message::KEY_UPDATE, 0, 0, 1, NOT_REQUESTED])?;
        self.write = Keys::new(self.kernel.update_write_keys().map_err(no_keys)?)?;
        Ok(())
    }

    /// Seals a record that leaves before what is sealed next.
    pub(super) fn answer(&mut self, kind: u8, words: &[u8]) -> Result<(), RecordError> {
        //= RFC 8446 section 6.1: "This alert notifies the recipient that the sender will not send any more messages".
        if self.is_over {
            return Ok(());
        }
        let start = self.answers.len();
        let mut answers = std::mem::take(&mut self.answers);
        answers.resize(start + words.len() + OVERHEAD_BYTES, 0);
        answers[start + HEADER_BYTES..][..words.len()].copy_from_slice(words);
        let sealed = self.seal(kind, &mut answers[start..], words.len());
        self.answers = answers;
        sealed.map(|_| ())
    }

    /// Puts among the answers that we write nothing more.
    pub(super) fn say_end(&mut self) -> Result<(), RecordError> {
        const WARNING: u8 = 1;
        self.answer(kind::ALERT, &[WARNING, u8::from(AlertDescription::CloseNotify)])?;
        self.is_over = true;
        Ok(())
    }

    /// Puts among the answers why the connection ends, where the other side does not know.
    pub(super) fn say_why(&mut self, error: &RecordError) -> Result<(), RecordError> {
        const FATAL: u8 = 2;
        if error.is_theirs {
            return Ok(());
        }
        self.answer(kind::ALERT, &[FATAL, u8::from(error.alert)])?;
        self.is_over = true;
        Ok(())
    }

    /// Opens the record that these bytes begin with, where they are; `None` until all of it is there.
    pub(super) fn open(&mut self, bytes: &mut [u8]) -> Result<Option<Opened>, RecordError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>().copied() else { return Ok(None) };
        //= RFC 8446 section 5.2: "The outer opaque_type field of a TLSCiphertext record is always set to the value 23".
        if header[0] != kind::APPLICATION_DATA {
            return Err(unexpected("a record that is not encrypted"));
        }
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if len > MAX_SEALED_BYTES {
            return Err(wrong(AlertDescription::RecordOverflow, "a record that is too long"));
        }
        let taken = HEADER_BYTES + len;
        let Some(sealed) = bytes.get_mut(HEADER_BYTES..taken) else { return Ok(None) };
        let nonce = self.read.next_nonce();
        let bad = |_| wrong(AlertDescription::BadRecordMac, "a record that was changed on its way");
        let plain = self.read.key.open_in_place(nonce, Aad::from(header), sealed).map_err(bad)?;
        //= RFC 8446 section 5.4: "the full encoded TLSInnerPlaintext MUST NOT exceed 2^14 + 1 octets".
        if plain.len() > MAX_PLAIN_BYTES + 1 {
            return Err(wrong(AlertDescription::RecordOverflow, "a record that is too long"));
        }
        // Behind the content stands what it is, and behind that there may be zeros.
        let Some(end) = plain.iter().rposition(|byte| *byte != 0) else {
            return Err(unexpected("a record of zeros"));
        };
        let (kind, content) = (plain[end], &plain[..end]);
        if kind != kind::HANDSHAKE && !self.message.is_empty() {
            return Err(unexpected("a record in the middle of a message"));
        }
        let what = match kind {
            kind::APPLICATION_DATA if end > 0 => What::Data(HEADER_BYTES..HEADER_BYTES + end),
            kind::APPLICATION_DATA => What::Nothing,
            kind::ALERT => on_alert(content)?,
            //= RFC 8446 section 5.1: "Implementations MUST NOT send zero-length fragments of Handshake types".
            kind::HANDSHAKE if content.is_empty() => return Err(unexpected("an empty part of a message")),
            kind::HANDSHAKE => {
                self.message.extend_from_slice(content);
                self.on_messages()?;
                What::Nothing
            }
            _ => return Err(unexpected("a record of an unknown kind")),
        };
        if what == What::Nothing {
            self.for_nothing += 1;
            if self.for_nothing > MAX_RECORDS_FOR_NOTHING {
                return Err(unexpected("too many records for nothing"));
            }
        } else {
            self.for_nothing = 0;
        }
        Ok(Some(Opened { taken, what }))
    }

    /// Takes the messages that are all there.
    fn on_messages(&mut self) -> Result<(), RecordError> {
        let all = std::mem::take(&mut self.message);
        let mut rest = &all[..];
        while let Some((header, behind)) = rest.split_first_chunk::<{ message::HEADER_BYTES }>() {
            let [kind, len @ ..] = *header;
            let len = len.into_iter().fold(0, |len, byte| len << 8 | usize::from(byte));
            if len > MAX_MESSAGE_BYTES {
                return Err(wrong(AlertDescription::DecodeError, "a message that is too long"));
            }
            // What has no place here is not waited for, and holds no memory.
            match (kind, &self.kernel) {
                (message::KEY_UPDATE, _) if len == KEY_UPDATE_BYTES => {}
                (message::KEY_UPDATE, _) => return Err(wrong(AlertDescription::DecodeError, NO_KEY_UPDATE)),
                (message::NEW_SESSION_TICKET, Kernel::Client(_)) => {}
                _ => return Err(unexpected("a message that has no place here")),
            }
            let Some((body, behind)) = behind.split_at_checked(len) else { break };
            rest = behind;
            match kind {
                message::NEW_SESSION_TICKET => self.on_ticket(body)?,
                // The key changes: nothing else may stand in the same record (RFC 8446 section 5.1).
                message::KEY_UPDATE if rest.is_empty() => self.on_key_update(body)?,
                _ => return Err(unexpected("a message that has no place here")),
            }
        }
        if !rest.is_empty() {
            self.message = rest.to_vec();
        }
        Ok(())
    }

    fn on_ticket(&mut self, ticket: &[u8]) -> Result<(), RecordError> {
        let Kernel::Client(kernel) = &mut self.kernel else { return Err(unexpected("a ticket from a client")) };
        self.tickets = self.tickets.saturating_add(1);
        if self.tickets > MAX_TICKETS {
            return Err(unexpected("too many tickets"));
        }
        let bad = |_| wrong(AlertDescription::DecodeError, "a ticket that cannot be read");
        kernel.handle_new_session_ticket(ticket).map_err(bad)
    }

    fn on_key_update(&mut self, body: &[u8]) -> Result<(), RecordError> {
        let is_requested = match body {
            [0] => false,
            [1] => true,
            _ => return Err(wrong(AlertDescription::IllegalParameter, NO_KEY_UPDATE)),
        };
        self.read = Keys::new(self.kernel.update_read_keys().map_err(no_keys)?)?;
        // One answer is enough for all requests that come before it has left, and none follows our last word.
        if is_requested && self.answers.is_empty() && !self.is_over {
            self.update_write_key()?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn set_max_records(&mut self, max_records: u64) {
        self.max_records = max_records;
    }

    /// How many records came since the other side's key changed last.
    #[cfg(test)]
    pub(super) fn read_sequence(&self) -> u64 {
        self.read.sequence
    }

    /// Asks the other side to update its key, as a peer may at any time.
    #[cfg(test)]
    pub(super) fn ask_for_update(&mut self) {
        const REQUESTED: u8 = 1;
        self.answer(kind::HANDSHAKE, &[message::KEY_UPDATE, 0, 0, 1, REQUESTED]).unwrap();
        self.write = Keys::new(self.kernel.update_write_keys().unwrap()).unwrap();
    }
}

fn on_alert(content: &[u8]) -> Result<What, RecordError> {
    let [_level, description] = content else {
        return Err(wrong(AlertDescription::DecodeError, "an alert that cannot be read"));
    };
    match AlertDescription::from(*description) {
        AlertDescription::CloseNotify => Ok(What::End),
        AlertDescription::UserCanceled => Ok(What::Nothing),
        alert => Err(RecordError { what: "the other side ended the connection", alert, is_theirs: true }),
    }
}
