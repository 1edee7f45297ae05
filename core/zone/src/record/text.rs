//! Records from their presentation form: one record, or a master file (RFC 1035 section 5).

use hickory_proto::{
    rr::{Name as ParsedName, RData, rdata::HTTPS},
    serialize::{
        binary::{BinEncodable as _, BinEncoder},
        txt::Parser,
    },
};

use super::{MAX_TTL_SECONDS, Record, RecordData, RecordType};
use crate::name::Name;

/// The longest master file, in bytes.
pub const MAX_MASTER_FILE_BYTES: usize = 256 * 1024 * 1024;
/// The longest text of one record, in bytes.
const MAX_RECORD_TEXT_BYTES: usize = 128 * 1024;

/// Why a text is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordTextError(pub String);

/// Reads one record: its type and the text that follows in a master file. Names without a dot at the end belong to
/// `origin`. The type `ALIAS` (or `ANAME`) stands for the addresses of another name, and `EDGES` for those of a group
/// of edges.
///
/// # Errors
/// One sentence about the first fault.
pub fn parse_record(owner: &Name, ttl: u32, rtype: &str, text: &str, origin: &Name) -> Result<Record, RecordTextError> {
    let error = |reason: String| RecordTextError(format!("{owner} {rtype}: {reason}"));
    if ttl > MAX_TTL_SECONDS {
        return Err(error(format!("the TTL {ttl} is longer than {MAX_TTL_SECONDS} seconds")));
    }
    if text.len() > MAX_RECORD_TEXT_BYTES {
        return Err(error(format!("the text has more than {MAX_RECORD_TEXT_BYTES} bytes")));
    }
    if text.contains(['\n', '\r']) {
        return Err(error("a record is one line".to_owned()));
    }
    let target = || {
        if text.trim().is_empty() {
            return Err(error("a name is missing".to_owned()));
        }
        let origin = ParsedName::from_ascii(origin.to_string()).map_err(|source| error(source.to_string()))?;
        let parsed = ParsedName::parse(text.trim(), Some(&origin)).map_err(|source| error(source.to_string()))?;
        Ok(Name::from_labels(parsed.iter()))
    };
    let upper = rtype.to_ascii_uppercase();
    let data = match upper.as_str() {
        "ALIAS" | "ANAME" => RecordData::Alias(target()?),
        "EDGES" => RecordData::Edges(text.trim().to_owned()),
        "DNAME" => RecordData::Plain(RecordType::DNAME, target()?.as_wire().to_vec()),
        _ => {
            if let Some(rdata) = text.trim().strip_prefix("\\#") {
                let rtype: RecordType = upper.parse().map_err(|source| error(format!("{source}")))?;
                return Ok(Record::plain(owner.clone(), ttl, rtype, unknown_data(rdata).map_err(error)?));
            }
            let line = format!("{owner} {ttl} IN {upper} {text}\n");
            let mut records = parse_lines(&line, origin, true).map_err(error)?;
            let record = records.pop().ok_or_else(|| error("the text has no record".to_owned()))?;
            if !records.is_empty() {
                return Err(error("the text has more than one record".to_owned()));
            }
            record.data
        }
    };
    Ok(Record { owner: owner.clone(), ttl, data })
}

/// Reads a master file. `ANAME` stands for the addresses of another name. Other files are not included.
///
/// # Errors
/// One sentence about the first fault.
pub fn parse_master_file(text: &str, origin: &Name) -> Result<Vec<Record>, RecordTextError> {
    if text.len() > MAX_MASTER_FILE_BYTES {
        return Err(RecordTextError(format!("the master file has more than {MAX_MASTER_FILE_BYTES} bytes")));
    }
    // The parser would read the file that is named.
    let includes = |line: &str| line.trim_start().get(..8).is_some_and(|word| word.eq_ignore_ascii_case("$include"));
    if let Some(at) = text.lines().position(includes) {
        return Err(RecordTextError(format!("line {} of the master file: $INCLUDE is not allowed", at + 1)));
    }
    parse_lines(text, origin, false).map_err(|reason| RecordTextError(format!("the master file: {reason}")))
}

