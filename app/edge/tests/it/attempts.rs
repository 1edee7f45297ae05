//! Origins of which nobody says whether they were reached: what may have got there goes nowhere else.

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
    flows::{connect, says_back, service},
    harness::*,
};

/// A connector that takes all that comes, and says neither that its origin was reached nor that it was not.
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

/// Long enough for the origin that is well on a busy machine, and for a tunnel to come meanwhile.
fn impatient(config: &mut sallyport_edge::EdgeConfig) {
    config.connect_timeout = Duration::from_secs(3);
}

#[tokio::test]
async fn nothing_of_a_request_that_may_not_be_repeated_leaves_before_its_origin_is_reached() {
    let world = World::start_with(impatient).await;
    let mut socket = world.socket();
    let (mute, tunnel) = (Mute::default(), world.new_tunnel(&mut socket));
    let _mute = world.connect_with(tunnel, Arc::new(mute.clone())).await;
    let _well = world.tunnel(&mut socket, named_origin("well").await).await;
    let head = |method: &str, fields: &str| {
        format!("{method} / HTTP/1.1\r\nHost: {}\r\n{fields}Connection: close\r\n\r\n", socket.host())
    };
    // Which of the two is asked first takes turns, and who is silent is left out after the first time.
    let post = head("POST", "Content-Length: 0\r\n");
    for _ in 0..2 {
        let answer = world.raw(&socket, post.as_bytes()).await;
        assert_eq!((answer.status, answer.text()), (200, "well"));
    }
    assert!(mute.streams() > 0, "it was asked");
    assert_eq!(mute.bytes(), 0, "and got nothing");
}

#[tokio::test]
async fn a_request_that_may_be_repeated_travels_with_the_opening() {
    let world = World::start_with(impatient).await;
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
async fn a_connection_goes_to_another_origin_only_when_none_of_its_words_may_have_arrived() {
    let world = World::start_with(impatient).await;
    let (mute, well) = (Mute::default(), service(says_back).await);
    for says_something in [true, false] {
        let mut socket = world.socket();
        let addr = socket.assert_type(&world, SocketType::Tcp).await;
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
            assert!(read.is_err(), "it ends, and is not told to anybody else");
        } else {
            assert!(read.is_ok() && &word == b"hello ");
        }
    }
}
