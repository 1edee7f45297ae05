//! What the fuzzer does with its bytes: they are a file of prefixes. It also lives in `fuzz/`.

use sallyport_prefixes::{HostBits, ReadOptions, draw, read};

/// What is read is a set whose prefixes read the same again, and which can be drawn.
pub(crate) fn prefix_file(data: &[u8]) {
    for host_bits in [HostBits::Refuse, HostBits::Mask] {
        let source = match read(data, &ReadOptions { host_bits, holder: None }) {
            Ok(source) => source,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                continue;
            }
        };
        let (v4, v6) = (source.v4, source.v6);
        assert!(v4.duplicates + v4.nested <= v4.listed && v6.duplicates + v6.nested <= v6.listed);
        let text: Vec<String> = source.set.prefixes().collect();
        let again = match read(text.join("\n").as_bytes(), &ReadOptions::default()) {
            Ok(again) => again,
            // Two halves of a family make the one prefix that no file may have.
            Err(error) => return assert!(error.to_string().contains("default route"), "{error}"),
        };
        assert_eq!(again.set, source.set);
        assert_eq!(again.v4.duplicates + again.v4.nested + again.v6.duplicates + again.v6.nested, 0);
        assert!(draw(&source.set, Some(&source.set), "a title").ends_with("</svg>\n"));
    }
}
