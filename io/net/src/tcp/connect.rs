//! Connecting to the addresses of a host, several at a time when the first is silent (RFC 8305).

use std::{future::Future, io, net::SocketAddr, pin::Pin, time::Duration};

use sallyport_connectx::Connect;
use socket2::SockRef;
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time,
};

use super::{
    congestion::Congestion,
    resolve::resolve,
    socket_options::{keep_urgent_inline, set_keepalive, set_nodelay, stream_socket},
};

/// Time that an address may be silent before the next one is tried in parallel (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The kind of socket of a connection. The default is plain TCP with the system's congestion control.
#[derive(Debug, Clone, Default)]
pub(crate) struct SocketChoice {
    pub(crate) congestion: Option<Congestion>,
    /// Multipath TCP (RFC 8684), where the kernel and the peer have it.
    pub(crate) mptcp: bool,
}

/// Connects to a host within `timeout`, names included. A silent address does not hold up the others.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when the name has no address, [`io::ErrorKind::TimedOut`] when nothing answers in time;
/// otherwise the error of the last address. The text has host and port.
pub(crate) async fn connect_host(
    choice: &SocketChoice,
    host: &str,
    port: u16,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let at = display_host_port(host, port);
    let connect = async {
        let requests: Vec<_> = resolve(host, port).await?.into_iter().map(Connect::to).collect();
        race(&requests, choice)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot connect to {at}: {}", reason(&error))))
    };
    match time::timeout(timeout, connect).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{at} did not answer within {timeout:?}"))),
    }
}

/// Connects to the first address that accepts, within `timeout`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] when nothing answers in time; [`io::ErrorKind::AddrNotAvailable`] when no local port is
/// left; otherwise the error of the last address.
pub async fn connect_tcp_to(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let requests: Vec<_> = addresses.iter().copied().map(Connect::to).collect();
    connect_tcp_as(&requests, timeout).await
}

/// Like [`connect_tcp_to`], with requests that may name source addresses and slices of ports.
///
/// # Errors
/// As [`connect_tcp_to`].
pub async fn connect_tcp_as(requests: &[Connect], timeout: Duration) -> io::Result<TcpStream> {
    let all = || requests.iter().map(|one| one.destination().to_string()).collect::<Vec<_>>().join(", ");
    match time::timeout(timeout, race(requests, &SocketChoice::default())).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("cannot connect to {}: {}", all(), reason(&error)))),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} did not answer within {timeout:?}", all()))),
    }
}

/// Tries the addresses in order, each as soon as the one before failed or was silent for a while.
async fn race(requests: &[Connect], choice: &SocketChoice) -> io::Result<TcpStream> {
    let Some((first, rest)) = requests.split_first() else { return Err(io::ErrorKind::NotFound.into()) };
    // Nearly always the first address answers at once; that case needs no task.
    let mut first: Option<Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>> =
        Some(Box::pin(connect_one(*first, choice.clone())));
    let mut rest = rest.iter().copied();
    let mut attempts = JoinSet::new();
    let mut last_error = None;
    loop {
        let more = rest.len() > 0;
        let outcome = tokio::select! {
            biased;
            result = async { first.as_mut().expect("guarded").await }, if first.is_some() => {
                first = None;
                Some(result)
            }
            Some(joined) = attempts.join_next(), if !attempts.is_empty() => {
                Some(joined.unwrap_or_else(|error| Err(io::Error::other(error))))
            }
            () = time::sleep(ATTEMPT_DELAY), if more => None,
        };
        match outcome {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last_error = Some(error),
            None => {}
        }
        if let Some(request) = rest.next() {
            attempts.spawn(connect_one(request, choice.clone()));
        } else if first.is_none() && attempts.is_empty() {
            return Err(last_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()));
        }
    }
}

/// Connects to one address, and sets the options of the socket.
async fn connect_one(request: Connect, choice: SocketChoice) -> io::Result<TcpStream> {
    let stream = open_one(&request, choice).await?;
    set_nodelay(&stream)?;
    // A peer on this machine cannot vanish silently: the kernel closes its connections.
    if !request.destination().ip().is_loopback() {
        set_keepalive(&stream)?;
    }
    keep_urgent_inline(&SockRef::from(&stream))?;
    Ok(stream)
}

async fn open_one(request: &Connect, choice: SocketChoice) -> io::Result<TcpStream> {
    let SocketChoice { congestion, mptcp } = choice;
    if congestion.is_none() && !mptcp {
        return Ok(request.tcp_async().await?);
    }
    let socket = stream_socket(request.destination(), mptcp)?;
    if let Some(congestion) = congestion {
        congestion.set_on(&SockRef::from(&socket))?;
    }
    request.bind_tcp(&socket)?;
    socket.set_nonblocking(true)?;
    let connected = TcpSocket::from_std_stream(socket.into()).connect(request.destination()).await;
    Ok(connected.map_err(|error| request.explain_tcp(error))?)
}

/// Host and port as one text, with brackets around an IPv6 address.
pub(crate) fn display_host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused (nothing listens there)".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to it".to_owned(),
        _ => error.to_string(),
    }
}
