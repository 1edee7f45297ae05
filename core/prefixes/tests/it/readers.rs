//! Each shape of a file, and what is refused.

use std::io::{BufReader, Read};

use sallyport_prefixes::{HostBits, MAX_PREFIXES, ReadOptions, Source, SourceKind, read};

fn read_text(text: &str) -> Source {
    read(text.as_bytes(), &ReadOptions::default()).unwrap()
}

fn prefixes(source: &Source) -> Vec<String> {
    source.set.prefixes().collect()
}

fn refusal(text: &str) -> String {
    read(text.as_bytes(), &ReadOptions::default()).unwrap_err().to_string()
}

#[test]
fn ranges_of_clouds_are_read_in_their_three_shapes() {
    let aws = read_text(
        r#"{"syncToken": "1", "createDate": "2020-10-14-01-02-03",
            "prefixes": [{"ip_prefix": "192.0.2.0/25", "service": "EC2"}, {"ip_prefix": "192.0.2.0/25"}],
            "ipv6_prefixes": [{"ipv6_prefix": "2001:db8::/40"}]}"#,
    );
    assert_eq!(prefixes(&aws), ["192.0.2.0/25", "2001:db8::/40"]);
    assert_eq!((aws.kind, aws.date.as_deref()), (SourceKind::Cloud, Some("2020-10-14-01-02-03")));
    assert_eq!((aws.v4.listed, aws.v4.duplicates, aws.v4.nested), (2, 1, 0));

    let google = read_text(
        r#"{"creationTime": "2020", "prefixes": [{"ipv4Prefix": "192.0.2.0/25", "service": "x"},
            {"ipv6Prefix": "2001:db8::/44"}]}"#,
    );
    assert_eq!(
        (google.kind, prefixes(&google)),
        (SourceKind::Cloud, prefixes(&read_text("192.0.2.0/25 2001:db8::\n2001:db8::/44")))
    );

    let azure = read_text(
        r#"{"changeNumber": 3, "cloud": "Public", "values": [{"name": "ActionGroup", "properties": {"changeNumber": 1,
            "addressPrefixes": ["192.0.2.0/24", "192.0.2.64/26", "2001:db8::/48"], "networkFeatures": ["API"]}}]}"#,
    );
    assert_eq!(
        (azure.kind, prefixes(&azure)),
        (SourceKind::Cloud, vec!["192.0.2.0/24".into(), "2001:db8::/48".into()])
    );
    assert_eq!((azure.v4.listed, azure.v4.nested), (2, 1));
}

#[test]
fn networks_of_rdap_are_read_by_their_addresses_or_prefixes() {
    let network = read_text(
        r#"{"objectClassName": "ip network", "startAddress": "192.0.2.0", "endAddress": "192.0.3.127",
            "entities": [{"vcardArray": ["vcard", [["fn", {}, "text", "192.0.9.9"]]]}]}"#,
    );
    assert_eq!(
        (network.kind, prefixes(&network)),
        (SourceKind::Rdap, vec!["192.0.2.0/24".into(), "192.0.3.0/25".into()])
    );
    let entity = read_text(
        r#"{"objectClassName": "entity", "networks": [
            {"startAddress": "192.0.2.0", "endAddress": "192.0.2.255", "cidr0_cidrs": [{"v4prefix": "192.0.2.0", "length": 24}]},
            {"cidr0_cidrs": [{"v6prefix": "2001:db8::", "length": 32}]}]}"#,
    );
    assert_eq!(prefixes(&entity), ["192.0.2.0/24", "2001:db8::/32"]);
    assert_eq!(entity.v4.listed, 1, "the addresses and the prefixes of a network are the same");
    let half = refusal("{\"startAddress\": \"192.0.2.0\"}");
    assert!(half.contains("startAddress and endAddress") && half.contains("line 1"), "{half}");
    let turned = refusal(r#"{"startAddress": "192.0.2.9", "endAddress": "192.0.2.0"}"#);
    assert!(turned.contains("is no range"), "{turned}");
}

#[test]
fn delegated_statistics_count_what_is_held_and_by_whom() {
    let text = "2.3|ripencc|1602633600|5|19830705|20201013|+0200\n\
        ripencc|*|ipv4|*|3|summary\n\
        ripencc|FR|ipv4|2.0.0.0|768|20100712|allocated|a-1\n\
        ripencc|NL|ipv4|5.0.0.0|256|20100712|assigned|b-2\n\
        ripencc||ipv4|5.1.0.0|256||available|\n\
        ripencc|NL|asn|64496|1|20100712|allocated|a-1\n\
        ripencc|NL|ipv6|2001:db8::|32|20100712|allocated|b-2\n";
    let all = read_text(text);
    assert_eq!(prefixes(&all), ["2.0.0.0/23", "2.0.2.0/24", "5.0.0.0/24", "2001:db8::/32"]);
    assert_eq!((all.kind, all.date.as_deref()), (SourceKind::Delegated, Some("1602633600")));
    let of = |holder: &str| {
        read(text.as_bytes(), &ReadOptions { holder: Some(holder.to_owned()), ..ReadOptions::default() })
    };
    assert_eq!(prefixes(&of("b-2").unwrap()), ["5.0.0.0/24", "2001:db8::/32"]);
    assert!(of("c-3").unwrap_err().to_string().contains("\"c-3\""));
    for (wrong, named) in [
        ("ripencc|FR|ipv4|2.0.0.0|0|20100712|allocated", "count"),
        ("ripencc|FR|ipv4|255.255.255.0|512|20100712|allocated", "count"),
        ("ripencc|FR|ipv6|2001:db8::|129|20100712|allocated", "length"),
        ("ripencc|FR|ipv6|2001:db8::1|32|20100712|allocated", "--mask"),
        ("ripencc|FR|ipv4", "seven fields"),
    ] {
        let error = refusal(&format!("2|ripencc|1|1|1|1|1\n{wrong}\n"));
        assert!(error.starts_with("line 2: ") && error.contains(named), "{error}");
    }
}

