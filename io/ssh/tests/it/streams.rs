//! Streams: all bytes arrive, both ways, at each reader's own speed.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::lab::{Gate, Lab, curl, echo, origin, soon, until, web};

const MANY_BYTES: usize = 50 * 1_000 * 1_000;

/// Bytes without a repeated stretch.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Sends all bytes, ends that direction, and reads to the end at the same time.
async fn through(address: std::net::SocketAddr, data: Vec<u8>) -> Vec<u8> {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        write.write_all(&data).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    soon(read.read_to_end(&mut back)).await.unwrap();
    sending.await.unwrap();
    back
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_megabytes_pass_both_ways_and_half_closes_with_them() {
    let lab = Lab::start().await;
    let _client = lab.spawn(&["-N", "-R", &format!("80:localhost:{}", echo().await)]);
    let data = pattern(MANY_BYTES);
    let back = through(lab.published(80).await, data.clone()).await;
    assert!(back == data, "{} bytes came back, not the same", back.len());
    until(|| (lab.gate.connections.lock().unwrap()[0].streams() == 0).then_some(())).await;
    let stats = lab.server.stats();
    assert_eq!(stats.bytes_to_clients.load(std::sync::atomic::Ordering::Relaxed), MANY_BYTES as u64);
    assert_eq!(stats.bytes_from_clients.load(std::sync::atomic::Ordering::Relaxed), MANY_BYTES as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_exchanged_anew_under_way_with_every_cipher() {
    let lab = Lab::start().await;
    let echo = echo().await;
    for (index, cipher) in
        ["chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "aes256-ctr"]
            .into_iter()
            .enumerate()
    {
        let port = 80 + index as u32 * 10;
        let forward = format!("{port}:localhost:{echo}");
        let _client = lab.spawn(&["-N", "-c", cipher, "-o", "RekeyLimit=1M", "-R", &forward]);
        let data = pattern(8_000_000);
        assert!(through(lab.published(port).await, data.clone()).await == data, "{cipher}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_asks_for_new_keys_under_way() {
    let lab = Lab::start_with(Gate::default(), |config| config.rekey_bytes = 4_000_000).await;
    let _client = lab.spawn(&["-N", "-R", &format!("80:localhost:{}", echo().await)]);
    let address = lab.published(80).await;
    let transfers: Vec<_> = (0..4).map(|_| tokio::spawn(through(address, pattern(MANY_BYTES / 4)))).collect();
    for transfer in transfers {
        assert!(transfer.await.unwrap() == pattern(MANY_BYTES / 4));
    }
    assert!(lab.ends.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_who_does_not_read_delays_no_other() {
    const LARGE_BYTES: usize = 32 * 1_024 * 1_024;
    let lab = Lab::start().await;
    let large = origin(|mut stream| async move {
        let _ = stream.write_all(&vec![7; LARGE_BYTES]).await;
    })
    .await;
    let small = web("quick").await;
    let forwards = [format!("80:localhost:{large}"), format!("443:localhost:{small}")];
    let _client = lab.spawn(&["-N", "-R", &forwards[0], "-R", &forwards[1]]);
    let (slow_address, quick_address) = (lab.published(80).await, lab.published(443).await);
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut visitor = TcpStream::connect(slow_address).await.unwrap();
        visitor.read_exact(&mut [0; 1]).await.unwrap();
        slow.push(visitor);
    }
    // Until every buffer between the ends is full.
    let count = || lab.server.stats().bytes_from_clients.load(std::sync::atomic::Ordering::Relaxed);
    let mut before = 0;
    while count() != before {
        before = count();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before < (3 * LARGE_BYTES) as u64, "the visitors were to be held up: {before}");
    for _ in 0..20 {
        assert_eq!(curl(quick_address).await, "quick");
    }
    for mut visitor in slow {
        let mut rest = Vec::new();
        soon(visitor.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(rest.len(), LARGE_BYTES - 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_does_not_read_delays_no_other() {
    let lab = Lab::start().await;
    let deaf = origin(|stream| async move {
        tokio::time::sleep(Duration::from_secs(600)).await;
        drop(stream);
    })
    .await;
    let small = web("quick").await;
    let forwards = [format!("80:localhost:{deaf}"), format!("443:localhost:{small}")];
    let _client = lab.spawn(&["-N", "-R", &forwards[0], "-R", &forwards[1]]);
    let mut visitor = TcpStream::connect(lab.published(80).await).await.unwrap();
    let quick_address = lab.published(443).await;
    let chunk = vec![1; 1 << 20];
    // Until the connection accepts no more bytes.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), visitor.write_all(&chunk)).await {
        written.unwrap();
    }
    for _ in 0..20 {
        assert_eq!(curl(quick_address).await, "quick");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_packets_and_many_streams() {
    let lab = Lab::start().await;
    let _client = lab.spawn(&["-N", "-R", &format!("80:localhost:{}", echo().await)]);
    let address = lab.published(80).await;
    let visitors: Vec<_> = (0..50_u8)
        .map(|number| {
            tokio::spawn(async move {
                let mut visitor = TcpStream::connect(address).await.unwrap();
                visitor.set_nodelay(true).unwrap();
                for round in 0..50 {
                    visitor.write_all(&[number, round]).await.unwrap();
                    let mut back = [0; 2];
                    soon(visitor.read_exact(&mut back)).await.unwrap();
                    assert_eq!(back, [number, round]);
                }
            })
        })
        .collect();
    for visitor in visitors {
        visitor.await.unwrap();
    }
    until(|| (lab.gate.connections.lock().unwrap()[0].streams() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_who_goes_away_frees_the_origin() {
    let lab = Lab::start().await;
    let (sender, mut ended) = tokio::sync::mpsc::channel(1);
    let endless = origin(move |mut stream| {
        let sender = sender.clone();
        async move {
            let chunk = vec![7; 64 << 10];
            while stream.write_all(&chunk).await.is_ok() {}
            let _ = sender.send(()).await;
        }
    })
    .await;
    let _client = lab.spawn(&["-N", "-R", &format!("80:localhost:{endless}")]);
    let mut visitor = TcpStream::connect(lab.published(80).await).await.unwrap();
    visitor.read_exact(&mut [0; 1_000]).await.unwrap();
    drop(visitor);
    soon(ended.recv()).await.unwrap();
    until(|| (lab.gate.connections.lock().unwrap()[0].streams() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_client_is_killed_its_streams_end() {
    let lab = Lab::start().await;
    let mut client = lab.spawn(&["-N", "-R", &format!("80:localhost:{}", echo().await)]);
    let forward = until({
        let gate = lab.gate.clone();
        move || gate.forwards.lock().unwrap().first().filter(|f| f.is_usable()).cloned()
    })
    .await;
    let mut stream = soon(forward.open(lab.address)).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    soon(stream.read_exact(&mut back)).await.unwrap();
    client.child.kill().await.unwrap();
    let error = soon(stream.read(&mut back)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(stream.write_all(b"more").await.is_err());
    assert!(forward.open(lab.address).await.is_err());
}