/// Reads lines of a master file. One record alone has no `$ORIGIN`.
fn parse_lines(text: &str, origin: &Name, is_one_record: bool) -> Result<Vec<Record>, String> {
    let origin = ParsedName::from_ascii(origin.to_string()).map_err(|source| source.to_string())?;
    if text.to_ascii_lowercase().contains("$include") {
        return Err("$INCLUDE is not allowed".to_owned());
    }
    let (_, sets) = Parser::new(text, None, Some(origin.clone())).parse().map_err(|source| source.to_string())?;
    let mut records = Vec::new();
    for set in sets.values() {
        for record in set.records_without_rrsigs() {
            let owner = Name::from_labels(record.name.iter());
            let data = match &record.data {
                RData::ANAME(target) => RecordData::Alias(Name::from_labels(target.0.iter())),
                // The parser does not complete the targets of these types.
                RData::SVCB(svcb) | RData::HTTPS(HTTPS(svcb)) if !svcb.target_name.is_fqdn() => {
                    if !is_one_record {
                        return Err(format!("{owner} {}: the target needs a dot at its end", record.record_type()));
                    }
                    let mut svcb = svcb.clone();
                    svcb.target_name = svcb.target_name.append_domain(&origin).map_err(|source| source.to_string())?;
                    RecordData::Plain(RecordType(u16::from(record.record_type())), canonical(&RData::SVCB(svcb))?)
                }
                rdata => RecordData::Plain(RecordType(u16::from(rdata.record_type())), canonical(rdata)?),
            };
            if record.dns_class != hickory_proto::rr::DNSClass::IN {
                return Err(format!("{owner} is of the class {}: the class is IN", record.dns_class));
            }
            records.push(Record { owner, ttl: record.ttl.min(MAX_TTL_SECONDS), data });
        }
    }
    Ok(records)
}

fn canonical(rdata: &RData) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_canonical_form(true);
    rdata.emit(&mut encoder).map_err(|source| source.to_string())?;
    Ok(bytes)
}

/// Data in the form for unknown types: a length, and hexadecimal digits (RFC 3597 section 5).
fn unknown_data(text: &str) -> Result<Vec<u8>, String> {
    let (len, digits) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let len: usize = len.parse().map_err(|_| format!("{len:?} is no length"))?;
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let data: Option<Vec<u8>> = digits.chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect();
    data.filter(|data| data.len() == len).ok_or_else(|| format!("the data are not {len} bytes in hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_text(text).unwrap()
    }

    fn parse(rtype: &str, text: &str) -> Result<Record, RecordTextError> {
        parse_record(&name("www.example.com"), 60, rtype, text, &name("example.com"))
    }

    #[test]
    fn records_of_the_usual_types_are_read() {
        let plain = |rtype: &str, text: &str| match parse(rtype, text).unwrap().data {
            RecordData::Plain(_, rdata) => rdata,
            other => panic!("{other:?}"),
        };
        assert_eq!(plain("A", "192.0.2.1"), [192, 0, 2, 1]);
        assert_eq!(plain("mx", "10 Mail"), [&[0, 10][..], name("mail.example.com").as_wire()].concat());
        assert_eq!(plain("TXT", "\"a b\" c"), b"\x03a b\x01c");
        assert_eq!(plain("CAA", "0 issue \"ca.example.net\""), b"\x00\x05issueca.example.net");
        assert_eq!(plain("DNAME", "Other.example."), name("other.example").as_wire());
        assert_eq!(plain("HTTPS", "1 . alpn=h2"), b"\x00\x01\x00\x00\x01\x00\x03\x02h2");
        assert_eq!(plain("SVCB", "1 Svc"), [&[0, 1][..], b"\x03svc", name("example.com").as_wire()].concat());
        assert_eq!(plain("HTTPS", "0 svc.example.net."), [&[0, 0][..], name("svc.example.net").as_wire()].concat());
        assert_eq!(plain("TYPE65300", "\\# 3 01 0203"), [1, 2, 3]);
        assert_eq!(parse("ALIAS", "lb.example.net.").unwrap().data, RecordData::Alias(name("lb.example.net")));
        assert_eq!(parse("EDGES", "eu").unwrap().data, RecordData::Edges("eu".to_owned()));
    }

    #[test]
    fn faults_are_named() {
        for (rtype, text) in [
            ("A", "192.0.2"),
            ("A", "192.0.2.1\nx 60 IN A 192.0.2.2"),
            ("FOO", "bar"),
            ("MX", "mail"),
            ("TXT", "$INCLUDE /etc/passwd"),
            ("TYPE65300", "\\# 4 01"),
            ("ALIAS", ""),
        ] {
            let error = parse(rtype, text).unwrap_err().to_string();
            assert!(error.starts_with("www.example.com. "), "{error}");
        }
    }

    #[test]
    fn a_master_file_is_read_without_others() {
        let text =
            "$TTL 300\n@ IN SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n@ ANAME lb.example.net.\n";
        assert_eq!(parse_master_file(text, &name("example.com")).unwrap().len(), 4);
        let error = parse_master_file("@ 60 HTTPS 1 svc\n", &name("example.com")).unwrap_err().to_string();
        assert_eq!(error, "the master file: example.com. HTTPS: the target needs a dot at its end");
        let text = "$TTL 300\n$InCLUDE /etc/passwd\n";
        let error = parse_master_file(text, &name("example.com")).unwrap_err();
        assert_eq!(error.to_string(), "line 2 of the master file: $INCLUDE is not allowed");
    }
}
