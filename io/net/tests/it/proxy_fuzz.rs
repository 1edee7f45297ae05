//! The body of the fuzzer of PROXY protocol headers.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use sallyport_net::{MAX_PROXY_HEADER_BYTES, ProxiedAddresses, ProxyHeaderError, header_v1, header_v2, read_header};
use tokio::io::{AsyncRead, ReadBuf};

/// A reader that returns one byte at a time.
struct ByteByByte<'a>(&'a [u8]);

impl AsyncRead for ByteByByte<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some((byte, rest)) = self.0.split_first() {
            buf.put_slice(&[*byte]);
            self.0 = rest;
        }
        Poll::Ready(Ok(()))
    }
}

/// The result of a header without the texts of errors, and the count of bytes consumed.
type Outcome = (Result<Option<ProxiedAddresses>, &'static str>, usize);

fn read(bytes: &[u8]) -> Outcome {
    let mut rest = bytes;
    let result = finish(read_header(&mut rest));
    (result, bytes.len() - rest.len())
}

fn read_byte_by_byte(bytes: &[u8]) -> Outcome {
    let mut rest = ByteByByte(bytes);
    let result = finish(read_header(&mut rest));
    (result, bytes.len() - rest.0.len())
}

/// The future never waits, since its bytes are in memory.
fn finish(
    future: impl Future<Output = Result<Option<ProxiedAddresses>, ProxyHeaderError>>,
) -> Result<Option<ProxiedAddresses>, &'static str> {
    let Poll::Ready(result) = pin!(future).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits for bytes in memory")
    };
    result.map_err(|error| match error {
        ProxyHeaderError::Missing => "missing",
        ProxyHeaderError::Malformed(_) => "malformed",
        ProxyHeaderError::Io(_) => "ended",
    })
}

/// Both addresses, with IPv4-mapped addresses as IPv4.
fn canonical(addresses: ProxiedAddresses) -> (SocketAddr, SocketAddr) {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    (canonical(addresses.client), canonical(addresses.destination))
}

/// Runs one input: the first bytes from a load balancer.
pub(crate) fn proxy_header(data: &[u8]) {
    let (result, taken) = read(data);
    assert!(taken <= MAX_PROXY_HEADER_BYTES);
    assert_eq!((result, taken), read_byte_by_byte(data), "it matters how the bytes come");
    let Ok(addresses) = result else { return };
    // The parser consumes exactly the header, whatever follows.
    let followed = [&data[..taken], b"\r\nGET / HTTP/1.1\r\n"].concat();
    assert_eq!(read(&followed), (result, taken));
    for shorter in (0..taken).filter(|shorter| *shorter < 20 || shorter + 20 > taken) {
        assert!(read(&data[..shorter]).0.is_err(), "a part of a header is no header");
    }
    let Some(addresses) = addresses else { return };
    for header in [header_v1(addresses), header_v2(addresses)] {
        let (again, taken) = read(&header);
        let again = again.unwrap().expect("a header with addresses has addresses");
        assert_eq!((canonical(again), taken), (canonical(addresses), header.len()));
    }
}
