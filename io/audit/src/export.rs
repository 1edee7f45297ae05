//! Export of every line to a syslog server (RFC 5424), by UDP (RFC 5426), TCP (RFC 6587 section 3.4.1) or a local
//! socket.

use std::{
    fmt,
    io::{self, Write as _},
    net::{TcpStream, ToSocketAddrs as _, UdpSocket},
    os::unix::net::UnixDatagram,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use time::format_description::well_known::Rfc3339;

use crate::{
    shipping::{Carrier, Head},
    tail::Line,
};

/// The longest message by UDP or a local socket, in bytes: longer ones would be truncated in transit.
const MAX_DATAGRAM_BYTES: usize = 60_000;
/// Timeout of connecting and of sending.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The port of syslog by UDP (RFC 5426 section 3.3), also usual for TCP.
const DEFAULT_PORT: u16 = 514;
/// Facility 13 (log audit), severity 6 (informational): RFC 5424 section 6.2.1.
const PRIORITY: u8 = 13 * 8 + 6;

/// The target of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogTarget {
    /// Host and port; each message is a datagram.
    Udp(String),
    /// Host and port; messages on one connection, each with its length.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The text is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected udp://HOST[:PORT], tcp://HOST[:PORT] or unix:/PATH, such as udp://127.0.0.1:514 or unix:/dev/log")]
pub struct SyslogTargetError;

impl FromStr for SyslogTarget {
    type Err = SyslogTargetError;
    fn from_str(text: &str) -> Result<Self, SyslogTargetError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(SyslogTargetError) };
        }
        let (scheme, host) = text.split_once("://").ok_or(SyslogTargetError)?;
        let host = with_port(host).ok_or(SyslogTargetError)?;
        match scheme {
            "udp" => Ok(Self::Udp(host)),
            "tcp" => Ok(Self::Tcp(host)),
            _ => Err(SyslogTargetError),
        }
    }
}

fn with_port(host: &str) -> Option<String> {
    let bare = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let name = bare.map_or(host, |(name, _)| name);
    if name.is_empty() || name.contains(['/', '@', ' ']) || (name.contains(':') && !name.starts_with('[')) {
        return None;
    }
    match bare {
        Some((_, port)) => port.parse::<u16>().ok().filter(|port| *port != 0).map(|_| host.to_owned()),
        None => Some(format!("{host}:{DEFAULT_PORT}")),
    }
}

impl fmt::Display for SyslogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(host) => write!(f, "udp://{host}"),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Sends lines to a syslog server.
pub(crate) struct SyslogCarrier {
    target: SyslogTarget,
    host: String,
    lost: Counter,
    connection: Option<Connection>,
    is_failing: bool,
}

impl SyslogCarrier {
    pub(crate) fn new(target: SyslogTarget, lost: Counter) -> Self {
        let name = rustix::system::uname();
        let host: String = name.nodename().to_string_lossy().chars().filter(char::is_ascii_graphic).take(255).collect();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        Self { target, host, lost, connection: None, is_failing: false }
    }

    /// The message for a line; `None` if the line is no event.
    fn message(&self, line: &Line) -> Option<String> {
        let head: Head = serde_json::from_str(&line.text).ok()?;
        let at = head.at.format(&Rfc3339).unwrap_or_else(|_| "-".to_owned());
        let (host, kind, text) = (&self.host, head.kind.as_str(), &line.text);
        Some(format!("<{PRIORITY}>1 {at} {host} sallyport {} {kind} - {text}", std::process::id()))
    }

    /// Tried twice: the first connection may have ended unnoticed.
    fn send_one(&mut self, message: &str) -> io::Result<()> {
        let mut tries = 1;
        loop {
            let open = match self.connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(&self.target),
            };
            match open.and_then(|mut open| open.send(message).map(|()| open)) {
                Ok(open) => {
                    self.connection = Some(open);
                    return Ok(());
                }
                Err(error) if tries == 2 || error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }
}

impl Carrier for SyslogCarrier {
    const NAME: &'static str = "audit-syslog";

    fn target(&self) -> String {
        self.target.to_string()
    }

    fn send(&mut self, lines: &[Line]) -> usize {
        for (sent, line) in lines.iter().enumerate() {
            let Some(message) = self.message(line) else { continue };
            match self.send_one(&message) {
                Ok(()) if std::mem::take(&mut self.is_failing) => {
                    tracing::info!(target = %self.target, "the audit log is being sent to the syslog server again");
                }
                Ok(()) => {}
                // The message exceeds the limit of the transport.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.lost.inc();
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(
                            target = %self.target, %error,
                            "the audit log cannot be sent to the syslog server: trying again later"
                        );
                    }
                    return sent;
                }
            }
        }
        lines.len()
    }
}

enum Connection {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
}

impl Connection {
    fn open(target: &SyslogTarget) -> io::Result<Self> {
        let addresses = |host: &str| host.to_socket_addrs();
        let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        match target {
            SyslogTarget::Udp(host) => {
                let to = addresses(host)?.next().ok_or_else(none)?;
                let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(from)?;
                socket.connect(to)?;
                Ok(Self::Udp(socket))
            }
            SyslogTarget::Tcp(host) => {
                let mut last = none();
                for to in addresses(host)? {
                    match TcpStream::connect_timeout(&to, TIMEOUT) {
                        Ok(stream) => {
                            stream.set_write_timeout(Some(TIMEOUT))?;
                            stream.set_nodelay(true)?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            SyslogTarget::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(TIMEOUT))?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
        }
    }

    fn send(&mut self, message: &str) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(format!("{} {message}", message.len()).as_bytes()),
            _ if message.len() > MAX_DATAGRAM_BYTES => Err(io::ErrorKind::InvalidInput.into()),
            Self::Udp(socket) => socket.send(message.as_bytes()).map(drop),
            Self::Unix(socket) => socket.send(message.as_bytes()).map(drop),
        }
    }
}
