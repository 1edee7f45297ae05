//! Notices that a zone has changed (RFC 1996).

use crate::{
    data::Zone,
    name::{Name, NameBuf},
    query::HEADER_BYTES,
    record::RecordType,
    tsig::TsigKeys,
};

/// The opcode of notices, in the place of the header's flags.
const NOTIFY: u8 = 4 << 3;

/// What a secondary says to a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyAnswer {
    /// It has the notice.
    Accepted,
    /// It does not accept it; the code says why.
    Refused(u8),
}

/// A notice about the zone, with its SOA record. It is signed if there is a key. `now` is in seconds since 1970.
/// `None`: there is no such key.
#[must_use]
pub fn notify_message(zone: &Zone, id: u16, key: Option<(&TsigKeys, &Name)>, now: u64) -> Option<Vec<u8>> {
    let mut out = id.to_be_bytes().to_vec();
    // AA; one question, and one answer.
    out.extend([NOTIFY | 4, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    out.extend_from_slice(zone.apex().as_wire());
    out.extend(RecordType::SOA.0.to_be_bytes());
    out.extend(1_u16.to_be_bytes());
    let data = zone.soa().data().next()?;
    out.extend([0xc0, HEADER_BYTES as u8]);
    out.extend(RecordType::SOA.0.to_be_bytes());
    out.extend(1_u16.to_be_bytes());
    out.extend(zone.soa().ttl().to_be_bytes());
    out.extend((data.len() as u16).to_be_bytes());
    out.extend_from_slice(data);
    if let Some((keys, name)) = key {
        keys.sign_query(name, &mut out, now)?;
    }
    Some(out)
}

/// Reads an answer to the notice with this id about this zone; `None`: it is none.
#[must_use]
pub fn read_notify_answer(message: &[u8], id: u16, apex: &Name) -> Option<NotifyAnswer> {
    let header = message.first_chunk::<HEADER_BYTES>()?;
    let is_answer = header[2] & 0xf8 == 0x80 | NOTIFY && header[..2] == id.to_be_bytes();
    if !is_answer {
        return None;
    }
    // Some servers leave the question out of a refusal.
    let has_question = header[4..6] != [0, 0];
    if has_question && NameBuf::read(&message[HEADER_BYTES..])?.as_wire() != apex.as_wire() {
        return None;
    }
    match header[3] & 0xf {
        0 => Some(NotifyAnswer::Accepted),
        code => Some(NotifyAnswer::Refused(code)),
    }
}
