//! The least that a tunnel can do, and what is there without one: what the rows of a long path are measured against.
//!
//! usage: least server PUBLIC_PORT TUNNEL
//!        least client TUNNEL ORIGIN
//!        least wait PORT MILLISECONDS
//!
//! `server` and `client` are a tunnel without encryption, without windows and without an end in good order: what clients of the
//! public port say goes as frames over one TCP connection to a client of `TUNNEL`, which says it to the origin, and back. One
//! thread on either side does everything. `wait` is no tunnel: it reads a request and answers it so much later.

use std::{
    collections::{HashMap, VecDeque},
    error::Error,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsRawFd, RawFd},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Number of the connection, and how many bytes follow; none: it has ended.
const HEADER_BYTES: usize = 8;
const MAX_READ_BYTES: usize = 65_536;
/// What the client of the tunnel says first.
const HELLO: [u8; 1] = *b"h";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n..";

#[repr(C)]
struct PollFd {
    fd: RawFd,
    events: i16,
    revents: i16,
}
const POLLIN: i16 = 1;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn ppoll(fds: *mut PollFd, count: u64, timeout: *const Timespec, signals: *const u8) -> i32;
}

/// Which of these can be read, or have ended, at the latest after this time; none: whenever that is.
fn readable(fds: impl Iterator<Item = RawFd>, at_most: Option<Duration>) -> Vec<RawFd> {
    let mut watched: Vec<PollFd> = fds.map(|fd| PollFd { fd, events: POLLIN, revents: 0 }).collect();
    let timeout = at_most
        .map(|time| Timespec { seconds: time.as_secs().cast_signed(), nanoseconds: i64::from(time.subsec_nanos()) });
    let (timeout, none) = (timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), std::ptr::null());
    // SAFETY: the array and the time are alive, and the array's length is given with it.
    unsafe { ppoll(watched.as_mut_ptr(), watched.len() as u64, timeout, none) };
    watched.into_iter().filter(|watched| watched.revents != 0).map(|watched| watched.fd).collect()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words {
        ["server", public, tunnel] => serve(public, tunnel),
        ["client", tunnel, origin] => carry(None, tunnel, origin),
        ["wait", port, time] => wait(port, time),
        _ => Err("usage: least server PUBLIC_PORT TUNNEL | client TUNNEL ORIGIN | wait PORT MILLISECONDS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("least: {error}");
            ExitCode::FAILURE
        }
    }
}

fn listen(address: &str) -> Result<TcpListener, Box<dyn Error>> {
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn serve(public: &str, tunnel: &str) -> Result<(), Box<dyn Error>> {
    let public = listen(&format!("127.0.0.1:{public}"))?;
    carry(Some(public), tunnel, "")
}

/// The client of the tunnel; others only look whether somebody listens.
fn first_that_speaks(listener: &TcpListener) -> Result<TcpStream, Box<dyn Error>> {
    loop {
        let mut stream = listener.accept()?.0;
        if stream.read_exact(&mut HELLO.clone()).is_ok() {
            return Ok(stream);
        }
    }
}

/// Carries frames until the tunnel's connection ends: for the clients of `public`, or else to the origin.
fn carry(public: Option<TcpListener>, tunnel: &str, origin: &str) -> Result<(), Box<dyn Error>> {
    let mut tunnel = match public {
        Some(_) => first_that_speaks(&TcpListener::bind(tunnel)?)?,
        None => {
            let mut stream = TcpStream::connect(tunnel)?;
            stream.write_all(&HELLO)?;
            stream
        }
    };
    tunnel.set_nodelay(true)?;
    let (mut near, mut numbers, mut last) = (HashMap::new(), HashMap::new(), 0_u32);
    let (mut came, mut out, mut room) = (Vec::new(), Vec::new(), vec![0; MAX_READ_BYTES]);
    loop {
        let listener = public.iter().map(AsRawFd::as_raw_fd);
        let ready = readable(listener.chain([tunnel.as_raw_fd()]).chain(numbers.keys().copied()), None);
        for fd in ready {
            if fd == tunnel.as_raw_fd() {
                let length = tunnel.read(&mut room)?;
                if length == 0 {
                    return Ok(());
                }
                came.extend_from_slice(&room[..length]);
                take_frames(&mut came, |number, bytes| {
                    if bytes.is_empty() {
                        if let Some(stream) = near.remove(&number) {
                            numbers.remove(&TcpStream::as_raw_fd(&stream));
                        }
                    } else if let Some(stream) = near.get_mut(&number) {
                        stream.write_all(bytes)?;
                    } else if public.is_none() {
                        let mut stream = TcpStream::connect(origin)?;
                        stream.set_nodelay(true)?;
                        stream.write_all(bytes)?;
                        stream.set_nonblocking(true)?;
                        numbers.insert(stream.as_raw_fd(), number);
                        near.insert(number, stream);
                    }
                    Ok(())
                })?;
            } else if let Some(public) = public.as_ref().filter(|public| public.as_raw_fd() == fd) {
                while let Ok((stream, _)) = public.accept() {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    last += 1;
                    numbers.insert(stream.as_raw_fd(), last);
                    // Its first words are mostly there.
                    say(&stream, last, &mut out, &mut room);
                    near.insert(last, stream);
                }
            } else if let Some(number) = numbers.get(&fd).copied()
                && !near.get(&number).is_some_and(|stream| say(stream, number, &mut out, &mut room))
            {
                near.remove(&number);
                numbers.remove(&fd);
            }
        }
        tunnel.write_all(&out)?;
        out.clear();
    }
}

/// Makes a frame of what there is to be read. False: the connection has ended.
fn say(mut stream: &TcpStream, number: u32, out: &mut Vec<u8>, room: &mut [u8]) -> bool {
    let length = match stream.read(room) {
        Ok(length) => length,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
        Err(_) => 0,
    };
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&room[..length]);
    length > 0
}

/// Gives away the frames that have come whole.
fn take_frames(
    came: &mut Vec<u8>,
    mut take: impl FnMut(u32, &[u8]) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut at = 0;
    while let Some((header, rest)) = came[at..].split_first_chunk::<HEADER_BYTES>() {
        let [n0, n1, n2, n3, l0, l1, l2, l3] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let Some(bytes) = rest.get(..length) else { break };
        take(u32::from_be_bytes([n0, n1, n2, n3]), bytes)?;
        at += HEADER_BYTES + length;
    }
    came.drain(..at);
    Ok(())
}

fn wait(port: &str, time: &str) -> Result<(), Box<dyn Error>> {
    let (listener, time) = (listen(&format!("127.0.0.1:{port}"))?, Duration::from_secs_f64(time.parse::<f64>()? / 1e3));
    let (mut asking, mut due, mut room) =
        (HashMap::new(), VecDeque::<(Instant, TcpStream)>::new(), vec![0; MAX_READ_BYTES]);
    loop {
        let left = due.front().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        for fd in readable(asking.keys().copied().chain([listener.as_raw_fd()]), left) {
            if let Some(mut stream) = asking.remove(&fd) {
                if matches!(TcpStream::read(&mut stream, &mut room), Ok(1..)) {
                    due.push_back((Instant::now() + time, stream));
                }
                continue;
            }
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nodelay(true)?;
                asking.insert(stream.as_raw_fd(), stream);
            }
        }
        while due.front().is_some_and(|(at, _)| *at <= Instant::now()) {
            if let Some((_, mut stream)) = due.pop_front() {
                let _ = stream.write_all(ANSWER);
            }
        }
    }
}
