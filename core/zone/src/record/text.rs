//! Records from their presentation form: one record, or a master file (RFC 1035 section 5).

use super::{
    MAX_TTL_SECONDS, Record,
    data::{complete, record_data, seconds},
    lexer::{Entries, Entry},
};
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
    let mut entries = Entries::new(text);
    let words = entries.next().transpose().map_err(|(_, reason)| error(reason))?.map(|entry| entry.words);
    if entries.next().is_some() {
        return Err(error("the text has more than one record".to_owned()));
    }
    let data = record_data(rtype, &words.unwrap_or_default(), origin).map_err(error)?;
    Ok(Record { owner: owner.clone(), ttl, data })
}

/// Reads a master file, with the types that [`parse_record`] knows. Other files are not included.
///
/// # Errors
/// One sentence about the first fault.
pub fn parse_master_file(text: &str, origin: &Name) -> Result<Vec<Record>, RecordTextError> {
    if text.len() > MAX_MASTER_FILE_BYTES {
        return Err(RecordTextError(format!("the master file has more than {MAX_MASTER_FILE_BYTES} bytes")));
    }
    let at_line = |line: usize, reason: String| RecordTextError(format!("line {line} of the master file: {reason}"));
    let mut file = MasterFile { origin: origin.clone(), default_ttl: None, last_ttl: None, last_owner: None };
    let mut records = Vec::new();
    for entry in Entries::new(text) {
        let entry = entry.map_err(|(line, reason)| at_line(line, reason))?;
        records.extend(file.entry(&entry).map_err(|reason| at_line(entry.line, reason))?);
    }
    Ok(records)
}

/// What the entries of a master file inherit.
struct MasterFile {
    origin: Name,
    default_ttl: Option<u32>,
    last_ttl: Option<u32>,
    last_owner: Option<Name>,
}

impl MasterFile {
    /// The record of an entry. A directive has none.
    fn entry(&mut self, entry: &Entry) -> Result<Option<Record>, String> {
        let mut words = &entry.words[..];
        if !entry.has_no_owner {
            let Some((first, rest)) = words.split_first() else { return Ok(None) };
            words = rest;
            if first.text.starts_with('$') {
                return self.directive(&first.text, rest.first().map(|word| word.text.as_str())).map(|()| None);
            }
            self.last_owner = Some(complete(&first.text, &self.origin)?);
        }
        let owner = self.last_owner.clone().ok_or("the first record has no name")?;
        let mut ttl = None;
        while let Some((word, rest)) = words.split_first() {
            let class = word.text.to_ascii_uppercase();
            match seconds(&word.text) {
                Some(time) if ttl.is_none() => ttl = Some(time),
                _ if class == "IN" => {}
                _ if matches!(class.as_str(), "CH" | "HS" | "CS") => {
                    return Err(format!("{owner} is of the class {class}: the class is IN"));
                }
                _ => break,
            }
            words = rest;
        }
        let (rtype, data) = words.split_first().ok_or_else(|| format!("{owner} has no type"))?;
        let ttl = ttl.or(self.default_ttl).or(self.last_ttl);
        let ttl = ttl.ok_or_else(|| format!("{owner} has no TTL: write one, or $TTL before it"))?;
        self.last_ttl = Some(ttl);
        let data = record_data(&rtype.text, data, &self.origin);
        let data = data.map_err(|reason| format!("{owner} {}: {reason}", rtype.text))?;
        Ok(Some(Record { owner, ttl: ttl.min(MAX_TTL_SECONDS), data }))
    }

