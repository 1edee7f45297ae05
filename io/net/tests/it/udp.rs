//! UDP ports over loopback: addresses, batches, sizes, and sockets for one client.

use std::{net::SocketAddr, time::Duration};

use sallyport_net::{ListenError, UdpPort};
use tokio::net::UdpSocket;

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("this takes far too long")
}

/// Echoes every datagram to its sender, for ever.
fn echo(port: UdpPort) -> SocketAddr {
    let address = port.address();
    tokio::spawn(async move {
        loop {
            port.readable().await.unwrap();
            let _ = port.try_recv(|received| {
                let datagrams: Vec<_> = received.datagrams().collect();
                port.send(received.client, Some(received.local), &datagrams);
            });
        }
    });
    address
}

async fn client(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).await.unwrap();
    // A connected socket receives datagrams from its peer only.
    socket.connect(at).await.unwrap();
    socket
}

async fn ask(socket: &UdpSocket, question: &[u8]) -> Vec<u8> {
    socket.send(question).await.unwrap();
    let mut answer = vec![0; 65_536];
    let n = soon(socket.recv(&mut answer)).await.unwrap();
    answer.truncate(n);
    answer
}

#[tokio::test]
async fn answers_leave_from_the_address_that_was_spoken_to() {
    for wildcard in ["0.0.0.0:0", "[::]:0"] {
        let port = echo(UdpPort::bind(wildcard.parse().unwrap(), "--x").unwrap()).port();
        for ip in ["127.0.0.1", "127.0.0.2", "127.3.2.1"] {
            let socket = client(SocketAddr::new(ip.parse().unwrap(), port)).await;
            assert_eq!(ask(&socket, ip.as_bytes()).await, ip.as_bytes(), "{wildcard}");
        }
    }
    let six = echo(UdpPort::bind("[::1]:0".parse().unwrap(), "--x").unwrap());
    assert_eq!(ask(&client(six).await, b"six").await, b"six");
}

#[tokio::test]
async fn datagrams_of_every_length_pass_in_order() {
    let at = echo(UdpPort::bind("127.0.0.1:0".parse().unwrap(), "--x").unwrap());
    let socket = client(at).await;
    for len in [0, 1, 1_200, 1_452, 1_453, 9_000, 60_000, 65_507] {
        assert_eq!(ask(&socket, &vec![7; len]).await.len(), len);
    }
    let (mut sent, mut came) = (0_u32, 0_u32);
    while came < 2_000 {
        while sent < came + 32 {
            socket.send(&sent.to_be_bytes()).await.unwrap();
            sent += 1;
        }
        let mut answer = [0; 4];
        soon(socket.recv(&mut answer)).await.unwrap();
        assert_eq!(u32::from_be_bytes(answer), came);
        came += 1;
    }
}

#[tokio::test]
async fn joined_datagrams_come_as_they_were() {
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), "--x").unwrap();
    let socket = client(port.address()).await;
    let datagrams: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; if n % 10 == 9 { 300 } else { 1_000 }]).collect();
    let batch: Vec<&[u8]> = datagrams.iter().map(|datagram| &datagram[..]).collect();
    assert_eq!(port.send(socket.local_addr().unwrap(), None, &batch), 100);
    for datagram in &datagrams {
        let mut came = [0; 2_000];
        let n = soon(socket.recv(&mut came)).await.unwrap();
        assert!(came[..n] == datagram[..]);
    }
}

#[tokio::test]
async fn a_port_is_ours_alone_and_says_so() {
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), "--x").unwrap();
    let error = UdpPort::bind(port.address(), "--x").unwrap_err();
    assert!(matches!(error, ListenError::Taken { .. }), "{error}");
    assert!(error.to_string().contains("--x"));
}

#[tokio::test]
async fn a_socket_for_one_client_gets_what_that_client_sends() {
    let port = UdpPort::bind("0.0.0.0:0".parse().unwrap(), "--x").unwrap();
    let at: SocketAddr = ([127, 0, 0, 1], port.address().port()).into();
    let (one, other) = (client(at).await, client(at).await);
    port.share(true).unwrap();
    let own = port.for_client(at.ip(), one.local_addr().unwrap()).unwrap();
    port.share(false).unwrap();
    assert!(UdpPort::bind(at, "--x").is_err(), "it is not shared any more");
    one.send(b"one").await.unwrap();
    other.send(b"other").await.unwrap();
    for (socket, from) in [(&own, &one), (&port, &other)] {
        soon(socket.readable()).await.unwrap();
        let mut came = 0;
        socket
            .try_recv(|received| {
                assert_eq!(received.client.port(), from.local_addr().unwrap().port());
                came += received.datagrams().count();
            })
            .unwrap();
        assert_eq!(came, 1);
    }
}

#[tokio::test]
async fn a_closed_port_is_an_error_of_a_connected_socket() {
    // No other process gets this port, and the connected socket receives from itself only. Others get a "port
    // unreachable".
    let reserved = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let gone = reserved.local_addr().unwrap();
    reserved.connect(gone).unwrap();
    let port = UdpPort::connected(gone).await.unwrap();
    // The ICMP error for the first datagram may surface when the next one is sent. The error and the next datagram both
    // survive.
    for many in [1, 3] {
        for _ in 0..many {
            assert_eq!(port.send(gone, None, &[b"anybody?"]), 1);
        }
        let error = soon(async {
            loop {
                port.readable().await.unwrap();
                match port.try_recv(|_| ()) {
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return error,
                    _ => {}
                }
            }
        });
        assert_eq!(error.await.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
