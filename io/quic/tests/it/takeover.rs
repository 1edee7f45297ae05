//! A port on its way to the next process: here all processes are one, which changes nothing for the sockets.

use std::{os::fd::OwnedFd, sync::atomic::Ordering, time::Duration};

use quinn::ConnectionError;
use sallyport_quic::{HandoverError, QuicPort};

use crate::lab::{Lab, Process, check, connect, rebind};

/// The next process of the port.
fn take_over(lab: &Lab, from: &Process) -> Process {
    lab.serve(QuicPort::inherit(from.port.pass().unwrap()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_three_processes_go_on_side_by_side() {
    let lab = Lab::new();
    for sockets in [1, 3] {
        let first = lab.serve(lab.port(sockets));
        let clients = [lab.client(), lab.client(), lab.client()];
        let address = first.address();
        let one = connect(&clients[0], address).await;
        let large = vec![5; 3_000_000];
        let (mut send, mut recv) = one.open_bi().await.unwrap();
        send.write_all(&large[..1_000_000]).await.unwrap();

        let second = take_over(&lab, &first);
        let two = connect(&clients[1], address).await;
        let third = take_over(&lab, &second);
        let three = connect(&clients[2], address).await;

        let rest = async {
            send.write_all(&large[1_000_000..]).await.unwrap();
            send.finish().unwrap();
        };
        let (echoed, ()) = tokio::join!(recv.read_to_end(large.len()), rest);
        assert!(echoed.unwrap() == large, "a stream that began before two takeovers is whole");
        for _ in 0..3 {
            for (client, connection) in clients.iter().zip([&one, &two, &three]) {
                check(connection, &[1; 100_000]).await;
                rebind(client);
            }
        }
        assert_eq!([first.accepted(), second.accepted(), third.accepted()], [1, 1, 1]);
        let counts = third.port.counts();
        assert!(counts.to_former_processes.load(Ordering::Relaxed) > 10, "{counts:?}");
        assert!(first.port.counts().from_successor.load(Ordering::Relaxed) > 10);

        // The second process ends; the first one still gets its datagrams.
        for listener in &second.listeners {
            listener.close().await;
        }
        assert!(matches!(two.closed().await, ConnectionError::ApplicationClosed(_)));
        drop(second);
        check(&one, &[2; 100_000]).await;
        check(&three, &[2; 100_000]).await;
    }
}

#[test]
fn a_connection_of_a_process_that_is_gone_is_reset_at_once() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (lab, of_first, of_rest) = (Lab::new(), runtime(), runtime());
    let first = of_first.block_on(async { lab.serve(lab.port(1)) });
    let (client, connection) = of_rest.block_on(async {
        let client = lab.client();
        let connection = connect(&client, first.address()).await;
        check(&connection, b"hello").await;
        (client, connection)
    });
    let files = of_first.block_on(async { first.port.pass().unwrap() });
    // As after a crash: the process sends no close frame.
    of_first.shutdown_background();
    of_rest.block_on(async {
        let second = lab.serve(QuicPort::inherit(files).unwrap());
        // A late acknowledgement of the client may have brought the reset already.
        if let Ok(mut stream) = connection.open_uni().await {
            drop(stream.write_all(b"anybody there?").await);
        }
        let ended = tokio::time::timeout(Duration::from_secs(20), connection.closed()).await.unwrap();
        assert!(matches!(ended, ConnectionError::Reset), "{ended}");
        check(&connect(&client, second.address()).await, b"a new one").await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_that_fails_leaves_the_port_as_it_was() {
    let lab = Lab::new();
    let first = lab.serve(lab.port(2));
    let client = lab.client();
    let connection = connect(&client, first.address()).await;
    let files = first.port.pass().unwrap();
    assert!(first.port.is_replaced());
    first.port.keep();
    check(&connection, &[3; 100_000]).await;
    drop(files);
    check(&connect(&lab.client(), first.address()).await, b"a new one").await;
    let second = take_over(&lab, &first);
    check(&connection, &[3; 100_000]).await;
    check(&connect(&lab.client(), second.address()).await, b"another one").await;
    assert_eq!((first.accepted(), second.accepted()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_successor_closes_the_port_reads_on() {
    let lab = Lab::new();
    let first = lab.serve(lab.port(2));
    let client = lab.client();
    let connection = connect(&client, first.address()).await;
    // The next process serves no QUIC, or has crashed.
    drop(first.port.pass().unwrap());
    check(&connection, &[3; 100_000]).await;
    assert!(!first.port.is_replaced());
}

#[tokio::test]
async fn what_is_not_a_port_is_refused() {
    let lab = Lab::new();
    let error = QuicPort::inherit(Vec::new()).unwrap_err();
    assert!(matches!(error, HandoverError::Malformed), "{error}");
    let first = lab.serve(lab.port(2));
    let mut files = first.port.pass().unwrap();
    files.pop();
    assert!(matches!(QuicPort::inherit(files).unwrap_err(), HandoverError::Malformed));
    let mut more = first.port.pass().unwrap();
    more.push(OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()));
    assert!(matches!(QuicPort::inherit(more).unwrap_err(), HandoverError::Malformed));
}
