//! The data of records from their words.

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::{
    rr::{Name as ParsedName, RData},
    serialize::{
        binary::{BinEncodable as _, BinEncoder},
        txt::Parser,
    },
};

use super::{RecordData, RecordType, is_group_name, lexer::Word};
use crate::name::Name;

/// The longest string of a record, in bytes.
const MAX_STRING_BYTES: usize = 255;
/// Names of parameters of SVCB records, in the order of their numbers (RFC 9460 section 14.3.2).
const SVCB_KEYS: [&str; 7] = ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint"];

/// The data of a record of this type.
pub(super) fn record_data(rtype: &str, words: &[Word], origin: &Name) -> Result<RecordData, String> {
    let upper = rtype.to_ascii_uppercase();
    if !matches!(upper.as_str(), "ALIAS" | "ANAME" | "EDGES") {
        upper.parse::<RecordType>().map_err(|source| source.to_string())?;
    }
    if let [mark, len, digits @ ..] = words
        && mark.text == "\\#"
    {
        let rtype: RecordType = upper.parse().map_err(|source| format!("{source}"))?;
        return Ok(RecordData::Plain(rtype, lower_names(rtype, unknown_data(len, digits)?)));
    }
    let name = |word: &Word| complete(&word.text, origin);
    let (rtype, data) = match (upper.as_str(), words) {
        ("ALIAS" | "ANAME", [target]) => return Ok(RecordData::Alias(name(target)?)),
        ("EDGES", [group]) if is_group_name(&group.text) => return Ok(RecordData::Edges(group.text.clone())),
        ("EDGES", [group]) => return Err(format!("{:?} is no name of a group of edges", group.text)),
        ("A", [address]) => (RecordType::A, parsed::<Ipv4Addr>(address, "IPv4 address")?.octets().to_vec()),
        ("AAAA", [address]) => (RecordType::AAAA, parsed::<Ipv6Addr>(address, "IPv6 address")?.octets().to_vec()),
        ("NS", [target]) => (RecordType::NS, name(target)?.as_wire().to_vec()),
        ("CNAME", [target]) => (RecordType::CNAME, name(target)?.as_wire().to_vec()),
        ("DNAME", [target]) => (RecordType::DNAME, name(target)?.as_wire().to_vec()),
        ("PTR", [target]) => (RecordType::PTR, name(target)?.as_wire().to_vec()),
        ("MX", [preference, target]) => {
            let preference = parsed::<u16>(preference, "number up to 65535")?.to_be_bytes();
            (RecordType::MX, [&preference, name(target)?.as_wire()].concat())
        }
        ("SRV", [numbers @ .., target]) if numbers.len() == 3 => {
            let mut data = Vec::new();
            for number in numbers {
                data.extend(parsed::<u16>(number, "number up to 65535")?.to_be_bytes());
            }
            data.extend(name(target)?.as_wire());
            (RecordType::SRV, data)
        }
        ("SOA", [primary, mailbox, serial, times @ ..]) if times.len() == 4 => {
            let mut data = [name(primary)?.as_wire(), name(mailbox)?.as_wire()].concat();
            data.extend(parsed::<u32>(serial, "serial number")?.to_be_bytes());
            for time in times {
                let seconds = seconds(&time.text).ok_or_else(|| format!("{:?} is no time", time.text))?;
                data.extend(seconds.to_be_bytes());
            }
            (RecordType::SOA, data)
        }
        ("TXT", [_, ..]) => (RecordType::TXT, strings(words)?),
        ("CAA", [flags, tag, value]) => {
            let (flags, value) = (parsed::<u8>(flags, "number up to 255")?, value.bytes()?);
            let is_tag = (1..=15).contains(&tag.text.len()) && tag.text.bytes().all(|c| c.is_ascii_alphanumeric());
            if !is_tag {
                return Err(format!("{:?} is no tag of a CAA record", tag.text));
            }
            let data = [&[flags, tag.text.len() as u8], tag.text.as_bytes(), &value].concat();
            (RecordType::CAA, data)
        }
        ("SVCB" | "HTTPS", [priority, target, parameters @ ..]) => {
            return by_parser(&upper, &service(priority, name(target)?, parameters)?, origin);
        }
        (
            "A" | "AAAA" | "NS" | "CNAME" | "DNAME" | "PTR" | "MX" | "SRV" | "SOA" | "TXT" | "CAA" | "SVCB" | "HTTPS"
            | "ALIAS" | "ANAME" | "EDGES",
            _,
        ) => return Err(format!("the data of {upper} are such as {}", example(&upper))),
        _ => return by_parser(&upper, &line(words), origin),
    };
    Ok(RecordData::Plain(rtype, data))
}

/// Data of this type, as a zone file has them.
fn example(upper: &str) -> &'static str {
    match upper {
        "A" => "192.0.2.1",
        "AAAA" => "2001:db8::1",
        "MX" => "10 mail.example.com.",
        "SRV" => "0 5 443 www.example.com.",
        "SOA" => "ns1.example.com. admin.example.com. 1 7200 3600 1209600 300",
        "TXT" => "\"a text\"",
        "CAA" => "0 issue \"ca.example.net\"",
        "SVCB" | "HTTPS" => "1 . alpn=h2",
        "EDGES" => "only",
        _ => "www.example.com.",
    }
}

