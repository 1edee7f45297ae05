//! Tokens that prove an address: forged, replayed, and of another client.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use quinn::ConnectionError;

use crate::lab::{Lab, check, connect};

/// A relay between one client and this server, and the last Retry packet that has come by.
fn relay(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    far.connect(server).unwrap();
    let (address, retry) = (near.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
    let (client, seen) = (Arc::new(Mutex::new(None)), retry.clone());
    let (back, to, known) = (near.try_clone().unwrap(), far.try_clone().unwrap(), client.clone());
    std::thread::spawn(move || {
        let mut datagram = [0; 2_048];
        while let Ok((length, from)) = near.recv_from(&mut datagram) {
            *known.lock().unwrap() = Some(from);
            let _ = to.send(&datagram[..length]);
        }
    });
    std::thread::spawn(move || {
        let mut datagram = [0; 2_048];
        while let Ok(length) = far.recv(&mut datagram) {
            if datagram[0] & 0xf0 == 0xf0 {
                *seen.lock().unwrap() = datagram[..length].to_vec();
            }
            let client = *client.lock().unwrap();
            let _ = client.map(|client| back.send_to(&datagram[..length], client));
        }
    });
    (address, retry)
}

/// The token in a Retry packet (RFC 9000 section 17.2.5): behind both connection IDs, before the tag of 16 bytes.
fn token_in(retry: &[u8]) -> Bytes {
    let destination = usize::from(retry[5]);
    let source = usize::from(retry[6 + destination]);
    Bytes::copy_from_slice(&retry[7 + destination + source..retry.len() - 16])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_good_for_its_own_address_alone_and_a_forged_one_is_none() {
    let lab = Lab::new();
    let server = lab.serve_proven(lab.port(1));
    let (relay, retry) = relay(server.address());
    let client = lab.client();
    let connection = connect(&client, relay).await;
    check(&connection, b"the client has proven its address").await;
    let retries = || server.port.counts().retries.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(retries(), 1);

    let token = token_in(&retry.lock().unwrap());
    let mut forged = token.to_vec();
    forged[3] ^= 1;
    for forged in [forged, vec![0; 40], vec![7; 3]] {
        let before = retries();
        let client = lab.client_with_token(forged.into());
        let connection = connect(&client, server.address()).await;
        check(&connection, b"a forged token is like none").await;
        assert_eq!(retries(), before + 1);
    }

    // From another address, the token of a Retry is refused at once.
    let thief = lab.client_with_token(token);
    let refused = thief.connect(server.address(), "tunnel.localhost").unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap().unwrap_err();
    assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused:?}");
    assert_eq!(server.accepted(), 4);
    check(&connection, b"the first client goes on").await;
}
