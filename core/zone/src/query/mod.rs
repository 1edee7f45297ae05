//! What comes: the header, the question, EDNS with its options, and whether the query is signed (TSIG).
//!
//! May use: `name`, `record`.

mod edns;

pub use edns::{ClientSubnet, Edns, MAX_COOKIE_BYTES, ReceivedCookie};

use crate::{name::NameBuf, record::RecordType};

/// Length of the header of a message, in bytes.
pub const HEADER_BYTES: usize = 12;
/// The most records that are read of a query. A query has an OPT and a TSIG record at most, an IXFR query one more.
const MAX_RECORDS: u16 = 8;
/// The class of the Internet.
pub const CLASS_IN: u16 = 1;
/// Any class, of which there is one here.
pub const CLASS_ANY: u16 = 255;
/// The class of questions about the server itself.
pub const CLASS_CH: u16 = 3;

/// Kinds of messages that are told apart (RFC 6895 section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// A question.
    Query,
    /// A zone has changed (RFC 1996).
    Notify,
    /// Anything else.
    Other,
}

/// The header of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The id that the answer repeats.
    pub id: u16,
    /// The first byte of flags: QR, opcode, AA, TC, RD.
    flags: u8,
}

/// The question of a query.
#[derive(Debug, Clone)]
pub struct Question {
    /// The name, in lower case.
    pub name: NameBuf,
    /// The type.
    pub rtype: RecordType,
    /// The class.
    pub class: u16,
    /// Length of the question on the wire, in bytes.
    pub len: usize,
}

/// A query that was read.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    /// Its header.
    pub header: Header,
    /// Its question.
    pub question: Question,
    /// EDNS, if the query has it.
    pub edns: Option<Edns<'a>>,
    /// Where the TSIG record begins, if the query has one. It is the last record.
    pub tsig_at: Option<usize>,
    /// The serial number of the SOA record in the authority section, which an IXFR query has.
    pub known_serial: Option<u32>,
}

/// Why no query was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryError {
    /// No answer: the message is too short for a header, or it is an answer itself.
    Drop(NoQuery),
    /// The message is malformed. Length of the question, in bytes, if it was read.
    Malformed(Header, Option<usize>),
    /// The opcode is not implemented. Whether the message has an OPT record.
    NotImplemented(Header, bool),
}

/// Why a message gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoQuery {
    /// It has no header.
    TooShort,
    /// It is an answer. Answers to answers would never end.
    Response,
}

impl Header {
    /// Whether the client asks for recursion. The answer repeats it.
    #[must_use]
    pub fn is_recursion_desired(self) -> bool {
        self.flags & 1 != 0
    }

    /// The kind of message.
    #[must_use]
    pub fn opcode(self) -> Opcode {
        match self.flags >> 3 & 0xf {
            0 => Opcode::Query,
            4 => Opcode::Notify,
            _ => Opcode::Other,
        }
    }

    /// The bits of opcode and RD, which the answer repeats.
    pub(crate) fn repeated_flags(self) -> u8 {
        self.flags & 0x79
    }
}

