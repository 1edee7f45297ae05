//! Datagrams for the benchmark: the origin that answers them, and the clients that send them.
//!
//! usage: datagrams origin ADDRESS:PORT
//!        datagrams load ADDRESS:PORT FLOWS BYTES SECONDS paced HZ | window COUNT | flood PER_SECOND
//!
//! The origin sends every datagram back, but for those that say that they are to be counted; a TCP connection to the
//! same port is told how many those were. Each flow of the load is a socket of its own, which first waits for one
//! answer. `paced`: every flow sends so often, whatever comes back. `window`: every flow has so many under way, and
//! takes for lost what a later one overtook. `flood`: all flows together send so many to be counted. What comes back
//! later than `LATE` after the end is lost. Prints one JSON object.

use std::{
    io::{self, Write},
    net::{TcpListener, UdpSocket},
    os::fd::AsRawFd,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const MAX_DATAGRAM_BYTES: usize = 65_536;
const MIN_DATAGRAM_BYTES: usize = 24;
const RECEIVE_BUFFER_BYTES: i32 = 8 * 1_024 * 1_024;
const LATE: Duration = Duration::from_millis(500);
/// After how much silence everything that a window has under way counts as lost.
const SILENCE: Duration = Duration::from_millis(200);
const GREETING: u64 = u64::MAX;

static COUNTED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn setsockopt(fd: i32, level: i32, name: i32, value: *const i32, length: u32) -> i32;
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["origin", address] => origin(address).map_err(|error| format!("{address}: {error}")),
        ["load", target, flows, bytes, seconds, mode, rate] => load(target, [flows, bytes, seconds, rate], mode),
        _ => Err("usage: see the head of datagrams.rs".to_owned()),
    };
    if let Err(error) = &done {
        eprintln!("datagrams: {error}");
    }
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Room for bursts, so that neither end loses what the contender has carried; beyond the system's bound, as root may.
fn with_room(socket: UdpSocket) -> UdpSocket {
    const SOL_SOCKET: i32 = 1;
    const SO_RCVBUFFORCE: i32 = 33;
    // SAFETY: the pointer is to an i32 that lives through the call, and the length is its own.
    unsafe { setsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_RCVBUFFORCE, &RECEIVE_BUFFER_BYTES, 4) };
    socket
}

fn origin(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    thread::spawn(move || {
        for mut asking in listener.incoming().flatten() {
            let _ = writeln!(asking, "{}", COUNTED.load(Ordering::Relaxed));
        }
    });
    let socket = with_room(UdpSocket::bind(address)?);
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        // An answer that found nobody any more fails the next call.
        let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
        if buffer[..length].first() == Some(&b'C') {
            COUNTED.fetch_add(1, Ordering::Relaxed);
        } else {
            let _ = socket.send_to(&buffer[..length], client);
        }
    }
}

/// What came of a load, or of one flow.
#[derive(Default)]
struct Outcome {
    sent: u64,
    received: u64,
    /// Those of `received` that came before the end.
    in_time: u64,
    micros: Vec<u32>,
}

fn load(target: &str, numbers: [&str; 4], mode: &str) -> Result<(), String> {
    let mut parsed = [0_u64; 4];
    for (number, text) in parsed.iter_mut().zip(numbers) {
        *number = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    }
    let [flows, bytes, seconds, rate] = parsed;
    let bytes = usize::try_from(bytes).unwrap_or(0).clamp(MIN_DATAGRAM_BYTES, 65_507);
    let sockets: Vec<_> = (0..flows).map(|flow| greet(target, bytes, flow)).collect::<Result<_, _>>()?;
    let span = Duration::from_secs(seconds);
    let base = Instant::now();
    let mut total = match mode {
        "paced" => paced(&sockets, bytes, span, rate, base),
        "window" => window(&sockets, bytes, span, rate, base),
        "flood" => flood(&sockets, bytes, span, rate, base),
        _ => return Err(format!("{mode:?} is no way to load")),
    };
    total.micros.sort_unstable();
    let percentile = |percent: usize| {
        let last = total.micros.len().saturating_sub(1);
        total.micros.get((total.micros.len() * percent / 100).min(last)).copied().unwrap_or(0)
    };
    println!(
        r#"{{"sent": {}, "received": {}, "in_time": {}, "seconds": {}, "p50_us": {}, "p99_us": {}}}"#,
        total.sent,
        total.received,
        total.in_time,
        seconds,
        percentile(50),
        percentile(99)
    );
    Ok(())
}

/// A socket that has had an answer.
fn greet(target: &str, bytes: usize, flow: u64) -> Result<UdpSocket, String> {
    let open = || -> io::Result<UdpSocket> {
        let socket = with_room(UdpSocket::bind("127.0.0.1:0")?);
        socket.connect(target)?;
        socket.set_read_timeout(Some(SILENCE))?;
        Ok(socket)
    };
    let socket = open().map_err(|error| format!("{target}: {error}"))?;
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    for _ in 0..25 {
        let _ = send(&socket, &mut vec![b'E'; bytes], GREETING, 0);
        match socket.recv(&mut buffer) {
            Ok(_) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => thread::sleep(SILENCE),
            Err(_) => {}
        }
    }
    Err(format!("flow {flow} to {target} got no answer"))
}

