//! Opening ports.

use std::net::SocketAddr;

use sallyport_net::{ListenError, Listening};
use tokio::net::TcpStream;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn both_ports_are_opened() {
    let listening = Listening::bind(addr("127.0.0.1:0"), Some(addr("127.0.0.1:0"))).unwrap();
    let (tls, redirect) = (listening.tls_addr().unwrap(), listening.redirect_addr().unwrap().unwrap());
    assert_ne!(tls.port(), redirect.port());
    for address in [tls, redirect] {
        TcpStream::connect(address).await.unwrap();
    }
}

#[tokio::test]
async fn the_address_of_all_takes_both_families() {
    let Ok(listening) = Listening::bind(addr("[::]:0"), None) else {
        println!("skipped: no IPv6 here");
        return;
    };
    let port = listening.tls_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    TcpStream::connect(("::1", port)).await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_the_way_out() {
    let first = Listening::bind(addr("127.0.0.1:0"), None).unwrap();
    let taken = first.tls_addr().unwrap();
    let error = Listening::bind(taken, None).unwrap_err();
    assert!(matches!(error, ListenError::Taken { .. }));
    let expected = format!(
        "port {} on 127.0.0.1 is taken by another process: stop it or choose another with --listen",
        taken.port()
    );
    assert_eq!(error.to_string(), expected);
    let error = Listening::bind(addr("127.0.0.1:0"), Some(taken)).unwrap_err().to_string();
    assert!(error.contains("is taken") && !error.ends_with("--listen"), "the option of the other port: {error}");
    drop(first);
    Listening::bind(taken, None).unwrap();
}

#[tokio::test]
async fn a_port_can_be_opened_again_at_once_though_connections_linger() {
    let first = Listening::bind(addr("127.0.0.1:0"), None).unwrap();
    let address = first.tls_addr().unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    let (accepted, _) = first.tls.accept().await.unwrap();
    // The side that closes first keeps the pair of ports in TIME-WAIT.
    drop(accepted);
    drop(first);
    drop(client);
    Listening::bind(address, None).unwrap();
}

#[tokio::test]
async fn an_address_of_another_machine_is_refused() {
    // 192.0.2.0/24 is reserved for documentation (RFC 5737), and no host has such an address.
    let error = Listening::bind(addr("192.0.2.1:0"), None).unwrap_err();
    assert!(matches!(error, ListenError::NotHere { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1 is not an address of this machine"), "{error}");
}

#[tokio::test]
async fn a_privileged_port_is_refused_for_others_than_root() {
    if rustix::process::geteuid().is_root() || TcpStream::connect("127.0.0.1:81").await.is_ok() {
        println!("skipped: this user may open privileged ports");
        return;
    }
    match Listening::bind(addr("127.0.0.1:81"), None) {
        Err(error) => assert!(error.to_string().contains("from 1024 up with --listen"), "{error}"),
        Ok(_) => println!("skipped: this system has no privileged ports"),
    }
}
