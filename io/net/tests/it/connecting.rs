//! Name resolution, TCP connections, and the signals that end a process.

use std::{io, net::SocketAddr, time::Duration};

use sallyport_net::{Shutdown, connect_tcp, connect_tls, resolve, set_notsent_lowat, set_user_timeout};
use socket2::SockRef;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket},
};

use crate::support::{PATIENCE, TestServer};

#[tokio::test]
async fn names_of_this_machine_are_loopback_without_asking_anyone() {
    let loopback: [SocketAddr; 2] = ["127.0.0.1:8443".parse().unwrap(), "[::1]:8443".parse().unwrap()];
    for name in ["localhost", "api.localhost", "wandering-shape-7752.LOCALHOST."] {
        assert_eq!(resolve(name, 8443).await.unwrap(), loopback, "{name}");
    }
    assert_eq!(resolve("192.0.2.7", 1).await.unwrap(), ["192.0.2.7:1".parse().unwrap()]);
    for spelling in ["2001:db8::1", "[2001:db8::1]"] {
        assert_eq!(resolve(spelling, 1).await.unwrap(), ["[2001:db8::1]:1".parse().unwrap()]);
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_has_no_address() {
    // Names beneath .invalid never exist (RFC 6761 section 6.4).
    let error = connect_tcp("nothing.invalid", 80, PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("the name nothing.invalid has no address"), "{error}");
    let error = resolve("", 80).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn the_second_address_is_tried_when_the_first_refuses() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        println!("skipped: no IPv6 here");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let stream = connect_tcp("localhost", port, PATIENCE).await.unwrap();
    assert!(stream.peer_addr().unwrap().is_ipv6());
    assert!(stream.nodelay().unwrap());
    assert!(!SockRef::from(&stream).keepalive().unwrap(), "what is on this machine does not vanish");
}

#[tokio::test]
async fn a_refused_connection_says_where_and_why() {
    // A bound port without a listener refuses connections, and no other process can take the port.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = reserved.local_addr().unwrap().port();
    let error = connect_tcp("127.0.0.1", port, PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let expected = format!("cannot connect to 127.0.0.1:{port}: connection refused (nothing listens there)");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    // The kernel accepts, and no program answers the handshake.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = TestServer::start("localhost").await;
    let port = listener.local_addr().unwrap().port();
    let error = connect_tls("127.0.0.1", port, "x.localhost", server.client(&[]), Duration::from_millis(200)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("did not finish the TLS handshake within 200ms"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_a_separate_error() {
    let server = TestServer::start("localhost").await;
    for (answer, expected) in
        [(b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), "does not speak TLS"), (b"", "closed the connection")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(answer).await;
        });
        let error = connect_tls("127.0.0.1", port, "x.localhost", server.client(&[]), PATIENCE).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = connect_tls("127.0.0.1", 1, "no name", server.client(&[]), PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn socket_options_arrive_in_the_kernel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = connect_tcp("127.0.0.1", listener.local_addr().unwrap().port(), PATIENCE).await.unwrap();
    set_notsent_lowat(&stream, 65_536).unwrap();
    set_user_timeout(&stream, Duration::from_secs(30)).unwrap();
    if cfg!(target_os = "linux") {
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 65_536);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
    }
}

#[tokio::test]
async fn a_shutdown_reaches_earlier_and_later_waiters() {
    let shutdown = Shutdown::new();
    assert!(!shutdown.is_triggered());
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { shutdown.wait().await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    shutdown.clone().trigger();
    for task in waiting {
        tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    shutdown.wait().await;
    shutdown.trigger();
    assert!(shutdown.is_triggered());
}
