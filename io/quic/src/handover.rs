//! How a port passes to the next process: its sockets, its secret, and the channels to former processes.
//!
//! The process that is replaced stops reading the sockets and keeps writing to them. It passes on the sockets, one end
//! of a stream of its own, and the streams to the processes before it. The next process reads the sockets. It writes
//! each datagram for an older connection into the stream of the process that has the connection.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use quinn::{EcnCodepoint, udp::RecvMeta};
use socket2::SockRef;
use tokio::io::AsyncReadExt as _;

use crate::{
    port::MAX_SOCKETS,
    router::Router,
    secret::{QuicSecret, SECRET_BYTES},
};

/// The version of what passes.
const VERSION: u8 = 1;
/// The most former processes that a port knows. The connections of an earlier one end.
pub(crate) const MAX_FORMER: usize = 16;
/// The kernel's buffer of a stream to a former process, in bytes; less where `net.core.wmem_max` is lower.
const CHANNEL_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// The longest batch of datagrams: what the kernel gives at once.
const MAX_BATCH_BYTES: usize = 1 << 16;
/// Length of the head of a batch in a stream, in bytes.
const HEAD_BYTES: usize = 4 + 4 + 1 + ADDRESS_BYTES + 1 + 16;
const ADDRESS_BYTES: usize = 1 + 16 + 2 + 4;
/// How long the next process waits for what passes. The other process has sent it before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a port could not be inherited.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The former process passed on something else.
    #[error("the former process did not pass on its QUIC port as this version expects it")]
    Malformed,
    /// The system did not permit it.
    #[error("the QUIC port of the former process cannot be used: {0}")]
    System(#[from] io::Error),
}

/// A former process that still has connections.
#[derive(Debug, Clone)]
pub(crate) struct Former {
    generation: u16,
    channel: Arc<Channel>,
}

#[derive(Debug)]
struct Channel {
    stream: UnixStream,
    /// The rest of a batch that the stream had no room for. Until it is written, further batches are dropped.
    unwritten: Mutex<Vec<u8>>,
    is_gone: AtomicBool,
}

impl Former {
    /// The process at the other end of this stream.
    pub(crate) fn new(generation: u16, stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let _ = SockRef::from(&stream).set_send_buffer_size(CHANNEL_BUFFER_BYTES);
        let channel = Channel { stream, unwritten: Mutex::default(), is_gone: AtomicBool::new(false) };
        Ok(Self { generation, channel: Arc::new(channel) })
    }

    pub(crate) fn generation(&self) -> u16 {
        self.generation
    }

    /// Whether the process has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.channel.is_gone.load(Ordering::Relaxed)
    }

    /// Sends a batch. Returns false if the batch is dropped, because the process reads too slowly or has ended.
    pub(crate) fn send(&self, meta: &RecvMeta, data: &[u8]) -> bool {
        let mut unwritten = self.channel.unwritten.lock();
        if !unwritten.is_empty() {
            let written = self.write(&unwritten);
            unwritten.drain(..written);
            if !unwritten.is_empty() {
                return false;
            }
        }
        let batch = [&head(meta, data.len())[..], data].concat();
        let written = self.write(&batch);
        if written > 0 {
            unwritten.extend_from_slice(batch.get(written..).unwrap_or_default());
        }
        written > 0
    }

    fn write(&self, bytes: &[u8]) -> usize {
        match (&self.channel.stream).write(bytes) {
            Ok(written) => written,
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    self.channel.is_gone.store(true, Ordering::Relaxed);
                }
                0
            }
        }
    }
}

/// Receives the batches that the process which took over writes, until that process ends.
pub(crate) async fn receive(stream: UnixStream, router: Arc<Router>) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    let mut batch = Vec::new();
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        let meta = parse_head(&head).ok_or_else(|| io::Error::other("a batch has no valid head"))?;
        batch.resize(meta.len, 0);
        stream.read_exact(&mut batch).await?;
        router.receive_from_successor(meta, &mut batch);
    }
}

fn head(meta: &RecvMeta, length: usize) -> [u8; HEAD_BYTES] {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    for number in [length, meta.stride] {
        head.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    }
    head.push(meta.ecn.map_or(0, |ecn| ecn as u8));
    push_ip(&mut head, Some(meta.addr.ip()));
    head.extend_from_slice(&meta.addr.port().to_be_bytes());
    let scope = if let SocketAddr::V6(address) = meta.addr { address.scope_id() } else { 0 };
    head.extend_from_slice(&scope.to_be_bytes());
    push_ip(&mut head, meta.dst_ip);
    head.try_into().unwrap_or([0; HEAD_BYTES])
}

