//! Bodies of the fuzzers in `fuzz/`, which the tests replay: bytes become inputs and decisions.

use std::time::{Duration, Instant};

use sallyport_model::TunnelId;
use sallyport_wire::{
    Attach, Carrier, DatagramInput, DatagramLeg, Event, FailureReason, FlowEnd, FlowId, FlowOpen, FrameHeader,
    FrameType, Hello, LegInput, LegState, Open, OpenFailure, Read, ResetCode, Session, SessionConfig, Side, StreamId,
    StreamProtocol,
    datagram::MAX_QUEUED_BYTES,
    frame::{MAX_DATAGRAM_BYTES, MAX_DATAGRAM_FRAME_BYTES},
};

/// Operation bytes up to this value feed that many bytes, plus one, to the session.
pub(crate) const MAX_FEED: u8 = 0xbf;
/// The most bytes that a session of this configuration may buffer: a window each way for twice the allowed streams,
/// control frames, and one incomplete frame.
const MAX_BUFFERED_BYTES: usize = 2 * 8 * 2 * MAX_WINDOW_BYTES + 1024 * 1024 + 8 * 1024 + 128 * 1024;
/// The greatest size of a window after so short a time, in bytes.
const MAX_WINDOW_BYTES: usize = 16 * 1024 * 1024;

fn config() -> SessionConfig {
    SessionConfig { stream_window_bytes: 4_096, max_streams: 8, ..SessionConfig::default() }
}

fn tunnel() -> TunnelId {
    TunnelId::from_bytes([7; 16])
}

fn open() -> Open {
    Open {
        tunnel: tunnel(),
        protocol: StreamProtocol::Http1,
        client: ([203, 0, 113, 9], 5).into(),
        destination: None,
        opened_at_us: 1,
        server_name: "wandering-shape-7752.localhost".to_owned(),
    }
}

/// Takes bytes from the front; zero when none are left.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        front
    }
}

/// One end of a control connection. The first byte chooses the end; then each byte is an operation, with arguments.
pub(crate) fn session_input(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut now = Instant::now();
    let mut session = if bytes.byte() % 2 == 0 {
        Session::edge(config(), [1; 16], [2; 32], now)
    } else {
        let hello = Hello {
            versions: vec![1],
            agent: "fuzz".to_owned(),
            connector: [3; 16],
            max_legs: 4,
            features: Vec::new(),
            host: None,
        };
        let mut session = Session::connector(hello, config(), now);
        session.attach(Attach {
            tunnel: tunnel(),
            credential: "c".to_owned(),
            request_log: true,
            home: None,
            origin: None,
            spread: false,
        });
        session
    };
    let mut over = false;
    while !bytes.0.is_empty() {
        let operation = bytes.byte();
        if operation <= MAX_FEED {
            let result = session.handle_input(bytes.take(usize::from(operation) + 1), now);
            assert!(!over || result.is_ok(), "a session that is over takes no input");
            over |= result.is_err();
            assert!(!over || session.is_closing());
        } else {
            decide(&mut session, operation, &mut bytes, &mut now);
        }
        take_events(&mut session);
        assert!(session.buffered_bytes() <= MAX_BUFFERED_BYTES);
        if let Some((at, _)) = session.poll_timeout() {
            assert!(at <= now + Duration::from_secs(3_601));
        }
    }
    transmit(&mut session, usize::MAX, now);
    session.carrier_lost();
    for id in 0..=32 {
        session.reset(StreamId(id), ResetCode::Internal);
    }
    assert!(!session.wants_transmit() || transmit(&mut session, usize::MAX, now) > 0);
}

fn decide(session: &mut Session, operation: u8, bytes: &mut Bytes<'_>, now: &mut Instant) {
    let id = StreamId(u32::from(bytes.byte() % 32));
    match operation % 16 {
        0 => {
            transmit(session, 20_000, *now);
        }
        1 => {
            *now += Duration::from_millis(u64::from(bytes.byte()) * 100);
            session.handle_timeout(*now);
        }
        2 => drop(session.open(open())),
        3 => {
            let data = [0x55; 256];
            if let Ok(taken) = session.write(id, &data[..usize::from(bytes.byte())]) {
                assert!(taken < 256);
            }
        }
        4 => {
            let mut buf = [0; 300];
            if let Ok(Read::Bytes(len)) = session.read(id, &mut buf, *now) {
                assert!(len > 0);
            }
        }
        5 => session.finish(id),
        6 => session.reset(id, ResetCode::Timeout),
        7 => session.opened(id),
        8 => session.failed(id, OpenFailure::new(FailureReason::Tls, "the handshake failed")),
        9 => session.detach(tunnel(), "deleted", "the tunnel was deleted"),
        10 => session.go_away("shutting-down", "the edge stops"),
        11 => session.ask_for_legs(3),
        12 => session.attach(Attach {
            tunnel: tunnel(),
            credential: "d".to_owned(),
            request_log: false,
            home: None,
            origin: None,
            spread: false,
        }),
        13 => transmit_nothing_but_bounds(session, *now),
        _ => session.accept_attach(tunnel(), "https://x.localhost".to_owned()),
    }
}

fn transmit_nothing_but_bounds(session: &mut Session, now: Instant) {
    let mut out = Vec::new();
    assert_eq!(session.poll_transmit(&mut out, 0, now), 0);
    assert!(session.stream_count() <= 16 || !session.is_drained());
}

/// The output consists of whole frames that the other end accepts as well formed.
fn transmit(session: &mut Session, max_bytes: usize, now: Instant) -> usize {
    let mut out = vec![0xee];
    let sent = session.poll_transmit(&mut out, max_bytes, now);
    assert_eq!((out.len(), out[0]), (sent + 1, 0xee));
    let mut rest = &out[1..];
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = FrameHeader::decode(*header, Carrier::Control).expect("we send well formed frames");
        rest = after.get(header.len as usize..).expect("we send whole frames");
    }
    assert!(rest.is_empty());
    sent
}

