//! Retries at origins that may or may not have received a request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sallyport_model::SocketType;
use sallyport_tunnel::{BoxFuture, IncomingStream, OriginHandler};
use sallyport_wire::Open;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    flows::{connect, echo_with_greeting, service},
    harness::*,
};

/// A connector that reads every stream and reports neither success nor failure of its origin.
#[derive(Clone, Default)]
struct Mute {
    streams: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl Mute {
    fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl OriginHandler for Mute {
    fn serve(&self, _open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let (streams, bytes) = (self.streams.clone(), self.bytes.clone());
        streams.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let (mut stream, mut buffer) = (stream.pass_on(), [0; 1_024]);
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                bytes.fetch_add(read, Ordering::SeqCst);
            }
        })
    }
}

/// Sets a connect timeout that leaves a healthy origin enough time on a busy machine.
fn short_connect_timeout(config: &mut sallyport_edge::EdgeConfig) {
    config.connect_timeout = Duration::from_secs(3);
}

#[tokio::test]
async fn a_request_that_is_not_idempotent_is_sent_only_to_a_reached_origin() {
    let world = World::start_with(short_connect_timeout).await;
    let mut socket = world.socket();
    let (mute, tunnel) = (Mute::default(), world.new_tunnel(&mut socket));
    let _mute = world.connect_with(tunnel, Arc::new(mute.clone())).await;
    let _well = world.tunnel(&mut socket, named_origin("well").await).await;
    let head = |method: &str, fields: &str| {
        format!("{method} / HTTP/1.1\r\nHost: {}\r\n{fields}Connection: close\r\n\r\n", socket.host())
    };
    // The origins take turns. The silent origin is left out after its first timeout.
    let post = head("POST", "Content-Length: 0\r\n");
    for _ in 0..2 {
        let response = world.raw(&socket, post.as_bytes()).await;
        assert_eq!((response.status, response.text()), (200, "well"));
    }
    assert!(mute.streams() > 0, "the silent origin got a stream");
    assert_eq!(mute.bytes(), 0, "and got nothing");
}

#[tokio::test]
async fn an_idempotent_request_is_sent_with_the_open_frame() {
    let world = World::start_with(short_connect_timeout).await;
    let mut socket = world.socket();
    let (mute, tunnel) = (Mute::default(), world.new_tunnel(&mut socket));
    let _mute = world.connect_with(tunnel, Arc::new(mute.clone())).await;
    let _well = world.tunnel(&mut socket, named_origin("well").await).await;
    for _ in 0..2 {
        assert_eq!(world.get(&socket, "/").await.text(), "well");
    }
    assert!(mute.streams() > 0 && mute.bytes() > 0);
}

#[tokio::test]
async fn a_tcp_connection_is_retried_only_if_no_bytes_were_sent() {
    let world = World::start_with(short_connect_timeout).await;
    let (mute, well) = (Mute::default(), service(echo_with_greeting).await);
    for says_something in [true, false] {
        let mut socket = world.socket();
        let addr = socket.set_type(&world, SocketType::Tcp).await;
        let tunnel = world.new_tunnel(&mut socket);
        let _mute = world.connect_with(tunnel, Arc::new(mute.clone())).await;
        let mut client = connect(addr).await;
        if says_something {
            client.write_all(b"once").await.unwrap();
        }
        let (before, asked) = (mute.bytes(), mute.streams());
        soon(async {
            while mute.streams() == asked || (says_something && mute.bytes() < before + 4) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let _well = world.tunnel(&mut socket, well).await;
        let mut word = [0; 6];
        let read = soon(client.read_exact(&mut word)).await;
        if says_something {
            assert!(read.is_err(), "the flow ends, and its bytes reach no other origin");
        } else {
            assert!(read.is_ok() && &word == b"hello ");
        }
    }
}
