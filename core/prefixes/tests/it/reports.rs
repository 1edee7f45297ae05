//! Reports of the made sample in `tests/data`, and differences.

use std::{
    collections::BTreeMap,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use sallyport_prefixes::{AddressSet, Difference, Named, Part, Price, ReadOptions, Report, read};

fn sample(name: &str) -> Named {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let source = read(BufReader::new(File::open(path).unwrap()), &ReadOptions::default()).unwrap();
    Named { name: name.to_owned(), source }
}

fn samples() -> Vec<Named> {
    ["ip-ranges.json", "rdap-arin.json", "rdap-ripencc.json", "rdap-apnic.json"].map(sample).into()
}

fn set(text: &str) -> AddressSet {
    read(text.as_bytes(), &ReadOptions::default()).unwrap().set
}

#[test]
fn the_sample_has_the_figures_of_the_study() {
    let sources = samples();
    let used = sources[0].source.set.clone();
    let report = Report::new(&sources, Some(&used), None, Some("25".parse().unwrap()));
    let ipv4 = report.ipv4.unwrap();
    assert_eq!(ipv4.held, 100_750_168);
    let by_length: BTreeMap<u8, u64> = ipv4.by_length.iter().map(|count| (count.length, count.prefixes)).collect();
    let studied = [(8, 1), (9, 1), (10, 4), (11, 5), (12, 11), (13, 13), (14, 34), (15, 53), (16, 182)];
    for (length, prefixes) in studied {
        assert_eq!(by_length[&length], prefixes, "/{length}");
    }
    let addresses = by_length.iter().map(|(length, prefixes)| prefixes << (32 - length)).sum::<u64>();
    assert_eq!(addresses, ipv4.held);
    assert_eq!(ipv4.used, Some(Part { inside: 53_000_000, outside: 47_750_168, foreign: 0 }));
    assert_eq!(report.value, Some(2_518_754_200.0));
    let published = &report.files[0];
    assert!(published.duplicates > 0 && published.nested > 0, "{published:?}");
    assert!(report.overlaps.iter().any(|overlap| overlap.files == ["ip-ranges.json", "rdap-arin.json"]));
    // A /32 of 2^32 networks of 64 bits, and the /36 of the cloud beside it.
    assert_eq!(report.ipv6.unwrap().held, (1 << 32) + (1 << 28));
}

#[test]
fn what_is_held_and_not_announced_is_counted_apart() {
    let held = Named {
        name: "held".to_owned(),
        source: read("192.0.2.0/24\n2001:db8::/127".as_bytes(), &ReadOptions::default()).unwrap(),
    };
    let announced = set("192.0.2.0/25\n192.0.3.0/26\n");
    let report = Report::new(&[held], None, Some(&announced), None);
    assert_eq!(report.ipv4.unwrap().announced, Some(Part { inside: 128, outside: 128, foreign: 64 }));
    let ipv6 = report.ipv6.unwrap();
    assert_eq!(ipv6.held, 1, "less than a network of 64 bits counts as one");
    assert_eq!(ipv6.announced, Some(Part { inside: 0, outside: 1, foreign: 0 }));
    assert_eq!((report.value, ipv6.used), (None, None));
}

#[test]
fn a_difference_is_of_addresses_and_not_of_how_they_are_written() {
    let (old, new) =
        (set("192.0.2.0/24\n198.51.100.0/24"), set("192.0.2.0/25\n192.0.2.128/25\n203.0.113.0/25\n2001:db8::/48"));
    let difference = Difference::new(&old, &new, Some("31.50".parse().unwrap()));
    assert_eq!((difference.ipv4.before, difference.ipv4.after), (512, 384));
    assert_eq!(difference.ipv4.added_prefixes, ["203.0.113.0/25"]);
    assert_eq!(difference.ipv4.removed_prefixes, ["198.51.100.0/24"]);
    assert_eq!((difference.ipv4.added, difference.ipv4.removed), (128, 256));
    assert_eq!(
        (difference.ipv6.added, difference.ipv6.added_prefixes.as_slice()),
        (65_536, ["2001:db8::/48".to_owned()].as_slice())
    );
    assert_eq!(difference.value, Some(-128.0 * 31.5));
    assert!(!difference.is_empty() && Difference::new(&new, &new, None).is_empty());
}

#[test]
fn a_price_is_exact_to_a_hundredth() {
    let of = |text: &str, addresses| text.parse::<Price>().unwrap().of(addresses);
    assert_eq!((of("25", 4), of("0.1", 3), of("9999.99", 1 << 32)), (100.0, 0.3, 42_949_630_010_327.04));
    for wrong in ["", ".", "25.", ".5", "-1", "+1", "1e3", "25.001", "10000.01", "99999999999999999999", "NaN"] {
        let error = wrong.parse::<Price>().unwrap_err().to_string();
        assert!(error.contains("no price"), "{wrong:?}: {error}");
    }
}