#[test]
fn lists_have_prefixes_addresses_ranges_and_comments() {
    let list = read_text(
        "\u{feff}# a comment\n192.0.2.0/24\n\n192.0.3.7 ; one address\n198.51.100.0 - 198.51.100.7 of the lab\n\
         198.51.100.16-198.51.100.17\n2001:db8::/32,CH,CH-ZH,Zurich,\r\n",
    );
    assert_eq!(
        prefixes(&list),
        ["192.0.2.0/24", "192.0.3.7/32", "198.51.100.0/29", "198.51.100.16/31", "2001:db8::/32"]
    );
    assert_eq!(prefixes(&read_text("[\"192.0.2.0/24\", \"192.0.3.0/24\"]")), ["192.0.2.0/23"]);
}

#[test]
fn host_bits_are_refused_with_their_line_and_cleared_on_demand() {
    let error = refusal("192.0.2.0/24\n192.0.2.1/24\n");
    assert_eq!(error, "line 2: \"192.0.2.1/24\" has bits behind its length: write 192.0.2.0/24, or give --mask");
    let error = refusal("{\"prefixes\": [\n{\"ip_prefix\": \"192.0.2.1/24\"}]}");
    assert!(error.contains("write 192.0.2.0/24") && error.contains("at line 2 column"), "{error}");
    let options = ReadOptions { host_bits: HostBits::Mask, holder: None };
    assert_eq!(prefixes(&read("192.0.2.1/24".as_bytes(), &options).unwrap()), ["192.0.2.0/24"]);
}

#[test]
fn what_is_no_file_of_prefixes_is_refused_in_one_sentence() {
    for (text, named) in [
        ("", "no prefixes"),
        ("# nothing\n", "no prefixes"),
        ("{}", "no prefixes"),
        ("{\"prefixes\": []}", "no prefixes"),
        ("<html>", "line 1: \"<html>\" is no prefix"),
        ("192.0.2.0/33", "line 1"),
        ("300.0.2.0/24", "line 1"),
        ("0.0.0.0/0", "default route"),
        ("::/0", "default route"),
        ("192.0.2.9-192.0.2.1", "is no range"),
        ("192.0.2.9-2001:db8::1", "is no range"),
        ("{\"prefixes\": [{\"ip_prefix\": 7}]}", "invalid type: integer `7`"),
        ("{\"prefixes\": [{\"ip_prefix\": \"192.0.2.0/24\"}", "EOF"),
        ("[\"192.0.2.0/24\"] more", "trailing characters"),
    ] {
        let error = refusal(text);
        assert!(error.contains(named), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(
        read(b"192.0.2.0/24\n\xff\xfe\n".as_slice(), &ReadOptions::default())
            .unwrap_err()
            .to_string()
            .contains("line 2")
    );
}

#[test]
fn hostile_json_ends_within_its_bounds() {
    let deep = refusal(&"[".repeat(100_000));
    assert!(deep.contains("recursion limit"), "{deep}");
    // A text without an end, as long as its reader is asked.
    let endless = BufReader::new("{\"prefixes\": [\"".as_bytes().chain(std::io::repeat(b'1')));
    let error = read(endless, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("without a quotation mark"), "{error}");
    let escaped = BufReader::new("{\"".as_bytes().chain(std::io::repeat(b'\\')));
    let error = read(escaped, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("without a quotation mark"), "{error}");
    let line = BufReader::new(std::io::repeat(b'1'));
    assert!(read(line, &ReadOptions::default()).unwrap_err().to_string().contains("line 1: it is longer than"));
}

/// A list without end: the same lines again and again.
struct Repeated {
    lines: &'static [u8],
    at: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.lines.len() - self.at);
        buffer[..count].copy_from_slice(&self.lines[self.at..self.at + count]);
        self.at = (self.at + count) % self.lines.len();
        Ok(count)
    }
}

#[test]
fn ten_million_prefixes_are_read_and_more_than_the_bound_are_refused() {
    let pair = || BufReader::new(Repeated { lines: b"192.0.2.0/24\n192.0.2.8/29\n", at: 0 });
    let source = read(pair().take(26 * 5_000_000), &ReadOptions::default()).unwrap();
    assert_eq!((source.v4.listed, source.v4.duplicates, source.v4.nested), (10_000_000, 9_999_998, 1));
    assert_eq!(prefixes(&source), ["192.0.2.0/24"]);
    let error = read(pair(), &ReadOptions::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("line {}: there are more than {MAX_PREFIXES} prefixes: split the file", MAX_PREFIXES + 1)
    );
}
