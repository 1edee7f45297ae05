//! Thousands of streams on one control connection, most of them idle.

use std::time::{Duration, Instant};

use sallyport_wire::{Event, Hello, OpenError, Read, Session, SessionConfig, StreamId};

use crate::link::{LinkConfig, Pair, Plan, attach, hello, open};

const MIB: usize = 1024 * 1024;

/// Moves everything both ways until no output is left; grants and answers every request.
fn pump(edge: &mut Session, connector: &mut Session, now: Instant) {
    loop {
        let mut moved = 0;
        for to_edge in [false, true] {
            let (from, to) = if to_edge { (&mut *connector, &mut *edge) } else { (&mut *edge, &mut *connector) };
            let mut bytes = Vec::new();
            moved += from.poll_transmit(&mut bytes, MIB, now);
            to.handle_input(&bytes, now).unwrap();
            while let Some(event) = to.poll_event() {
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

fn pair(hello: Hello) -> (Session, Session, Instant) {
    let now = Instant::now();
    let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(hello, SessionConfig::default(), now);
    connector.attach(attach());
    pump(&mut edge, &mut connector, now);
    (edge, connector, now)
}

#[test]
fn ten_thousand_streams_run_at_once_within_the_sessions_memory() {
    let (mut edge, mut connector, now) = pair(hello());
    let ids: Vec<StreamId> = (0..10_000).map(|_| edge.open(open("idle")).unwrap()).collect();
    pump(&mut edge, &mut connector, now);
    let mut buf = [0; 16];
    for round in 0..3_u8 {
        for id in &ids {
            assert_eq!(edge.write(*id, &[round; 9]), Ok(9));
        }
        pump(&mut edge, &mut connector, now);
        for id in &ids {
            assert_eq!(connector.read(*id, &mut buf, now), Ok(Read::Bytes(9)));
            assert_eq!(connector.write(*id, &buf[..9]), Ok(9));
        }
        pump(&mut edge, &mut connector, now);
        for id in &ids {
            assert_eq!(edge.read(*id, &mut buf, now), Ok(Read::Bytes(9)));
            assert_eq!(buf[..9], [round; 9]);
        }
    }
    assert_eq!((edge.buffered_bytes(), connector.buffered_bytes()), (0, 0), "idle streams hold nothing");
    // Now all of the streams are filled, and no user reads.
    for id in &ids {
        while connector.write(*id, &[7; 65_536]).unwrap() > 0 {}
    }
    pump(&mut edge, &mut connector, now);
    let buffered = edge.buffered_bytes();
    assert!(buffered <= 64 * MIB, "{buffered} bytes held");
    assert!(buffered >= 10_000 * 1_024, "each may send something: {buffered} bytes held");
    for id in &ids {
        edge.reset(*id, sallyport_wire::ResetCode::Cancelled);
        connector.reset(*id, sallyport_wire::ResetCode::Cancelled);
    }
    pump(&mut edge, &mut connector, now);
    assert!(edge.is_drained() && connector.is_drained());
    // Their buffer space is available to other streams again.
    let id = edge.open(open("alone")).unwrap();
    pump(&mut edge, &mut connector, now);
    assert_eq!(connector.write(id, &[7; 500_000]), Ok(262_144));
}

#[test]
fn a_connector_that_knows_no_first_windows_gets_full_ones_and_fewer_streams() {
    let (mut edge, mut connector, now) = pair(Hello { features: Vec::new(), ..hello() });
    let ids: Vec<StreamId> = (0..1_024).map(|_| edge.open(open("old")).unwrap()).collect();
    assert_eq!(edge.open(open("one more")), Err(OpenError::TooManyStreams));
    pump(&mut edge, &mut connector, now);
    let last = ids[1_023];
    assert_eq!(connector.write(last, &[7; 500_000]), Ok(262_144));
    assert_eq!(edge.write(last, &[7; 500_000]), Ok(262_144));
    pump(&mut edge, &mut connector, now);
}

#[test]
fn among_many_idle_streams_a_busy_one_still_gets_up_to_speed() {
    let rate = 25_000_000;
    let delay = Duration::from_millis(10);
    let mut pair = Pair::attached(LinkConfig { delay, rate_bytes_per_s: rate, ..LinkConfig::default() });
    for _ in 0..1_000 {
        pair.open("silent", Plan { finish: false, ..Plan::send(5) });
    }
    pair.run_for(Duration::from_secs(2));
    // No user polls the streams any more; they stay.
    pair.connector.users.clear();
    pair.edge.users.clear();
    let start = pair.now;
    let id = pair.open("respond 50000000", Plan::send(0));
    pair.run_until_end(id, Duration::from_secs(60));
    let reached = 50_000_000.0 / pair.now.duration_since(start).as_secs_f64();
    assert!(reached >= 0.7 * rate as f64, "{reached:.0} of {rate} bytes/s");
}