fn push_ip(head: &mut Vec<u8>, ip: Option<IpAddr>) {
    let (family, bytes) = match ip {
        None => (0, [0; 16]),
        Some(IpAddr::V4(ip)) => (4, ip.to_ipv6_mapped().octets()),
        Some(IpAddr::V6(ip)) => (6, ip.octets()),
    };
    head.push(family);
    head.extend_from_slice(&bytes);
}

fn parse_head(head: &[u8; HEAD_BYTES]) -> Option<RecvMeta> {
    let mut rest = &head[..];
    let len = usize::try_from(u32::from_be_bytes(take(&mut rest)?)).ok()?;
    let stride = usize::try_from(u32::from_be_bytes(take(&mut rest)?)).ok()?;
    let [ecn] = take(&mut rest)?;
    let ip = take_ip(&mut rest)??;
    let port = u16::from_be_bytes(take(&mut rest)?);
    let scope = u32::from_be_bytes(take(&mut rest)?);
    let addr = match ip {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, port).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    };
    let dst_ip = take_ip(&mut rest)?;
    let is_valid = len <= MAX_BATCH_BYTES && stride > 0;
    is_valid.then_some(RecvMeta { addr, len, stride, ecn: EcnCodepoint::from_bits(ecn).map(of_udp), dst_ip })
}

fn of_udp(ecn: EcnCodepoint) -> quinn::udp::EcnCodepoint {
    match ecn {
        EcnCodepoint::Ect0 => quinn::udp::EcnCodepoint::Ect0,
        EcnCodepoint::Ect1 => quinn::udp::EcnCodepoint::Ect1,
        EcnCodepoint::Ce => quinn::udp::EcnCodepoint::Ce,
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// An IP address, or none; the outer `None` is a malformed one.
fn take_ip(rest: &mut &[u8]) -> Option<Option<IpAddr>> {
    let ([family], bytes) = (take(rest)?, take::<16>(rest)?);
    let ip = Ipv6Addr::from(bytes);
    match family {
        0 => Some(None),
        4 => ip.to_ipv4_mapped().map(|ip: Ipv4Addr| Some(ip.into())),
        6 => Some(Some(ip.into())),
        _ => None,
    }
}

/// What the next process needs, besides the sockets.
struct Estate {
    secret: QuicSecret,
    generation: u16,
    sockets: u8,
    /// The generations of the streams, behind the sockets.
    former: Vec<u16>,
}

impl Estate {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.secret.as_bytes());
        bytes.extend_from_slice(&self.generation.to_be_bytes());
        bytes.push(self.sockets);
        self.former.iter().for_each(|generation| bytes.extend_from_slice(&generation.to_be_bytes()));
        bytes
    }

    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes;
        if take(rest)? != [VERSION] {
            return None;
        }
        let secret = QuicSecret::from(take::<SECRET_BYTES>(rest)?);
        let generation = u16::from_be_bytes(take(rest)?);
        let [sockets] = take(rest)?;
        let mut former = Vec::new();
        while !rest.is_empty() {
            former.push(u16::from_be_bytes(take(rest)?));
        }
        let is_valid = (1..=MAX_SOCKETS).contains(&usize::from(sockets)) && former.len() <= MAX_FORMER;
        is_valid.then_some(Self { secret, generation, sockets, former })
    }
}

/// A port that was passed on.
pub(crate) struct Inherited {
    pub(crate) secret: QuicSecret,
    pub(crate) generation: u16,
    pub(crate) sockets: Vec<UdpSocket>,
    pub(crate) former: Vec<Former>,
}

/// Takes what [`pass`] gave.
pub(crate) fn inherit(files: Vec<OwnedFd>) -> Result<Inherited, HandoverError> {
    let mut files = files.into_iter();
    let mut estate = UnixStream::from(files.next().ok_or(HandoverError::Malformed)?);
    estate.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    estate.read_to_end(&mut bytes)?;
    let estate = Estate::parse(&bytes).ok_or(HandoverError::Malformed)?;
    let sockets: Vec<_> = files.by_ref().take(estate.sockets.into()).map(UdpSocket::from).collect();
    let former = estate.former.iter().zip(files.by_ref());
    let former = former.map(|(generation, file)| Former::new(*generation, file.into()));
    let former: Vec<_> = former.collect::<io::Result<_>>()?;
    let is_complete = sockets.len() == usize::from(estate.sockets) && former.len() == estate.former.len();
    if !is_complete || files.next().is_some() {
        return Err(HandoverError::Malformed);
    }
    Ok(Inherited { secret: estate.secret, generation: estate.generation.wrapping_add(1), sockets, former })
}

