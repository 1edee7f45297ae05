//! The corpus of the fuzzer of files, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::prefix_fuzz::prefix_file;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/prefix_file")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        prefix_file(&fs::read(&file).unwrap());
    }
}

#[test]
fn files_that_are_nearly_right_break_nothing() {
    for (name, data) in files() {
        for at in 0..data.len() {
            println!("{name}: byte {at}");
            prefix_file(&data.as_bytes()[..at]);
            for byte in *b"9\"[{-/|\0\xff" {
                let mut changed = data.clone().into_bytes();
                changed[at] = byte;
                prefix_file(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn prefixes_out_of_bounds_break_nothing(
        address in any::<u32>(), six in any::<u128>(), length in 0_u8..140, count in any::<u64>(), text in any::<String>()
    ) {
        let (four, six) = (std::net::Ipv4Addr::from(address), std::net::Ipv6Addr::from(six));
        for file in [
            format!("{four}/{length}\n{six}/{length}"),
            format!("{four}-{six}"),
            format!("{six} - {six}\n{text}"),
            format!("r|XX|ipv4|{four}|{count}|20200101|allocated\nr|XX|ipv6|{six}|{length}|20200101|assigned"),
            format!("[\"{four}/{length}\", \"{six}/{length}\"]"),
            format!("{{\"startAddress\": \"{four}\", \"endAddress\": \"255.255.255.255\"}}"),
        ] {
            prefix_file(file.as_bytes());
        }
    }
}

/// `cargo test -p sallyport-prefixes -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

fn files() -> Vec<(&'static str, String)> {
    vec![
        ("aws", r#"{"createDate":"2020-10-14","prefixes":[{"ip_prefix":"192.0.2.0/24","service":"EC2"}],"ipv6_prefixes":[{"ipv6_prefix":"2001:db8::/40"}]}"#.to_owned()),
        ("google", r#"{"prefixes":[{"ipv4Prefix":"192.0.2.0/25"},{"ipv6Prefix":"2001:db8::/44"}]}"#.to_owned()),
        ("azure", r#"{"values":[{"name":"a","properties":{"addressPrefixes":["192.0.2.0/25","2001:db8::/44"]}}]}"#.to_owned()),
        ("rdap", r#"{"startAddress":"192.0.2.0","endAddress":"192.0.2.255","entities":[{"vcardArray":["vcard",[]]}]}"#.to_owned()),
        ("rdap-cidr", r#"{"networks":[{"cidr0_cidrs":[{"v4prefix":"192.0.2.0","length":24},{"v6prefix":"2001:db8::","length":32}]}]}"#.to_owned()),
        ("rdap-half", r#"{"startAddress":"192.0.2.0"}"#.to_owned()),
        ("delegated", "2|arin|20201014|2|19830101|20201014|+0000\narin|*|ipv4|*|1|summary\narin|US|ipv4|192.0.2.0|768|19830101|allocated|id\narin|US|ipv6|2001:db8::|32|20000101|assigned|id\narin|US|asn|64496|1|20000101|assigned|id\n".to_owned()),
        ("list", "# a list\n192.0.2.0/24\n2001:db8::1 # one\n198.51.100.0 - 198.51.100.9\n203.0.113.0/24,CH,Zurich\n".to_owned()),
        ("host-bits", "192.0.2.1/24\n".to_owned()),
        ("default", "0.0.0.0/0\n::/0\n".to_owned()),
        ("halves", "0.0.0.0/1\n128.0.0.0/1\n::/1\n8000::/1\n".to_owned()),
        ("deep", "[".repeat(300)),
        ("empty", String::new()),
    ]
}
