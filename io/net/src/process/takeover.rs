//! Passing the open ports from a running process to the next one, so that no connection is refused between the two.
//!
//! The running process listens on `takeover.sock` in its data directory, and the next one connects. Both have the same
//! user, or the next one is root. The running process sends copies of the shared listening sockets (SCM_RIGHTS,
//! unix(7)) in a message `S`, or `C` at a control, and serves on. The next process checks that it can run, and answers
//! `T`. Until then nothing has changed for the running process, whatever happens to the next one.
//!
//! Then the running process sends the ports of sockets in messages `P`, and its QUIC port in a message `Q` if the next
//! process has added a byte `Q` to its `T`. It releases the data directory, announces that with one byte `R`, and
//! finishes its connections. New connections and datagrams wait in the sockets' queues for the
//! next process. The kernel knows the kind and the port of each socket.

use std::{
    fmt,
    fs::File,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    net::{self, SocketAddr},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::{
            fs::PermissionsExt as _,
            net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt,
};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use super::{
    listening::Listening,
    own_ports::{MAX_PASSED_PORTS, OwnPorts},
};
use crate::tcp::adopt_listener;

/// The socket's file in the data directory.
const SOCKET_FILE: &str = "takeover.sock";
/// Types of messages: the shared ports of an edge or of a control, the ports of sockets, the QUIC port, the released
/// data directory; and, from the next process, that it is ready, and that it knows of QUIC ports.
const SOCKETS: u8 = b'S';
const CONTROL_SOCKETS: u8 = b'C';
const OWN_PORTS: u8 = b'P';
const QUIC_PORT: u8 = b'Q';
const RELEASED: u8 = b'R';
const TAKES: u8 = b'T';
/// The most sockets of one message (unix(7): SCM_MAX_FD is 253).
const MAX_SOCKETS_PER_MESSAGE: usize = 250;
/// The most messages after the first: the ports of sockets, the QUIC port, and a last message without any.
const MAX_MESSAGES: usize = 2 + MAX_PASSED_PORTS.div_ceil(MAX_SOCKETS_PER_MESSAGE);
/// How long each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that the next process has to check whether it can run.
const MAX_PREPARATION: Duration = Duration::from_secs(60);

/// Reason why the ports of a running process were not taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    /// No process offers them.
    #[error("no process offers its ports in {}: stop the one that runs there, and start again", dir.display())]
    NobodyThere {
        /// The data directory.
        dir: PathBuf,
    },
    /// The other process did not keep to the protocol.
    #[error("the process that runs in {} did not hand over its ports: {source}", dir.display())]
    Failed {
        /// The data directory.
        dir: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// The offer of a running process to pass its ports on.
#[derive(Debug)]
pub struct TakeoverOffer {
    socket: tokio::net::UnixListener,
    path: PathBuf,
}

impl TakeoverOffer {
    /// Offers the ports. Call it in the process that holds the data directory, inside of a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SOCKET_FILE);
        let (_dir, address) = socket_path(dir)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = StdUnixListener::bind(address)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: tokio::net::UnixListener::from_std(socket)?, path })
    }

    /// Waits for a process of the same user, or of root, that asks to replace this one. Cancel safe.
    pub async fn asked(&self) -> TakeoverRequest {
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) if may_ask(&stream) => return TakeoverRequest { stream },
                Ok(_) => tracing::warn!("refused to hand the ports over to a process of another user"),
                Err(error) => {
                    tracing::debug!(%error, "a process that asked for the ports closed the connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for TakeoverOffer {
    fn drop(&mut self) {
        // A stale socket file does no harm: the next process replaces it.
        drop(std::fs::remove_file(&self.path));
    }
}

fn may_ask(stream: &tokio::net::UnixStream) -> bool {
    let us = rustix::process::geteuid();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == us.as_raw() || peer.uid() == 0)
}

/// A process that asks to replace this one.
#[derive(Debug)]
pub struct TakeoverRequest {
    stream: tokio::net::UnixStream,
}

/// A process that is ready to replace this one.
#[derive(Debug)]
pub struct Successor {
    stream: StdUnixStream,
    /// Whether the process takes a QUIC port.
    takes_quic: bool,
}

