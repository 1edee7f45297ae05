//! The records of one connection after its handshake (RFC 8446 sections 4.6, 5 and 6), in buffers of the caller.

use std::ops::Range;

use rustls::{AlertDescription, ExtractedSecrets, SupportedCipherSuite, crypto::cipher::make_tls13_aad};

use crate::{
    RecordError,
    key::{KeySchedule, TrafficKey},
    record::{
        ContentType, HEADER_BYTES, MAX_PLAIN_BYTES, MAX_SEALED_BYTES, OVERHEAD_BYTES, TAG_BYTES, body_bytes, message,
    },
};

/// The longest handshake message in several records: tickets and key updates are far shorter.
const MAX_MESSAGE_BYTES: usize = 65_536;
/// The most consecutive records without data.
const MAX_RECORDS_WITHOUT_DATA: u8 = 32;
/// The most session tickets of a server.
const MAX_TICKETS: u8 = 32;

const MALFORMED_KEY_UPDATE: &str = "a key update is malformed";
const RECORD_TOO_LONG: &str = "a record is too long";
const MISPLACED_MESSAGE: &str = "a handshake message has no place here";

/// An opened record.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// Length of the record, in bytes with its header.
    pub taken: usize,
    /// Its content.
    pub received: Received,
}

/// The content of a record for the reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Data: this part of the given bytes, decrypted.
    Data(Range<usize>),
    /// Nothing: an empty record, a session ticket, a key update, or a part of these.
    Nothing,
    /// The peer sends no more data (`close_notify`).
    Close,
}

/// Seals and opens the records of one connection. Every error ends the connection: call [`Self::abort`], send
/// [`Self::take_outgoing`], and open nothing more.
pub struct RecordLayer {
    keys: KeySchedule,
    read: TrafficKey,
    write: TrafficKey,
    /// The most records that one key may seal.
    max_records: u64,
    /// The beginning of an incomplete handshake message.
    partial_message: Vec<u8>,
    outgoing: Vec<u8>,
    /// Whether an alert that closes this direction was sealed.
    is_closed: bool,
    records_without_data: u8,
    tickets: u8,
}

impl RecordLayer {
    pub(crate) fn new(secrets: ExtractedSecrets, keys: KeySchedule) -> Result<Self, RecordError> {
        let SupportedCipherSuite::Tls13(suite) = keys.suite() else {
            return Err(RecordError::no_keys("a cipher suite of TLS 1.2"));
        };
        Ok(Self {
            read: TrafficKey::new(secrets.rx)?,
            write: TrafficKey::new(secrets.tx)?,
            max_records: suite.common.confidentiality_limit,
            keys,
            partial_message: Vec::new(),
            outgoing: Vec::new(),
            is_closed: false,
            records_without_data: 0,
            tickets: 0,
        })
    }

    /// Takes sealed records that must be sent before any later ones. Usually there are none.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Ensures that `records` more records can be sealed with one key. May add a key update to [`Self::take_outgoing`].
    ///
    /// # Errors
    /// There is no next key.
    pub fn prepare(&mut self, records: u64) -> Result<(), RecordError> {
        // One more for the key update itself, and one for the closing alert.
        if self.write.sequence().saturating_add(records + 2) > self.max_records && self.write.sequence() > 0 {
            self.send_key_update(message_of_key_update(false))?;
        }
        Ok(())
    }

    /// Seals data as one record. The data are the `len` bytes at [`HEADER_BYTES`] of `room`, at most
    /// [`MAX_PLAIN_BYTES`]; the room must have [`OVERHEAD_BYTES`] more. Returns the length of the record, which starts
    /// at the start of `room`. Call [`Self::prepare`] first.
    ///
    /// # Errors
    /// The cipher fails, which does not happen for records of this length.
    pub fn seal_data(&mut self, room: &mut [u8], len: usize) -> Result<usize, RecordError> {
        self.seal(ContentType::APPLICATION_DATA, room, len)
    }

    /// Seals a record of any content type, as [`Self::seal_data`]. Tests use it for records that no peer may send.
    ///
    /// # Errors
    /// As [`Self::seal_data`].
    pub fn seal(&mut self, content_type: ContentType, room: &mut [u8], len: usize) -> Result<usize, RecordError> {
        let header = make_tls13_aad(len + 1 + TAG_BYTES);
        let (front, rest) = room.split_at_mut(HEADER_BYTES);
        front.copy_from_slice(&header);
        rest[len] = content_type.0;
        let (inner, tag) = rest.split_at_mut(len + 1);
        self.write.seal(&header, inner, tag)?;
        Ok(len + OVERHEAD_BYTES)
    }

