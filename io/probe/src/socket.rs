//! A socket for echo messages, whose packets the kernel stamps.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    cmsg_space, libc,
    sys::{
        socket::{
            ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, Timestamps, recvmsg, setsockopt, sockopt,
        },
        time::TimeSpec,
    },
};
use sallyport_ping::{Family, Form, Moment};
use socket2::{Domain, Protocol, Socket, Type};

use crate::ProbeError;

/// The longest packet, in bytes: of an IPv4 packet its header comes too.
pub(crate) const MAX_PACKET_BYTES: usize = 65_535;

/// A ping socket or a raw socket.
#[derive(Debug)]
pub(crate) struct EchoSocket {
    inner: Socket,
    /// The form of received messages.
    pub(crate) form: Form,
    /// The identifier of messages. The kernel chose the one of a ping socket.
    pub(crate) identifier: u16,
}

/// A received message, whose bytes are in the caller's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) from: IpAddr,
    pub(crate) bytes: usize,
    /// The kernel's stamp: the wall clock, as the time since 1970.
    pub(crate) arrived: Option<Duration>,
    pub(crate) at: Moment,
}

/// The kernel's stamp of a packet that left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// The number of the packet since stamps were switched on.
    pub(crate) id: u32,
    pub(crate) transmitted: Duration,
}

/// How far apart the readings of the two clocks are at most, and how often they are read for that.
const APART: Duration = Duration::from_micros(20);
const MAX_READINGS: usize = 16;

/// The time on both clocks.
///
/// A thread that loses its processor between the two readings would see a jump of the wall clock, so it reads again.
pub(crate) fn now() -> Moment {
    let mut moment = read();
    for _ in 1..MAX_READINGS {
        if moment.monotonic.elapsed() <= APART {
            break;
        }
        moment = read();
    }
    moment
}

fn read() -> Moment {
    let monotonic = Instant::now();
    Moment { monotonic, wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
}

impl EchoSocket {
    /// Opens a ping socket, or else a raw socket.
    pub(crate) fn open(family: Family) -> Result<Self, ProbeError> {
        let (domain, protocol) = match family {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let open = |kind| Socket::new(domain, kind, Some(protocol));
        let socket = match open(Type::DGRAM) {
            Ok(inner) => Self::ping(inner, family),
            Err(error) if is_refusal(&error) => match open(Type::RAW) {
                Ok(inner) => Self::raw(inner, family),
                Err(error) if is_refusal(&error) => return Err(ProbeError::NotAllowed),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let socket = socket.map_err(ProbeError::Socket)?;
        if let Err(error) = socket.start_stamps() {
            tracing::debug!(%error, "the kernel does not stamp echo messages");
        }
        Ok(socket)
    }

    fn ping(inner: Socket, family: Family) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        let any: IpAddr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        // The kernel gives the socket an identifier in place of a port.
        inner.bind(&SocketAddr::new(any, 0).into())?;
        let address = inner.local_addr()?.as_socket();
        let identifier = address.map(|address| address.port()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { inner, form: Form::Verified, identifier })
    }

    fn raw(inner: Socket, family: Family) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        let mut identifier = [0; 2];
        getrandom::fill(&mut identifier).map_err(io::Error::other)?;
        // The kernel verifies the checksums of ICMPv6 on raw sockets (RFC 3542 section 3.1).
        let form = if family == Family::V4 { Form::WithIpHeader } else { Form::Verified };
        Ok(Self { inner, form, identifier: u16::from_be_bytes(identifier) })
    }

    /// Has the kernel stamp packets. It counts those that leave from zero.
    fn start_stamps(&self) -> io::Result<()> {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        Ok(setsockopt(&self.inner, sockopt::Timestamping, &flags)?)
    }

    /// Has the kernel count packets from zero again.
    pub(crate) fn restart_stamps(&self) -> io::Result<()> {
        setsockopt(&self.inner, sockopt::Timestamping, &TimestampingFlag::empty())?;
        self.start_stamps()
    }

    /// Sends a message without waiting.
    pub(crate) fn send(&self, message: &[u8], target: IpAddr) -> io::Result<()> {
        self.inner.send_to(message, &SocketAddr::new(target, 0).into()).map(drop)
    }

    /// Receives a message without waiting; `None` if there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        let mut control = cmsg_space!(Timestamps);
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let at = now();
        let arrived = message.cmsgs().into_iter().flatten().find_map(|control| match control {
            ControlMessageOwned::ScmTimestampsns(stamps) => software_stamp(&stamps),
            _ => None,
        });
        let from = message.address.as_ref().and_then(ip).unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        Ok(Some(Arrival { from, bytes: message.bytes, arrived, at }))
    }

    /// Takes a message from the error queue without waiting; `None` if there is none, and `Some(None)` for a message
    /// other than a stamp.
    pub(crate) fn take_stamp(&self) -> io::Result<Option<Option<Stamp>>> {
        let mut control = cmsg_space!(Timestamps, libc::sock_extended_err, libc::sockaddr_in6);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(self.as_raw_fd(), &mut [], Some(&mut control), flags) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut id, mut transmitted) = (None, None);
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampsns(stamps) => transmitted = software_stamp(&stamps),
                ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                    let is_stamp = error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING;
                    id = is_stamp.then_some(error.ee_data);
                }
                _ => {}
            }
        }
        Ok(Some(id.zip(transmitted).map(|(id, transmitted)| Stamp { id, transmitted })))
    }
}

impl AsRawFd for EchoSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// Whether the system has such sockets, and does not give one to this user.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The stamp of the kernel itself; zero means that there is none.
fn software_stamp(stamps: &Timestamps) -> Option<Duration> {
    (stamps.system != TimeSpec::new(0, 0)).then(|| stamps.system.into())
}

/// The address of a sender.
pub(crate) fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}
