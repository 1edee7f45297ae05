//! Queries over UDP: many come with one system call, and many answers leave with one.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    cmsg_space, libc,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt,
        sockopt,
    },
};
use sallyport_zone::{Peer, State, Transport, Verdict, answer};

use crate::{
    counters::{Counters, Tally},
    current::{self, Copy},
};

/// The most queries of one system call.
const MAX_BATCH: usize = 32;
/// The longest query, in bytes. A longer one is malformed.
const MAX_QUERY_BYTES: usize = 4_096;
/// Signatures that answers of a batch wait for.
const MAX_SIGNATURES_BEFORE_SEND: u64 = 8;
/// How long a thread waits until it looks whether the server stops.
const WAIT: Duration = Duration::from_millis(100);
/// How long a thread answers at most, once the server stops.
const LAST_QUERIES_TIME: Duration = Duration::from_millis(500);
/// How long a thread waits after an error of its socket.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// A thread with its socket.
pub(crate) struct Worker {
    socket: UdpSocket,
    /// Whether the socket is bound to all addresses, so that an answer must name the one that the query came to.
    is_wildcard: bool,
    copy: Copy,
    state: State,
    counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
}

/// Where a query came from.
#[derive(Clone, Copy)]
struct Arrival {
    client: SockaddrStorage,
    /// The address of this machine that it came to.
    local: Option<IpAddr>,
    len: usize,
}