    /// Adds the alert `close_notify` to [`Self::take_outgoing`]: this side sends nothing more.
    ///
    /// # Errors
    /// As [`Self::seal_data`].
    pub fn close(&mut self) -> Result<(), RecordError> {
        const WARNING: u8 = 1;
        self.send(ContentType::ALERT, &[WARNING, u8::from(AlertDescription::CloseNotify)])?;
        self.is_closed = true;
        Ok(())
    }

    /// Adds the alert of this error to [`Self::take_outgoing`], unless the peer sent it.
    ///
    /// # Errors
    /// As [`Self::seal_data`].
    pub fn abort(&mut self, error: &RecordError) -> Result<(), RecordError> {
        const FATAL: u8 = 2;
        if error.is_from_peer() {
            return Ok(());
        }
        self.send(ContentType::ALERT, &[FATAL, u8::from(error.alert())])?;
        self.is_closed = true;
        Ok(())
    }

    /// Adds a key update to [`Self::take_outgoing`] that requests one from the peer.
    ///
    /// # Errors
    /// There is no next key.
    pub fn request_key_update(&mut self) -> Result<(), RecordError> {
        self.send_key_update(message_of_key_update(true))
    }

    /// Lowers the number of records that one key may seal; the default is the cipher suite's limit.
    pub fn set_max_records(&mut self, max_records: u64) {
        self.max_records = self.max_records.min(max_records);
    }

    /// The sequence number of the peer's next record: the number of records since its key changed.
    #[must_use]
    pub fn read_sequence(&self) -> u64 {
        self.read.sequence()
    }

