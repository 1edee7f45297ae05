//! What the streams of a connection share: GOAWAY, and the bounds on work.

use sallyport_http3::{Connection, ErrorCode, Fault};

use crate::client::*;

#[test]
fn the_control_stream_begins_with_settings() {
    let bytes = Connection::control_stream(65_536);
    let payload = [
        &[1, 0, 7, 0, 6, 0x80, 1, 0, 0, 8, 1][..],
        // One that clients ignore.
        &integer(0x1f * 0x1d + 0x21),
        &[0],
    ];
    assert_eq!(bytes, [vec![0], frame(SETTINGS, &payload.concat())].concat());
}

#[test]
fn the_end_is_announced_before_requests_are_rejected() {
    let mut connection = Connection::new();
    assert!(connection.accept(0) && connection.accept(8), "streams may be skipped");
    assert!(!connection.is_ending());
    assert_eq!(connection.go_away().unwrap(), frame(GOAWAY, &integer((1 << 62) - 4)));
    assert!(connection.accept(12) && !connection.is_ending());
    assert_eq!(connection.go_away().unwrap(), frame(GOAWAY, &[16]));
    assert!(connection.is_ending());
    assert!(!connection.accept(16) && !connection.accept(400), "a rejected request changes nothing");
    assert_eq!(connection.go_away(), None);
}

#[test]
fn a_connection_without_requests_rejects_all() {
    let mut connection = Connection::new();
    connection.go_away();
    assert_eq!(connection.go_away().unwrap(), frame(GOAWAY, &[0]));
    assert!(!connection.accept(0));
}

#[test]
fn a_client_that_gives_up_most_requests_is_disconnected() {
    let mut connection = Connection::new();
    for n in 0..500 {
        assert!(connection.accept(4 * n));
        assert_eq!(connection.count_given_up(), Ok(()));
    }
    assert!(connection.accept(2_000));
    assert_eq!(connection.count_given_up(), Err(ErrorCode::EXCESSIVE_LOAD));
    // One that gives up less than half of them is not.
    let mut connection = Connection::new();
    for n in 0..10_000 {
        assert!(connection.accept(4 * n));
        if n % 2 == 1 {
            assert_eq!(connection.count_given_up(), Ok(()), "{n}");
        }
    }
}

#[test]
fn what_is_skipped_is_bounded_by_the_number_of_requests() {
    let mut connection = Connection::new();
    assert_eq!(connection.count_skipped(64 * 1024), Ok(()));
    connection.accept(0);
    assert_eq!(connection.count_skipped(256), Ok(()));
    assert_eq!(connection.count_skipped(1), Err(ErrorCode::EXCESSIVE_LOAD));
    assert_eq!(connection.count_skipped(u64::MAX), Err(ErrorCode::EXCESSIVE_LOAD));
}

#[test]
fn unfinished_heads_of_all_requests_have_one_bound() {
    let mut connection = Connection::new();
    for _ in 0..4 {
        assert_eq!(connection.hold(0, 64 * 1024), Ok(()));
    }
    assert_eq!(connection.hold(0, 1), Err(Fault::Stream(ErrorCode::EXCESSIVE_LOAD)));
    assert_eq!(connection.hold(64 * 1024, 64 * 1024 + 1), Err(Fault::Stream(ErrorCode::EXCESSIVE_LOAD)));
    assert_eq!(connection.hold(0, 64 * 1024), Ok(()), "the reset one holds nothing");
    assert_eq!(connection.hold(64 * 1024, 0), Ok(()));
    assert_eq!(connection.hold(0, 100), Ok(()));
}
