//! The origin of uploads: throws request bodies away and counts their bytes.
//!
//! usage: sink ADDRESS:PORT
//!
//! `GET` answers with the number of body bytes that came so far. A request with `Content-Length` or
//! `Transfer-Encoding: chunked` gets 200 once its body is over. It trusts its peer, which is the benchmark.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const BUFFER_BYTES: usize = 262_144;

static RECEIVED_BYTES: AtomicU64 = AtomicU64::new(0);

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    for stream in TcpListener::bind(address)?.incoming().flatten() {
        thread::spawn(move || {
            let _ = serve(stream);
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let head_bytes = loop {
            if let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let length = stream.read(&mut buffer[filled..])?;
            if length == 0 {
                return Ok(());
            }
            filled += length;
        };
        let head = String::from_utf8_lossy(&buffer[..head_bytes]).to_ascii_lowercase();
        buffer.copy_within(head_bytes..filled, 0);
        filled -= head_bytes;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if let Some(length) = length {
            filled = discard_length(&mut stream, &mut buffer, filled, length)?;
        } else if head.contains("transfer-encoding: chunked") {
            discard_chunks(&mut stream, &mut buffer, filled)?;
            filled = 0;
        }
        let body = RECEIVED_BYTES.load(Ordering::Relaxed).to_string();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

/// Discards a body of known length; gives what is left in the buffer after it.
fn discard_length(stream: &mut TcpStream, buffer: &mut [u8], filled: usize, length: u64) -> io::Result<usize> {
    let ready = filled as u64;
    if ready >= length {
        RECEIVED_BYTES.fetch_add(length, Ordering::Relaxed);
        buffer.copy_within(length as usize..filled, 0);
        return Ok((ready - length) as usize);
    }
    RECEIVED_BYTES.fetch_add(ready, Ordering::Relaxed);
    let mut left = length - ready;
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        let length = stream.read(&mut buffer[..most])?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        RECEIVED_BYTES.fetch_add(length as u64, Ordering::Relaxed);
        left -= length as u64;
    }
    Ok(0)
}

/// Discards up to the last chunk, counting its framing too: less than a thousandth of the body.
fn discard_chunks(stream: &mut TcpStream, buffer: &mut [u8], filled: usize) -> io::Result<()> {
    let mut tail = buffer[..filled].to_vec();
    while !tail.ends_with(b"0\r\n\r\n") {
        let length = stream.read(buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        RECEIVED_BYTES.fetch_add(length as u64, Ordering::Relaxed);
        tail.extend_from_slice(&buffer[length.saturating_sub(8)..length]);
        tail.drain(..tail.len().saturating_sub(8));
    }
    Ok(())
}