/// A port that passes to the next process with the connections on it.
pub trait PassedPort: fmt::Debug + Send + Sync {
    /// Stops reading the port, and returns what the next process needs.
    ///
    /// # Errors
    /// The process has too many open files. It reads on then.
    fn pass(&self) -> io::Result<Vec<OwnedFd>>;

    /// Reads the port again, because the next process did not take it.
    fn keep(&self);
}

/// Copies of the shared sockets, and the registry of the sockets' own ports. The shared ports stay open while they
/// live.
#[derive(Debug)]
pub struct HandOver {
    kind: u8,
    sockets: Vec<OwnedFd>,
    own: OwnPorts,
    quic: Option<Arc<dyn PassedPort>>,
}

impl HandOver {
    /// Copies the sockets of an edge.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn of(listening: &Listening) -> io::Result<Self> {
        let mut sockets = vec![listening.tls.as_fd().try_clone_to_owned()?];
        if let Some(redirect) = &listening.redirect {
            sockets.push(redirect.as_fd().try_clone_to_owned()?);
        }
        Ok(Self { kind: SOCKETS, sockets, own: listening.own.clone(), quic: None })
    }

    /// Passes this QUIC port on, too.
    #[must_use]
    pub fn with_quic(mut self, quic: Option<Arc<dyn PassedPort>>) -> Self {
        self.quic = quic;
        self
    }

    /// Copies the sockets of a control: that of the API, and that for edges.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn of_control(api: &TcpListener, edges: &TcpListener) -> io::Result<Self> {
        let sockets = vec![api.as_fd().try_clone_to_owned()?, edges.as_fd().try_clone_to_owned()?];
        Ok(Self { kind: CONTROL_SOCKETS, sockets, own: OwnPorts::default(), quic: None })
    }
}

impl TakeoverRequest {
    /// Sends the shared ports, and waits until the other process is ready to take them over. This process keeps
    /// serving.
    ///
    /// # Errors
    /// The other process was refused, ended, or timed out. This process continues as before.
    pub async fn ready(mut self, ports: &HandOver) -> io::Result<Successor> {
        send_sockets(&self.stream, ports.kind, &ports.sockets)?;
        let answer = tokio::time::timeout(MAX_PREPARATION, self.stream.read_u8());
        match answer.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the process takes too long"))?? {
            TAKES => {
                // Both bytes came in one write.
                let takes_quic = self.stream.try_read(&mut [0]).is_ok_and(|read| read > 0);
                Ok(Successor { stream: self.stream.into_std()?, takes_quic })
            }
            _ => Err(io::Error::other("the process does not follow the takeover protocol")),
        }
    }
}

impl Successor {
    /// The id of the other process, which a service manager must know before this process ends.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        let peer = sockopt::socket_peercred(&self.stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// Sends the ports of sockets. Release the data directory next, and call [`Successor::released`].
    ///
    /// # Errors
    /// The other process ended. This process can continue as before.
    pub fn send(&mut self, ports: &HandOver) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        for part in ports.own.copies()?.chunks(MAX_SOCKETS_PER_MESSAGE) {
            send_sockets(&self.stream, OWN_PORTS, part)?;
        }
        // Last: from here on this process reads nothing from the port.
        let Some(quic) = ports.quic.as_ref().filter(|_| self.takes_quic) else { return Ok(()) };
        let files = quic.pass()?;
        send_sockets(&self.stream, QUIC_PORT, &files).inspect_err(|_| quic.keep())
    }

    /// Reports to the other process that the data directory is free.
    ///
    /// # Errors
    /// The other process ended.
    pub fn released(mut self) -> io::Result<()> {
        self.stream.write_all(&[RELEASED])
    }
}

