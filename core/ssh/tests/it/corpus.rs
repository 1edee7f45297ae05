//! The corpora of the fuzzers, replayed; and the tool that writes their first files.

use std::{fs, path::PathBuf, time::Instant};

use proptest::prelude::*;
use sallyport_ssh_proto::{
    Server,
    testing::{Client, Options, config, global_request, login, login_by_key, not_random, numbers, on_channel, string},
};

use crate::fuzz_bodies::{message, part, ssh_auth, ssh_channels, ssh_kexinit, ssh_packets};

/// A fuzzer: its name, its body, and its first files.
type Target = (&'static str, fn(&[u8]), fn() -> Vec<(&'static str, Vec<u8>)>);

const TARGETS: [Target; 4] = [
    ("ssh_packets", ssh_packets, packets),
    ("ssh_kexinit", ssh_kexinit, kexinits),
    ("ssh_auth", ssh_auth, logins),
    ("ssh_channels", ssh_channels, channels),
];

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

#[test]
fn every_file_of_the_corpora_passes() {
    for (target, body, _) in TARGETS {
        let files: Vec<PathBuf> = fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 4, "{target}: {} files", files.len());
        for file in files {
            body(&fs::read(&file).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_break_nothing(data in prop::collection::vec(any::<u8>(), 0..600)) {
        for (_, body, _) in TARGETS {
            body(&data);
        }
    }

    /// First files with a few changed bytes, so that most of each is valid.
    #[test]
    fn what_is_nearly_right_breaks_nothing(
        target in any::<prop::sample::Index>(),
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (_, body, files) = target.get(&TARGETS);
        let files = files();
        let mut data = file.get(&files).1.clone();
        for (at, byte) in changes {
            *at.get_mut(&mut data) = byte;
        }
        body(&data);
    }
}

/// `cargo test -p sallyport-ssh-proto -- --ignored write_the_corpora` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpora() {
    for (target, _, files) in TARGETS {
        fs::create_dir_all(folder(target)).unwrap();
        for (name, data) in files() {
            fs::write(folder(target).join(name), data).unwrap();
        }
    }
}

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let mut client = Client::new(Options::default());
    let mut hello = client.version_line();
    let kexinit = client.kexinit();
    hello.extend(client.seal(&kexinit));
    let in_pieces: Vec<u8> = hello.chunks(100).flat_map(part).collect();
    vec![
        ("hello", [vec![0], part(&hello)].concat()),
        ("hello-in-pieces", [vec![0], in_pieces].concat()),
        ("no-client", [vec![0], part(b"GET / HTTP/1.1\r\n\r\n")].concat()),
        ("bad-length", [vec![0], part(b"SSH-2.0-x\r\n"), part(&[0xff; 40])].concat()),
        (
            "bad-padding",
            [vec![0], part(b"SSH-2.0-x\r\n"), part(&[0, 0, 0, 12, 99, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])].concat(),
        ),
        ("forged", [vec![1], part(&[7; 200])].concat()),
    ]
}

fn kexinits() -> Vec<(&'static str, Vec<u8>)> {
    let payload = |options: Options| part(&Client::new(options).kexinit()[1..]);
    let half = [&numbers(&[32])[..], &[9; 32]].concat();
    let usual = payload(Options::default());
    let hybrid = Options { exchanges: "mlkem768x25519-sha256".to_owned(), ..Options::default() };
    let nist = Options { exchanges: "ecdh-sha2-nistp521".to_owned(), ..Options::default() };
    let counter = Options { cipher: "aes256-ctr".to_owned(), ..Options::default() };
    vec![
        ("usual", [usual.clone(), part(&half)].concat()),
        ("hybrid", [payload(hybrid), part(&[&numbers(&[1_216])[..], &[9; 1_216]].concat())].concat()),
        ("nist", [payload(nist), part(&half)].concat()),
        ("counter", [payload(counter), part(&half)].concat()),
        ("guess", [payload(Options { guesses_wrong: true, ..Options::default() }), part(&half), part(&half)].concat()),
        ("short", part(&usual[2..40])),
    ]
}

