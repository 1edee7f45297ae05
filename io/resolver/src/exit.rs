//! Lookups that leave from a slice of an address, so that the name service sees where connections come from.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    time::Duration,
};

use hickory_resolver::{
    Resolver as HickoryResolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::runtime::{RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd},
    system_conf::read_system_conf,
};
use sallyport_connectx::{Connect, PortRange};
use tokio::net::{TcpStream, UdpSocket};

use crate::{LOOKUP_TIMEOUT, LookupError, TRY_TIMEOUT, says_none, server_config};

/// Makes lookups from slices of addresses, at most one of each family. Clones share the connections.
#[derive(Clone)]
pub struct ExitResolver {
    inner: HickoryResolver<Exits>,
}

impl ExitResolver {
    /// Asks these servers, or those of the system if there are none. `None` if no server can be reached from the
    /// slices: all are on this machine, or of another family.
    ///
    /// # Errors
    /// The system's configuration cannot be read.
    pub fn new(servers: &[SocketAddr], exits: &[(IpAddr, PortRange)]) -> Result<Option<Self>, LookupError> {
        let system = |error: &dyn std::fmt::Display| LookupError::System(error.to_string());
        let (config, mut options) = if servers.is_empty() {
            read_system_conf().map_err(|error| system(&error))?
        } else {
            let servers = servers.iter().map(|server| server_config(*server)).collect();
            (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
        };
        let exits = Exits { handle: TokioHandle::default(), exits: exits.to_vec() };
        let reached = |server: &&NameServerConfig| !server.ip.is_loopback() && exits.of(server.ip).is_some();
        let reached: Vec<_> = config.name_servers().iter().filter(reached).cloned().collect();
        if reached.is_empty() {
            return Ok(None);
        }
        let config = ResolverConfig::from_parts(config.domain().cloned(), config.search().to_vec(), reached);
        (options.timeout, options.attempts, options.cache_size) = (TRY_TIMEOUT, 2, 0);
        options.use_hosts_file = ResolveHosts::Always;
        let mut builder = HickoryResolver::builder_with_config(config, exits);
        *builder.options_mut() = options;
        Ok(Some(Self { inner: builder.build().map_err(|error| system(&error))? }))
    }

    /// The addresses of a host, also of one that the hosts file or the search list of this machine has; none if there
    /// are none.
    ///
    /// # Errors
    /// The name service does not answer.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let unanswered = |reason: String| LookupError::Unanswered { name: host.to_owned(), reason };
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.inner.lookup_ip(host)).await;
        match lookup.map_err(|_| unanswered("no answer in time".to_owned()))? {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) if says_none(&error) => Ok(Vec::new()),
            Err(error) => Err(unanswered(error.to_string())),
        }
    }
}

impl std::fmt::Debug for ExitResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExitResolver(..)")
    }
}

/// Opens sockets within slices.
#[derive(Clone)]
struct Exits {
    handle: TokioHandle,
    exits: Vec<(IpAddr, PortRange)>,
}

impl Exits {
    fn of(&self, server: IpAddr) -> Option<(IpAddr, PortRange)> {
        self.exits.iter().find(|(address, _)| address.is_ipv4() == server.is_ipv4()).copied()
    }

    fn request(&self, server: SocketAddr) -> io::Result<Connect> {
        let (address, ports) = self.of(server.ip()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Connect::to(server).from_address(address).within(ports))
    }
}

type Opening<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for Exits {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> Self::Handle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        _local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let request = self.request(server);
        Box::pin(async move {
            let request = request?;
            let connected = tokio::time::timeout(timeout.unwrap_or(TRY_TIMEOUT), request.tcp_async()).await;
            Ok(AsyncIoTokioAsStd(connected.map_err(|_| io::ErrorKind::TimedOut)??))
        })
    }

    fn bind_udp(&self, _local: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        let request = self.request(server);
        Box::pin(async move {
            let socket = request?.udp_async().await?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers one query for an address, and says from where it came.
    fn answer_once(server: &std::net::UdpSocket, address: [u8; 4]) -> Option<SocketAddr> {
        let mut query = [0; 512];
        let (length, from) = server.recv_from(&mut query).ok()?;
        let end = 12 + query[12..length].iter().position(|byte| *byte == 0)? + 5;
        let is_a = query[end - 4..end - 2] == [0, 1];
        let mut answer = query[..end].to_vec();
        // A response without an error, with one question, and an answer to one for IPv4.
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
        if is_a {
            answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
            answer.extend(address);
        }
        server.send_to(&answer, from).ok()?;
        is_a.then_some(from)
    }

    #[tokio::test]
    async fn a_query_leaves_from_the_slice() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let ports = PortRange::new(41_000, 41_099).unwrap();
        let exits = Exits { handle: TokioHandle::default(), exits: vec![("127.0.0.9".parse().unwrap(), ports)] };
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server_config(server.local_addr().unwrap())]);
        let inner = HickoryResolver::builder_with_config(config, exits).build().unwrap();
        let answering = std::thread::spawn(move || (0..4).find_map(|_| answer_once(&server, [192, 0, 2, 7])));
        let found = ExitResolver { inner }.addresses("origin.example.").await.unwrap();
        assert_eq!(found, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        let from = answering.join().unwrap().unwrap();
        assert!(from.ip().to_string() == "127.0.0.9" && ports.has_port(from.port()), "{from}");
    }

    #[test]
    fn servers_on_this_machine_and_of_another_family_are_not_asked() {
        let ports = PortRange::new(41_000, 41_099).unwrap();
        let exits = [("198.51.100.7".parse().unwrap(), ports)];
        for out_of_reach in ["127.0.0.53:53", "[2001:db8::53]:53"] {
            assert!(ExitResolver::new(&[out_of_reach.parse().unwrap()], &exits).unwrap().is_none(), "{out_of_reach}");
        }
        assert!(ExitResolver::new(&["192.0.2.53:53".parse().unwrap()], &exits).unwrap().is_some());
    }
}