/// Copies of everything that passes, and this process's end of its own stream.
pub(crate) fn pass(router: &Router, sockets: &[OwnedFd]) -> io::Result<(Vec<OwnedFd>, UnixStream)> {
    let (own, to_own) = UnixStream::pair()?;
    let mut former = router.former();
    former.truncate(MAX_FORMER - 1);
    let estate = Estate {
        secret: router.secret.clone(),
        generation: router.generation,
        sockets: u8::try_from(sockets.len()).map_err(io::Error::other)?,
        former: std::iter::once(router.generation).chain(former.iter().map(Former::generation)).collect(),
    };
    let (mut to_next, from_us) = UnixStream::pair()?;
    // The kernel's buffer has room for all of it.
    to_next.write_all(&estate.to_bytes())?;
    to_next.shutdown(Shutdown::Write)?;
    let mut files = vec![OwnedFd::from(from_us)];
    for socket in sockets {
        files.push(socket.as_fd().try_clone_to_owned()?);
    }
    files.push(to_own.into());
    for former in former {
        files.push(former.channel.stream.as_fd().try_clone_to_owned()?);
    }
    Ok((files, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(addr: &str, dst_ip: Option<&str>, ecn: Option<quinn::udp::EcnCodepoint>) -> RecvMeta {
        let dst_ip = dst_ip.map(|ip| ip.parse().unwrap());
        RecvMeta { addr: addr.parse().unwrap(), len: 1_200, stride: 600, ecn, dst_ip }
    }

    #[test]
    fn the_head_of_a_batch_keeps_what_the_kernel_said() {
        use quinn::udp::EcnCodepoint as E;
        for meta in [
            meta("192.0.2.1:443", Some("198.51.100.7"), Some(E::Ect0)),
            meta("[2001:db8::1]:9", Some("2001:db8::2"), Some(E::Ce)),
            meta("[fe80::1%3]:9", None, None),
            meta("[::ffff:192.0.2.1]:9", None, Some(E::Ect1)),
        ] {
            let parsed = parse_head(&head(&meta, meta.len)).unwrap();
            assert_eq!(format!("{parsed:?}"), format!("{meta:?}"));
        }
    }

    #[test]
    fn malformed_heads_and_estates_are_refused() {
        let valid = head(&meta("192.0.2.1:443", None, None), 10);
        assert!(parse_head(&valid).is_some());
        let changed = |at: usize, byte: u8| {
            let mut head = valid;
            head[at] = byte;
            parse_head(&head)
        };
        assert!(changed(0, 1).is_none(), "too long");
        assert!(changed(9, 5).is_none() && changed(9, 0).is_none(), "no family");
        let mut no_stride = valid;
        no_stride[4..8].fill(0);
        assert!(parse_head(&no_stride).is_none());
        let secret = QuicSecret::from([1; 32]);
        let estate = Estate { secret, generation: 7, sockets: 2, former: vec![7, 6] };
        let bytes = estate.to_bytes();
        let parsed = Estate::parse(&bytes).unwrap();
        assert_eq!((parsed.generation, parsed.sockets, parsed.former), (7, 2, vec![7, 6]));
        for length in 0..36 {
            assert!(Estate::parse(&bytes[..length]).is_none(), "{length}");
        }
        assert!(Estate::parse(&bytes[..bytes.len() - 1]).is_none());
        assert!(Estate::parse(&[&[9], &bytes[1..]].concat()).is_none(), "another version");
    }

    #[tokio::test]
    async fn a_process_that_reads_too_slowly_loses_whole_batches() {
        let secret = QuicSecret::from([1; 32]);
        let router = Router::new(secret, 3, 1, Vec::new(), None).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let former = Former::new(3, ours).unwrap();
        let meta = RecvMeta { len: 9_000, stride: 9_000, ..meta("192.0.2.1:443", None, None) };
        let sent = (0..2_000).filter(|_| former.send(&meta, &[1; 9_000])).count() as u64;
        assert!((1..2_000).contains(&sent), "{sent}");
        let receiving = tokio::spawn(receive(theirs, router.clone()));
        while router.counts.from_successor.load(Ordering::Relaxed) + 1 < sent {
            tokio::task::yield_now().await;
        }
        assert!(former.send(&meta, &[1; 9_000]), "there is room again");
        drop(former);
        assert_eq!(receiving.await.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(router.counts.from_successor.load(Ordering::Relaxed), sent + 1);
    }

    #[test]
    fn a_process_that_has_ended_gets_nothing_more() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let former = Former::new(3, ours).unwrap();
        drop(theirs);
        let meta = meta("192.0.2.1:443", None, None);
        assert!(!former.send(&meta, &[0; 10]) && former.is_gone());
    }
}
