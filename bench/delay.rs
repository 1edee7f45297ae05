//! A TCP relay that adds a delay, standing in for a long path where the kernel has no netem.
//!
//! usage: delay ONE_WAY_MS LISTEN=BACKEND...
//!
//! Every connection pays for the round trip of its SYN, and every byte for the way. There is no loss and no limit of
//! the rate; a direction holds at most `MAX_QUEUED_CHUNKS` x `MAX_CHUNK_BYTES` (64 MiB) on its way.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::ExitCode,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

const MAX_CHUNK_BYTES: usize = 65_536;
const MAX_QUEUED_CHUNKS: usize = 1_024;

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
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
    let (delay, pairs) = arguments.split_first().ok_or("usage: delay ONE_WAY_MS LISTEN=BACKEND...")?;
    let delay = delay.parse().map_err(|_| format!("{delay:?} is no number of milliseconds"))?;
    let delay = Duration::from_millis(delay);
    let mut listeners = Vec::new();
    for pair in pairs {
        let (listen, backend) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not LISTEN=BACKEND"))?;
        let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
        let backend = backend.to_owned();
        listeners.push(thread::spawn(move || accept(&listener, &backend, delay)));
    }
    for listener in listeners {
        listener.join().map_err(|_| "a listener ended".to_owned())?;
    }
    Ok(())
}

fn accept(listener: &TcpListener, backend: &str, delay: Duration) {
    for near in listener.incoming().flatten() {
        let backend = backend.to_owned();
        thread::spawn(move || {
            thread::sleep(delay); // the SYN on its way
            if let Ok(far) = TcpStream::connect(backend) {
                let _ = relay(&near, &far, delay);
            }
        });
    }
}

fn relay(near: &TcpStream, far: &TcpStream, delay: Duration) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    // What the near side sends leaves it only once the SYN-ACK has come back.
    pump(near.try_clone()?, far.try_clone()?, delay, delay);
    pump(far.try_clone()?, near.try_clone()?, delay, Duration::ZERO);
    Ok(())
}

/// Starts carrying one direction.
fn pump(from: TcpStream, to: TcpStream, delay: Duration, wait: Duration) {
    let (sender, receiver) = sync_channel(MAX_QUEUED_CHUNKS);
    thread::spawn(move || {
        thread::sleep(wait);
        read(from, &sender, delay);
    });
    thread::spawn(move || write(to, &receiver, delay));
}

fn read(mut from: TcpStream, sender: &SyncSender<Chunk>, delay: Duration) {
    let mut buffer = vec![0; MAX_CHUNK_BYTES];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || sender.send(Chunk { due: Instant::now() + delay, bytes: buffer[..length].to_vec() }).is_err()
        {
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
