//! The corpus of the fuzzer of PROXY protocol headers, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use sallyport_net::{ProxiedAddresses, header_v1, header_v2};

use crate::proxy_fuzz::proxy_header;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy_header")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 12, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        proxy_header(&fs::read(&file).unwrap());
    }
}

#[test]
fn headers_that_are_nearly_right_break_nothing() {
    for (name, data) in files() {
        for at in 0..data.len().min(60) {
            for byte in [0, b' ', b'\r', b'9', 0x21, 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                println!("{name}: {byte} at {at}");
                proxy_header(&changed);
            }
        }
    }
}

/// `cargo test -p sallyport-net -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

/// A header of version 2 with this command, these families, and this body.
fn binary(command: u8, families: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, families][..], &len, body].concat()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let pair = |client: &str, destination: &str| ProxiedAddresses {
        client: client.parse().unwrap(),
        destination: destination.parse().unwrap(),
    };
    let four = pair("192.0.2.7:5000", "198.51.100.1:443");
    let six = pair("[2001:db8::7]:5000", "[2001:db8::1]:443");
    let body = [192, 0, 2, 7, 198, 51, 100, 1, 0x13, 0x88, 1, 0xbb];
    let crc = [3, 0, 4, 0xfd, 0x16, 0xee, 0x60];
    let alpn = [1, 0, 2, b'h', b'2'];
    vec![
        ("text-4", [&header_v1(four)[..], b"GET / HTTP/1.1\r\n"].concat()),
        ("text-6", header_v1(six)),
        ("text-unknown", b"PROXY UNKNOWN\r\n".to_vec()),
        ("text-unknown-more", b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\nrest".to_vec()),
        (
            "text-longest",
            b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 \
              65535\r\n"
                .to_vec(),
        ),
        ("text-too-long", [b"PROXY TCP4 ".to_vec(), vec![b'1'; 200]].concat()),
        ("text-no-carriage-return", b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\n".to_vec()),
        ("text-leading-zero", b"PROXY TCP4 192.0.2.07 198.51.100.1 05000 443\r\n".to_vec()),
        ("text-port-too-large", b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n".to_vec()),
        ("text-wrong-family", b"PROXY TCP6 192.0.2.7 198.51.100.1 5000 443\r\n".to_vec()),
        ("text-mapped", b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 5000 443\r\n".to_vec()),
        ("text-two-spaces", b"PROXY TCP4  192.0.2.7 198.51.100.1 5000 443\r\n".to_vec()),
        ("text-not-utf-8", b"PROXY UNKNOWN \xff\xfe\r\n".to_vec()),
        ("binary-4", [&header_v2(four)[..], b"rest"].concat()),
        ("binary-6", header_v2(six)),
        ("binary-local", binary(0x20, 0, &[])),
        ("binary-local-with-addresses", binary(0x20, 0x11, &body)),
        ("binary-fields", binary(0x21, 0x11, &[&body[..], &alpn, &crc].concat())),
        ("binary-field-cut", binary(0x21, 0x11, &[&body[..], &[1, 0, 9, b'h']].concat())),
        ("binary-unix", binary(0x21, 0x31, &[b'/'; 216])),
        ("binary-datagram", binary(0x21, 0x12, &body)),
        ("binary-unspecified", binary(0x21, 0x00, &body)),
        ("binary-too-short", binary(0x21, 0x21, &body)),
        ("binary-version-1", binary(0x11, 0x11, &body)),
        ("binary-unknown-command", binary(0x2f, 0x11, &body)),
        ("binary-longest", binary(0x21, 0x11, &[&body[..], &[4, 0x0f, 0xe1][..], &vec![0; 0x0fe1]].concat())),
        ("binary-too-long", [&binary(0x21, 0x11, &body)[..14], &[0xff, 0xff]].concat()),
        ("request", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("client-hello", vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        ("signature-changed", b"\r\n\r\n\0\r\nQUIX\n\x21\x11\0\x0c".to_vec()),
    ]
}