fn logins() -> Vec<(&'static str, Vec<u8>)> {
    let now = Instant::now();
    let mut server = Server::new(std::sync::Arc::new(config()), not_random, now);
    let client = Client::connected(&mut server, Options::default(), now).unwrap();
    let signed = login_by_key("ann", &[9; 32], Some(client.session()));
    let offered = login_by_key("ann", &[9; 32], None);
    let step = |choice: u8, message: &[u8]| [vec![choice], part(message)].concat();
    let interactive = login("ann", "keyboard-interactive", &[0; 8]);
    let rsa = [string(b"ssh-rsa"), string(&[1, 0, 1]), string(&[0xc1; 255])].concat();
    let sha1 = login("ann", "publickey", &[&[0][..], &string(b"ssh-rsa"), &string(&rsa)].concat());
    vec![
        ("none", [step(1, &login("ann", "none", &[])), step(0, &login("ann", "none", &[]))].concat()),
        ("key", [step(0, &offered), step(0, &signed)].concat()),
        ("hint", [step(3, &interactive), step(2, &[61, 0, 0, 0, 0]), step(1, &interactive)].concat()),
        ("sha1", step(0, &sha1)),
        ("early", step(0, &global_request("tcpip-forward", true, &[string(b""), numbers(&[80])].concat()))),
        ("logged-in", [step(0, &login("ann", "none", &[])), step(0, &global_request("x", true, &[]))].concat()),
    ]
}

fn channels() -> Vec<(&'static str, Vec<u8>)> {
    const DELIVER: u8 = 4;
    const RECEIVE: u8 = 15;
    let send = |message: &[u8]| [vec![0], part(message)].concat();
    let opened = |id: u32| send(&on_channel(91, id, &numbers(&[5, 100_000, 32_768])));
    // Data in units of 128 bytes.
    let data = |id: u8, count: u8| vec![3, id, count];
    let forward = send(&global_request("tcpip-forward", true, &[string(b""), numbers(&[0])].concat()));
    let session = send(&[&message(90, &[b"session"])[..], &numbers(&[6, 100_000, 32_768])].concat());
    let request = |name: &[u8]| send(&on_channel(98, 0, &[&string(name)[..], &[1]].concat()));
    let kexinit = send(&Client::new(Options::default()).kexinit());
    vec![
        ("forward", [forward.clone(), forward, vec![DELIVER, 11, 27, 11, RECEIVE]].concat()),
        (
            "stream",
            [
                vec![6, RECEIVE],
                opened(0),
                data(0, 240),
                vec![DELIVER, 0xf7, 0xf7, 0xf8, RECEIVE],
                send(&on_channel(96, 0, &[])),
                vec![DELIVER, 9, 7],
                send(&on_channel(97, 0, &[])),
                vec![DELIVER, 10, RECEIVE],
            ]
            .concat(),
        ),
        (
            "beyond-the-window",
            [vec![6], opened(0), (0..9).flat_map(|_| data(0, 255)).collect(), vec![DELIVER]].concat(),
        ),
        (
            "session",
            [
                session,
                vec![DELIVER],
                request(b"pty-req"),
                request(b"shell"),
                data(0, 1),
                vec![5, 5, DELIVER, 14, RECEIVE],
            ]
            .concat(),
        ),
        ("rekey", [kexinit, vec![DELIVER, RECEIVE, 6, 12]].concat()),
        ("released-early", [vec![6, 10], opened(0), vec![DELIVER, RECEIVE]].concat()),
        ("refused", [vec![6], send(&on_channel(92, 0, &numbers(&[2, 0, 0]))), vec![DELIVER]].concat()),
        ("silence", vec![0xfd, 0xfd, 0xfd, 0xfd, 0xfd, RECEIVE]),
    ]
}