fn send_sockets(stream: &impl AsFd, kind: u8, sockets: &[OwnedFd]) -> io::Result<()> {
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS_PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other("too many sockets"));
    }
    sendmsg(stream, &[IoSlice::new(&[kind])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The shared ports of a running process, which serves until [`Takeover::finish`]. Dropping this lets it serve on.
#[derive(Debug)]
pub struct Takeover {
    stream: StdUnixStream,
    dir: PathBuf,
    tls: TcpListener,
    /// The port for redirects; at a control, the port for edges.
    second: Option<TcpListener>,
}

impl Takeover {
    /// Asks the process that holds the data directory for its ports. Call it inside of a tokio runtime. It blocks for
    /// at most ten seconds.
    ///
    /// # Errors
    /// There is no such process, or it violates the protocol.
    pub fn begin(dir: &Path) -> Result<Self, TakeoverError> {
        Self::of_kind(dir, SOCKETS)
    }

    /// As [`Takeover::begin`], for a control: the ports are those of another control.
    ///
    /// # Errors
    /// There is no such process, or it violates the protocol.
    pub fn begin_control(dir: &Path) -> Result<Self, TakeoverError> {
        Self::of_kind(dir, CONTROL_SOCKETS)
    }

    fn of_kind(dir: &Path, kind: u8) -> Result<Self, TakeoverError> {
        let stream = socket_path(dir)
            .and_then(|(_dir, path)| StdUnixStream::connect(path))
            .map_err(|_| TakeoverError::NobodyThere { dir: dir.to_owned() })?;
        let shared = receive_shared(&stream, kind);
        let (tls, second) = shared.map_err(|source| TakeoverError::Failed { dir: dir.to_owned(), source })?;
        Ok(Self { stream, dir: dir.to_owned(), tls, second })
    }

    /// The running process's address for TLS.
    ///
    /// # Errors
    /// The kernel does not give it.
    pub fn tls_addr(&self) -> io::Result<SocketAddr> {
        self.tls.local_addr()
    }

    /// The running control's address for edges.
    ///
    /// # Errors
    /// The process is no control, or the kernel does not give the address.
    pub fn edges_addr(&self) -> io::Result<SocketAddr> {
        self.second.as_ref().ok_or_else(|| io::Error::other("the process has no port for edges"))?.local_addr()
    }

    /// Takes over all ports. The running process accepts nothing new after that, and the data directory is free. It
    /// blocks for some ten seconds at most.
    ///
    /// # Errors
    /// The running process does not keep to the protocol.
    pub fn finish(self) -> Result<Listening, TakeoverError> {
        let Self { mut stream, dir, tls, second: redirect } = self;
        // If this fails, the next read has the reason.
        drop(stream.write_all(&[TAKES, QUIC_PORT]));
        let (own, quic) = receive_own(&stream).map_err(|source| TakeoverError::Failed { dir, source })?;
        Ok(Listening { tls, redirect, own: OwnPorts::inherit(own), quic })
    }

    /// As [`Takeover::finish`], for a control: the port of the API, and the port for edges.
    ///
    /// # Errors
    /// The running process does not keep to the protocol.
    pub fn finish_control(self) -> Result<(TcpListener, TcpListener), TakeoverError> {
        let dir = self.dir.clone();
        let Listening { tls, redirect: edges, .. } = self.finish()?;
        let missing = || TakeoverError::Failed { dir, source: io::Error::other("the process has no port for edges") };
        Ok((tls, edges.ok_or_else(missing)?))
    }
}

/// The longest path of a socket, in bytes (unix(7): 108 with the zero at its end).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The socket's path. A path that is too long goes by way of the opened directory, which the caller keeps open.
fn socket_path(dir: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let path = dir.join(SOCKET_FILE);
    if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return Ok((None, path));
    }
    let dir = File::open(dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(SOCKET_FILE);
    Ok((Some(dir), path))
}

fn receive_shared(stream: &StdUnixStream, kind: u8) -> io::Result<(TcpListener, Option<TcpListener>)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let owner = sockopt::socket_peercred(stream)?.uid;
    if owner != rustix::process::geteuid() && !owner.is_root() {
        return Err(io::Error::other("the process belongs to another user"));
    }
    let (sent, shared) = receive_message(stream)?;
    match sent {
        sent if sent == kind => {}
        CONTROL_SOCKETS => return Err(io::Error::other("the process is a `sallyport control`")),
        SOCKETS => return Err(io::Error::other("the process is not a `sallyport control`")),
        _ => return Err(io::Error::other("the process sent no sockets")),
    }
    let mut shared = shared.into_iter().map(|socket| adopt_listener(net::TcpListener::from(socket)));
    let tls = shared.next().ok_or_else(|| io::Error::other("the process sent no sockets"))??;
    Ok((tls, shared.next().transpose()?))
}

/// Receives the ports of sockets, and what belongs to the QUIC port.
fn receive_own(stream: &StdUnixStream) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let (mut own, mut quic) = (Vec::new(), Vec::new());
    for _ in 0..MAX_MESSAGES {
        match receive_message(stream)? {
            (OWN_PORTS, sockets) => own.extend(sockets),
            (QUIC_PORT, files) => quic = files,
            (RELEASED, _) => return Ok((own, quic)),
            _ => break,
        }
    }
    Err(io::Error::other("the process kept the data directory"))
}

