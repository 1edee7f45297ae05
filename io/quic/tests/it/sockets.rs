//! Several sockets of one port.

use std::{net::UdpSocket, sync::atomic::Ordering, time::Duration};

use crate::lab::{Lab, check, connect, rebind};

#[tokio::test]
async fn a_client_that_moves_reaches_its_connection_whichever_socket_gets_its_datagrams() {
    let lab = Lab::new();
    let server = lab.serve(lab.port(4));
    let client = lab.client();
    let connection = connect(&client, server.address()).await;
    let counts = server.port.counts();
    for moves in 0..32 {
        check(&connection, &[moves; 20_000]).await;
        rebind(&client);
    }
    check(&connection, b"at last").await;
    assert_eq!(server.accepted(), 1);
    assert!(counts.to_other_sockets.load(Ordering::Relaxed) > 32, "{counts:?}");
    assert_eq!(counts.dropped.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_client_that_moves_faster_than_it_gets_connection_ids_keeps_its_connection() {
    let lab = Lab::new();
    let server = lab.serve(lab.port(2));
    let client = lab.client();
    let connection = connect(&client, server.address()).await;
    check(&connection, b"at first").await;
    // Each move takes another ID of the server's. New ones come only with answers.
    for _ in 0..300 {
        rebind(&client);
        tokio::task::yield_now().await;
    }
    check(&connection, &[7; 20_000]).await;
    assert_eq!(server.accepted(), 1);
    assert_eq!(server.port.counts().dropped.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_address_is_proven_when_the_client_answers_from_there() {
    let lab = Lab::new();
    let port = lab.port(1);
    let socket = port.take_sockets().pop().unwrap();
    let listener = socket.listen(lab.tls(), None, None).unwrap();
    let client = lab.client();
    let (accepted, connection) =
        tokio::join!(async { listener.accept().await.unwrap().accept().await }, connect(&client, port.address()));
    let accepted = accepted.unwrap();
    let moved = UdpSocket::bind("127.0.0.2:0").unwrap();
    let address = moved.local_addr().unwrap();
    client.rebind(moved).unwrap();
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(b"from there").await.unwrap();
    let (mut back, _) = accepted.accept_bi().await.unwrap();
    assert_eq!(accepted.remote_address(), address);
    back.write_all(b"the client acknowledges this").await.unwrap();
    while sallyport_quic::proven_address(&accepted) != Some(address) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn the_kernel_shares_clients_out_among_the_sockets() {
    let lab = Lab::new();
    let server = lab.serve(lab.port(2));
    for _ in 0..16 {
        let client = lab.client();
        let connection = connect(&client, server.address()).await;
        check(&connection, b"hello").await;
        connection.close(0_u32.into(), b"");
    }
    assert_eq!(server.accepted(), 16);
}

#[tokio::test]
async fn noise_reaches_nobody() {
    let lab = Lab::new();
    let server = lab.serve(lab.port(2));
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in 0..1_500 {
        let bytes: Vec<u8> = (0..length).map(|n| (n * 31 + length * 7) as u8).collect();
        noise.send_to(&bytes, server.address()).unwrap();
    }
    let client = lab.client();
    check(&connect(&client, server.address()).await, b"still there").await;
}

#[tokio::test]
async fn a_port_answers_a_probe_for_as_long_as_it_is_served() {
    let lab = Lab::new();
    let server = lab.serve(lab.port(2));
    for _ in 0..8 {
        sallyport_quic::probe(server.address(), Duration::from_secs(20)).await.unwrap();
    }
    let port = lab.port(1);
    assert!(sallyport_quic::probe(port.address(), Duration::from_millis(1)).await.is_err());
}