impl Worker {
    pub(crate) fn new(
        socket: UdpSocket,
        copy: Copy,
        state: State,
        counters: Arc<Counters>,
        is_stopping: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(WAIT))?;
        let address = socket.local_addr()?;
        let is_wildcard = address.ip().is_unspecified();
        if is_wildcard {
            match address {
                SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
                SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
            }
        }
        Ok(Self { socket, is_wildcard, copy, state, counters, is_stopping })
    }

    /// Answers until the server stops. A query that makes a thread panic is lost, and nothing else.
    pub(crate) fn run(mut self) {
        while panic::catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            self.counters.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn work(&mut self) {
        let mut buffer = vec![0; MAX_BATCH * MAX_QUERY_BYTES];
        let mut answers: Vec<Vec<u8>> = vec![Vec::new(); MAX_BATCH];
        let (mut arrivals, mut tally) = (Vec::with_capacity(MAX_BATCH), Tally::default());
        let mut stopping_since: Option<Instant> = None;
        loop {
            if self.is_stopping.load(Ordering::Relaxed)
                && stopping_since.get_or_insert_with(Instant::now).elapsed() >= LAST_QUERIES_TIME
            {
                return;
            }
            match self.receive(&mut buffer, &mut arrivals) {
                Ok(()) => {}
                // What has come is answered.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && stopping_since.is_some() => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    // A thread without queries keeps no former zones.
                    self.copy.refresh();
                    continue;
                }
                // The kernel reports here that an earlier answer did not arrive.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(_) => {
                    std::thread::sleep(PAUSE_AFTER_ERROR);
                    continue;
                }
            }
            self.answer_all(&buffer, &arrivals, &mut answers, &mut tally);
            self.counters.add(Transport::Udp, &mut tally);
        }
    }

    fn receive(&self, buffer: &mut [u8], arrivals: &mut Vec<Arrival>) -> io::Result<()> {
        arrivals.clear();
        // The kernel shortens the room for control messages to what it used: it is new each time.
        let room = self.is_wildcard.then(|| cmsg_space!(libc::in6_pktinfo));
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(MAX_BATCH, room);
        let mut parts = buffer.chunks_exact_mut(MAX_QUERY_BYTES);
        let mut slices: [[IoSliceMut<'_>; 1]; MAX_BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(parts.next().unwrap_or_default())]);
        let flags = MsgFlags::MSG_WAITFORONE;
        let received = recvmmsg(self.socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        for message in received {
            let local = if self.is_wildcard { message.cmsgs().ok().and_then(local_address) } else { None };
            let client = message.address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)).into());
            arrivals.push(Arrival { client, local, len: message.bytes });
        }
        Ok(())
    }

    /// Answers a batch. Answers leave together, but none waits for the signatures of many others.
    fn answer_all(&mut self, buffer: &[u8], arrivals: &[Arrival], answers: &mut [Vec<u8>], tally: &mut Tally) {
        let now = current::now();
        self.copy.refresh();
        let (mut sent, mut signed) = (0, self.state.signatures_made());
        for (index, (arrival, query)) in arrivals.iter().zip(buffer.chunks_exact(MAX_QUERY_BYTES)).enumerate() {
            let out = &mut answers[index];
            out.clear();
            let Some(client) = socket_address(&arrival.client).filter(|client| client.port() != 0) else { continue };
            let peer = Peer { address: client.ip(), transport: Transport::Udp };
            let serving = self.copy.snapshot().serving();
            let outcome = answer(&query[..arrival.len], &peer, &serving, &mut self.state, now, out);
            if !matches!(outcome.verdict, Verdict::Send) {
                out.clear();
            }
            tally.record(arrival.len, out.len(), &outcome);
            let made = self.state.signatures_made() - signed;
            if made >= MAX_SIGNATURES_BEFORE_SEND {
                tally.signatures += made;
                self.send_all(&arrivals[sent..=index], &answers[sent..=index], tally);
                (sent, signed) = (index + 1, signed + made);
            }
        }
        tally.signatures += self.state.signatures_made() - signed;
        self.send_all(&arrivals[sent..], &answers[sent..arrivals.len()], tally);
    }

    /// Sends the answers. Those from one address of this machine leave together.
    fn send_all(&self, arrivals: &[Arrival], answers: &[Vec<u8>], tally: &mut Tally) {
        let mut rest: &[Arrival] = arrivals;
        let mut answers = &answers[..arrivals.len()];
        while let Some(first) = rest.first() {
            let count = rest.iter().take_while(|arrival| arrival.local == first.local).count();
            let (group, group_answers) = (&rest[..count], &answers[..count]);
            self.send(group, group_answers, first.local, tally);
            (rest, answers) = (&rest[count..], &answers[count..]);
        }
    }

    fn send(&self, arrivals: &[Arrival], answers: &[Vec<u8>], local: Option<IpAddr>, tally: &mut Tally) {
        let mut slices: [[IoSlice<'_>; 1]; MAX_BATCH] = [[IoSlice::new(&[])]; MAX_BATCH];
        let mut clients: [Option<SockaddrStorage>; MAX_BATCH] = [None; MAX_BATCH];
        let mut count = 0;
        for (arrival, answer) in arrivals.iter().zip(answers).filter(|(_, answer)| !answer.is_empty()) {
            (slices[count], clients[count]) = ([IoSlice::new(answer)], Some(arrival.client));
            count += 1;
        }
        let (four, six);
        let control = match local {
            Some(IpAddr::V4(address)) if self.is_v4() => {
                four = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                Some(ControlMessage::Ipv4PacketInfo(&four))
            }
            Some(IpAddr::V6(address)) => {
                six = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: address.octets() }, ipi6_ifindex: 0 };
                Some(ControlMessage::Ipv6PacketInfo(&six))
            }
            _ => None,
        };
        let controls: &[ControlMessage<'_>] = control.as_slice();
        let mut sent = 0;
        while sent < count {
            let room = control.as_ref().map(|_| cmsg_space!(libc::in6_pktinfo));
            let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(count - sent, room);
            let fd = self.socket.as_raw_fd();
            let some = &clients[sent..count];
            match sendmmsg(fd, &mut headers, &slices[sent..count], some, controls, MsgFlags::empty()) {
                Ok(results) => sent += results.count().max(1),
                Err(nix::errno::Errno::EINTR) => {}
                // This one cannot be sent; the others can.
                Err(_) => {
                    tally.send_errors += 1;
                    sent += 1;
                }
            }
        }
    }

    fn is_v4(&self) -> bool {
        self.socket.local_addr().is_ok_and(|address| address.is_ipv4())
    }
}

fn local_address(mut controls: impl Iterator<Item = ControlMessageOwned>) -> Option<IpAddr> {
    controls.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes())),
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
        _ => None,
    })
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let four = storage.as_sockaddr_in().map(|address| SocketAddr::new(address.ip().into(), address.port()));
    four.or_else(|| storage.as_sockaddr_in6().map(|address| SocketAddr::new(address.ip().into(), address.port())))
}
