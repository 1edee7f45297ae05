//! Clients that are silent, that have vanished, or that do not speak SSH.

use std::{sync::atomic::Ordering, time::Duration};

use sallyport_ssh::ConnectionEnd;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::lab::{Gate, Lab, soon, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_answers_no_more_is_given_up() {
    let lab = Lab::start_with(Gate::default(), |config| {
        // A loaded machine has a few seconds for each answer.
        config.keepalive = Duration::from_millis(1_200);
        config.keepalive_missed = 4;
    })
    .await;
    let client = lab.spawn(&["-N", "-R", "80:localhost:1"]);
    lab.published(80).await;
    // The client answers keepalives as long as it runs.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(lab.ends.lock().unwrap().is_empty());
    client.signal("STOP");
    let ends = until(|| Some(lab.ends.lock().unwrap().clone()).filter(|ends| !ends.is_empty())).await;
    assert_eq!(ends, [ConnectionEnd::Lost]);
    assert_eq!(lab.gate.closed.lock().unwrap().len(), 1);
    client.signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_may_ask_whether_the_server_is_there() {
    let lab = Lab::start().await;
    let mut client =
        lab.spawn(&["-vvv", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=4", "-R", "80:localhost:1"]);
    client.line_with("your service").await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(lab.ends.lock().unwrap().is_empty());
    assert!(client.child.try_wait().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_not_served() {
    let lab = Lab::start().await;
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5],
        &[0; 100_000],
        b"SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff",
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(lab.address).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = soon(stream.read_to_end(&mut answer)).await;
        assert!(answer.is_empty() || answer.starts_with(b"SSH-2.0-Sallyport\r\n"));
    }
    until(|| (lab.ends.lock().unwrap().len() == 4).then_some(())).await;
    assert!(lab.ends.lock().unwrap().iter().all(|end| *end == ConnectionEnd::NotLoggedIn));
    assert_eq!(lab.server.stats().connections_open.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_silent_connections_take_their_places_for_a_while_only() {
    let lab = Lab::start_with(Gate::default(), |config| {
        config.max_unauthenticated = 100;
        config.max_connections_per_address = 200;
        config.auth_time = Duration::from_secs(8);
    })
    .await;
    let mut silent = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(lab.address).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"SSH-2.0-silent\r\n").await.unwrap();
        }
        silent.push(stream);
    }
    until(|| (lab.server.stats().connections_open.load(Ordering::Relaxed) == 100).then_some(())).await;
    let mut refused = TcpStream::connect(lab.address).await.unwrap();
    let mut answer = Vec::new();
    soon(refused.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(text(&answer), "no more connections are accepted now: try again later\r\n");
    until(|| (lab.server.stats().connections_open.load(Ordering::Relaxed) == 0).then_some(())).await;
    assert_eq!(lab.server.stats().logins_timed_out.load(Ordering::Relaxed), 100);
    let output = lab.finish(lab.ssh_as("alice", "alice", &[]), &["127.0.0.1", "true"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_has_its_share_of_connections() {
    let lab = Lab::start_with(Gate::default(), |config| config.max_connections_per_address = 1).await;
    let mut client = lab.spawn(&["-R", "80:localhost:1"]);
    client.line_with("your service").await;
    let output = lab.ssh(&[]).await;
    assert_eq!(output.status.code(), Some(255));
    assert!(lab.ends.lock().unwrap().contains(&ConnectionEnd::Refused));
    drop(client);
    until(|| lab.ends.lock().unwrap().contains(&ConnectionEnd::Left).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_without_a_forward_is_not_kept() {
    let lab = Lab::start_with(Gate::default(), |config| config.idle = Duration::from_millis(300)).await;
    let mut client = lab.spawn(&["-T"]);
    client.line_with("there was no forward").await;
    assert_eq!(client.end().await.0, Some(1));
}