impl<'a> Query<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// The message is no query, or it is malformed.
    pub fn read(message: &'a [u8]) -> Result<Self, QueryError> {
        let Some(fixed) = message.first_chunk::<HEADER_BYTES>() else {
            return Err(QueryError::Drop(NoQuery::TooShort));
        };
        let header = Header { id: u16::from_be_bytes([fixed[0], fixed[1]]), flags: fixed[2] };
        if header.flags & 0x80 != 0 {
            return Err(QueryError::Drop(NoQuery::Response));
        }
        let body = Self::read_body(message, fixed, header);
        if header.opcode() != Opcode::Query {
            let has_edns = body.is_ok_and(|query| query.edns.is_some());
            return Err(QueryError::NotImplemented(header, has_edns));
        }
        body
    }

    /// Reads what follows the header.
    fn read_body(message: &'a [u8], fixed: &[u8; HEADER_BYTES], header: Header) -> Result<Self, QueryError> {
        let count = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let malformed = |question| QueryError::Malformed(header, question);
        if count(4) == 0 {
            //= RFC 7873 section 5.4
            //# For servers with DNS Cookies enabled, the QUERY opcode behavior is extended to support queries with an
            //# empty Question Section (a QDCOUNT of zero (0)), provided that an OPT record is present with a COOKIE
            //# option.
            let mut query = Self { header, question: Question::none(), edns: None, tsig_at: None, known_serial: None };
            let read = query.read_records(message, [count(6), count(8), count(10)]);
            let has_cookie = query.edns.is_some_and(|edns| edns.cookie.is_some());
            return read.filter(|()| has_cookie).map(|()| query).ok_or_else(|| malformed(None));
        }
        //= RFC 9619 section 4
        //# A DNS message with OPCODE = 0 and QDCOUNT > 1 MUST be treated as an incorrectly formatted message.
        if count(4) != 1 {
            return Err(malformed(None));
        }
        let question = Question::read(&message[HEADER_BYTES..]).ok_or_else(|| malformed(None))?;
        let mut query = Self { header, question, edns: None, tsig_at: None, known_serial: None };
        match query.read_records(message, [count(6), count(8), count(10)]) {
            Some(()) => Ok(query),
            None => Err(malformed(Some(query.question.len))),
        }
    }

    /// Reads the records after the question; `None` if one is malformed.
    fn read_records(&mut self, message: &'a [u8], [answers, authorities, additionals]: [u16; 3]) -> Option<()> {
        let before = answers.checked_add(authorities)?;
        let total = before.checked_add(additionals).filter(|total| *total <= MAX_RECORDS)?;
        let mut at = HEADER_BYTES + self.question.len;
        for index in 0..total {
            // Nothing follows a TSIG record.
            if self.tsig_at.is_some() {
                return None;
            }
            let record = RawRecord::read(message, at)?;
            let is_additional = index >= before;
            match record.rtype {
                RecordType::OPT if is_additional => {
                    //= RFC 6891 section 6.1.1
                    //# If a query message with more than one OPT RR is received, a FORMERR (RCODE=1) MUST be returned.
                    if self.edns.is_some() || record.owner_len != 1 || message.get(at) != Some(&0) {
                        return None;
                    }
                    self.edns = Some(Edns::read(record.class, record.ttl, record.data)?);
                }
                RecordType::TSIG if is_additional => self.tsig_at = Some(at),
                RecordType::OPT | RecordType::TSIG => return None,
                RecordType::SOA if !is_additional && index >= answers => {
                    self.known_serial = serial_of(record.data);
                }
                _ => {}
            }
            at = record.end;
        }
        (at == message.len()).then_some(())
    }
}

impl Question {
    /// Stands for the missing question of a query that asks for a cookie alone.
    fn none() -> Self {
        Self { name: NameBuf::root(), rtype: RecordType(0), class: CLASS_IN, len: 0 }
    }

    /// Whether the query asks for a cookie alone.
    pub(crate) fn is_none(&self) -> bool {
        self.len == 0
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let name = NameBuf::read(bytes)?;
        let at = name.as_wire().len();
        let fixed = bytes.get(at..at + 4)?;
        Some(Self {
            rtype: RecordType(u16::from_be_bytes([fixed[0], fixed[1]])),
            class: u16::from_be_bytes([fixed[2], fixed[3]]),
            len: at + 4,
            name,
        })
    }
}

/// A record as it stands in a message.
struct RawRecord<'a> {
    owner_len: usize,
    rtype: RecordType,
    class: u16,
    ttl: u32,
    data: &'a [u8],
    end: usize,
}

impl<'a> RawRecord<'a> {
    fn read(message: &'a [u8], at: usize) -> Option<Self> {
        let owner_len = skip_name(message.get(at..)?)?;
        let fixed = message.get(at + owner_len..)?.first_chunk::<10>()?;
        let start = at + owner_len + fixed.len();
        let end = start + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        Some(Self {
            owner_len,
            rtype: RecordType(u16::from_be_bytes([fixed[0], fixed[1]])),
            class: u16::from_be_bytes([fixed[2], fixed[3]]),
            ttl: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            data: message.get(start..end)?,
            end,
        })
    }
}

/// Length of the name at the front, which may end with a pointer.
fn skip_name(bytes: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    loop {
        match usize::from(*bytes.get(at)?) {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + len,
            0xc0.. => return bytes.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
        if at > crate::name::MAX_NAME_BYTES {
            return None;
        }
    }
}

/// The serial number in the data of an SOA record.
fn serial_of(data: &[u8]) -> Option<u32> {
    let first = skip_name(data)?;
    let at = first + skip_name(data.get(first..)?)?;
    data.get(at..)?.first_chunk::<4>().map(|serial| u32::from_be_bytes(*serial))
}

#[cfg(test)]
mod tests;
