//! Tests of limits for one client, and for clients that reset streams.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sallyport_http2::{ErrorCode, Room};

use crate::{client::*, server::respond};

#[test]
fn there_are_so_many_requests_at_once_and_no_more() {
    let mut tested = Tested::new();
    for number in 0..10 {
        tested.get(2 * number + 1);
        tested.request();
    }
    tested.get(21);
    tested.resets(21, ErrorCode::REFUSED_STREAM);
    respond(&mut tested, 1, b"");
    tested.get(23);
    assert_eq!(tested.request().stream, 23);
}

#[test]
fn a_client_that_resets_all_its_streams_is_disconnected() {
    let mut tested = Tested::new();
    let mut stream = 1;
    while tested.server.failure().is_none() {
        tested.get(stream);
        tested.send(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        assert!(tested.server.poll_request().is_none(), "it was reset before it was polled");
        assert!(stream < 2_000, "it is let go on");
        stream += 2;
    }
    assert!(stream > 900);
    tested.fails(ErrorCode::ENHANCE_YOUR_CALM);
    // A client with four in ten answered may reset the others for ever.
    let mut tested = Tested::new();
    for number in 0..5_000 {
        tested.get(2 * number + 1);
        tested.request();
        if number % 10 < 6 {
            respond(&mut tested, 2 * number + 1, b"");
        } else {
            tested.send(&frame(RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes()));
            tested.server.release_response(2 * number + 1);
        }
        tested.frames();
    }
    assert_eq!(tested.server.failure(), None);
}

#[test]
fn a_client_may_reset_streams_after_their_response_began() {
    let mut tested = Tested::new();
    for number in 0..2_000 {
        let stream = 2 * number + 1;
        tested.get(stream);
        tested.request();
        tested.server.send_head(stream, StatusCode::OK, &HeaderMap::new(), false);
        tested.server.send_data(stream, Bytes::from_static(b"an event"), false);
        tested.frames();
        tested.send(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        tested.server.release_response(stream);
        assert_eq!(tested.server.failure(), None);
    }
}

#[test]
fn what_is_refused_counts_only_when_the_client_could_have_known() {
    let flood = |tested: &mut Tested, requests: u32| {
        for number in 0..requests {
            tested.get(2 * number + 1);
            while tested.server.poll_request().is_some() {}
        }
        tested.server.failure()
    };
    assert_eq!(flood(&mut Tested::new(), 1_000), None, "all that it had sent before it received a frame");
    assert_eq!(flood(&mut Tested::new(), 10_000), Some(ErrorCode::ENHANCE_YOUR_CALM), "there is an end to that");
    let mut tested = Tested::new();
    tested.send(&frame(SETTINGS, ACK, 0, &[]));
    assert_eq!(flood(&mut tested, 1_000), Some(ErrorCode::ENHANCE_YOUR_CALM));
}

#[test]
fn an_open_window_wakes_no_task() {
    let mut tested = Tested::new();
    let calls: Vec<_> = (0..10)
        .map(|number| {
            tested.get(2 * number + 1);
            tested.request();
            tested.server.writer(2 * number + 1).unwrap().clone()
        })
        .collect();
    let taken = || calls.iter().map(Calls::take).sum::<usize>();
    let set = |bytes: u8| [0, 4, 0, 0, 255, bytes];
    tested.send(&frame(SETTINGS, 0, 0, &[set(1), set(255), set(2)].concat()));
    tested.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
    assert_eq!(taken(), 0);
    tested.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    tested.send(&frame(SETTINGS, 0, 0, &[set(1), [0, 4, 0, 0, 0, 0], set(2)].concat()));
    assert_eq!(taken(), 9, "each once, but the first, which had room of its own");
}

#[test]
fn heads_wait_while_the_client_takes_nothing() {
    let mut tested = Tested::new();
    tested.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]));
    for stream in [1, 3] {
        tested.get(stream);
        tested.request();
    }
    assert!(tested.server.may_send_head(1));
    tested.server.send_head(1, StatusCode::OK, &HeaderMap::new(), false);
    while let Room::Bytes(bytes) = tested.server.room(1) {
        tested.server.send_data(1, Bytes::from(vec![1; bytes]), false);
    }
    let calls = tested.server.writer(3).unwrap().clone();
    assert!(!tested.server.may_send_head(3) && !tested.server.may_send_head(3));
    tested.frames();
    assert_eq!((calls.take(), tested.server.may_send_head(3)), (1, true));
}

#[test]
fn those_that_are_given_up_have_bounded_places_while_they_are_served() {
    let mut tested = Tested::new();
    for number in 0..200 {
        tested.get(2 * number + 1);
        let _ = tested.server.poll_request();
        tested.send(&frame(RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let refused = tested.frames().iter().filter(|frame| frame.kind == RST_STREAM).count();
    assert_eq!(refused, 200 - 10 - 64, "the reset streams are still in use");
}
