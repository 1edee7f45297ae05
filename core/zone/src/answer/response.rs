//! Writes an answer: header, question, sections and OPT record.

use super::{
    outcome::Rcode,
    settings::{Now, Peer, Settings},
};
use crate::{
    data::{Steered, Zone},
    query::{HEADER_BYTES, Header, Query},
    record::{RecordSet, RecordType, SetPlace},
};

/// The longest answer over UDP that the server says it takes, in bytes.
const OWN_UDP_BYTES: u16 = 1_232;
/// An OPT record without options, in bytes.
const OPT_BYTES: usize = 11;
/// The numbers of options.
const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;
const COOKIE: u16 = 10;
const EXTENDED_ERROR: u16 = 15;
/// "Invalid Query Type" (RFC 9824 section 3.5).
const INVALID_QUERY_TYPE: u16 = 30;

/// Sections of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

/// An answer that is being written.
pub(super) struct Response<'a> {
    out: &'a mut Vec<u8>,
    header: Header,
    /// Where the question ends.
    question_end: usize,
    /// The most bytes without the OPT record.
    max_bytes: usize,
    counts: [u16; 3],
    rcode: Rcode,
    is_authoritative: bool,
    is_truncated: bool,
    edns: Option<EdnsFlags>,
    steered: Option<Steered>,
}

/// A place in an answer to which it can be taken back.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseMark {
    len: usize,
    counts: [u16; 3],
    is_truncated: bool,
}

/// What an OPT record of an answer repeats.
#[derive(Debug, Clone, Copy)]
struct EdnsFlags {
    is_dnssec_ok: bool,
    is_compact_ok: bool,
}

impl<'a> Response<'a> {
    /// An answer to the query, with its question as it came: letters keep their case.
    pub(super) fn new(message: &[u8], query: &Query<'_>, max_bytes: usize, out: &'a mut Vec<u8>) -> Self {
        let question_end = HEADER_BYTES + query.question.len;
        out.clear();
        out.extend_from_slice(message.get(..question_end).unwrap_or_default());
        let edns =
            query.edns.map(|edns| EdnsFlags { is_dnssec_ok: edns.is_dnssec_ok, is_compact_ok: edns.is_compact_ok });
        Self {
            out,
            header: query.header,
            question_end,
            max_bytes,
            counts: [0; 3],
            rcode: Rcode::NO_ERROR,
            is_authoritative: false,
            is_truncated: false,
            edns,
            steered: None,
        }
    }

    /// Prepares the options of the OPT record, and keeps room for it.
    pub(super) fn set_options(
        &mut self,
        query: &Query<'_>,
        peer: &Peer,
        settings: &Settings,
        now: Now,
        is_cut: bool,
        options: &mut Vec<u8>,
    ) {
        options.clear();
        let Some(edns) = query.edns else { return };
        let mut option = |code: u16, parts: [&[u8]; 2]| {
            options.extend(code.to_be_bytes());
            options.extend(((parts[0].len() + parts[1].len()) as u16).to_be_bytes());
            options.extend_from_slice(parts[0]);
            options.extend_from_slice(parts[1]);
        };
        if let Some(identity) = settings.identity.as_ref().filter(|_| edns.is_nsid_wanted && !is_cut) {
            option(NSID, [identity.as_bytes(), &[]]);
        }
        if let Some((cookie, secrets)) = edns.cookie.zip(settings.cookies.as_ref()) {
            let server = secrets.answer(cookie.client, cookie.server, peer.address, now.unix_seconds);
            option(COOKIE, [cookie.client, &server]);
        }
        if let Some(subnet) = edns.subnet {
            // The scope 0 says that the answer is for every client (RFC 7871 section 7.2.1). `set_steered` changes it.
            let bytes = usize::from(subnet.prefix).div_ceil(8);
            match (subnet.address, subnet.prefix) {
                (_, 0) => option(CLIENT_SUBNET, [&[0, subnet.family, 0, 0], &[]]),
                (std::net::IpAddr::V4(address), prefix) => {
                    option(CLIENT_SUBNET, [&[0, 1, prefix, 0], &address.octets()[..bytes]]);
                }
                (std::net::IpAddr::V6(address), prefix) => {
                    option(CLIENT_SUBNET, [&[0, 2, prefix, 0], &address.octets()[..bytes]]);
                }
            }
        }
        if query.question.rtype == RecordType::NXNAME {
            option(EXTENDED_ERROR, [&INVALID_QUERY_TYPE.to_be_bytes(), &[]]);
        }
        self.max_bytes = self.max_bytes.saturating_sub(OPT_BYTES + options.len());
    }

    /// Says that the answer was chosen for this client, and for how many bits of its network it holds.
    pub(super) fn set_steered(&mut self, options: &mut [u8], scope: u8, steered: Steered) {
        self.steered = Some(steered);
        let mut rest = options;
        while let Some((fixed, after)) = rest.split_first_chunk_mut::<4>() {
            let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            let Some((value, next)) = after.split_at_mut_checked(len) else { return };
            if let (CLIENT_SUBNET, [_, _, source, stated, ..]) = (u16::from_be_bytes([fixed[0], fixed[1]]), &mut *value)
                && *source > 0
            {
                *stated = scope;
            }
            rest = next;
        }
    }

    /// How the answer was chosen for this client, if it was.
    pub(super) fn steered(&self) -> Option<Steered> {
        self.steered
    }

    pub(super) fn set_rcode(&mut self, rcode: Rcode) {
        self.rcode = rcode;
    }

    pub(super) fn rcode(&self) -> Rcode {
        self.rcode
    }

    pub(super) fn set_authoritative(&mut self) {
        self.is_authoritative = true;
    }