/// Receives one message: its type, and the sockets in it.
fn receive_message(stream: &StdUnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS_PER_MESSAGE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // One byte at a time: the kernel does not join messages that carry sockets, but their boundaries would be lost
    // here.
    let message = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process closed the connection"));
    }
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            sockets.extend(fds);
        }
    }
    Ok((byte[0], sockets))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole takeover at the new process.
    fn take_over(dir: &Path) -> Result<Listening, TakeoverError> {
        Takeover::begin(dir)?.finish()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_made_between_two_processes_is_served_by_the_second() {
        let dir = tempfile::tempdir().unwrap();
        let first = Listening::bind("127.0.0.1:0".parse().unwrap(), Some("127.0.0.1:0".parse().unwrap())).unwrap();
        let (tls, redirect) = (first.tls_addr().unwrap(), first.redirect_addr().unwrap());
        let ports = HandOver::of(&first).unwrap();
        let offer = TakeoverOffer::open(dir.path()).unwrap();
        let path = dir.path().to_owned();
        let second = tokio::spawn(async move { tokio::task::block_in_place(|| take_over(&path)) });
        let mut asked = offer.asked().await.ready(&ports).await.unwrap();
        asked.send(&ports).unwrap();
        drop((first, ports));
        asked.released().unwrap();
        let _waits = tokio::net::TcpStream::connect(tls).await.unwrap();
        let second = second.await.unwrap().unwrap();
        assert_eq!((second.tls_addr().unwrap(), second.redirect_addr().unwrap()), (tls, redirect));
        second.tls.accept().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_ports_of_a_control_are_for_a_control() {
        let dir = tempfile::tempdir().unwrap();
        let any = || crate::listen("127.0.0.1:0".parse().unwrap(), "--x").unwrap();
        let (api, edges) = (any(), any());
        let at = (api.local_addr().unwrap(), edges.local_addr().unwrap());
        let ports = HandOver::of_control(&api, &edges).unwrap();
        let offer = TakeoverOffer::open(dir.path()).unwrap();
        let path = dir.path().to_owned();
        let other = tokio::task::spawn_blocking(move || take_over(&path));
        offer.asked().await.ready(&ports).await.unwrap_err();
        let error = other.await.unwrap().unwrap_err();
        assert!(
            std::error::Error::source(&error).unwrap().to_string().contains("the process is a `sallyport control`"),
            "{error}"
        );
        let path = dir.path().to_owned();
        let second = tokio::task::spawn_blocking(move || {
            let takeover = Takeover::begin_control(&path)?;
            let seen = (takeover.tls_addr().unwrap(), takeover.edges_addr().unwrap());
            takeover.finish_control().map(|ports| (seen, ports))
        });
        let mut successor = offer.asked().await.ready(&ports).await.unwrap();
        successor.send(&ports).unwrap();
        successor.released().unwrap();
        let (seen, (api, edges)) = second.await.unwrap().unwrap();
        assert_eq!((seen, api.local_addr().unwrap(), edges.local_addr().unwrap()), (at, at.0, at.1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_ports_of_sockets_pass_with_what_waits_in_them() {
        use crate::UdpPort;
        let any: net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let first = Listening::bind(any, None).unwrap();
        let tcp: Vec<_> = (0..300).map(|_| crate::listen(any, "--x").unwrap()).collect();
        let (udp, closed) = (UdpPort::bind(any, "--x").unwrap(), UdpPort::bind(any, "--x").unwrap());
        let opened: Vec<_> = tcp.iter().map(|listener| first.own.opened(listener)).collect();
        let (opened_udp, not_any_more) = (first.own.opened(&udp), first.own.opened(&closed));
        drop(not_any_more);
        let ports = HandOver::of(&first).unwrap();
        let offer = TakeoverOffer::open(dir.path()).unwrap();
        let path = dir.path().to_owned();
        let second = tokio::task::spawn_blocking(move || take_over(&path));
        let mut asked = offer.asked().await.ready(&ports).await.unwrap();
        asked.send(&ports).unwrap();
        let addresses: Vec<_> = tcp.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let (at, not_passed) = (udp.address(), closed.address());
        drop((first, ports, opened, opened_udp, udp, closed, tcp));
        asked.released().unwrap();
        let client = net::UdpSocket::bind(any).unwrap();
        client.send_to(b"between two processes", at).unwrap();
        let second = second.await.unwrap().unwrap();
        assert!(addresses.iter().all(|address| second.own.take_listener(*address).is_some()));
        assert!(second.own.take_udp(not_passed).is_none() && second.own.take_listener(at).is_none());
        let udp = second.own.take_udp(at).unwrap();
        udp.readable().await.unwrap();
        let mut came = Vec::new();
        udp.try_recv(|received| came.extend(received.datagrams().map(<[u8]>::to_vec))).unwrap();
        assert_eq!(came, [b"between two processes".to_vec()]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_process_that_asked_and_did_not_take_the_ports_leaves_them_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let first = Listening::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let at = first.tls_addr().unwrap();
        let ports = HandOver::of(&first).unwrap();
        let offer = TakeoverOffer::open(dir.path()).unwrap();
        let path = dir.path().to_owned();
        let refused =
            tokio::task::spawn_blocking(move || Takeover::begin(&path).map(|asked| asked.tls_addr().unwrap()));
        let error = offer.asked().await.ready(&ports).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(refused.await.unwrap().unwrap(), at);
        let _client = tokio::net::TcpStream::connect(at).await.unwrap();
        first.tls.accept().await.unwrap();
        let path = dir.path().to_owned();
        let second = tokio::task::spawn_blocking(move || take_over(&path));
        let mut successor = offer.asked().await.ready(&ports).await.unwrap();
        successor.send(&ports).unwrap();
        successor.released().unwrap();
        assert_eq!(second.await.unwrap().unwrap().tls_addr().unwrap(), at);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_may_have_a_path_longer_than_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("d".repeat(200));
        std::fs::create_dir(&dir).unwrap();
        let offer = TakeoverOffer::open(&dir).unwrap();
        let asks = tokio::task::spawn_blocking({
            let dir = dir.clone();
            move || take_over(&dir)
        });
        drop(offer.asked().await);
        assert!(asks.await.unwrap().unwrap_err().to_string().contains("did not hand over"));
        drop(offer);
        assert!(!dir.join(SOCKET_FILE).exists());
    }

    #[tokio::test]
    async fn without_a_running_process_the_sentence_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = take_over(dir.path()).unwrap_err().to_string();
        assert!(error.contains("no process offers its ports") && error.contains("start again"), "{error}");
        drop(TakeoverOffer::open(dir.path()).unwrap());
        assert!(!dir.path().join(SOCKET_FILE).exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_process_that_hangs_up_half_way_is_an_error_not_a_hang() {
        let dir = tempfile::tempdir().unwrap();
        let offer = TakeoverOffer::open(dir.path()).unwrap();
        let path = dir.path().to_owned();
        let second = tokio::task::spawn_blocking(move || take_over(&path));
        drop(offer.asked().await);
        assert!(second.await.unwrap().unwrap_err().to_string().contains("did not hand over"));
    }
}
