//! The PROXY protocol (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>): the addresses of a client behind
//! a balancer.
//!
//! Origins get headers, and trusted balancers in front send them. The `ppp` crate has the format.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use ppp::{HeaderResult, PartialResult as _, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest header, in bytes. Version 1 has at most 107; version 2 may carry further fields.
pub const MAX_HEADER_BYTES: usize = 4_096;
/// The fixed bytes of every header of version 2: its signature, and the length of the rest.
const V2_FIXED_BYTES: usize = 16;

/// Both ends of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxiedAddresses {
    /// The client.
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// Reason why a header was not read.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The connection does not begin with a header.
    #[error("the connection from a trusted balancer does not begin with a PROXY protocol header: turn it on there")]
    Missing,
    /// The header is malformed.
    #[error("the PROXY protocol header is malformed: {0}")]
    Malformed(String),
    /// The connection ended in the header.
    #[error("the connection ended in the PROXY protocol header: {0}")]
    Io(#[from] io::Error),
}

/// A header of version 1 (text) for a TCP connection.
#[must_use]
pub fn header_v1(addresses: ProxiedAddresses) -> Vec<u8> {
    let (client, destination) = same_family(addresses);
    v1::Addresses::from((client, destination)).to_string().into_bytes()
}

/// A header of version 2 (binary) for a TCP connection.
#[must_use]
pub fn header_v2(addresses: ProxiedAddresses) -> Vec<u8> {
    let (client, destination) = same_family(addresses);
    let header =
        v2::Builder::with_addresses(v2::Version::Two | v2::Command::Proxy, v2::Protocol::Stream, (client, destination));
    // Only fields of unbounded length can fail, and there are none.
    header.build().unwrap_or_default()
}

/// Reads the header of a trusted balancer, and not a byte more. `None`: the connection is the balancer's own, such as a
/// health check (`UNKNOWN` or `LOCAL`).
///
/// # Errors
/// There is no header, or it is malformed. Nothing of the connection can be trusted then.
pub async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<ProxiedAddresses>, ProxyHeaderError> {
    let mut bytes = Vec::with_capacity(128);
    loop {
        let wanted = bytes_wanted(&bytes)?;
        let at = bytes.len();
        bytes.resize(at + wanted, 0);
        stream.read_exact(&mut bytes[at..]).await?;
        let is_whole = if bytes.starts_with(b"P") { bytes.ends_with(b"\r\n") } else { bytes.len() >= V2_FIXED_BYTES };
        if !is_whole {
            continue;
        }
        match HeaderResult::parse(&bytes) {
            HeaderResult::V1(Ok(header)) => return Ok(of_v1(&header)),
            HeaderResult::V2(Ok(header)) => return Ok(of_v2(&header)),
            result if result.is_incomplete() => {}
            HeaderResult::V1(Err(error)) => return Err(ProxyHeaderError::Malformed(error.to_string())),
            HeaderResult::V2(Err(error)) => return Err(ProxyHeaderError::Malformed(error.to_string())),
        }
    }
}

/// How many further bytes certainly belong to the header. A header of text is read byte by byte, because its length is
/// unknown.
fn bytes_wanted(bytes: &[u8]) -> Result<usize, ProxyHeaderError> {
    const V1_START: &[u8] = b"PROXY ";
    let signature = v2::PROTOCOL_PREFIX;
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(a, b)| a == b);
    if begins(signature) {
        let Some(length) = bytes.get(14..V2_FIXED_BYTES) else {
            return Ok(if bytes.is_empty() { 1 } else { V2_FIXED_BYTES - bytes.len() });
        };
        let total = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]]));
        return match total {
            ..=MAX_HEADER_BYTES if total > bytes.len() => Ok(total - bytes.len()),
            ..=MAX_HEADER_BYTES => Err(ProxyHeaderError::Malformed("its length is shorter than the header".to_owned())),
            _ => Err(ProxyHeaderError::Malformed(format!(
                "its length of {total} bytes exceeds the limit of {MAX_HEADER_BYTES}"
            ))),
        };
    }
    if begins(V1_START) {
        return match bytes.len() {
            ..=106 => Ok(1),
            _ => Err(ProxyHeaderError::Malformed("a line of more than 107 bytes".to_owned())),
        };
    }
    Err(ProxyHeaderError::Missing)
}

