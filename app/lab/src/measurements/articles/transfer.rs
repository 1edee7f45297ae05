//! One bulk transfer over a plain TCP or MPTCP socket.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_tcp_congestion;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::measurements::{frame::RunError, links::Space};

/// The port of the receiver.
const PORT: u16 = 5_201;
/// The bytes of one read, and of a large write.
pub(super) const CHUNK_BYTES: usize = 262_144;
/// How long a connection may take to come, through losses.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// After which time a blocked read or write looks at the clock.
const LOOK: Duration = Duration::from_millis(50);

/// A transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer<'a> {
    /// The address of the receiver.
    pub(super) to: Ipv4Addr,
    /// TCP or MPTCP.
    pub(super) protocol: Protocol,
    /// The congestion control of the sender.
    pub(super) congestion: &'a str,
    /// How long it lasts.
    pub(super) time: Duration,
    /// The bytes of one write.
    pub(super) message: usize,
}

impl Transfer<'_> {
    /// Sends as much as possible. Returns what the receiver got, in Mbit/s.
    ///
    /// Sockets belong to the namespace in which they were made, whatever thread uses them.
    pub(super) fn run(&self, from: &Space, to: &Space) -> Result<f64, RunError> {
        let address = SocketAddr::V4(SocketAddrV4::new(self.to, PORT));
        let listener = to.within(|| self.listener().map_err(RunError::io("listen")))?;
        let sender = from.within(|| self.sender())?;
        let connected = sender.connect_timeout(&address.into(), CONNECT_TIME);
        connected.map_err(RunError::io("connect to the receiver"))?;
        let (receiver, _) = listener.accept().map_err(RunError::io("accept the sender"))?;
        let (mut sender, mut receiver) = (TcpStream::from(sender), TcpStream::from(receiver));
        let began = Instant::now();
        let ends = began + self.time;
        let received = thread::scope(|scope| {
            scope.spawn(|| send_until(&mut sender, self.message, ends));
            receive_until(&mut receiver, ends)
        });
        // The end is a reset, so that nothing waits to be sent, and comes after the receiver's last read.
        let reset = SockRef::from(&sender).set_linger(Some(Duration::ZERO));
        reset.map_err(RunError::io("set SO_LINGER"))?;
        let bytes = received.map_err(RunError::io("receive"))?;
        Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6)
    }

    fn listener(&self) -> io::Result<Socket> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(self.protocol))?;
        listener.set_reuse_address(true)?;
        // On the wildcard address, so that subflows of MPTCP come to any address.
        listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        listener.set_read_timeout(Some(CONNECT_TIME))?;
        listener.listen(1)?;
        Ok(listener)
    }

    fn sender(&self) -> Result<Socket, RunError> {
        let sender = Socket::new(Domain::IPV4, Type::STREAM, Some(self.protocol));
        let sender = match sender {
            Err(error) if self.protocol == Protocol::MPTCP => {
                return Err(RunError::Missing {
                    what: format!("MPTCP ({error})"),
                    how: "use a kernel with CONFIG_MPTCP, and set net.mptcp.enabled=1",
                });
            }
            made => made.map_err(RunError::io("make a socket"))?,
        };
        match set_tcp_congestion(&sender, self.congestion) {
            Err(rustix::io::Errno::NOENT) => Err(RunError::Missing {
                what: format!("the congestion control {}", self.congestion),
                how: "`modprobe tcp_NAME` loads it, if the kernel was built with it",
            }),
            set => set.map_err(io::Error::from).map_err(RunError::io("choose the congestion control")).map(|()| sender),
        }
    }
}

/// Writes messages of so many bytes until this time.
fn send_until(stream: &mut TcpStream, message: usize, ends: Instant) {
    let chunk = vec![7; message];
    drop(stream.set_write_timeout(Some(LOOK)));
    while Instant::now() < ends {
        match stream.write(&chunk) {
            Err(error) if !is_timeout(&error) => break,
            _ => {}
        }
    }
}

/// Reads until this time. Returns the number of bytes.
fn receive_until(stream: &mut TcpStream, ends: Instant) -> io::Result<u64> {
    let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0);
    stream.set_read_timeout(Some(LOOK))?;
    while Instant::now() < ends {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
