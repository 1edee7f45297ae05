//! UDP ports: many datagrams with one system call, and answers from the address that the client sent to.
//!
//! Datagrams come by recvmmsg(2), several in one message where the kernel joined them (UDP_GRO, udp(7)). Datagrams for
//! one client leave joined too (UDP_SEGMENT). Sending never waits: a datagram without room is lost, as on any link.

use std::{
    cell::Cell,
    io::{self, IoSliceMut},
    net::{self, IpAddr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use sallyport_connectx::{Connect, PortRange};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{io::Interest, net::UdpSocket};

use crate::tcp::{ListenError, why_not_open};

/// The most messages of one system call.
const MAX_MESSAGES: usize = 16;
/// The longest message, in bytes: a datagram, or several that the kernel joined.
const MAX_MESSAGE_BYTES: usize = 65_536;
/// The kernel's buffers for receiving and sending, in bytes. They are smaller where `net.core.rmem_max` and
/// `net.core.wmem_max` are lower.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// The longest datagrams that are joined: longer ones may need fragments, which joined ones cannot have.
const MAX_JOINED_DATAGRAM_BYTES: usize = 1_452;
/// The most bytes of joined datagrams.
const MAX_JOINED_BYTES: usize = 60_000;
/// How many local ports Linux has by default (ip(7)).
const DEFAULT_LOCAL_PORTS: usize = 28_232;

/// A UDP socket, for many clients or for one.
#[derive(Debug)]
pub struct UdpPort {
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    /// Whether a send found that no socket listens at the peer. The kernel reports it once, and the reader needs it
    /// too.
    is_refused: AtomicBool,
    /// Set for a socket of [`UdpPort::connected`].
    _counted: Option<ConnectedCount>,
}

/// How many sockets of [`UdpPort::connected`] this process has.
static CONNECTED: AtomicUsize = AtomicUsize::new(0);

/// Counts a socket while it is open.
#[derive(Debug)]
struct ConnectedCount;

impl ConnectedCount {
    fn new() -> Self {
        CONNECTED.fetch_add(1, Ordering::Relaxed);
        Self
    }

    /// Whether the sockets of this process have taken less than a quarter of the local ports.
    ///
    /// A port that is not shared is safe from other programs of this machine, and used up.
    fn is_low() -> bool {
        static PORTS: OnceLock<usize> = OnceLock::new();
        let ports =
            PORTS.get_or_init(|| PortRange::of_namespace().map_or(DEFAULT_LOCAL_PORTS, |all| all.count() as usize));
        CONNECTED.load(Ordering::Relaxed) < ports / 4
    }
}

impl Drop for ConnectedCount {
    fn drop(&mut self) {
        CONNECTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Datagrams of one client that arrived together, in order.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The sender.
    pub client: SocketAddr,
    /// The address of this machine that the client sent to.
    pub local: IpAddr,
    bytes: &'a [u8],
    /// Length of each datagram, in bytes; the last one may be shorter. 0: there is one datagram.
    stride: usize,
}

impl<'a> Received<'a> {
    /// The datagrams. Any of them may be empty.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let single = self.bytes.is_empty() || self.stride == 0;
        let stride = if single { self.bytes.len().max(1) } else { self.stride };
        self.bytes.is_empty().then_some(self.bytes).into_iter().chain(self.bytes.chunks(stride))
    }
}

/// Room for one system call. A thread keeps one, because it needs the room between two waits only.
struct Batch {
    bytes: Box<[u8]>,
    meta: [RecvMeta; MAX_MESSAGES],
}

thread_local! {
    static BATCH: Cell<Option<Box<Batch>>> = const { Cell::new(None) };
    static JOINED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl UdpPort {
    /// Opens the port, inside of a tokio runtime. Errors name `option`, which sets the address. A port on a wildcard
    /// address receives for all addresses of the machine, and [`UdpPort::send`] answers from the right one.
    ///
    /// # Errors
    /// One sentence that names the port and what to do.
    pub fn bind(address: SocketAddr, option: &'static str) -> Result<Self, ListenError> {
        let open = || -> io::Result<Self> {
            // No SO_REUSEADDR: for UDP it would let any other program silently take the port.
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            if address.is_ipv6() {
                // `[::]` is all addresses, of both families.
                socket.set_only_v6(false)?;
            }
            socket.bind(&address.into())?;
            Self::adopt(socket.into())
        };
        open().map_err(|source| why_not_open(source, address, option))
    }

    /// Takes a socket that another process opened, or one without a port. Call it inside of a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn adopt(socket: net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        let address = socket.local_addr()?;
        may_fragment(&socket, address)?;
        // At most the kernel's limit.
        drop(SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES));
        drop(SockRef::from(&socket).set_send_buffer_size(BUFFER_BYTES));
        Ok(Self {
            socket: UdpSocket::from_std(socket)?,
            state,
            address: canonical(address),
            is_refused: AtomicBool::new(false),
            _counted: None,
        })
    }

    /// A socket for one service, which receives from that service alone. A service without a listener gives an error of
    /// kind `ConnectionRefused`. Call it inside of a tokio runtime.
    ///
    /// The socket has its local port alone, unless this process has many such sockets: then it shares the port with
    /// sockets for other services.
    ///
    /// # Errors
    /// There is no route, no local port is left (`AddrNotAvailable`), or too many files are open.
    pub async fn connected(to: SocketAddr) -> io::Result<Self> {
        let request = Connect::to(to);
        Self::connected_as(&if ConnectedCount::is_low() { request.exclusive() } else { request }).await
    }

    /// Like [`UdpPort::connected`], as the request says.
    ///
    /// # Errors
    /// As [`UdpPort::connected`].
    pub async fn connected_as(request: &Connect) -> io::Result<Self> {
        let socket = request.udp_async().await?;
        Ok(Self { _counted: Some(ConnectedCount::new()), ..Self::adopt(socket)? })
    }

    /// A socket for one client and one address of this machine. The kernel prefers it to the port's own socket.
    ///
    /// Until the kernel knows the client, the socket may receive datagrams of others: read them, and compare the
    /// sender. During the call other sockets may share the port; see [`UdpPort::share`].
    ///
    /// # Errors
    /// The kernel refuses, or too many files are open.
    pub fn for_client(&self, local: IpAddr, client: SocketAddr) -> io::Result<Self> {
        let address = SocketAddr::new(local, self.address.port());
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.connect(&client.into())?;
        Self::adopt(socket.into())
    }

    /// Sets whether other sockets may have the same port, which only [`UdpPort::for_client`] needs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn share(&self, is_shared: bool) -> io::Result<()> {
        SockRef::from(&self.socket).set_reuse_address(is_shared)
    }

    /// The port's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until there is a datagram or an error to read. Cancel safe.
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn readable(&self) -> io::Result<()> {
        // A refused peer puts the socket in an error state without making it readable.
        self.socket.ready(Interest::READABLE | Interest::ERROR).await.map(drop)
    }

    /// Reads up to a batch of datagrams and passes them to `take`, which must not read itself. Call it when the port
    /// was [`UdpPort::readable`].
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come. Other errors belong to one datagram that was sent before, and pass.
    pub fn try_recv(&self, take: impl FnMut(Received<'_>)) -> io::Result<()> {
        if self.is_refused.swap(false, Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        // One interest at a time: the runtime accepts no combination here.
        let either =
            |read: &mut dyn FnMut() -> io::Result<usize>| match self.socket.try_io(Interest::READABLE, &mut *read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.try_io(Interest::ERROR, read),
                read => read,
            };
        self.read(either, take)
    }

    /// Like [`UdpPort::try_recv`], without waiting before: asks the kernel even if the runtime has not seen the port
    /// readable.
    ///
    /// # Errors
    /// As [`UdpPort::try_recv`].
    pub fn recv_now(&self, take: impl FnMut(Received<'_>)) -> io::Result<()> {
        self.read(|read| read(), take)
    }

    fn read(
        &self,
        run: impl FnOnce(&mut dyn FnMut() -> io::Result<usize>) -> io::Result<usize>,
        mut take: impl FnMut(Received<'_>),
    ) -> io::Result<()> {
        let mut batch = BATCH.take().unwrap_or_else(|| {
            let bytes = vec![0; MAX_MESSAGES * MAX_MESSAGE_BYTES].into_boxed_slice();
            Box::new(Batch { bytes, meta: [RecvMeta::default(); MAX_MESSAGES] })
        });
        let Batch { bytes, meta } = &mut *batch;
        let read = run(&mut || {
            let mut parts = bytes.chunks_exact_mut(MAX_MESSAGE_BYTES);
            let mut parts: [IoSliceMut<'_>; MAX_MESSAGES] =
                std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
            self.state.recv((&self.socket).into(), &mut parts, meta)
        });
        if let Ok(count) = read {
            for (meta, bytes) in meta.iter().zip(bytes.chunks_exact(MAX_MESSAGE_BYTES)).take(count) {
                take(Received {
                    client: canonical(meta.addr),
                    local: meta.dst_ip.map_or(self.address.ip(), |ip| ip.to_canonical()),
                    bytes: &bytes[..meta.len],
                    stride: meta.stride,
                });
            }
        }
        BATCH.set(Some(batch));
        read.map(drop)
    }

    /// Sends datagrams to one client, in order, from this address (`None`: the kernel's choice). Returns how many the
    /// kernel accepted. Never waits: without room the kernel accepts none.
    pub fn send(&self, to: SocketAddr, from: Option<IpAddr>, batch: &[&[u8]]) -> usize {
        let is_v6 = self.address_is_v6();
        let (to, from) = (in_family(to, is_v6), from.map(|ip| in_family(SocketAddr::new(ip, 0), is_v6).ip()));
        let mut joined = JOINED.take();
        let (mut sent, mut is_repeated) = (0, false);
        while let Some(first) = batch.get(sent) {
            let count = joinable(&batch[sent..], self.state.max_gso_segments());
            let (contents, segment_size) = if count > 1 {
                joined.clear();
                batch[sent..sent + count].iter().for_each(|datagram| joined.extend_from_slice(datagram));
                (&joined[..], Some(first.len()))
            } else {
                (*first, None)
            };
            let transmit = Transmit { destination: to, ecn: None, contents, segment_size, src_ip: from };
            match self.state.try_send((&self.socket).into(), &transmit) {
                Ok(()) => sent += count,
                // The error is about an earlier datagram; the current one has not been sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !is_repeated => {
                    self.is_refused.store(true, Ordering::Relaxed);
                    is_repeated = true;
                }
                // The interface does not support joined datagrams; from now on they are not used.
                Err(_) if count > 1 && self.state.max_gso_segments() == 1 => {}
                Err(_) => break,
            }
        }
        JOINED.set(joined);
        sent
    }

    fn address_is_v6(&self) -> bool {
        self.socket.local_addr().map_or(self.address.is_ipv6(), |address| address.is_ipv6())
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The number of datagrams at the front that leave as one message: all are as long as the first, the last may be
/// shorter.
fn joinable(batch: &[&[u8]], max: usize) -> usize {
    let len = batch.first().map_or(0, |first| first.len());
    if len == 0 || len > MAX_JOINED_DATAGRAM_BYTES {
        return 1;
    }
    let max = max.min(MAX_JOINED_BYTES / len).min(batch.len());
    let same = batch[..max].iter().take_while(|datagram| datagram.len() == len).count();
    let shorter_end = batch[..max].get(same).is_some_and(|last| !last.is_empty() && last.len() < len);
    same + usize::from(shorter_end)
}

/// Allows datagrams that need fragments. [`UdpSocketState::new`] forbids them for QUIC, but DNS and others rely on
/// them.
fn may_fragment(socket: &net::UdpSocket, address: SocketAddr) -> io::Result<()> {
    sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DONT)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DONT)?;
        nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::Ipv6DontFrag, &false)?;
    }
    Ok(())
}

/// The IPv4 address of a mapped address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(four) => SocketAddr::new(four.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The address in the form of a socket of this family.
fn in_family(address: SocketAddr, is_v6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(four) if is_v6 => SocketAddrV6::new(four.ip().to_ipv6_mapped(), four.port(), 0, 0).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagrams_of_one_length_leave_together() {
        let (short, long, jumbo) = (&[1; 10][..], &[1; 20][..], &[1; 9_000][..]);
        assert_eq!(joinable(&[long, long, long], 64), 3);
        assert_eq!(joinable(&[long, long, short, short], 64), 3, "the last one may be shorter");
        assert_eq!(joinable(&[short, long], 64), 1);
        assert_eq!(joinable(&[long, &[], long], 64), 1, "an empty one is a datagram too");
        assert_eq!(joinable(&[&[], &[]], 64), 1);
        assert_eq!(joinable(&[long, long, long], 2), 2);
        assert_eq!(joinable(&[jumbo, jumbo], 64), 1, "joined ones cannot be fragmented");
        assert_eq!(joinable(&[&[1; 1_400][..]; 64], 64), MAX_JOINED_BYTES / 1_400);
    }

    #[test]
    fn a_message_is_taken_apart() {
        let message = |bytes, stride| {
            let (client, local) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2".parse().unwrap());
            let received = Received { client, local, bytes, stride };
            received.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(message(b"abcde", 2), [b"ab".to_vec(), b"cd".to_vec(), b"e".to_vec()]);
        assert_eq!(message(b"abcde", 5), [b"abcde".to_vec()]);
        assert_eq!(message(b"abcde", 0), [b"abcde".to_vec()]);
        assert_eq!(message(b"", 0), [b"".to_vec()]);
    }
}
