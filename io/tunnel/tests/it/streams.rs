//! Streams: bytes both ways, their ends, their failures; over legs and multiplexed.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sallyport_tunnel::{IncomingStream, TunnelStream};
use sallyport_wire::{FailureReason, OpenFailure, ResetCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::*;

/// An edge and a connector with this origin, with or without legs.
async fn pair(legs: bool, origin: Arc<dyn sallyport_tunnel::OriginHandler>) -> (Edge, Connector) {
    let edge = Edge::new();
    let dial = Tls::to(&edge).await;
    let connector = Connector::start_with(dial, origin, &[tunnel(1)], |config| {
        if !legs {
            config.max_legs = 0;
        }
    });
    if legs {
        edge.ready(tunnel(1)).await;
    } else {
        edge.attached(tunnel(1)).await;
    }
    (edge, connector)
}

fn open(edge: &Edge) -> TunnelStream {
    edge.handle(tunnel(1)).unwrap().open(open_for(tunnel(1))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legs_are_recycled_from_stream_to_stream() {
    let (edge, _connector) = pair(true, echo()).await;
    for round in 0..300_u32 {
        let stream = open(&edge);
        assert!(stream.is_on_leg());
        let establishment = stream.establishment();
        let sent = format!("round {round}").into_bytes();
        assert_eq!(soon(exchange(stream, &sent)).await.unwrap(), sent);
        assert_eq!(establishment.peek(), Some(Ok(())));
    }
    let stats = edge.tunnels.stats();
    assert!(stats.legs_idle + stats.legs_busy <= 10, "one stream at a time needs no more legs: {stats:?}");
    assert_eq!(edge.handle(tunnel(1)).unwrap().active_streams(), 0);
    soon(edge.tunnels.drained()).await;
}

#[tokio::test(start_paused = true)]
async fn legs_that_a_burst_lacks_are_dialed_behind_it() {
    let edge = Edge::new();
    let pipes = Pipes::to(&edge);
    let _connector = Connector::start(Arc::new(pipes.clone()), echo(), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    let dialed = || pipes.dialed.load(Ordering::Relaxed);
    assert_eq!(dialed(), 1 + 8);
    let streams: Vec<_> = (0..40).map(|_| open(&edge)).collect();
    assert!(streams.iter().filter(|stream| !stream.is_on_leg()).count() >= 32);
    // The simulated clock stands still while any task can run.
    for stream in streams {
        assert_eq!(soon(exchange(stream, b"x")).await.unwrap(), b"x");
    }
    assert_eq!(dialed(), 1 + 8, "while the burst is under way");
    until("there are legs for such a burst", || edge.tunnels.stats().legs_idle >= 40).await;
    assert!(handle.open(open_for(tunnel(1))).unwrap().is_on_leg());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_legs_streams_are_multiplexed() {
    let (edge, _connector) = pair(false, echo()).await;
    for round in 0..100_u32 {
        let stream = open(&edge);
        assert!(!stream.is_on_leg());
        let sent = format!("round {round}").into_bytes();
        assert_eq!(soon(exchange(stream, &sent)).await.unwrap(), sent);
    }
    until("streams are forgotten", || edge.tunnels.stats().mux_streams == 0).await;
    assert_eq!(edge.tunnels.stats().legs_idle, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn megabytes_arrive_unchanged_both_ways() {
    const TOTAL: usize = 64 << 20;
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, echo()).await;
        let (mut reader, mut writer) = tokio::io::split(open(&edge));
        // The sizes of writes and reads never match each other or the frames.
        let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16)) as u8;
        let writing = tokio::spawn(async move {
            let mut at = 0;
            let mut size = 1;
            while at < TOTAL {
                let chunk: Vec<u8> = (at..(at + size).min(TOTAL)).map(byte).collect();
                writer.write_all(&chunk).await.unwrap();
                at += chunk.len();
                size = (size * 7 + 13) % 200_003;
            }
            writer.shutdown().await.unwrap();
        });
        let mut at = 0;
        let mut buffer = vec![0; 77_777];
        loop {
            let n = soon(reader.read(&mut buffer)).await.unwrap();
            if n == 0 {
                break;
            }
            assert!(buffer[..n].iter().enumerate().all(|(i, &got)| got == byte(at + i)), "legs {legs}, around {at}");
            at += n;
        }
        assert_eq!(at, TOTAL, "legs {legs}");
        soon(writing).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_side_may_end_first_and_still_receive_from_the_other() {
    // The origin writes its whole answer first, and continues to read.
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        let mut stream = stream.opened().await.unwrap();
        stream.write_all(b"sent first").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"sent last");
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for _ in 0..20 {
            let mut stream = open(&edge);
            let mut received = Vec::new();
            soon(stream.read_to_end(&mut received)).await.unwrap();
            assert_eq!(received, b"sent first");
            stream.write_all(b"sent last").await.unwrap();
            stream.shutdown().await.unwrap();
        }
        until("all streams end", || edge.handle(tunnel(1)).unwrap().active_streams() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreached_origin_is_reported_with_its_reason_and_costs_no_leg() {
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        stream.failed(OpenFailure::new(FailureReason::Refused, "nothing listens on localhost:8000")).await;
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for _ in 0..50 {
            if legs {
                // A stream that finds no leg, or only legs still being drained, has the edge request more, as in a
                // burst.
                until("legs are ready", || edge.tunnels.stats().legs_idle >= 8).await;
            }
            let mut stream = open(&edge);
            let establishment = stream.establishment();
            // More than any buffer between the ends: the rest must be thrown away, not block.
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            let writing = async { writer.write_all(&vec![7; 300_000]).await };
            let reading = async { reader.read_u8().await };
            let (_written, read) = soon(async { tokio::join!(writing, reading) }).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            let failure = soon(establishment.wait()).await.unwrap_err();
            assert_eq!(failure.reason, FailureReason::Refused);
            assert!(failure.message.contains("localhost:8000"));
            assert!(!establishment.is_lost());
            assert_eq!(stream.write_all(b"more").await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
        let stats = edge.tunnels.stats();
        assert!(stats.legs_idle + stats.legs_busy <= 10, "{stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_the_edge_gives_up_ends_at_the_origin_and_its_leg_is_used_again() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    // An origin that never stops writing.
    let origin = Arc::new(Origin(move |_, stream: IncomingStream| {
        let count = count.clone();
        async move {
            let mut stream = stream.opened().await.unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            let (mut reader, mut writer) = tokio::io::split(stream);
            let talking = async { while writer.write_all(&[1; 10_000]).await.is_ok() {} };
            let listening = async { while reader.read(&mut [0; 100]).await.is_ok_and(|n| n > 0) {} };
            tokio::join!(talking, listening);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    for legs in [true, false] {
        ended.store(0, Ordering::Relaxed);
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for round in 0..30 {
            let mut stream = open(&edge);
            stream.write_all(b"!").await.unwrap();
            let mut some = [0; 50_000];
            soon(stream.read_exact(&mut some)).await.unwrap();
            if round % 2 == 0 { drop(stream) } else { stream.reset(ResetCode::Timeout) }
        }
        until("the origin is notified of all ends", || ended.load(Ordering::Relaxed) == 30).await;
        if legs {
            until("the legs are idle again", || edge.tunnels.stats().legs_busy == 0).await;
            // Legs with too many bytes in flight are replaced, a moment later.
            until("there are as many as before", || edge.tunnels.stats().legs_idle >= 8).await;
        }
        until("all streams end", || edge.handle(tunnel(1)).unwrap().active_streams() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_the_origin_gives_up_is_an_error_not_an_end() {
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        let mut stream = stream.opened().await.unwrap();
        stream.write_all(b"the beginning").await.unwrap();
        stream.flush().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.reset(ResetCode::OriginReset);
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for _ in 0..20 {
            let mut stream = open(&edge);
            let mut beginning = [0; 13];
            soon(stream.read_exact(&mut beginning)).await.unwrap();
            stream.write_all(b"go").await.unwrap();
            let error = soon(stream.read_u8()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
            assert!(error.to_string().contains("origin-reset"), "{error}");
        }
        let stats = edge.tunnels.stats();
        assert!(stats.legs_idle + stats.legs_busy <= 10, "{stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_beyond_the_legs_is_served_at_once() {
    let edge = Edge::new();
    let _connector = Connector::start(Tls::to(&edge).await, echo(), &[tunnel(1)]);
    edge.ready(tunnel(1)).await;
    let streams: Vec<_> = (0..200).map(|_| open(&edge)).collect();
    let multiplexed = streams.iter().filter(|stream| !stream.is_on_leg()).count();
    assert!(multiplexed >= 150, "nothing waits for a leg, but {multiplexed} of 200 were multiplexed");
    assert_eq!(edge.handle(tunnel(1)).unwrap().active_streams(), 200);
    let exchanges: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(number, stream)| {
            tokio::spawn(async move {
                let sent = vec![number as u8; 20_000];
                assert_eq!(exchange(stream, &sent).await.unwrap(), sent);
            })
        })
        .collect();
    for exchange in exchanges {
        soon(exchange).await.unwrap();
    }
    until("legs come for the next burst", || edge.tunnels.stats().legs_idle >= 150).await;
    let on_legs = (0..100).map(|_| open(&edge)).filter(TunnelStream::is_on_leg).count();
    assert_eq!(on_legs, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_stream_stops_no_other() {
    // An origin that only writes.
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        let mut stream = stream.opened().await.unwrap();
        while stream.write_all(&[1; 10_000]).await.is_ok() {}
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        let mut stuck = open(&edge);
        soon(stuck.read_u8()).await.unwrap();
        let mut lively = open(&edge);
        let mut much = vec![0; 8 << 20];
        soon(lively.read_exact(&mut much)).await.unwrap();
        drop(lively);
        // The stalled stream still works.
        soon(stuck.read_exact(&mut much)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_streams_share_one_connection_and_stay_usable() {
    const COUNT: usize = 5_000;
    let (edge, _connector) = pair(false, echo()).await;
    let mut streams: Vec<TunnelStream> = (0..COUNT).map(|_| open(&edge)).collect();
    for round in 0..3_u8 {
        for stream in &mut streams {
            stream.write_all(&[round; 100]).await.unwrap();
        }
        for stream in &mut streams {
            let mut answer = [0; 100];
            soon(stream.read_exact(&mut answer)).await.unwrap();
            assert_eq!(answer, [round; 100]);
        }
        assert_eq!(edge.tunnels.stats().mux_streams, COUNT);
    }
    // One stream sends much, and does not delay the others.
    let much = vec![5; 3_000_000];
    assert!(soon(exchange_all(streams.pop().unwrap(), &much)).await == much);
    drop(streams);
    until("all streams end", || edge.handle(tunnel(1)).unwrap().active_streams() == 0).await;
    until("streams are forgotten", || edge.tunnels.stats().mux_streams == 0).await;
}

/// Writes and reads at the same time, until both directions have ended.
async fn exchange_all(stream: TunnelStream, bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut answer = Vec::new();
    let writing = async {
        writer.write_all(bytes).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    tokio::join!(writing, async { reader.read_to_end(&mut answer).await.unwrap() });
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_an_error_at_the_other_end_never_an_end_of_data() {
    // Reports the end of the reading: the count of bytes, or the error.
    let (ends_in, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let origin = Arc::new(Origin(move |_, stream: IncomingStream| {
        let ends_in = ends_in.clone();
        async move {
            let mut stream = stream.opened().await.unwrap();
            stream.write_all(b"!").await.unwrap();
            stream.flush().await.unwrap();
            let mut came = Vec::new();
            let end = stream.read_to_end(&mut came).await.map_err(|error| error.kind());
            // After an orderly end the origin writes until the writing fails, since the client no longer reads.
            let wrote = match end {
                Ok(_) => loop {
                    if let Err(error) = stream.write_all(&[3; 10_000]).await {
                        break Some(error.kind());
                    }
                },
                Err(_) => None,
            };
            ends_in.send((end, wrote)).unwrap();
        }
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for half_closed in [false, true] {
            let mut stream = open(&edge);
            stream.write_all(b"some words").await.unwrap();
            stream.flush().await.unwrap();
            soon(stream.read_u8()).await.unwrap();
            if half_closed {
                stream.shutdown().await.unwrap();
                soon(stream.read_u8()).await.unwrap();
            }
            stream.reset(ResetCode::Cancelled);
            let reset = io::ErrorKind::ConnectionReset;
            let expected = if half_closed { (Ok(10), Some(reset)) } else { (Err(reset), None) };
            assert_eq!(soon(ends.recv()).await.unwrap(), expected, "legs {legs}, half closed {half_closed}");
        }
        until("all streams end", || edge.handle(tunnel(1)).unwrap().active_streams() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_ended_and_then_breaks_is_an_error_for_the_writer() {
    let origin = Arc::new(Origin(|_, stream: IncomingStream| async move {
        let mut stream = stream.opened().await.unwrap();
        stream.write_all(b"all there is").await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.reset(ResetCode::OriginReset);
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        let mut stream = open(&edge);
        let mut received = Vec::new();
        soon(stream.read_to_end(&mut received)).await.unwrap();
        assert_eq!(received, b"all there is");
        let error = soon(async {
            loop {
                if let Err(error) = stream.write_all(&[9; 10_000]).await {
                    break error;
                }
            }
        })
        .await;
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "legs {legs}: {error}");
        drop(stream);
        until("all streams end", || edge.handle(tunnel(1)).unwrap().active_streams() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_silent_for_a_day_goes_on_as_if_nothing_was() {
    for legs in [true, false] {
        let edge = Edge::new();
        let _connector = Connector::start_with(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)], |config| {
            if !legs {
                config.max_legs = 0;
            }
        });
        if legs {
            edge.ready(tunnel(1)).await
        } else {
            edge.attached(tunnel(1)).await
        };
        let mut stream = open(&edge);
        for word in [b"evening", b"morning"] {
            stream.write_all(word).await.unwrap();
            let mut answer = [0; 7];
            soon(stream.read_exact(&mut answer)).await.unwrap();
            assert_eq!(&answer, word);
            tokio::time::sleep(std::time::Duration::from_secs(86_400)).await;
        }
        stream.shutdown().await.unwrap();
        assert_eq!(soon(stream.read(&mut [0; 9])).await.unwrap(), 0, "its end comes through too");
        assert_eq!(stream.is_on_leg(), legs);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_origin_learns_where_the_client_connected_to() {
    let (opens_in, mut opens) = tokio::sync::mpsc::unbounded_channel();
    let origin = Arc::new(Origin(move |open: sallyport_wire::Open, stream: IncomingStream| {
        opens_in.send(open).unwrap();
        async move { drop(stream.opened().await) }
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        let mut stream = open(&edge);
        stream.flush().await.unwrap();
        assert_eq!(soon(opens.recv()).await.unwrap(), open_for(tunnel(1)), "legs {legs}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_side_also_learns_that_the_other_side_gave_up_after_its_end() {
    let (ends_in, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let origin = Arc::new(Origin(move |_, stream: IncomingStream| {
        let ends_in = ends_in.clone();
        async move {
            let mut stream = stream.opened().await.unwrap();
            stream.write_all(b"!").await.unwrap();
            stream.flush().await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            ends_in.send(None).unwrap();
            let error = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
            ends_in.send(Some(error.kind())).unwrap();
        }
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for _ in 0..5 {
            let mut stream = open(&edge);
            stream.write_all(b"some words").await.unwrap();
            stream.shutdown().await.unwrap();
            soon(stream.read_u8()).await.unwrap();
            assert_eq!(soon(ends.recv()).await.unwrap(), None);
            stream.reset(ResetCode::Cancelled);
            assert_eq!(soon(ends.recv()).await.unwrap(), Some(io::ErrorKind::ConnectionReset), "legs {legs}");
        }
        until("all streams end", || edge.handle(tunnel(1)).unwrap().active_streams() == 0).await;
        if legs {
            let stats = edge.tunnels.stats();
            assert!(stats.legs_idle + stats.legs_busy <= 10, "its leg is used again: {stats:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_stream_arrives_with_the_next_stream_on_its_leg_or_alone() {
    const ROUNDS: usize = 40;
    let (rests_in, mut rests) = tokio::sync::mpsc::unbounded_channel();
    let origin = Arc::new(Origin(move |_, stream: IncomingStream| {
        let rests_in = rests_in.clone();
        async move {
            let mut stream = stream.opened_later().unwrap();
            stream.write_all(b"sent").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut rest = Vec::new();
            let end = stream.read_to_end(&mut rest).await;
            rests_in.send(end.map(|_| rest)).unwrap();
        }
    }));
    for legs in [true, false] {
        let (edge, _connector) = pair(legs, origin.clone()).await;
        for round in 0..ROUNDS {
            let mut stream = open(&edge);
            stream.write_all(b"asked").await.unwrap();
            stream.flush().await.unwrap();
            let mut received = Vec::new();
            soon(stream.read_to_end(&mut received)).await.unwrap();
            assert_eq!(received, b"sent");
            stream.shutdown().await.unwrap();
            drop(stream);
            if round % 4 == 0 {
                assert_eq!(soon(rests.recv()).await.unwrap().unwrap(), b"asked", "legs {legs}");
            }
        }
        for _ in 0..ROUNDS - ROUNDS / 4 {
            assert_eq!(soon(rests.recv()).await.unwrap().unwrap(), b"asked", "legs {legs}");
        }
        assert_eq!(edge.handle(tunnel(1)).unwrap().active_streams(), 0);
    }
}