/// The data with their names in lower case, for the types that are signed so (RFC 4034 section 6.2). Data that are too
/// short stay as they are.
fn lower_names(rtype: RecordType, mut data: Vec<u8>) -> Vec<u8> {
    // The place of the first name, and the number of names.
    let (mut at, count) = match rtype.0 {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR, DNAME
        2..=5 | 7..=9 | 12 | 39 => (0, 1),
        // SOA, MINFO, RP
        6 | 14 | 17 => (0, 2),
        // MX, AFSDB, RT, KX
        15 | 18 | 21 | 36 => (2, 1),
        // PX
        26 => (2, 2),
        // SRV
        33 => (6, 1),
        // NAPTR has three strings before its name.
        35 => {
            let strings = (0..3).fold(4, |at, _| at + 1 + usize::from(data.get(at).copied().unwrap_or_default()));
            (strings, 1)
        }
        _ => return data,
    };
    for _ in 0..count {
        while let Some(len) = data.get(at).map(|len| usize::from(*len)).filter(|len| (1..=63).contains(len)) {
            let end = data.len().min(at + 1 + len);
            data[at + 1..end].make_ascii_lowercase();
            at = end;
        }
        at += 1;
    }
    data
}

/// A name in a master file: `@` is the origin, and names without a dot at the end belong to it.
pub(super) fn complete(text: &str, origin: &Name) -> Result<Name, String> {
    if text == "@" {
        return Ok(origin.clone());
    }
    let backslashes = text.strip_suffix('.').map(|text| text.bytes().rev().take_while(|c| *c == b'\\').count());
    let name = match backslashes {
        Some(count) if count % 2 == 0 => Name::from_text(text),
        _ if origin.as_wire().len() == 1 => Name::from_text(text),
        _ => Name::from_text(&format!("{text}.{origin}")),
    };
    name.map_err(|source| source.to_string())
}

/// A time in seconds, or with units: `1h30m`.
pub(super) fn seconds(text: &str) -> Option<u32> {
    let (mut total, mut number) = (0_u32, None::<u32>);
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit)?);
            continue;
        }
        let unit = match c.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    match (number, text.is_empty()) {
        (_, true) => None,
        (number, false) => total.checked_add(number.unwrap_or(0)),
    }
}

fn parsed<T: std::str::FromStr>(word: &Word, what: &str) -> Result<T, String> {
    word.text.parse().map_err(|_| format!("{:?} is no {what}", word.text))
}

fn strings(words: &[Word]) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    for word in words {
        let bytes = word.bytes()?;
        if bytes.len() > MAX_STRING_BYTES {
            return Err(format!("a string has {} bytes: split it into strings of {MAX_STRING_BYTES}", bytes.len()));
        }
        data.push(bytes.len() as u8);
        data.extend(bytes);
    }
    Ok(data)
}

/// Data in the form for unknown types: a length, and hexadecimal digits (RFC 3597 section 5).
fn unknown_data(len: &Word, digits: &[Word]) -> Result<Vec<u8>, String> {
    let len: usize = parsed(len, "length")?;
    let digits: String = digits.iter().map(|word| word.text.as_str()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let data: Option<Vec<u8>> =
        digits.as_bytes().chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect();
    data.filter(|data| data.len() == len).ok_or_else(|| format!("the data are not {len} bytes in hexadecimal digits"))
}

/// The data of an SVCB record, with its parameters in the order of their numbers, which the parser wants.
fn service(priority: &Word, target: Name, parameters: &[Word]) -> Result<String, String> {
    let number = |word: &Word| {
        let key = word.text.split('=').next().unwrap_or_default().to_ascii_lowercase();
        let known = SVCB_KEYS.iter().position(|name| *name == key).map(|at| at as u32);
        known.or_else(|| key.strip_prefix("key")?.parse().ok())
    };
    let mut sorted = Vec::new();
    for word in parameters {
        let number = number(word).ok_or_else(|| format!("{:?} is no parameter that is known", word.text))?;
        sorted.push((number, word.text.as_str()));
    }
    sorted.sort_unstable();
    let parameters: String = sorted.iter().map(|(_, text)| format!(" {text}")).collect();
    Ok(format!("{} {target}{parameters}", priority.text))
}

fn line(words: &[Word]) -> String {
    let text = |word: &Word| if word.is_quoted { format!("\"{}\" ", word.text) } else { format!("{} ", word.text) };
    words.iter().map(text).collect()
}

/// The data of a type that is seldom in a zone, by hickory's parser.
fn by_parser(rtype: &str, data: &str, origin: &Name) -> Result<RecordData, String> {
    let origin = ParsedName::from_ascii(origin.to_string()).map_err(|source| source.to_string())?;
    let text = format!("x. 0 IN {rtype} {data}\n");
    let (_, sets) = Parser::new(text, None, Some(origin)).parse().map_err(|source| source.to_string())?;
    let mut records = sets.values().flat_map(|set| set.records_without_rrsigs());
    match (records.next(), records.next()) {
        (Some(record), None) => {
            Ok(RecordData::Plain(RecordType(u16::from(record.record_type())), canonical(&record.data)?))
        }
        _ => Err("the data are not those of one record".to_owned()),
    }
}

fn canonical(rdata: &RData) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_canonical_form(true);
    rdata.emit(&mut encoder).map_err(|source| source.to_string())?;
    Ok(bytes)
}
