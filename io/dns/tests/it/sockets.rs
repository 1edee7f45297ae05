//! Queries over UDP and TCP.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_proto::op::Message;
use sallyport_dns::{Server, ServerConfig, bind, bind_udp};
use sallyport_zone::{AnswerKind, DropReason, Settings, Transport, View, Zone, Zones};

use crate::support::{Client, query, serve};

const A: u16 = 1;
const TXT: u16 = 16;

fn zone(address: &str) -> Zone {
    let many: String = (0..100).map(|n| format!("many TXT \"text number {n}\"\n")).collect();
    let text = format!("$TTL 60\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A {address}\n{many}");
    Zone::from_master_file("example.com".parse().unwrap(), &text, None).unwrap()
}

fn over_tcp(stream: &mut TcpStream, query: &[u8]) -> std::io::Result<Message> {
    stream.write_all(&[&(query.len() as u16).to_be_bytes(), query].concat())?;
    read_tcp(stream)
}

fn read_tcp(stream: &mut TcpStream) -> std::io::Result<Message> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut message)?;
    Message::from_vec(&message).map_err(std::io::Error::other)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn both_transports_answer() {
    let (server, address) = serve([zone("192.0.2.1")], Settings::default());
    let mut client = Client::new(address);
    assert_eq!(client.query("ns.example.com", A, false).answers.len(), 1);
    let cut = client.query("many.example.com", TXT, false);
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let mut stream = connect(address);
    // Several queries at once, in pieces.
    let one = query(7, "many.example.com", TXT, false);
    let framed = [&(one.len() as u16).to_be_bytes(), &one[..]].concat().repeat(3);
    for piece in framed.chunks(11) {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
    }
    for _ in 0..3 {
        assert_eq!(read_tcp(&mut stream).unwrap().answers.len(), 100);
    }
    let counters = server.counters().clone();
    // The server counts a query after its answer has left.
    let patience = Instant::now() + Duration::from_secs(20);
    while counters.answers(AnswerKind::Records) + counters.truncated() < 6 && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!((counters.queries(Transport::Udp), counters.queries(Transport::Tcp)), (2, 3));
    assert_eq!((counters.answers(AnswerKind::Records), counters.truncated(), counters.tcp_open()), (5, 1, 1));
    assert!(counters.bytes_out() > counters.bytes_in());
    let begun = Instant::now();
    server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(read_tcp(&mut stream).is_err(), "closed");
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_gets_no_answer_or_a_short_one() {
    let (server, address) = serve([zone("192.0.2.1")], Settings::default());
    let mut client = Client::new(address);
    let mut malformed = query(9, "ns.example.com", A, false);
    malformed.push(0);
    assert_eq!(u16::from(client.send(&malformed).unwrap().metadata.response_code), 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&b""[..], b"x", &[0x80; 40], &[0xff; 5_000]] {
        socket.send_to(bytes, address).unwrap();
    }
    assert_eq!(client.query("ns.example.com", A, false).answers.len(), 1, "others are answered");
    crate::support::wait_for("the drops", std::path::Path::new(""), || {
        server.counters().drops(DropReason::TooShort) == 2 && server.counters().drops(DropReason::Response) >= 1
    });
    let mut stream = connect(address);
    stream.write_all(&[0, 3, 1, 2, 3]).unwrap();
    assert!(read_tcp(&mut stream).is_err(), "the connection ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_and_view_change_with_the_next_query() {
    let (server, address) = serve([zone("192.0.2.1")], Settings::default());
    let mut client = Client::new(address);
    let shown = |client: &mut Client, name| format!("{}", client.query(name, A, false).answers[0]);
    assert!(shown(&mut client, "ns.example.com").ends_with("192.0.2.1"));
    server.set_zones(Arc::new(Zones::new([Arc::new(zone("192.0.2.2"))]).unwrap()));
    assert!(shown(&mut client, "ns.example.com").ends_with("192.0.2.2"));
    let mut view = View::clone(&server.view());
    view.set_challenges(5, &[("_acme-challenge.example.com".parse().unwrap(), vec!["token".to_owned()])]).unwrap();
    server.set_view(Arc::new(view));
    assert_eq!(client.query("_acme-challenge.example.com", TXT, false).answers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_takes_the_sockets_without_a_lost_query() {
    let (former, address) = serve([zone("192.0.2.1")], Settings::default());
    let (udp, tcp) = former.sockets().unwrap();
    let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let client = std::thread::spawn({
        let is_done = is_done.clone();
        move || {
            let (mut client, mut answers) = (Client::new(address), 0);
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(client.query("ns.example.com", A, false).answers.len(), 1);
                assert!(over_tcp(&mut connect(address), &query(7, "ns.example.com", A, false)).is_ok());
                answers += 1;
            }
            answers
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut config = ServerConfig::default();
    config.state.rate.answers_per_second = 0;
    let zones = Arc::new(Zones::new([Arc::new(zone("192.0.2.2"))]).unwrap());
    let successor = Server::start(&config, zones, Arc::default(), udp, tcp).unwrap();
    former.stop().await;
    let before = successor.counters().queries(Transport::Udp);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(successor.counters().queries(Transport::Udp) > before);
    is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(client.join().unwrap() > 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_connections_are_bounded_and_idle_ones_end() {
    let mut config = ServerConfig::default();
    config.tcp.max_connections_per_address = 3;
    config.tcp.idle = Duration::from_millis(300);
    let (udp, tcp) = bind("127.0.0.1:0".parse().unwrap(), 1, false).unwrap();
    let zones = Arc::new(Zones::new([Arc::new(zone("192.0.2.1"))]).unwrap());
    let server = Server::start(&config, zones, Arc::default(), udp, vec![tcp]).unwrap();
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(server.address())).collect();
    let one = query(7, "ns.example.com", A, false);
    let answered: Vec<bool> = streams.iter_mut().map(|stream| over_tcp(stream, &one).is_ok()).collect();
    assert_eq!(answered, [true, true, true, false]);
    assert_eq!(server.counters().tcp_refused(), 1);
    // A byte now and then does not keep a connection open.
    let begun = Instant::now();
    let mut slow = streams.remove(0);
    while slow.write_all(&[0]).is_ok() && slow.read(&mut [0; 8]).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    crate::support::wait_for("the end of idle connections", std::path::Path::new(""), || {
        server.counters().tcp_open() == 0
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_tcp_connections_give_way_in_a_crowd() {
    let mut config = ServerConfig::default();
    (config.tcp.max_connections, config.tcp.idle) = (8, Duration::from_secs(600));
    let (udp, tcp) = bind("127.0.0.1:0".parse().unwrap(), 1, false).unwrap();
    let zones = Arc::new(Zones::new([Arc::new(zone("192.0.2.1"))]).unwrap());
    let server = Server::start(&config, zones, Arc::default(), udp, vec![tcp]).unwrap();
    let _idle: Vec<TcpStream> = (0..8).map(|_| connect(server.address())).collect();
    // Long before the idle time is over, others are served.
    crate::support::wait_for("a connection among idle ones", std::path::Path::new(""), || {
        over_tcp(&mut connect(server.address()), &query(7, "ns.example.com", A, false)).is_ok()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_from_the_address_that_was_asked() {
    for (bound, asked) in
        [("0.0.0.0:0", &["127.0.0.1", "127.0.0.2", "127.1.2.3"][..]), ("[::]:0", &["::1", "127.0.0.1", "127.0.0.2"])]
    {
        let udp = bind_udp(bound.parse().unwrap(), 2, false).unwrap();
        let zones = Arc::new(Zones::new([Arc::new(zone("192.0.2.1"))]).unwrap());
        let mut config = ServerConfig::default();
        config.state.rate.answers_per_second = 0;
        let server = Server::start(&config, zones, Arc::default(), udp, Vec::new()).unwrap();
        for ip in asked {
            // A connected socket takes answers from the asked address alone.
            let address = SocketAddr::new(ip.parse().unwrap(), server.address().port());
            let local = if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let socket = UdpSocket::bind(local).unwrap();
            socket.connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            for id in 0..50 {
                socket.send(&query(id, "ns.example.com", A, false)).unwrap();
            }
            for _ in 0..50 {
                let mut answer = [0; 1_500];
                let len = socket.recv(&mut answer).unwrap_or_else(|error| panic!("{bound} {ip}: {error}"));
                assert_eq!(Message::from_vec(&answer[..len]).unwrap().answers.len(), 1);
            }
        }
    }
}

#[test]
fn a_taken_port_is_refused() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(bind_udp(taken.local_addr().unwrap(), 2, false).is_err());
}