fn of_v1(header: &v1::Header<'_>) -> Option<ProxiedAddresses> {
    match header.addresses {
        v1::Addresses::Tcp4(a) => {
            Some(proxied(a.source_address.into(), a.source_port, a.destination_address.into(), a.destination_port))
        }
        v1::Addresses::Tcp6(a) => {
            Some(proxied(a.source_address.into(), a.source_port, a.destination_address.into(), a.destination_port))
        }
        v1::Addresses::Unknown => None,
    }
}

fn of_v2(header: &v2::Header<'_>) -> Option<ProxiedAddresses> {
    match (header.command, header.addresses) {
        (v2::Command::Local, _) => None,
        (_, v2::Addresses::IPv4(a)) => {
            Some(proxied(a.source_address.into(), a.source_port, a.destination_address.into(), a.destination_port))
        }
        (_, v2::Addresses::IPv6(a)) => {
            Some(proxied(a.source_address.into(), a.source_port, a.destination_address.into(), a.destination_port))
        }
        _ => None,
    }
}

fn proxied(client: IpAddr, client_port: u16, destination: IpAddr, destination_port: u16) -> ProxiedAddresses {
    let (client, destination) = (SocketAddr::new(client, client_port), SocketAddr::new(destination, destination_port));
    ProxiedAddresses { client, destination }
}

/// Gives both addresses one family: IPv4 when both are IPv4, otherwise IPv6.
fn same_family(addresses: ProxiedAddresses) -> (SocketAddr, SocketAddr) {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (client, destination) = (canonical(addresses.client), canonical(addresses.destination));
    if client.is_ipv4() == destination.is_ipv4() {
        return (client, destination);
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(four) => SocketAddr::new(four.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (mapped(client), mapped(destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(client: &str, destination: &str) -> ProxiedAddresses {
        ProxiedAddresses { client: client.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    async fn read(bytes: &[u8]) -> (Result<Option<ProxiedAddresses>, ProxyHeaderError>, usize) {
        let mut rest = bytes;
        let header = read_header(&mut rest).await;
        (header, rest.len())
    }

    #[tokio::test]
    async fn what_is_written_is_read_and_what_follows_is_left() {
        for pair in
            [addresses("192.0.2.7:5000", "198.51.100.1:443"), addresses("[2001:db8::7]:5000", "[2001:db8::1]:443")]
        {
            for mut bytes in [header_v1(pair), header_v2(pair)] {
                bytes.extend_from_slice(b"what follows");
                let (header, left) = read(&bytes).await;
                assert_eq!((header.unwrap(), left), (Some(pair), 12));
            }
        }
    }

    #[test]
    fn the_text_is_as_the_specification_has_it() {
        let text = header_v1(addresses("[::ffff:192.0.2.7]:5000", "198.51.100.1:443"));
        assert_eq!(text, b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n");
        let mixed = header_v1(addresses("[2001:db8::7]:5000", "198.51.100.1:443"));
        assert!(mixed.starts_with(b"PROXY TCP6 2001:db8::7 "), "{}", String::from_utf8_lossy(&mixed));
    }

    #[tokio::test]
    async fn a_balancer_may_speak_for_itself() {
        assert_eq!(read(b"PROXY UNKNOWN\r\nx").await.0.unwrap(), None);
        let mut local = v2::PROTOCOL_PREFIX.to_vec();
        local.extend_from_slice(&[0x20, 0, 0, 0]);
        assert_eq!(read(&local).await.0.unwrap(), None);
    }

    #[tokio::test]
    async fn a_missing_header_is_distinguished_from_a_malformed_one() {
        for (bytes, what) in [
            (&b"GET / HTTP/1.1\r\n"[..], "does not begin"),
            (b"PROXY TCP4 192.0.2.7 198.51.100.1 5000\r\n", "malformed"),
            (b"PROXY TCP4 300.0.2.7 198.51.100.1 5000 443\r\n", "malformed"),
            (b"PROXY TCP4 192.0.2.7", "ended"),
            (&[b'P'; 200], "does not begin"),
        ] {
            let error = read(bytes).await.0.unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let mut long = v2::PROTOCOL_PREFIX.to_vec();
        long.extend_from_slice(&[0x21, 0x11, 0xff, 0xff]);
        assert!(read(&long).await.0.unwrap_err().to_string().contains("bytes"));
        let endless = [b"PROXY TCP4 ".to_vec(), vec![b'1'; 200]].concat();
        assert!(read(&endless).await.0.unwrap_err().to_string().contains("malformed"));
    }
}
