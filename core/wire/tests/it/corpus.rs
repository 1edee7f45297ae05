//! The fuzzers' corpus, replayed; and the tool that writes its first files from real exchanges.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use sallyport_wire::{
    DatagramLeg, FlowOpen, FrameType, OpenFailure, ResetCode, SessionConfig, Side, message::reset_frame,
};

use crate::{
    fuzz_bodies::{MAX_FEED, datagram_input, leg_input, session_input},
    link::{LinkConfig, Pair, Plan, open},
    messages::link,
};

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

#[test]
fn every_file_of_the_corpus_passes() {
    for (target, body) in
        [("session_input", session_input as fn(&[u8])), ("leg_input", leg_input), ("datagram_input", datagram_input)]
    {
        let files: Vec<PathBuf> = fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 10, "{} files for {target}", files.len());
        for file in files {
            body(&fs::read(&file).unwrap());
        }
    }
}

/// `cargo test -p sallyport-wire -- --ignored write_the_corpus` writes the files that come from real exchanges anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    for (name, data) in session_files() {
        fs::create_dir_all(folder("session_input")).unwrap();
        fs::write(folder("session_input").join(name), data).unwrap();
    }
    for (name, data) in leg_files() {
        fs::create_dir_all(folder("leg_input")).unwrap();
        fs::write(folder("leg_input").join(name), data).unwrap();
    }
    for (name, data) in datagram_files() {
        fs::create_dir_all(folder("datagram_input")).unwrap();
        fs::write(folder("datagram_input").join(name), data).unwrap();
    }
}