    /// Cuts the answer short.
    pub(super) fn truncate(&mut self) {
        self.is_truncated = true;
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Length so far, in bytes.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the name at this place of the answer is the one in lower case.
    pub(super) fn has_name_at(&self, at: u16, name: &[u8]) -> bool {
        let (mut at, mut rest, mut jumps) = (usize::from(at), name, 0);
        while let (Some(len), Some(expected)) = (self.out.get(at), rest.first()) {
            if *len >= 0xc0 {
                let Some(low) = self.out.get(at + 1).filter(|_| jumps < 2) else { return false };
                (at, jumps) = (usize::from(len & 0x3f) << 8 | usize::from(*low), jumps + 1);
                continue;
            }
            let end = usize::from(*len) + 1;
            let label = self.out.get(at..at + end);
            if len != expected || !label.zip(rest.get(..end)).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b)) {
                return false;
            }
            if *len == 0 {
                return true;
            }
            (at, rest) = (at + end, &rest[end..]);
        }
        false
    }

    /// Appends a set of records.
    pub(super) fn write_set(&mut self, section: Section, set: &RecordSet, place: SetPlace) {
        if self.out.len() + set.wire_len() > self.max_bytes {
            self.is_truncated = true;
            return;
        }
        set.write(place, self.out);
        self.counts[section as usize] = self.counts[section as usize].saturating_add(set.len() as u16);
    }

    /// Appends a set of records if there is room. Returns whether there was.
    pub(super) fn write_optional(&mut self, section: Section, set: &RecordSet, place: SetPlace) -> bool {
        let is_written = self.out.len() + set.wire_len() <= self.max_bytes;
        if is_written {
            self.write_set(section, set, place);
        }
        is_written
    }

    /// The state before an optional part.
    pub(super) fn mark(&self) -> ResponseMark {
        ResponseMark { len: self.out.len(), counts: self.counts, is_truncated: self.is_truncated }
    }

    /// Takes back what was written since the mark, if there was no room for all of it.
    pub(super) fn take_back_if_truncated(&mut self, mark: ResponseMark) {
        if self.is_truncated && !mark.is_truncated {
            self.out.truncate(mark.len);
            (self.counts, self.is_truncated) = (mark.counts, false);
        }
    }

    /// Appends what `write` appends, which returns the number of its records.
    pub(super) fn write_with(&mut self, section: Section, write: impl FnOnce(&mut Vec<u8>) -> u16) {
        let before = self.out.len();
        let count = write(self.out);
        if self.out.len() > self.max_bytes {
            self.out.truncate(before);
            self.is_truncated = true;
            return;
        }
        self.counts[section as usize] = self.counts[section as usize].saturating_add(count);
    }

    /// Appends the SOA record of the zone to the answers.
    pub(super) fn write_soa(&mut self, zone: &Zone, apex: u16) {
        self.write_set(Section::Answer, zone.soa(), SetPlace { owner: apex, apex });
    }

    /// Completes the answer with the header and the OPT record. Returns its code, and whether it is cut short.
    pub(super) fn finish(mut self, options: &[u8]) -> (Rcode, bool) {
        if self.is_truncated {
            // A client ignores an answer that is cut short, and asks again over TCP (RFC 2181 section 9).
            self.out.truncate(self.question_end);
            self.counts = [0; 3];
        }
        if let Some(flags) = self.edns {
            self.out.push(0);
            self.out.extend(RecordType::OPT.0.to_be_bytes());
            self.out.extend(OWN_UDP_BYTES.to_be_bytes());
            let bits = u8::from(flags.is_dnssec_ok) << 7 | u8::from(flags.is_compact_ok) << 6;
            self.out.extend([(self.rcode.0 >> 4) as u8, 0, bits, 0]);
            self.out.extend((options.len() as u16).to_be_bytes());
            self.out.extend_from_slice(options);
            self.counts[Section::Additional as usize] = self.counts[Section::Additional as usize].saturating_add(1);
        }
        let flags = 0x80
            | self.header.repeated_flags()
            | u8::from(self.is_authoritative) << 2
            | u8::from(self.is_truncated) << 1;
        let questions = u16::from(self.question_end > HEADER_BYTES);
        write_header(self.out, flags, self.rcode, questions, self.counts);
        (self.rcode, self.is_truncated)
    }
}

fn write_header(out: &mut [u8], flags: u8, rcode: Rcode, questions: u16, counts: [u16; 3]) {
    let Some(header) = out.first_chunk_mut::<HEADER_BYTES>() else { return };
    //= RFC 4035 section 3.1.6
    //# A security-aware name server SHOULD clear the CD bit when composing an authoritative response.
    header[2] = flags;
    header[3] = (rcode.0 & 0xf) as u8;
    header[4..6].copy_from_slice(&questions.to_be_bytes());
    for (at, count) in counts.iter().enumerate() {
        header[6 + 2 * at..8 + 2 * at].copy_from_slice(&count.to_be_bytes());
    }
}

/// Writes an answer to a message that is no query we understand: with its question, if that was read, and with an OPT
/// record, if the message has one.
pub(super) fn write_error(
    message: &[u8],
    header: Header,
    (question_len, has_edns): (Option<usize>, bool),
    rcode: Rcode,
    out: &mut Vec<u8>,
) {
    let end = HEADER_BYTES + question_len.unwrap_or(0);
    out.clear();
    out.extend_from_slice(message.get(..end).unwrap_or_default());
    if has_edns {
        out.push(0);
        out.extend(RecordType::OPT.0.to_be_bytes());
        out.extend(OWN_UDP_BYTES.to_be_bytes());
        out.extend([0; 6]);
    }
    let counts = [0, 0, u16::from(has_edns)];
    write_header(out, 0x80 | header.repeated_flags(), rcode, u16::from(question_len.is_some()), counts);
}
