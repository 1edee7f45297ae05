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