    /// Opens the record at the start of `bytes` in place; `None` if it is incomplete.
    ///
    /// # Errors
    /// The record violates RFC 8446, or is an alert that ends the connection.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Option<Opened>, RecordError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>().copied() else { return Ok(None) };
        //= RFC 8446 section 5.2: "The outer opaque_type field of a TLSCiphertext record is always set to the value 23".
        if ContentType(header[0]) != ContentType::APPLICATION_DATA {
            return Err(RecordError::unexpected("a record is not encrypted"));
        }
        let len = body_bytes(header);
        if len > MAX_SEALED_BYTES {
            return Err(RecordError::new(AlertDescription::RecordOverflow, RECORD_TOO_LONG));
        }
        let taken = HEADER_BYTES + len;
        let Some(sealed) = bytes.get_mut(HEADER_BYTES..taken) else { return Ok(None) };
        let Some(inner) = self.read.open(&header, sealed) else {
            return Err(RecordError::new(AlertDescription::BadRecordMac, "a record was changed on its way"));
        };
        //= RFC 8446 section 5.4: "the full encoded TLSInnerPlaintext MUST NOT exceed 2^14 + 1 octets".
        if inner.len() > MAX_PLAIN_BYTES + 1 {
            return Err(RecordError::new(AlertDescription::RecordOverflow, RECORD_TOO_LONG));
        }
        // The content type is the last non-zero byte; zeros after it are padding.
        let Some(end) = inner.iter().rposition(|byte| *byte != 0) else {
            return Err(RecordError::unexpected("a record has no content type"));
        };
        let (content_type, content) = (ContentType(inner[end]), &inner[..end]);
        //= RFC 8446 section 5.1: "there MUST NOT be any other records between them".
        if content_type != ContentType::HANDSHAKE && !self.partial_message.is_empty() {
            return Err(RecordError::unexpected("a record came inside a handshake message"));
        }
        //= RFC 8446 section 5.4: "Implementations MUST NOT send Handshake and Alert records that have a zero-length
        //= TLSInnerPlaintext.content".
        if content.is_empty() && content_type != ContentType::APPLICATION_DATA {
            return Err(RecordError::unexpected("a handshake or alert record is empty"));
        }
        let received = match content_type {
            ContentType::APPLICATION_DATA if end > 0 => Received::Data(HEADER_BYTES..HEADER_BYTES + end),
            ContentType::APPLICATION_DATA => Received::Nothing,
            ContentType::ALERT => on_alert(content)?,
            ContentType::HANDSHAKE => {
                self.partial_message.extend_from_slice(content);
                self.on_messages()?;
                Received::Nothing
            }
            _ => return Err(RecordError::unexpected("a record has an unknown content type")),
        };
        self.count(&received)?;
        Ok(Some(Opened { taken, received }))
    }

    /// Bounds the work for a peer that sends no data.
    fn count(&mut self, received: &Received) -> Result<(), RecordError> {
        if *received != Received::Nothing {
            self.records_without_data = 0;
            return Ok(());
        }
        self.records_without_data += 1;
        if self.records_without_data > MAX_RECORDS_WITHOUT_DATA {
            return Err(RecordError::unexpected("too many records in a row carry no data"));
        }
        Ok(())
    }

    /// Handles the messages that are complete.
    fn on_messages(&mut self) -> Result<(), RecordError> {
        let all = std::mem::take(&mut self.partial_message);
        let mut rest = &all[..];
        while let Some((header, behind)) = rest.split_first_chunk::<{ message::HEADER_BYTES }>() {
            let [kind, len @ ..] = *header;
            let len = len.into_iter().fold(0, |len, byte| len << 8 | usize::from(byte));
            if len > MAX_MESSAGE_BYTES {
                return Err(RecordError::new(AlertDescription::DecodeError, "a handshake message is too long"));
            }
            // A misplaced message is rejected by its header, so that it needs no memory.
            match (kind, &self.keys) {
                (message::KEY_UPDATE, _) if len == message::KEY_UPDATE_BYTES => {}
                (message::KEY_UPDATE, _) => {
                    return Err(RecordError::new(AlertDescription::DecodeError, MALFORMED_KEY_UPDATE));
                }
                (message::NEW_SESSION_TICKET, KeySchedule::Client(_)) => {}
                _ => return Err(RecordError::unexpected(MISPLACED_MESSAGE)),
            }
            let Some((body, behind)) = behind.split_at_checked(len) else { break };
            rest = behind;
            match kind {
                message::NEW_SESSION_TICKET => self.on_ticket(body)?,
                //= RFC 8446 section 5.1: "Implementations MUST verify that all messages immediately preceding a key
                //= change align with a record boundary".
                message::KEY_UPDATE if rest.is_empty() => self.on_key_update(body)?,
                _ => return Err(RecordError::unexpected(MISPLACED_MESSAGE)),
            }
        }
        if !rest.is_empty() {
            self.partial_message = rest.to_vec();
        }
        Ok(())
    }

    fn on_ticket(&mut self, ticket: &[u8]) -> Result<(), RecordError> {
        let KeySchedule::Client(kernel) = &mut self.keys else {
            return Err(RecordError::unexpected(MISPLACED_MESSAGE));
        };
        self.tickets = self.tickets.saturating_add(1);
        if self.tickets > MAX_TICKETS {
            return Err(RecordError::unexpected("too many session tickets"));
        }
        let malformed = |_| RecordError::new(AlertDescription::DecodeError, "a session ticket is malformed");
        kernel.handle_new_session_ticket(ticket).map_err(malformed)
    }

    fn on_key_update(&mut self, body: &[u8]) -> Result<(), RecordError> {
        let is_requested = match body {
            [0] => false,
            [1] => true,
            _ => return Err(RecordError::new(AlertDescription::IllegalParameter, MALFORMED_KEY_UPDATE)),
        };
        self.read = self.keys.next_read_key()?;
        // One answer is enough for all requests before it is sent.
        if is_requested && self.outgoing.is_empty() && !self.is_closed {
            self.send_key_update(message_of_key_update(false))?;
        }
        Ok(())
    }

    fn send_key_update(&mut self, message: [u8; 5]) -> Result<(), RecordError> {
        self.send(ContentType::HANDSHAKE, &message)?;
        self.write = self.keys.next_write_key()?;
        Ok(())
    }

    /// Seals a record into the outgoing bytes.
    fn send(&mut self, content_type: ContentType, content: &[u8]) -> Result<(), RecordError> {
        //= RFC 8446 section 6.1: "This alert notifies the recipient that the sender will not send any more messages".
        if self.is_closed {
            return Ok(());
        }
        let start = self.outgoing.len();
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.resize(start + content.len() + OVERHEAD_BYTES, 0);
        outgoing[start + HEADER_BYTES..][..content.len()].copy_from_slice(content);
        let sealed = self.seal(content_type, &mut outgoing[start..], content.len());
        self.outgoing = outgoing;
        sealed.map(|_| ())
    }
}

/// A key update (RFC 8446 section 4.6.3).
fn message_of_key_update(asks_peer: bool) -> [u8; 5] {
    [message::KEY_UPDATE, 0, 0, 1, u8::from(asks_peer)]
}

fn on_alert(content: &[u8]) -> Result<Received, RecordError> {
    //= RFC 8446 section 5.1: "Alert messages MUST NOT be fragmented across records, and multiple alert messages MUST
    //= NOT be coalesced into a single TLSPlaintext record."
    let [_level, description] = content else {
        return Err(RecordError::new(AlertDescription::DecodeError, "an alert is malformed"));
    };
    match AlertDescription::from(*description) {
        AlertDescription::CloseNotify => Ok(Received::Close),
        AlertDescription::UserCanceled => Ok(Received::Nothing),
        alert => Err(RecordError::from_peer(alert)),
    }
}
