//! Which server answers: the question `id.server CH TXT` (RFC 4892), and its answer.
//!
//! ```text
//! header (12 bytes): id, flags, counts of questions, answers, authorities and additional records
//! question: name, type (2), class (2)
//! record:   name, type (2), class (2), TTL (4), length (2), data; of TXT: texts with a length of one byte each
//! ```

/// The largest answer that is read, in bytes: that of the DNS without extensions (RFC 1035 section 4.2.1).
pub const MAX_CHAOS_BYTES: usize = 512;

const HEADER_BYTES: usize = 12;
const TXT: u16 = 16;
const CHAOS: u16 = 3;
/// `id.server`, in labels.
const NAME: &[u8] = b"\x02id\x06server\0";
/// The most records that are looked at.
const MAX_RECORDS: u16 = 16;
/// The most labels of a name.
const MAX_LABELS: usize = 128;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaosAnswer {
    /// The text: the name of an edge, if the server is one.
    pub text: String,
    /// Whether the server resolves names for others (the bit RA): it has passed the question on.
    pub is_resolver: bool,
}

/// Reason why an answer does not say which server it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChaosError {
    /// The bytes answer another question, or are no answer.
    #[error("the answer is not to this question")]
    OtherQuestion,
    /// The message is damaged.
    #[error("the answer is damaged")]
    Damaged,
    /// The server refuses, or has no such name.
    #[error("the server does not say which one it is (code {0})")]
    Refused(u8),
    /// The answer has no text.
    #[error("the answer has no text")]
    NoText,
}

/// The question with this id.
#[must_use]
pub fn chaos_question(id: u16) -> Vec<u8> {
    let mut question = Vec::with_capacity(HEADER_BYTES + NAME.len() + 4);
    question.extend(id.to_be_bytes());
    // One question. Resolvers are not asked to ask others.
    question.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    question.extend(NAME);
    question.extend(TXT.to_be_bytes());
    question.extend(CHAOS.to_be_bytes());
    question
}

/// Reads the answer to the question with this id.
///
/// # Errors
/// The bytes are no such answer, are damaged, or say nothing.
pub fn chaos_answer(id: u16, bytes: &[u8]) -> Result<ChaosAnswer, ChaosError> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(ChaosError::OtherQuestion)?;
    let is_answer = header[2] & 0xf8 == 0x80;
    if header[..2] != id.to_be_bytes() || !is_answer || bytes.len() > MAX_CHAOS_BYTES {
        return Err(ChaosError::OtherQuestion);
    }
    let asked = chaos_question(id);
    let question = bytes.get(HEADER_BYTES..asked.len()).ok_or(ChaosError::Damaged)?;
    if header[4..6] != [0, 1] || !question.eq_ignore_ascii_case(&asked[HEADER_BYTES..]) {
        return Err(ChaosError::OtherQuestion);
    }
    if header[3] & 0x0f != 0 {
        return Err(ChaosError::Refused(header[3] & 0x0f));
    }
    let mut at = asked.len();
    for _ in 0..u16::from_be_bytes([header[6], header[7]]).min(MAX_RECORDS) {
        let (kind, data, next) = record(bytes, at).ok_or(ChaosError::Damaged)?;
        if kind == (TXT, CHAOS) {
            let text = texts(data).ok_or(ChaosError::Damaged)?;
            return Ok(ChaosAnswer { text, is_resolver: header[3] & 0x80 != 0 });
        }
        at = next;
    }
    Err(ChaosError::NoText)
}

/// The type and class of the record at this place, its data, and the place after it.
fn record(bytes: &[u8], at: usize) -> Option<((u16, u16), &[u8], usize)> {
    let fixed = name_end(bytes, at)?;
    let two = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let (kind, class, length) = (two(fixed)?, two(fixed + 2)?, usize::from(two(fixed + 8)?));
    let start = fixed + 10;
    Some(((kind, class), bytes.get(start..start + length)?, start + length))
}

/// The place after a name. A pointer (RFC 1035 section 4.1.4) ends it, and is not followed.
fn name_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..MAX_LABELS {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer & 0xc0 == 0xc0 => return Some(at + 2),
            length if length & 0xc0 == 0 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
    None
}

/// The texts of a TXT record, as one.
fn texts(mut data: &[u8]) -> Option<String> {
    let mut text = Vec::new();
    while let [length, rest @ ..] = data {
        let (one, after) = rest.split_at_checked(usize::from(*length))?;
        text.extend(one);
        data = after;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with these flags and records.
    fn answer(flags: [u8; 2], records: &[&[u8]]) -> Vec<u8> {
        let mut answer = chaos_question(7);
        answer[2..4].copy_from_slice(&flags);
        answer[7] = u8::try_from(records.len()).unwrap();
        records.iter().for_each(|record| answer.extend(*record));
        answer
    }

    const TEXT: &[u8] = b"\xc0\x0c\0\x10\0\x03\0\0\0\0\0\x05\x04eu-1";

    #[test]
    fn the_text_of_the_right_answer_is_read() {
        let read = |bytes: &[u8]| chaos_answer(7, bytes);
        let edge = ChaosAnswer { text: "eu-1".to_owned(), is_resolver: false };
        assert_eq!(read(&answer([0x84, 0], &[TEXT])), Ok(edge.clone()));
        let resolver = ChaosAnswer { is_resolver: true, ..edge };
        assert_eq!(read(&answer([0x80, 0x80], &[TEXT])), Ok(resolver));
        let other = b"\x01a\0\0\x01\0\x01\0\0\0\0\0\x04abcd";
        let parts = b"\xc0\x0c\0\x10\0\x03\0\0\0\0\0\x06\x02eu\x02-1";
        assert_eq!(read(&answer([0x84, 0], &[other, parts])).unwrap().text, "eu-1");
        assert_eq!(read(&answer([0x84, 0], &[other])), Err(ChaosError::NoText));
        assert_eq!(read(&answer([0x84, 5], &[])), Err(ChaosError::Refused(5)));
        assert_eq!(read(&answer([0x04, 0], &[TEXT])), Err(ChaosError::OtherQuestion), "a question");
        assert_eq!(chaos_answer(8, &answer([0x84, 0], &[TEXT])), Err(ChaosError::OtherQuestion));
        assert_eq!(read(&[]), Err(ChaosError::OtherQuestion));
    }

    #[test]
    fn damaged_answers_break_nothing() {
        let good = answer([0x84, 0], &[TEXT]);
        for at in 0..good.len() {
            assert!(chaos_answer(7, &good[..at]).is_err(), "{at} bytes");
            for byte in 0..=u8::MAX {
                let mut changed = good.clone();
                changed[at] = byte;
                if let Ok(answer) = chaos_answer(7, &changed) {
                    assert!(answer.text.len() <= 3 * MAX_CHAOS_BYTES);
                }
            }
        }
        let endless = answer([0x84, 0], &[&b"\x01a".repeat(200)]);
        assert_eq!(chaos_answer(7, &endless), Err(ChaosError::Damaged));
    }
}
