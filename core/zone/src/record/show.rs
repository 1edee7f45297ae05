//! Records in presentation form, as [`parse_record`](super::parse_record) reads them.

use std::{
    fmt::{self, Write as _},
    net::{Ipv4Addr, Ipv6Addr},
};

use super::{Record, RecordData, RecordType};
use crate::name::{Name, NameBuf};

/// The line of a master file.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} IN {}", self.owner, self.ttl, self.data)
    }
}

/// The type and the data.
impl fmt::Display for RecordData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edges(group) => write!(f, "EDGES {group}"),
            Self::Alias(target) => write!(f, "ALIAS {target}"),
            Self::Plain(rtype, data) => match known(*rtype, data) {
                Some(text) => write!(f, "{rtype} {text}"),
                None => unknown(*rtype, data, f),
            },
        }
    }
}

/// The data in the form of their type; `None`: they have none, or are malformed.
fn known(rtype: RecordType, data: &[u8]) -> Option<String> {
    let name_at = |at: usize| {
        let name = NameBuf::read(data.get(at..)?)?;
        Some((Name::from_wire(name.as_wire()), at + name.as_wire().len()))
    };
    let only_name = |at: usize| name_at(at).filter(|(_, end)| *end == data.len()).map(|(name, _)| name);
    let number = |at: usize| Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?));
    match rtype {
        RecordType::A => Some(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).to_string()),
        RecordType::AAAA => Some(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).to_string()),
        RecordType::NS | RecordType::CNAME | RecordType::DNAME | RecordType::PTR => {
            only_name(0).map(|name| name.to_string())
        }
        RecordType::MX => Some(format!("{} {}", number(0)?, only_name(2)?)),
        RecordType::SRV => Some(format!("{} {} {} {}", number(0)?, number(2)?, number(4)?, only_name(6)?)),
        RecordType::SOA => {
            let (primary, at) = name_at(0)?;
            let (mailbox, at) = name_at(at)?;
            let numbers = data.get(at..).filter(|numbers| numbers.len() == 20)?;
            let mut text = format!("{primary} {mailbox}");
            for number in numbers.chunks_exact(4) {
                write!(text, " {}", u32::from_be_bytes(number.try_into().ok()?)).ok()?;
            }
            Some(text)
        }
        RecordType::TXT => {
            let (mut rest, mut text) = (data, Vec::new());
            while let Some((len, after)) = rest.split_first() {
                let (string, next) = after.split_at_checked(usize::from(*len))?;
                text.push(quoted(string));
                rest = next;
            }
            (!text.is_empty()).then(|| text.join(" "))
        }
        RecordType::CAA => {
            let (fixed, after) = data.split_first_chunk::<2>()?;
            let (tag, value) = after.split_at_checked(usize::from(fixed[1]))?;
            let is_tag = (1..=15).contains(&tag.len()) && tag.iter().all(u8::is_ascii_alphanumeric);
            is_tag.then(|| format!("{} {} {}", fixed[0], String::from_utf8_lossy(tag), quoted(value)))
        }
        _ => None,
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03}")),
        }
    }
    text.push('"');
    text
}

/// The form for unknown types (RFC 3597 section 5), which fits any.
fn unknown(rtype: RecordType, data: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{rtype} \\# {} ", data.len())?;
    data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
