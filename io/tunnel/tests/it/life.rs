//! Legs: bytes of one write, dead legs, and wakeups.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use sallyport_tunnel::{BoxFuture, BoxedCarrier, Dial, IncomingStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::lab::*;

/// Records the length of each write.
struct Recorder {
    inner: DuplexStream,
    writes: Arc<Mutex<Vec<usize>>>,
}

impl AsyncRead for Recorder {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Recorder {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &poll {
            self.writes.lock().unwrap().push(*n);
        }
        poll
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(n)) = &poll {
            self.writes.lock().unwrap().push(*n);
        }
        poll
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Pipes whose edge side is recorded, and whose legs can be cut.
#[derive(Clone)]
struct Lab {
    edge: Edge,
    writes: Arc<Mutex<Vec<usize>>>,
    cuts: Arc<Mutex<Vec<tokio::sync::oneshot::Sender<()>>>>,
}

impl Lab {
    fn new(edge: &Edge) -> Self {
        Self { edge: edge.clone(), writes: Arc::default(), cuts: Arc::default() }
    }
}

impl Dial for Lab {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let lab = self.clone();
        Box::pin(async move {
            let (near, mut near_wire) = tokio::io::duplex(1 << 20);
            let (mut far_wire, far) = tokio::io::duplex(1 << 20);
            let (cut, is_cut) = tokio::sync::oneshot::channel();
            lab.cuts.lock().unwrap().push(cut);
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near_wire, &mut far_wire) => {}
                    _ = is_cut => {}
                }
            });
            let recorder = Recorder { inner: far, writes: lab.writes };
            tokio::spawn(async move { lab.edge.tunnels.serve_carrier(recorder, peer()).await });
            Ok(Box::new(near) as BoxedCarrier)
        })
    }

    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        Pipes::to(&self.edge).dial()
    }
}

#[tokio::test]
async fn the_opening_travels_with_the_first_bytes_in_one_write() {
    let edge = Edge::new();
    let lab = Lab::new(&edge);
    let _connector = Connector::start(Arc::new(lab.clone()), echo(), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    let mut stream = handle.open(open_for(tunnel(1))).unwrap();
    assert!(lab.writes.lock().unwrap().is_empty(), "nothing is sent before there is something to send");
    assert_eq!(stream.write(&[5; 1_000]).await.unwrap(), 1_000);
    assert_eq!(stream.write(&[5; 100]).await.unwrap(), 100);
    let writes = lab.writes.lock().unwrap().clone();
    assert_eq!(writes.len(), 2);
    assert!(writes[0] > 1_000 && writes[0] < 1_100, "opening, header and data: {writes:?}");
    assert_eq!(writes[1], 104, "header and data");
    assert_eq!(stream.establishment().peek(), None, "no task waited for the answer");
    drop(stream);

    // Without bytes to write, the OPEN is sent when the client reads.
    let mut stream = handle.open(open_for(tunnel(1))).unwrap();
    let establishment = stream.establishment();
    soon(async {
        while establishment.peek().is_none() {
            assert!(tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await.is_err());
        }
    })
    .await;
    assert_eq!(establishment.peek(), Some(Ok(())));
}

#[tokio::test]
async fn a_stream_that_was_never_used_is_never_opened() {
    let edge = Edge::new();
    let lab = Lab::new(&edge);
    let _connector = Connector::start(Arc::new(lab.clone()), echo(), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    drop(handle.open(open_for(tunnel(1))).unwrap());
    assert!(lab.writes.lock().unwrap().is_empty());
    assert_eq!((edge.tunnels.stats().legs_idle, handle.active_streams()), (8, 0));
}

#[tokio::test]
async fn dead_legs_fail_no_stream_and_are_replaced() {
    let edge = Edge::new();
    let lab = Lab::new(&edge);
    let _connector = Connector::start(Arc::new(lab.clone()), echo(), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    lab.cuts.lock().unwrap().clear();
    // The legs may or may not be noticed as dead by now: no request fails.
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..20 {
        assert_eq!(soon(exchange(handle.open(open_for(tunnel(1))).unwrap(), b"x")).await.unwrap(), b"x");
    }
    until("new legs come", || edge.tunnels.stats().legs_idle >= 8).await;
    assert!(handle.open(open_for(tunnel(1))).unwrap().is_on_leg());
}

#[tokio::test]
async fn a_leg_that_dies_under_a_stream_is_reported_as_lost() {
    let edge = Edge::new();
    let lab = Lab::new(&edge);
    // An origin that never answers.
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        let _held = stream;
        std::future::pending::<()>().await;
    }));
    let _connector = Connector::start(Arc::new(lab.clone()), origin, &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    let mut stream = handle.open(open_for(tunnel(1))).unwrap();
    let establishment = stream.establishment();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    lab.cuts.lock().unwrap().clear();
    let error = soon(stream.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    assert!(establishment.is_lost());
    assert!(soon(establishment.wait()).await.unwrap_err().message.contains("the tunnel was lost"));
    assert!(handle.is_usable(), "the session lives on");
}

#[tokio::test]
async fn reader_and_writer_may_be_different_tasks() {
    let edge = Edge::new();
    // An origin that reads so slowly that the writer has to wait, and answers at the end.
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        let mut stream = stream.opened().await.unwrap();
        let mut total = 0_u64;
        let mut buffer = vec![0; 50_000];
        loop {
            tokio::task::yield_now().await;
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                n => total += n as u64,
            }
        }
        stream.write_u64(total).await.unwrap();
        stream.shutdown().await.unwrap();
    }));
    let _connector = Connector::start(Arc::new(Pipes::to(&edge)), origin, &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    for _ in 0..5 {
        let (mut reader, mut writer) = tokio::io::split(handle.open(open_for(tunnel(1))).unwrap());
        let reading = tokio::spawn(async move { reader.read_u64().await });
        let writing = tokio::spawn(async move {
            for _ in 0..100 {
                writer.write_all(&[3; 100_000]).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        });
        soon(writing).await.unwrap();
        assert_eq!(soon(reading).await.unwrap().unwrap(), 10_000_000);
    }
}