/// A name and streams: the command for the connector, the edge's bytes to send, and whether the edge reads.
type Exchange = (&'static str, &'static [(&'static str, u64, bool)]);

/// Exchanges of every kind, as each end received them.
fn session_files() -> Vec<(String, Vec<u8>)> {
    let exchanges: [Exchange; 9] = [
        ("idle", &[]),
        ("links", &[]),
        ("one", &[("respond 300", 100, true)]),
        ("three", &[("respond 900", 0, true), ("respond 0", 900, true), ("respond 10", 10, true)]),
        ("failed", &[("fail", 500, true)]),
        ("silent", &[("silent", 50, true)]),
        ("window", &[("respond 9000", 9_000, true)]),
        ("unread", &[("respond 9000", 10, false)]),
        ("stalled", &[("stall 100", 6_000, true), ("respond 5", 5, true)]),
    ];
    let mut files = Vec::new();
    for (name, streams) in exchanges {
        let session = SessionConfig { stream_window_bytes: 4_096, max_streams: 8, ..SessionConfig::default() };
        let mut pair = Pair::new(LinkConfig { session, ..LinkConfig::default() });
        pair.record = true;
        pair.run_for(Duration::from_millis(100));
        let mut ids = Vec::new();
        for (server, send, reads) in streams {
            ids.push(pair.open(server, Plan { reads: *reads, ..Plan::send(*send) }));
        }
        pair.run_for(Duration::from_millis(200));
        if name == "silent" || name == "stalled" {
            pair.edge.session.reset(ids[0], ResetCode::Timeout);
        }
        if name == "links" {
            pair.connector.session.report_links(vec![link("eth0", 20_000), link("192.0.2.1", 0)]);
        }
        pair.edge.session.ask_for_legs(2);
        pair.edge.session.go_away("shutting-down", "the edge restarts");
        pair.run_for(Duration::from_secs(11));
        let (to_edge, to_connector) = pair.recorded();
        files.push((format!("edge-{name}"), edge_file(to_edge, streams.len())));
        files.push((format!("connector-{name}"), connector_file(to_connector)));
    }
    files
}

/// Operation bytes; see `fuzz_bodies::decide`.
const TRANSMIT: [u8; 2] = [0xc0, 0];
const OPEN: [u8; 2] = [0xc2, 0];

fn feed(file: &mut Vec<u8>, piece: &[u8]) {
    for part in piece.chunks(usize::from(MAX_FEED) + 1) {
        file.push((part.len() - 1) as u8);
        file.extend_from_slice(part);
    }
}

fn edge_file(pieces: &[Vec<u8>], streams: usize) -> Vec<u8> {
    let mut file = vec![0];
    for (n, piece) in pieces.iter().enumerate() {
        feed(&mut file, piece);
        file.extend_from_slice(&TRANSMIT);
        if n == 1 {
            for id in 1..=streams as u8 {
                file.extend_from_slice(&OPEN);
                file.extend_from_slice(&[0xc3, id, 200]);
            }
            file.extend_from_slice(&TRANSMIT);
        }
    }
    for id in 1..=streams as u8 {
        file.extend_from_slice(&[0xc4, id, 0xc5, id, 0xc4, id, 0xc6, id]);
    }
    file.extend_from_slice(&TRANSMIT);
    file
}

fn connector_file(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![1];
    for piece in pieces {
        feed(&mut file, piece);
        for id in 1..=3 {
            file.extend_from_slice(&[0xc7, id, 0xc3, id, 200, 0xc4, id, 0xc4, id]);
        }
        file.extend_from_slice(&TRANSMIT);
    }
    for id in 1..=3 {
        file.extend_from_slice(&[0xc5, id, 0xc1, id, 50]);
    }
    file.extend_from_slice(&TRANSMIT);
    file
}

/// Streams one after another on a leg, as each end receives them.
fn leg_files() -> Vec<(String, Vec<u8>)> {
    let send = |kind: FrameType| vec![kind as u8 * 2 + 1];
    let come = |frame: &[u8]| [&[0], frame].concat();
    let empty = |kind| come(&sallyport_wire::message::empty_frame(kind));
    let reset = |serial| come(&reset_frame(serial, ResetCode::Cancelled));
    let data = || come(&[FrameType::Data as u8, 0, 0, 3, b'a', b'b', b'c']);
    let encoded = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        come(&out)
    };
    let opening = || encoded(&|out| open("wandering-shape-7752.localhost").encode(out));
    let failure = OpenFailure::new(sallyport_wire::FailureReason::Refused, "connection refused");
    let failed = || encoded(&|out| failure.encode(out));
    let [o, d, f, r] = [FrameType::Open, FrameType::Data, FrameType::Fin, FrameType::Reset].map(send);
    let (took, not) = (send(FrameType::Opened), send(FrameType::Failed));
    let whole = [o.clone(), d.clone(), f.clone(), empty(FrameType::Opened), data(), empty(FrameType::Fin)].concat();
    let served = [opening(), took.clone(), data(), d.clone(), empty(FrameType::Fin), f.clone()].concat();
    let files: Vec<(&str, u8, Vec<Vec<u8>>)> = vec![
        ("edge-whole", 0, vec![whole.clone()]),
        ("edge-recycled", 0, vec![whole.clone(), whole.clone(), reset(1), whole.clone(), reset(1)]),
        ("edge-failed", 0, vec![o.clone(), d.clone(), failed(), r.clone(), whole.clone()]),
        ("edge-reset", 0, vec![o.clone(), r.clone(), empty(FrameType::Opened), data(), empty(FrameType::Fin)]),
        ("edge-was-reset", 0, vec![o.clone(), empty(FrameType::Opened), data(), reset(1), f.clone()]),
        ("edge-fin-then-reset", 0, vec![o.clone(), f.clone(), r.clone(), empty(FrameType::Opened), data(), reset(1)]),
        ("edge-early-data", 0, vec![o, data()]),
        ("connector-whole", 1, vec![served.clone()]),
        ("connector-recycled", 1, vec![served.clone(), reset(1), served.clone(), reset(1), served.clone()]),
        ("connector-failed", 1, vec![opening(), data(), not, data(), data(), empty(FrameType::Fin), served]),
        ("connector-reset", 1, vec![opening(), took.clone(), r.clone(), data(), reset(1)]),
        ("connector-fin-then-reset", 1, vec![opening(), took, f, r, data(), empty(FrameType::Fin)]),
        ("connector-twice", 1, vec![opening(), opening()]),
    ];
    files.into_iter().map(|(name, side, parts)| (name.to_owned(), [vec![side], parts.concat()].concat())).collect()
}

/// Flows as each end receives them; operations as in `fuzz_bodies::decide_datagram`.
fn datagram_files() -> Vec<(String, Vec<u8>)> {
    const SEND: u8 = 0xc5;
    const TRANSMIT_ALL: [u8; 2] = [0xc0, 0];
    const OPEN_ONE: [u8; 2] = [0xc2, 0];
    const CLOSE: [u8; 2] = [0xc3, 1];
    let come = |frames: &[u8]| {
        let mut file = Vec::new();
        feed(&mut file, frames);
        file
    };
    // The bytes of an edge that opens a flow and sends two datagrams on it, the second one empty.
    let mut edge = DatagramLeg::new(Side::Edge, 8);
    let now = Instant::now();
    let destination = ([192, 0, 2, 1], 53).into();
    let client = ([203, 0, 113, 9], 5353).into();
    let id = edge.open(&FlowOpen { tunnel: crate::link::tunnel(), client, destination, opened_at_us: 7 }).unwrap();
    assert!(edge.send(id, b"a question", now) && edge.send(id, b"", now));
    let mut opening = Vec::new();
    edge.poll_transmit(&mut opening, usize::MAX, now);
    let datagram = |id: u8| come(&[FrameType::Datagram as u8, 0, 0, 7, 0, 0, 0, id, b'a', b'b', b'c']);
    let close = |id: u8, end: u8| come(&[FrameType::FlowClose as u8, 0, 0, 5, 0, 0, 0, id, end]);
    let (open, transmit) = (OPEN_ONE.to_vec(), TRANSMIT_ALL.to_vec());
    let send = vec![SEND, 1, 200];
    let flood = vec![0xc4, 1, 255];
    let wait = vec![0xc1, 0, 101];
    let (ours, opened) = (CLOSE.to_vec(), come(&opening));
    let files: Vec<(&str, u8, Vec<Vec<u8>>)> = vec![
        (
            "edge-exchange",
            0,
            vec![open.clone(), send.clone(), transmit.clone(), datagram(1), close(1, 1), send.clone()],
        ),
        (
            "edge-crossing",
            0,
            vec![open.clone(), transmit.clone(), ours.clone(), datagram(1), close(1, 0), transmit.clone()],
        ),
        ("edge-never-opened", 0, vec![open.clone(), datagram(2)]),
        ("edge-flood", 0, vec![open.clone(), open.clone(), flood.clone(), send.clone(), transmit.clone()]),
        ("edge-stalled", 0, vec![open.clone(), send.clone(), wait.clone(), send.clone(), transmit.clone()]),
        (
            "edge-many",
            0,
            vec![open.repeat(12), transmit.clone(), send.clone(), close(3, 9), open.clone(), transmit.clone()],
        ),
        ("connector-exchange", 1, vec![opened.clone(), send.clone(), transmit.clone(), close(1, 0), send.clone()]),
        ("connector-closes", 1, vec![opened.clone(), ours.clone(), datagram(1), close(1, 0), transmit.clone()]),
        ("connector-reused", 1, vec![opened.clone(), close(1, 0), opened.clone()]),
        ("connector-flood", 1, vec![opened.clone(), flood, wait, send, transmit]),
        ("connector-wrong-side", 1, vec![close(1, 0)]),
    ];
    files.into_iter().map(|(name, side, parts)| (name.to_owned(), [vec![side], parts.concat()].concat())).collect()
}
