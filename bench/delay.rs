//! A TCP relay that adds a delay, and if wished a bound on the rate, standing in for a long path where the kernel has no
//! netem.
//!
//! usage: delay ONE_WAY_MS[:MBIT_S] LISTEN=BACKEND...
//!
//! Every connection pays for the round trip of its SYN, and every byte for the way. Nothing is lost. Without a rate, a
//! direction of a connection holds at most `MAX_QUEUED_CHUNKS` x `MAX_CHUNK_BYTES` (64 MiB) on its way. With one, all
//! connections share a bottleneck in each direction, which takes `MAX_SLOW_CHUNK_BYTES` of each in turn; what waits for
//! it waits in a receive buffer of `SLOW_BUFFER_BYTES` for each connection.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::AsRawFd,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

const MAX_CHUNK_BYTES: usize = 65_536;
const MAX_SLOW_CHUNK_BYTES: usize = 16_384;
const MAX_QUEUED_CHUNKS: usize = 1_024;
/// The kernel doubles it.
const SLOW_BUFFER_BYTES: i32 = 131_072;
/// How much of a bottleneck that stood still may be made up for: sleepers wake up late.
const CREDIT: Duration = Duration::from_millis(4);

const SOL_SOCKET: i32 = 1;
const SO_RCVBUF: i32 = 8;

unsafe extern "C" {
    fn setsockopt(socket: i32, level: i32, name: i32, value: *const i32, length: u32) -> i32;
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// The way of one direction, which all connections share.
struct Way {
    delay: Duration,
    bytes_per_second: Option<f64>,
    free_at: Mutex<Instant>,
}

impl Way {
    fn new(delay: Duration, bytes_per_second: Option<f64>) -> Arc<Self> {
        Arc::new(Self { delay, bytes_per_second, free_at: Mutex::new(Instant::now()) })
    }

    /// Waits until so many bytes have gone through the bottleneck.
    fn take(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let now = Instant::now();
        let through = {
            let mut free_at = self.free_at.lock().expect("nobody panics with it");
            *free_at = (*free_at).max(now - CREDIT) + Duration::from_secs_f64(bytes as f64 / rate);
            *free_at
        };
        thread::sleep(through.saturating_duration_since(now));
    }

    fn chunk_bytes(&self) -> usize {
        if self.bytes_per_second.is_some() { MAX_SLOW_CHUNK_BYTES } else { MAX_CHUNK_BYTES }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let (path, pairs) = arguments.split_first().ok_or("usage: delay ONE_WAY_MS[:MBIT_S] LISTEN=BACKEND...")?;
    let (delay, rate) = path.split_once(':').map_or((&**path, None), |(delay, rate)| (delay, Some(rate)));
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text:?} is no number"));
    let delay = Duration::from_secs_f64(number(delay)? / 1e3);
    let rate = rate.map(number).transpose()?.map(|mbit| mbit * 1e6 / 8.0);
    let (up, down) = (Way::new(delay, rate), Way::new(delay, rate));
    let mut listeners = Vec::new();
    for pair in pairs {
        let (listen, backend) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not LISTEN=BACKEND"))?;
        let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
        let (backend, up, down) = (backend.to_owned(), up.clone(), down.clone());
        listeners.push(thread::spawn(move || accept(&listener, &backend, &up, &down)));
    }
    for listener in listeners {
        listener.join().map_err(|_| "a listener ended".to_owned())?;
    }
    Ok(())
}

fn accept(listener: &TcpListener, backend: &str, up: &Arc<Way>, down: &Arc<Way>) {
    for near in listener.incoming().flatten() {
        let (backend, up, down) = (backend.to_owned(), up.clone(), down.clone());
        thread::spawn(move || {
            thread::sleep(up.delay); // the SYN on its way
            if let Ok(far) = TcpStream::connect(backend) {
                let _ = relay(&near, &far, up, down);
            }
        });
    }
}

fn relay(near: &TcpStream, far: &TcpStream, up: Arc<Way>, down: Arc<Way>) -> io::Result<()> {
    for stream in [near, far] {
        stream.set_nodelay(true)?;
        if up.bytes_per_second.is_some() {
            let fd = stream.as_raw_fd();
            // SAFETY: the value is a live i32, whose length is given with it.
            unsafe { setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &SLOW_BUFFER_BYTES, 4) };
        }
    }
    // What the near side sends leaves it only once the SYN-ACK has come back.
    let wait = up.delay;
    pump(near.try_clone()?, far.try_clone()?, up, wait);
    pump(far.try_clone()?, near.try_clone()?, down, Duration::ZERO);
    Ok(())
}

/// Starts carrying one direction.
fn pump(from: TcpStream, to: TcpStream, way: Arc<Way>, wait: Duration) {
    let (sender, receiver) = sync_channel(MAX_QUEUED_CHUNKS);
    let delay = way.delay;
    thread::spawn(move || {
        thread::sleep(wait);
        read(from, &sender, &way);
    });
    thread::spawn(move || write(to, &receiver, delay));
}

fn read(mut from: TcpStream, sender: &SyncSender<Chunk>, way: &Way) {
    let mut buffer = vec![0; way.chunk_bytes()];
    while let Ok(length) = from.read(&mut buffer) {
        way.take(length);
        let chunk = Chunk { due: Instant::now() + way.delay, bytes: buffer[..length].to_vec() };
        if length == 0 || sender.send(chunk).is_err() {
            break;
        }
    }
}

fn write(mut to: TcpStream, receiver: &Receiver<Chunk>, delay: Duration) {
    while let Ok(chunk) = receiver.recv() {
        thread::sleep(chunk.due.saturating_duration_since(Instant::now()));
        if to.write_all(&chunk.bytes).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
    thread::sleep(delay); // the FIN on its way
    let _ = to.shutdown(Shutdown::Write);
}
