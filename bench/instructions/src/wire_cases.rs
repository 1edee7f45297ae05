//! The tunnel protocol: messages, legs, streams on a control connection, datagrams.

use std::{hint::black_box, net::SocketAddr, time::Instant};

use sallyport_model::{RequestRecord, TunnelId};
use sallyport_wire::{
    Attach, Carrier, DatagramInput, DatagramLeg, Event, FlowOpen, FrameHeader, FrameType, Hello, LegInput, LegState,
    Open, Read, Session, SessionConfig, Side, StreamId, StreamProtocol,
    frame::HEADER_BYTES,
    message::{empty_frame, feature},
};

use crate::Case;

pub(crate) const CASES: &[Case] = &[
    Case { name: "wire_open_message", rounds: 2_000, prepare: open_message },
    Case { name: "wire_leg_request", rounds: 2_000, prepare: leg_request },
    Case { name: "wire_leg_data_frame", rounds: 5_000, prepare: leg_data_frame },
    Case { name: "wire_mux_request", rounds: 1_000, prepare: mux_request },
    Case { name: "wire_mux_download_1m", rounds: 10, prepare: mux_download },
    Case { name: "wire_request_log", rounds: 1_000, prepare: request_log },
    Case { name: "wire_datagram_echo", rounds: 2_000, prepare: datagram_echo },
];

const TUNNEL: [u8; 16] = [7; 16];

fn open() -> Open {
    Open {
        tunnel: TunnelId::from_bytes(TUNNEL),
        protocol: StreamProtocol::Http1,
        client: SocketAddr::from(([192, 0, 2, 1], 40_000)),
        destination: None,
        opened_at_us: 1_800_000_000_000_000,
        server_name: "wandering-shape-7752.example.com".to_owned(),
    }
}

/// An OPEN frame, written and read.
fn open_message() -> Box<dyn FnMut()> {
    let (open, mut out) = (open(), Vec::new());
    Box::new(move || {
        out.clear();
        black_box(&open).encode(&mut out);
        black_box(Open::decode(&out[HEADER_BYTES..]).unwrap());
    })
}

/// One end sends a frame on a leg, and the other takes it.
fn send(from: &mut LegState, to: &mut LegState, frame: &[u8]) -> LegInput {
    let header = FrameHeader::decode(*frame.first_chunk().unwrap(), Carrier::Leg).unwrap();
    from.on_send(header.kind).unwrap();
    to.on_receive(header, &frame[HEADER_BYTES..]).unwrap()
}

/// A request of one frame and its answer of one frame, on a leg that is used again and again.
fn leg_request() -> Box<dyn FnMut()> {
    let (mut edge, mut connector) = (LegState::new(Side::Edge), LegState::new(Side::Connector));
    let (open, mut out) = (open(), Vec::new());
    let data = FrameHeader { kind: FrameType::Data, len: 120 }.encode();
    Box::new(move || {
        out.clear();
        black_box(&open).encode(&mut out);
        send(&mut edge, &mut connector, &out);
        send(&mut edge, &mut connector, black_box(&data));
        send(&mut connector, &mut edge, &empty_frame(FrameType::Opened));
        send(&mut connector, &mut edge, black_box(&data));
        send(&mut edge, &mut connector, &empty_frame(FrameType::Fin));
        send(&mut connector, &mut edge, &empty_frame(FrameType::Fin));
        assert!(edge.is_idle() && connector.is_idle());
    })
}

/// The header of one frame of bulk: all that a leg adds to 64 KiB.
fn leg_data_frame() -> Box<dyn FnMut()> {
    let (mut edge, mut connector) = (LegState::new(Side::Edge), LegState::new(Side::Connector));
    let mut out = Vec::new();
    open().encode(&mut out);
    send(&mut edge, &mut connector, &out);
    send(&mut connector, &mut edge, &empty_frame(FrameType::Opened));
    Box::new(move || {
        let header = FrameHeader { kind: FrameType::Data, len: black_box(65_532) }.encode();
        black_box(send(&mut connector, &mut edge, &header));
    })
}

/// Both ends of a control connection with one tunnel attached, and a buffer for what travels.
struct Pair {
    edge: Session,
    connector: Session,
    bytes: Vec<u8>,
    now: Instant,
}

impl Pair {
    fn new() -> Self {
        let (now, config) = (Instant::now(), SessionConfig::default());
        let hello = Hello {
            versions: vec![sallyport_wire::VERSION],
            agent: "count/1".to_owned(),
            connector: [3; 16],
            max_legs: 64,
            features: vec![feature::OPEN_FIELDS.to_owned()],
            host: None,
        };
        let mut connector = Session::connector(hello, config.clone(), now);
        let credential = "credential".to_owned();
        connector.attach(Attach {
            tunnel: TunnelId::from_bytes(TUNNEL),
            credential,
            request_log: true,
            home: None,
            origin: None,
            spread: false,
        });
        let edge = Session::edge(config, [1; 16], [2; 32], now);
        let mut pair = Self { edge, connector, bytes: Vec::new(), now };
        pair.settle(|_, _| ());
        pair
    }

