//! Servers, clients, and programs that may not be installed.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_proto::{
    op::{Edns, Message, Query},
    rr::{Name as MessageName, RecordType},
};
use sallyport_dns::{Server, ServerConfig, bind};
use sallyport_zone::{Settings, Zone, Zones};

/// The path of a program, or a sentence that the test is skipped.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let folders = std::env::var("PATH").unwrap_or_default();
    let folders = folders.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {name} is not installed (package {package})");
    }
    found
}

/// A server for these zones, without limits of rates, and its address.
pub(crate) fn serve(zones: impl IntoIterator<Item = Zone>, settings: Settings) -> (Server, SocketAddr) {
    let zones = Zones::new(zones.into_iter().map(Arc::new)).unwrap();
    let (udp, tcp) = bind("127.0.0.1:0".parse().unwrap(), 2, false).unwrap();
    let mut config = ServerConfig::default();
    config.state.rate.answers_per_second = 0;
    let server = Server::start(&config, Arc::new(zones), Arc::new(settings), udp, vec![tcp]).unwrap();
    let address = server.address();
    (server, address)
}

/// A port that is free for both transports now.
pub(crate) fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        if UdpSocket::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// A program that ends with the test.
pub(crate) struct Running(Child);

impl Running {
    /// What the program says goes to this file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).unwrap();
        let errors = log.try_clone().unwrap();
        Self(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client over UDP.
pub(crate) struct Client {
    socket: UdpSocket,
    next_id: u16,
}

impl Client {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Self { socket, next_id: 1 }
    }

    pub(crate) fn query(&mut self, name: &str, rtype: u16, is_dnssec_ok: bool) -> Message {
        self.next_id = self.next_id.wrapping_add(1);
        let bytes = query(self.next_id, name, rtype, is_dnssec_ok);
        self.send(&bytes).unwrap_or_else(|error| panic!("no answer to {name} {rtype}: {error}"))
    }

    pub(crate) fn send(&mut self, query: &[u8]) -> std::io::Result<Message> {
        self.socket.send(query)?;
        let mut answer = [0; 65_535];
        let len = self.socket.recv(&mut answer)?;
        Message::from_vec(&answer[..len]).map_err(std::io::Error::other)
    }
}

/// The bytes of a query.
pub(crate) fn query(id: u16, name: &str, rtype: u16, is_dnssec_ok: bool) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = id;
    message.metadata.recursion_desired = false;
    let mut question = Query::query(MessageName::from_ascii(name).unwrap(), RecordType::from(rtype));
    question.name.set_fqdn(true);
    message.add_query(question);
    let mut edns = Edns::new();
    edns.set_max_payload(1_232);
    edns.set_dnssec_ok(is_dnssec_ok);
    message.edns = Some(edns);
    message.to_vec().unwrap()
}

/// Waits until this is true. If it takes too long, the log of a program says why.
pub(crate) fn wait_for(what: &str, log: &Path, mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain for {what}:\n{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
}
