//! Connections through proxies, cooperative and not; and sockets with options.

use std::{io, time::Duration};

use sallyport_net::{Outbound, connect_tcp_by, connect_tls_by, listen_by};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::*;

fn through(proxy: &str) -> Outbound {
    Outbound { proxy: Some(proxy.parse().unwrap()), ..Outbound::default() }
}

/// A proxy that reads one request head and sends this answer. The task returns the request head.
async fn answering(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = head_of(&mut stream).await;
        // The answer arrives in pieces, as on a network.
        for piece in answer.as_bytes().chunks(7) {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
        // The rest of the connection is an echo.
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
        head
    });
    (port, asked)
}

async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_proxy_is_asked_with_its_credentials_and_what_follows_is_the_other_side() {
    let (port, asked) = answering("HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n").await;
    let outbound = through(&format!("http://user:pa%3Ass@127.0.0.1:{port}"));
    let mut stream = connect_tcp_by(&outbound, "edge.example", 443, PATIENCE).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"hello");
    let head = asked.await.unwrap();
    let lines: Vec<&str> = head.trim_end().split("\r\n").collect();
    assert_eq!(
        lines,
        ["CONNECT edge.example:443 HTTP/1.1", "Host: edge.example:443", "Proxy-Authorization: Basic dXNlcjpwYTpzcw=="]
    );
}

#[tokio::test]
async fn a_proxys_refusal_is_an_error_with_advice() {
    use io::ErrorKind as K;
    for (proxy, answer, kind, words) in [
        (
            "http://",
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n",
            K::PermissionDenied,
            "requires credentials: give them as http://USER:PASSWORD@127",
        ),
        (
            "http://u:p@",
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n",
            K::PermissionDenied,
            "rejected the credentials",
        ),
        (
            "http://u:p@",
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n\r\n",
            K::PermissionDenied,
            "asks for Negotiate or NTLM credentials",
        ),
        ("http://u:p@", "HTTP/1.0 401 Unauthorized\r\n\r\n", K::PermissionDenied, "rejected the credentials"),
        (
            "http://",
            "HTTP/1.0 403 Forbidden\r\n\r\n",
            K::PermissionDenied,
            "does not let connections to edge.example:443 through",
        ),
        (
            "http://",
            "HTTP/1.1 500 Oops\r\n\r\n",
            K::HostUnreachable,
            "must be able to resolve the name in edge.example:443",
        ),
        ("http://", "HTTP/1.1 504 Timeout\r\n\r\n", K::HostUnreachable, "did not reach edge.example:443 (status 504)"),
        ("http://", "HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n", K::Unsupported, "status 302"),
        ("http://", "SSH-2.0-x\r\n\r\n", K::InvalidData, "does not answer like an HTTP proxy"),
        (
            "http://",
            "HTTP/1.1 200 OK\r\n\r\nwelcome to our hotel",
            K::InvalidData,
            "sends bytes that edge.example:443 cannot have sent",
        ),
    ] {
        let (port, _asked) = answering(answer).await;
        let outbound = through(&format!("{proxy}127.0.0.1:{port}"));
        let error = connect_tcp_by(&outbound, "edge.example", 443, PATIENCE).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{answer:?}: {error:?}");
        assert!(!error.to_string().contains("u:p"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_says_too_much_or_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head_of(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(b"X-Filler: and on it goes\r\n").await.is_ok() {}
    });
    let outbound = through(&format!("http://127.0.0.1:{port}"));
    let error = connect_tcp_by(&outbound, "edge.example", 443, PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    endless.await.unwrap();

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let outbound = through(&format!("http://127.0.0.1:{}", silent.local_addr().unwrap().port()));
    let error = connect_tcp_by(&outbound, "edge.example", 443, Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("did not report within"), "{error}");

    // A bound port without a listener refuses connections, and no other process can take the port.
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = reserved.local_addr().unwrap().port();
    let error = connect_tcp_by(&through(&format!("127.0.0.1:{closed}")), "edge.example", 443, PATIENCE).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the proxy cannot be reached") && error.contains("refused"), "{error}");
    assert!(error.ends_with("or go without it by --proxy none"), "{error}");
}

/// A SOCKS 5 proxy for one connection: requires these credentials, answers with this code, then connects to `to`.
async fn socks(
    credentials: Option<(&'static [u8], &'static [u8])>,
    code: u8,
    to: u16,
) -> (u16, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 2];
        stream.read_exact(&mut head).await.unwrap();
        let mut methods = vec![0; usize::from(head[1])];
        stream.read_exact(&mut methods).await.unwrap();
        if let Some((user, password)) = credentials {
            if !methods.contains(&2) {
                stream.write_all(&[5, 0xff]).await.unwrap();
                return Vec::new();
            }
            stream.write_all(&[5, 2]).await.unwrap();
            let mut got = vec![0; 3 + user.len() + password.len()];
            stream.read_exact(&mut got).await.unwrap();
            let is_right = got[2..2 + user.len()] == *user && got[3 + user.len()..] == *password;
            stream.write_all(&[1, u8::from(!is_right)]).await.unwrap();
            if !is_right {
                return Vec::new();
            }
        } else {
            stream.write_all(&[5, 0]).await.unwrap();
        }
        let mut request = [0; 5];
        stream.read_exact(&mut request).await.unwrap();
        let mut name = vec![0; usize::from(request[4]) + 2];
        stream.read_exact(&mut name).await.unwrap();
        stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        if code == 0 {
            let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
        }
        name
    });
    (port, served)
}

#[tokio::test]
async fn tls_goes_through_socks_to_a_name_that_only_the_proxy_knows() {
    let server = TestServer::start("localhost").await;
    let (port, served) = socks(Some((b"user", b"secret")), 0, server.addr.port()).await;
    let outbound = through(&format!("socks5://user:secret@127.0.0.1:{port}"));
    let stream =
        connect_tls_by(&outbound, "x.localhost", 8443, "x.localhost", server.client(&[]), PATIENCE).await.unwrap();
    drop(stream);
    assert_eq!(served.await.unwrap(), [b"x.localhost".as_slice(), &8443_u16.to_be_bytes()].concat());

    for (proxy, credentials, code, words) in [
        ("socks5://127.0.0.1", Some((b"user".as_slice(), b"secret".as_slice())), 0, "requires credentials"),
        ("socks5://user:banana@127.0.0.1", Some((b"user", b"secret")), 0, "rejected the credentials"),
        ("socks5://127.0.0.1", None, 2, "does not let connections to edge.example:443 through"),
        ("socks5://127.0.0.1", None, 4, "did not reach edge.example:443"),
    ] {
        let (port, _served) = socks(credentials, code, 0).await;
        let error = connect_tcp_by(&through(&format!("{proxy}:{port}")), "edge.example", 443, PATIENCE).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words), "{proxy} {code}: {error}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn sockets_have_the_congestion_control_and_the_paths_that_are_asked_for() {
    let listener = listen_by("127.0.0.1:0".parse().unwrap(), "--listen", true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for mptcp in [false, true] {
        let outbound = Outbound { congestion: Some("reno".parse().unwrap()), mptcp, ..Outbound::default() };
        let mut stream = connect_tcp_by(&outbound, "127.0.0.1", port, PATIENCE).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        let name = socket2::SockRef::from(&stream).tcp_congestion().unwrap();
        assert!(name.starts_with(b"reno"), "{name:?}, mptcp {mptcp}");
        stream.write_all(b"over any of them").await.unwrap();
        let mut got = [0; 16];
        accepted.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"over any of them");
    }
}