    /// Moves what there is to send until there is nothing more. `told` hears each event, and whether it is the edge's.
    fn settle(&mut self, mut told: impl FnMut(bool, &Event)) {
        loop {
            let mut moved = 0;
            for at_edge in [false, true] {
                let (from, to) =
                    if at_edge { (&mut self.connector, &mut self.edge) } else { (&mut self.edge, &mut self.connector) };
                self.bytes.clear();
                moved += from.poll_transmit(&mut self.bytes, 65_536, self.now);
                to.handle_input(&self.bytes, self.now).unwrap();
                while let Some(event) = to.poll_event() {
                    told(at_edge, &event);
                    match event {
                        Event::AttachRequested(attach) => to.accept_attach(attach.tunnel, String::new()),
                        Event::StreamOpen(id, _) => to.opened(id),
                        _ => {}
                    }
                }
            }
            if moved == 0 {
                return;
            }
        }
    }

    fn read_to_end(session: &mut Session, id: StreamId, buffer: &mut [u8], now: Instant) -> usize {
        let mut got = 0;
        while let Read::Bytes(bytes) = session.read(id, buffer, now).unwrap() {
            got += bytes;
        }
        got
    }
}

/// A stream on the control connection that carries a small request and a small answer.
fn mux_request() -> Box<dyn FnMut()> {
    let mut pair = Pair::new();
    let mut buffer = vec![0; 1_024];
    Box::new(move || {
        let id = pair.edge.open(open()).unwrap();
        assert_eq!(pair.edge.write(id, &[b'q'; 120]), Ok(120));
        pair.settle(|_, _| ());
        assert_eq!(Pair::read_to_end(&mut pair.connector, id, &mut buffer, pair.now), 120);
        assert_eq!(pair.connector.write(id, &[b'a'; 240]), Ok(240));
        pair.connector.finish(id);
        pair.edge.finish(id);
        pair.settle(|_, _| ());
        assert_eq!(Pair::read_to_end(&mut pair.edge, id, &mut buffer, pair.now), 240);
        assert_eq!(Pair::read_to_end(&mut pair.connector, id, &mut buffer, pair.now), 0);
        pair.settle(|_, _| ());
        assert!(pair.edge.is_drained() && pair.connector.is_drained());
    })
}

/// 1 MiB down a stream of the control connection, with the windows that this takes.
fn mux_download() -> Box<dyn FnMut()> {
    const BYTES: usize = 1024 * 1024;
    let mut pair = Pair::new();
    let (data, mut buffer) = (vec![b'd'; 65_536], vec![0; 65_536]);
    Box::new(move || {
        let id = pair.edge.open(open()).unwrap();
        pair.settle(|_, _| ());
        let (mut sent, mut got) = (0, 0);
        while got < BYTES {
            let most = data.len().min(BYTES - sent);
            sent += pair.connector.write(id, &data[..most]).unwrap();
            pair.settle(|_, _| ());
            got += Pair::read_to_end(&mut pair.edge, id, &mut buffer, pair.now);
        }
        pair.connector.finish(id);
        pair.edge.finish(id);
        pair.settle(|_, _| ());
        assert_eq!(Pair::read_to_end(&mut pair.edge, id, &mut buffer, pair.now), 0);
        assert_eq!(Pair::read_to_end(&mut pair.connector, id, &mut buffer, pair.now), 0);
        pair.settle(|_, _| ());
        assert!(pair.edge.is_drained());
    })
}

/// One line of the request log, from the edge to the connector.
fn request_log() -> Box<dyn FnMut()> {
    let mut pair = Pair::new();
    let record = RequestRecord {
        at_ms: 1_800_000_000_000,
        request_id: "0123456789abcdef0123456789abcdef".to_owned(),
        method: "GET".to_owned(),
        target: "/products/42?color=green".to_owned(),
        version: "HTTP/1.1".to_owned(),
        status: 200,
        bytes_in: 0,
        bytes_out: 12_345,
        duration_us: 4_321,
        client: SocketAddr::from(([192, 0, 2, 1], 40_000)),
        tunnel: None,
        identity: None,
        rule: None,
        refused: None,
        omitted_before: 0,
    };
    Box::new(move || {
        assert!(pair.edge.send_request_log(&record));
        let mut lines = 0;
        pair.settle(|_, event| lines += u32::from(matches!(event, Event::RequestLog(_))));
        assert_eq!(lines, 1);
    })
}

/// A datagram of 128 bytes that goes to the connector and comes back.
fn datagram_echo() -> Box<dyn FnMut()> {
    let (mut edge, mut connector) = (DatagramLeg::new(Side::Edge, 16), DatagramLeg::new(Side::Connector, 16));
    let (now, mut bytes) = (Instant::now(), Vec::new());
    let client = SocketAddr::from(([192, 0, 2, 1], 40_000));
    let tunnel = TunnelId::from_bytes(TUNNEL);
    let flow = edge.open(&FlowOpen { tunnel, client, destination: client, opened_at_us: 1 }).unwrap();
    edge.poll_transmit(&mut bytes, 65_536, now);
    assert!(matches!(connector.take_input(&bytes), Ok(Some((_, DatagramInput::Opened(..))))));
    let datagram = [b'd'; 128];
    let mut carry = move |from: &mut DatagramLeg, to: &mut DatagramLeg| {
        bytes.clear();
        from.poll_transmit(&mut bytes, 65_536, now);
        match to.take_input(&bytes) {
            Ok(Some((_, DatagramInput::Datagram(_, got)))) => assert_eq!(got.len(), datagram.len()),
            other => panic!("no datagram came: {other:?}"),
        }
    };
    Box::new(move || {
        assert!(edge.send(flow, &datagram, now));
        carry(&mut edge, &mut connector);
        assert!(connector.send(flow, &datagram, now));
        carry(&mut connector, &mut edge);
    })
}