    fn directive(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match (name.to_ascii_uppercase().as_str(), value) {
            ("$ORIGIN", Some(origin)) => self.origin = complete(origin, &self.origin)?,
            ("$TTL", Some(ttl)) => {
                self.default_ttl = Some(seconds(ttl).ok_or_else(|| format!("{ttl:?} is no TTL"))?);
            }
            ("$ORIGIN" | "$TTL", None) => return Err(format!("{name} has no value")),
            ("$INCLUDE", _) => return Err("$INCLUDE is not allowed".to_owned()),
            _ => return Err(format!("{name} is no directive")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordData;

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
        // Names are signed in lower case, in whatever form they are written.
        for (rtype, own, generic) in [
            ("MX", "10 MAIL.", "\\# 8 000a044d41494c00"),
            ("SRV", "0 0 0 A.", "\\# 9 000000000000014100"),
            ("NAPTR", "0 0 \"U\" \"\" \"\" A.", "\\# 11 00000000 0155 00 00 014100"),
        ] {
            assert_eq!(plain(rtype, own), plain(rtype, generic), "{rtype}");
            assert!(!plain(rtype, generic).contains(&b'A'), "{rtype}");
        }
        assert_eq!(parse("ALIAS", "lb.example.net.").unwrap().data, RecordData::Alias(name("lb.example.net")));
        assert_eq!(parse("EDGES", "eu").unwrap().data, RecordData::Edges("eu".to_owned()));
    }

    #[test]
    fn strings_names_and_parameters_may_be_written_in_many_ways() {
        let plain = |rtype: &str, text: &str| match parse(rtype, text).unwrap().data {
            RecordData::Plain(_, rdata) => rdata,
            other => panic!("{other:?}"),
        };
        assert_eq!(plain("TXT", "( \"one\" \"two\" ) ; three"), b"\x03one\x03two");
        assert_eq!(plain("TXT", "\"a\\\"b\\059\\195\\188\" c\\;d"), b"\x06a\"b;\xc3\xbc\x03c;d");
        assert_eq!(plain("TXT", "\"\""), b"\x00");
        assert_eq!(plain("CNAME", "\\052.b"), name("\\052.b.example.com").as_wire());
        assert_eq!(plain("CNAME", "a\\."), name("a\\..example.com").as_wire());
        assert_eq!(plain("SRV", "1 2 3 @"), [&[0, 1, 0, 2, 0, 3][..], name("example.com").as_wire()].concat());
        assert_eq!(plain("MX", "0 ."), [0, 0, 0]);
        let sorted = plain("HTTPS", "1 . port=443 alpn=\"h2,h3\" ipv4hint=192.0.2.1");
        assert_eq!(sorted, plain("HTTPS", "1 . alpn=h2,h3 port=443 ipv4hint=192.0.2.1"));
        assert_eq!(plain("DS", "1 13 2 (\n ABAB\n ABAB )"), [0, 1, 13, 2, 0xab, 0xab, 0xab, 0xab]);
        assert_eq!(plain("SOA", "ns host 1 1h 10m 1w2d 60").len(), 16 + 18 + 20);
    }

    #[test]
    fn records_are_shown_as_they_are_read() {
        for (rtype, text) in [
            ("A", "192.0.2.1"),
            ("MX", "10 mail.example.com."),
            ("SRV", "1 2 3 web.example.com."),
            ("SOA", "ns.example.com. host.example.com. 1 2 3 4 5"),
            ("TXT", "\"a \\\"b\\\"\" \"\\195\\188\""),
            ("CAA", "128 issue \"ca.example.net\""),
            ("ALIAS", "lb.example.net."),
            ("EDGES", "eu"),
            ("TYPE65300", "\\# 3 010203"),
            ("DS", "\\# 5 00010d02ab"),
        ] {
            let record = parse(rtype, text).unwrap();
            assert_eq!(record.to_string(), format!("www.example.com. 60 IN {rtype} {text}"));
        }
    }

    #[test]
    fn faults_are_named() {
        for (rtype, text) in [
            ("A", "192.0.2"),
            ("A", "192.0.2.1\nx 60 IN A 192.0.2.2"),
            ("FOO", "bar"),
            ("MX", "mail"),
            ("TXT", ""),
            ("TXT", "\"open"),
            ("CAA", "0 is-sue x"),
            ("HTTPS", "1 . odd=1"),
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
        let text = "$ORIGIN Sub\n$TTL 1h\na IN 60 TXT x\n  120 IN TXT y\n$ORIGIN @\nb TXT z\n";
        let records = parse_master_file(text, &name("example.com")).unwrap();
        let shown: Vec<_> = records.iter().map(|record| format!("{} {}", record.owner, record.ttl)).collect();
        assert_eq!(shown, ["a.sub.example.com. 60", "a.sub.example.com. 120", "b.sub.example.com. 3600"]);
        for (text, expected) in [
            ("a TXT x", "a.example.com. has no TTL: write one, or $TTL before it"),
            ("  60 TXT x", "the first record has no name"),
            ("a 60 CH TXT x", "a.example.com. is of the class CH: the class is IN"),
            ("a 60", "a.example.com. has no type"),
            ("$GENERATE 1-2 a A 192.0.2.1", "$GENERATE is no directive"),
            ("a 60 A ( 192.0.2.1", "a parenthesis is not closed"),
            ("a 60 FOO x", "a.example.com. FOO: \"FOO\" is no type of records"),
        ] {
            let error = parse_master_file(text, &name("example.com")).unwrap_err().to_string();
            assert_eq!(error, format!("line 1 of the master file: {expected}"));
        }
        let text = "$TTL 300\n$InCLUDE /etc/passwd\n";
        let error = parse_master_file(text, &name("example.com")).unwrap_err();
        assert_eq!(error.to_string(), "line 2 of the master file: $INCLUDE is not allowed");
    }
}
