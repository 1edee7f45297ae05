//! Memory after floods: it returns to the system when the clients have left.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::harness::{Home, Origin, Program, Up, raise_open_files, text};

/// How long the return may take: a minute is documented, and this machine may be busy.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// The allowed memory after a flood, in percent of that before.
const MAX_LEFT_PERCENT: u64 = 150;
/// How many clients guess passwords at once, each from its own address.
const GUESSERS: usize = 48;
/// How many clients request much and read nothing.
const SLOW_READERS: usize = 300;

/// The anonymous memory of the process, in KiB.
fn anonymous_kib(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The memory once it has not changed for a while.
fn at_rest_kib(program: &Program) -> u64 {
    let (mut known, mut since) = (anonymous_kib(program), Instant::now());
    let began = Instant::now();
    while since.elapsed() < Duration::from_secs(2) && began.elapsed() < MAX_WAIT {
        thread::sleep(Duration::from_millis(100));
        let now = anonymous_kib(program);
        if now.abs_diff(known) > known / 50 {
            (known, since) = (now, Instant::now());
        }
    }
    known
}

/// Waits until the memory is back.
fn goes_back(what: &str, program: &Program, before: u64) {
    let most = before * MAX_LEFT_PERCENT / 100;
    let (began, peak) = (Instant::now(), anonymous_kib(program));
    loop {
        let now = anonymous_kib(program);
        if now <= most {
            println!("{what}: {before} KiB before, {peak} at its end, {now} after {:?}", began.elapsed());
            return;
        }
        assert!(began.elapsed() < MAX_WAIT, "{what}: {before} KiB before, {now} after {MAX_WAIT:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// The trust settings of clients.
fn trusting(up: &Up) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&up.ca).unwrap()).unwrap();
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

fn guess(up: &Up, number: usize) -> Child {
    let address = format!("127.0.{}.{}", 1 + number / 200, 1 + number % 200);
    let body = format!(r#"{{"email":"somebody-{number}@example.com","password":"a guess, and a wrong one"}}"#);
    Command::new("curl")
        .args([
            "-sS",
            "--max-time",
            "120",
            "--interface",
            &address,
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--cacert",
        ])
        .arg(&up.ca)
        .args(["-H", "content-type: application/json", "-d", &body, &up.url("api.localhost", "/v1/login")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn guessed_passwords_leave_no_memory_behind() {
    let home = Home::new();
    let up = home.up(&["--no-access-log"]);
    home.account();
    let before = at_rest_kib(&up.program);
    for _ in 0..2 {
        let guesses: Vec<Child> = (0..GUESSERS).map(|number| guess(&up, number)).collect();
        for guess in guesses {
            let output = guess.wait_with_output().unwrap();
            // Requests without a turn in time get an error.
            assert!(matches!(text(&output.stdout).as_str(), "401" | "429" | "503"), "{output:?}");
        }
    }
    goes_back("guessed passwords", &up.program, before);
}

#[test]
fn slow_readers_leave_no_memory_behind() {
    raise_open_files();
    let home = Home::new();
    let up = home.up(&["--no-access-log"]);
    home.account();
    let origin = Origin::start("origin");
    let (socket, host) = home.socket(&[]);
    let connector = home.connector(&socket, origin.address, &["--max-legs", "128"]);
    for _ in 0..3 {
        assert_eq!(up.curl(&host, "/", &[]).status, 200);
    }
    let before = (at_rest_kib(&up.program), at_rest_kib(&connector));
    let config = trusting(&up);
    let mut readers = Vec::new();
    for _ in 0..SLOW_READERS {
        let stream = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
        let session = ClientConnection::new(config.clone(), host.clone().try_into().unwrap()).unwrap();
        let mut tls = StreamOwned::new(session, stream);
        write!(tls, "GET /bytes/30000000 HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        // The response has begun, and is not read any further.
        let mut first = [0; 12];
        tls.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        readers.push(tls);
    }
    // All that they hold has arrived.
    let held = (at_rest_kib(&up.program), at_rest_kib(&connector));
    println!("{SLOW_READERS} slow readers: edge {} KiB, connector {} KiB", held.0, held.1);
    drop(readers);
    goes_back("slow readers, edge", &up.program, before.0);
    // Its legs stay for a minute and more, in case the burst comes again.
    println!("slow readers, connector: {} KiB before, {} after", before.1, anonymous_kib(&connector));
}
