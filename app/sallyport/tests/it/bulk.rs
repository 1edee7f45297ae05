//! Connections with bulk transfers, and their threads.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::OnceLock,
    time::{Duration, Instant},
};

use crate::{
    harness::{Home, Program, Up, wait_until},
    tcp::{connect, id, service, socket, up_with_port},
};

/// Longer than a slow machine needs to carry 4 MiB in 50 ms once.
const SOME_TIME: Duration = Duration::from_secs(120);
const CHUNK_BYTES: usize = 1 << 20;

/// The content of a stream at each position: neighbouring pieces always differ. Each is made once, so that making them
/// does not slow the transfer.
fn chunk(number: u8) -> &'static [u8] {
    static CHUNKS: [OnceLock<Vec<u8>>; 256] = [const { OnceLock::new() }; 256];
    let made = || (0..CHUNK_BYTES).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ number).collect();
    CHUNKS[usize::from(number)].get_or_init(made)
}

/// A service that answers each byte with the chunk of that number.
fn chunks() -> SocketAddr {
    service(|mut stream| {
        let mut wanted = [0];
        stream.set_nodelay(true).unwrap();
        while matches!(stream.read(&mut wanted), Ok(1)) && stream.write_all(chunk(wanted[0])).is_ok() {}
    })
}

/// Requests these chunks, and compares them.
fn ask(stream: &mut TcpStream, numbers: &[u8]) {
    stream.write_all(numbers).unwrap();
    let mut came = vec![0; CHUNK_BYTES];
    for number in numbers {
        stream.read_exact(&mut came).unwrap();
        assert!(came == chunk(*number), "chunk {number} is another one");
    }
}

/// Whether the program has threads for bulk.
fn has_threads_for_bulk(program: &Program) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.any(|name| name.starts_with("bulk-"))
}

fn carrying_bulk(up: &Up) -> Option<u64> {
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    metrics.lines().find_map(|line| line.strip_prefix("sallyport_edge_connections_bulk ")?.parse().ok())
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "threads are looked at in /proc")]
fn a_connection_that_carries_bulk_has_threads_for_that_time_and_loses_nothing() {
    let home = Home::new();
    let (up, port) = up_with_port(&home, &[]);
    let socket = socket(&home, "tcp", &[]);
    let connector = home.connector(id(&socket), chunks(), &[]);
    let both = [&up.program, &connector];

    let mut small = connect(port);
    ask(&mut small, &[1, 2]);
    assert!(both.iter().all(|program| !has_threads_for_bulk(program)));
    assert_eq!(carrying_bulk(&up), Some(0));

    let (mut bulk, began) = (connect(port), Instant::now());
    let numbers: Vec<u8> = (0..64).collect();
    while !both.iter().all(|program| has_threads_for_bulk(program)) {
        assert!(began.elapsed() < SOME_TIME, "it is not taken for bulk");
        ask(&mut bulk, &numbers);
    }
    // The other connection continues beside it, and it continues itself after a pause.
    ask(&mut small, &[3]);
    wait_until("it to be no bulk any more", || (carrying_bulk(&up) == Some(0)).then_some(()));
    ask(&mut bulk, &[5, 6]);
    drop(bulk);
    ask(&mut connect(port), &[7]);
}

/// A web service with endless answers.
fn endless() -> SocketAddr {
    service(|mut stream| {
        let _ = stream.read(&mut [0; 4_096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        let piece = vec![b'x'; CHUNK_BYTES];
        while stream.write_all(&piece).is_ok() {}
    })
}

#[test]
fn a_download_over_https_is_bulk_with_either_http() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let _connector = home.connector(&socket, endless(), &[]);
    for http in ["--http1.1", "--http2"] {
        let url = up.url(&host, "/");
        let args = ["--silent", http, "--cacert", up.ca.to_str().unwrap(), "--output", "/dev/null", &url];
        let mut download = home.knowing(&host, "curl", &args).spawn().unwrap();
        let began = Instant::now();
        while carrying_bulk(&up) != Some(1) {
            assert!(began.elapsed() < SOME_TIME, "{http}: it is not taken for bulk");
            assert!(download.try_wait().unwrap().is_none(), "{http}: it has ended");
        }
        download.kill().unwrap();
        download.wait().unwrap();
        wait_until("it to be over", || (carrying_bulk(&up) == Some(0)).then_some(()));
    }
}