fn take_events(session: &mut Session) {
    let mut events = 0;
    while let Some(event) = session.poll_event() {
        events += 1;
        assert!(events <= 10_000);
        if let Event::AttachRequested(attach) = event {
            session.accept_attach(attach.tunnel, "https://x.localhost".to_owned());
        }
    }
}

/// One end of a leg. The first byte chooses the end; then each byte is a frame to send (odd) or a received frame.
pub(crate) fn leg_input(data: &[u8]) {
    let mut bytes = Bytes(data);
    let side = if bytes.byte() % 2 == 0 { Side::Edge } else { Side::Connector };
    let mut leg = LegState::new(side);
    while !bytes.0.is_empty() {
        let operation = bytes.byte();
        let before = leg.clone();
        if operation % 2 == 1 {
            if let Some(kind) = FrameType::from_byte(operation / 2) {
                let sent = leg.on_send(kind);
                assert!(sent.is_ok() || leg == before, "misuse changes nothing");
                assert!(sent.is_err() || kind.may_come_from(side));
            }
            continue;
        }
        let Some(Ok(header)) = bytes.take(4).first_chunk().map(|header| FrameHeader::decode(*header, Carrier::Leg))
        else {
            return;
        };
        let payload = bytes.take(header.len as usize);
        let Ok(input) = leg.on_receive(header, payload) else {
            return;
        };
        match input {
            LegInput::Ignore | LegInput::Refused(_) => assert_eq!(leg, before),
            LegInput::Opening(_) => assert!(before.is_idle() && leg.serial() == before.serial() + 1),
            LegInput::Deliver => assert!(before.may_read() && leg.may_read()),
            LegInput::Discard => assert!(leg.discarded_bytes() > before.discarded_bytes()),
            _ => assert!(!before.is_idle() && leg.serial() == before.serial()),
        }
        assert!(!leg.is_idle() || leg.serial() == 0 || (leg.sent_terminal() && leg.received_terminal()));
    }
}

/// One end of a datagram leg. The first byte chooses the end; then each byte is an operation, with arguments.
pub(crate) fn datagram_input(data: &[u8]) {
    let mut bytes = Bytes(data);
    let side = if bytes.byte() % 2 == 0 { Side::Edge } else { Side::Connector };
    let mut leg = DatagramLeg::new(side, 8);
    let mut now = Instant::now();
    let mut input: Vec<u8> = Vec::new();
    while !bytes.0.is_empty() {
        let operation = bytes.byte();
        if operation <= MAX_FEED {
            input.extend_from_slice(bytes.take(usize::from(operation) + 1));
            let mut taken = 0;
            while let Some((len, came)) = match leg.take_input(&input[taken..]) {
                Ok(came) => came,
                Err(_) => return,
            } {
                taken += len;
                match came {
                    DatagramInput::Opened(id, _) | DatagramInput::Datagram(id, _) => assert!(leg.is_open(id)),
                    DatagramInput::Closed(id, _) => assert!(!leg.is_open(id)),
                    DatagramInput::Ignored | DatagramInput::Refused(_) => {}
                }
            }
            input.drain(..taken);
            assert!(input.len() < MAX_DATAGRAM_FRAME_BYTES, "a whole frame is taken");
        } else {
            decide_datagram(&mut leg, operation, &mut bytes, &mut now);
        }
        assert!(leg.stats().flows <= 8);
        assert!(leg.buffered_bytes() <= MAX_QUEUED_BYTES + 2 * 1024 * 1024);
    }
    while leg.wants_transmit() {
        transmit_datagrams(&mut leg, 50_000, now);
    }
    assert_eq!(leg.buffered_bytes(), 0);
}

fn decide_datagram(leg: &mut DatagramLeg, operation: u8, bytes: &mut Bytes<'_>, now: &mut Instant) {
    let id = FlowId(u32::from(bytes.byte() % 16));
    match operation % 8 {
        0 => transmit_datagrams(leg, 20_000, *now),
        1 => *now += Duration::from_millis(u64::from(bytes.byte())),
        2 => {
            let (client, destination) = (([203, 0, 113, 9], 5).into(), ([192, 0, 2, 1], 53).into());
            let opened = leg.open(&FlowOpen { tunnel: tunnel(), client, destination, opened_at_us: 1 });
            assert!(opened.is_err() || leg.is_open(opened.unwrap()));
        }
        3 => leg.close(id, FlowEnd::Idle),
        // Few input bytes make many output bytes: the datagrams are long and sent often.
        4 => {
            let long = vec![0x55; MAX_DATAGRAM_BYTES];
            for _ in 0..=bytes.byte() {
                leg.send(id, &long, *now);
            }
        }
        _ => {
            let data = [0x55; 256];
            let open = leg.is_open(id);
            assert_eq!(leg.send(id, &data[..usize::from(bytes.byte())], *now), open);
        }
    }
}

/// The output consists of whole frames that the other end accepts as well formed.
fn transmit_datagrams(leg: &mut DatagramLeg, max_bytes: usize, now: Instant) {
    let mut out = Vec::new();
    leg.poll_transmit(&mut out, max_bytes, now);
    assert!(out.len() < max_bytes + MAX_DATAGRAM_FRAME_BYTES);
    let mut rest = &out[..];
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = FrameHeader::decode(*header, Carrier::Datagrams).expect("we send well formed frames");
        rest = after.get(header.len as usize..).expect("we send whole frames");
    }
    assert!(rest.is_empty());
}