fn send(socket: &UdpSocket, datagram: &mut [u8], sequence: u64, nanos: u64) -> io::Result<usize> {
    datagram[8..16].copy_from_slice(&sequence.to_le_bytes());
    datagram[16..24].copy_from_slice(&nanos.to_le_bytes());
    socket.send(datagram)
}

fn nanos(base: Instant) -> u64 {
    u64::try_from(base.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The sequence number of the next datagram, and how many microseconds it was under way; none for a late greeting.
fn receive(socket: &UdpSocket, buffer: &mut [u8], base: Instant) -> io::Result<Option<(u64, u32)>> {
    let length = socket.recv(buffer)?;
    let now = nanos(base);
    let number = |from: usize| buffer[..length].get(from..from + 8).and_then(|eight| eight.try_into().ok());
    let (Some(sequence), Some(sent)) = (number(8).map(u64::from_le_bytes), number(16).map(u64::from_le_bytes)) else {
        return Ok(None);
    };
    let micros = u32::try_from(now.saturating_sub(sent) / 1_000).unwrap_or(u32::MAX);
    Ok((sequence != GREETING).then_some((sequence, micros)))
}

fn paced(sockets: &[UdpSocket], bytes: usize, span: Duration, hz: u64, base: Instant) -> Outcome {
    let is_over = AtomicBool::new(false);
    let mut total = Outcome::default();
    thread::scope(|scope| {
        let receivers: Vec<_> =
            sockets.iter().map(|socket| scope.spawn(|| listen(socket, span, base, &is_over))).collect();
        let mut datagram = vec![b'E'; bytes];
        let gap = Duration::from_secs(1) / u32::try_from(hz * sockets.len() as u64).unwrap_or(u32::MAX).max(1);
        for (number, socket) in (0_u64..).zip(sockets.iter().cycle()) {
            let due = gap * u32::try_from(number).unwrap_or(u32::MAX);
            if due >= span {
                break;
            }
            thread::sleep(due.saturating_sub(base.elapsed()));
            total.sent += 1;
            let _ = send(socket, &mut datagram, number, nanos(base));
        }
        thread::sleep(LATE);
        is_over.store(true, Ordering::Relaxed);
        receivers.into_iter().filter_map(|receiver| receiver.join().ok()).for_each(|part| add(&mut total, part));
    });
    total
}

fn listen(socket: &UdpSocket, span: Duration, base: Instant, is_over: &AtomicBool) -> Outcome {
    let (mut outcome, mut buffer) = (Outcome::default(), vec![0; MAX_DATAGRAM_BYTES]);
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(Some((_, micros))) = receive(socket, &mut buffer, base) {
            took_in(&mut outcome, micros, base.elapsed() < span);
        }
    }
    outcome
}

fn took_in(outcome: &mut Outcome, micros: u32, is_in_time: bool) {
    outcome.received += 1;
    outcome.in_time += u64::from(is_in_time);
    outcome.micros.push(micros);
}

fn window(sockets: &[UdpSocket], bytes: usize, span: Duration, count: u64, base: Instant) -> Outcome {
    let mut total = Outcome::default();
    thread::scope(|scope| {
        let flows: Vec<_> =
            sockets.iter().map(|socket| scope.spawn(move || keep_full(socket, bytes, span, count, base))).collect();
        flows.into_iter().filter_map(|flow| flow.join().ok()).for_each(|part| add(&mut total, part));
    });
    total
}

/// Keeps so many of one flow under way.
fn keep_full(socket: &UdpSocket, bytes: usize, span: Duration, count: u64, base: Instant) -> Outcome {
    let (mut outcome, mut buffer, mut datagram) = (Outcome::default(), vec![0; MAX_DATAGRAM_BYTES], vec![b'E'; bytes]);
    // What is below this has been answered, overtaken, or given up.
    let mut settled = 0;
    while base.elapsed() < span {
        while outcome.sent < settled + count {
            let _ = send(socket, &mut datagram, outcome.sent, nanos(base));
            outcome.sent += 1;
        }
        match receive(socket, &mut buffer, base) {
            Ok(Some((sequence, micros))) => {
                took_in(&mut outcome, micros, true);
                settled = settled.max(sequence + 1);
            }
            Ok(None) => {}
            Err(_) => settled = outcome.sent,
        }
    }
    while base.elapsed() < span + LATE && outcome.received < outcome.sent {
        if let Ok(Some((_, micros))) = receive(socket, &mut buffer, base) {
            took_in(&mut outcome, micros, false);
        }
    }
    outcome
}

fn flood(sockets: &[UdpSocket], bytes: usize, span: Duration, per_second: u64, base: Instant) -> Outcome {
    let (mut outcome, mut datagram) = (Outcome::default(), vec![b'C'; bytes]);
    let mut sockets = sockets.iter().cycle();
    while base.elapsed() < span {
        let due = u64::try_from(base.elapsed().as_micros()).unwrap_or(u64::MAX) * per_second / 1_000_000;
        while outcome.sent < due && base.elapsed() < span {
            if let Some(socket) = sockets.next() {
                let _ = send(socket, &mut datagram, outcome.sent, 0);
            }
            outcome.sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(LATE);
    outcome
}

fn add(total: &mut Outcome, part: Outcome) {
    total.sent += part.sent;
    total.received += part.received;
    total.in_time += part.in_time;
    total.micros.extend(part.micros);
}
