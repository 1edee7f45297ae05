//! The client's unidirectional streams.

use sallyport_http3::{Connection, ErrorCode, Reading, UniStream};

use crate::client::*;

/// Reads a stream in pieces of one byte, and at once.
fn read(connection: impl Fn() -> Connection, bytes: &[u8]) -> Result<Reading, ErrorCode> {
    let mut connections = (connection(), connection());
    let whole = UniStream::new().handle_input(&mut connections.0, bytes);
    let mut stream = UniStream::new();
    let mut last = Ok(Reading::Continue);
    for byte in bytes {
        last = stream.handle_input(&mut connections.1, &[*byte]);
        if last != Ok(Reading::Continue) {
            break;
        }
    }
    assert_eq!(last, whole, "{bytes:x?}");
    whole
}

/// Reads a control stream with these frames.
fn control(frames: &[Vec<u8>]) -> Result<Reading, ErrorCode> {
    read(Connection::new, &[vec![0], frames.concat()].concat())
}

fn after_settings(frames: &[Vec<u8>]) -> Result<Reading, ErrorCode> {
    control(&[&[frame(SETTINGS, &[])], frames].concat())
}

#[test]
fn a_control_stream_of_a_browser_is_accepted() {
    let settings = [
        vec![1],
        integer(65_536),
        vec![7],
        integer(100),
        vec![6],
        integer(262_144),
        integer(0x33),
        vec![1],
        vec![8],
        vec![1],
        integer(0x1f * 3 + 0x21),
        integer(1 << 40),
    ];
    let frames = [
        frame(SETTINGS, &settings.concat()),
        frame(PRIORITY_UPDATE, b"\x08u=1, i"),
        frame(IGNORED, &[9; 100]),
        frame(IGNORED, &[]),
        frame(MAX_PUSH_ID, &[8]),
        frame(MAX_PUSH_ID, &[8]),
        frame(GOAWAY, &[8]),
        frame(GOAWAY, &[0]),
    ];
    assert_eq!(control(&frames), Ok(Reading::Continue));
}

#[test]
fn the_first_frame_is_settings() {
    for kind in [GOAWAY, DATA, IGNORED, PRIORITY_UPDATE] {
        assert_eq!(control(&[frame(kind, &[0])]), Err(ErrorCode::MISSING_SETTINGS), "{kind:x}");
    }
    assert_eq!(after_settings(&[frame(SETTINGS, &[])]), Err(ErrorCode::FRAME_UNEXPECTED));
}

#[test]
fn settings_of_http2_repeated_ones_and_wrong_values_are_errors() {
    let settings = |payload: &[u8]| control(&[frame(SETTINGS, payload)]);
    for reserved in [0, 2, 3, 4, 5] {
        assert_eq!(settings(&[reserved, 0]), Err(ErrorCode::SETTINGS_ERROR), "{reserved}");
    }
    for payload in [&[6, 1, 6, 1][..], &[8, 2], &[0x33, 2], &[8, 1, 1, 0, 8, 1]] {
        assert_eq!(settings(payload), Err(ErrorCode::SETTINGS_ERROR), "{payload:x?}");
    }
    assert_eq!(settings(&[6]), Err(ErrorCode::FRAME_ERROR));
    assert_eq!(settings(&[6, 0x40]), Err(ErrorCode::FRAME_ERROR));
    let many = |count: u64| (0..count).flat_map(|n| [integer(0x1000 + n), vec![0]].concat()).collect::<Vec<_>>();
    assert_eq!(settings(&many(64)), Ok(Reading::Continue));
    assert_eq!(settings(&many(65)), Err(ErrorCode::EXCESSIVE_LOAD));
}

#[test]
fn frames_of_requests_and_of_http2_are_unexpected() {
    for kind in [DATA, 1, PUSH_PROMISE, 2, 6, 8, 9] {
        assert_eq!(after_settings(&[frame(kind, &[])]), Err(ErrorCode::FRAME_UNEXPECTED), "{kind}");
    }
}

#[test]
fn ids_do_not_go_the_wrong_way() {
    let cases = [
        vec![frame(MAX_PUSH_ID, &[8]), frame(MAX_PUSH_ID, &[7])],
        vec![frame(GOAWAY, &[4]), frame(GOAWAY, &[5])],
        // Nothing was pushed.
        vec![frame(CANCEL_PUSH, &[0])],
        vec![frame(PRIORITY_UPDATE_PUSH, &[0])],
        // No stream of a request.
        vec![frame(PRIORITY_UPDATE, &[2])],
    ];
    for frames in cases {
        assert_eq!(after_settings(&frames), Err(ErrorCode::ID_ERROR), "{frames:x?}");
    }
    for kind in [MAX_PUSH_ID, GOAWAY, CANCEL_PUSH] {
        for payload in [&[][..], &[0x40], &[1, 1]] {
            assert_eq!(after_settings(&[frame(kind, payload)]), Err(ErrorCode::FRAME_ERROR), "{kind} {payload:x?}");
        }
    }
}

#[test]
fn frames_that_change_nothing_are_bounded() {
    let long = [integer(PRIORITY_UPDATE), integer(1_025)].concat();
    assert_eq!(after_settings(&[long]), Err(ErrorCode::EXCESSIVE_LOAD));
    for kind in [PRIORITY_UPDATE, MAX_PUSH_ID, IGNORED] {
        let one = frame(kind, &[0]);
        assert_eq!(after_settings(&vec![one.clone(); 3_000]), Ok(Reading::Continue));
        assert_eq!(after_settings(&vec![one; 4_000]), Err(ErrorCode::EXCESSIVE_LOAD), "{kind:x}");
    }
    let endless = [integer(IGNORED), integer(1 << 40)].concat();
    assert_eq!(after_settings(&[endless]), Err(ErrorCode::EXCESSIVE_LOAD));
}

#[test]
fn each_critical_stream_exists_once_and_does_not_end() {
    for kind in [0, 2, 3] {
        let mut connection = Connection::new();
        let mut first = UniStream::new();
        assert_eq!(first.handle_end(), Ok(()), "a stream without a type may end");
        assert_eq!(first.handle_input(&mut connection, &[kind]), Ok(Reading::Continue));
        let second = UniStream::new().handle_input(&mut connection, &[kind]);
        assert_eq!(second, Err(ErrorCode::STREAM_CREATION_ERROR));
        assert_eq!(first.handle_end(), Err(ErrorCode::CLOSED_CRITICAL_STREAM));
    }
}

#[test]
fn push_streams_are_errors_and_unknown_ones_are_stopped() {
    assert_eq!(read(Connection::new, &[1]), Err(ErrorCode::STREAM_CREATION_ERROR));
    let unknown = [integer(0x21), vec![0]].concat();
    assert_eq!(read(Connection::new, &unknown), Ok(Reading::Stop(ErrorCode::STREAM_CREATION_ERROR)));
    let mut connection = Connection::new();
    let refused = (0..10_000).find(|_| UniStream::new().handle_input(&mut connection, &[0x21]).is_err());
    assert_eq!(refused, Some(4_096), "streams of unknown types are bounded");
}

#[test]
fn the_encoder_has_no_table() {
    assert_eq!(read(Connection::new, &[2, 0x20, 0x20]), Ok(Reading::Continue));
    // A capacity (RFC 9204 appendix B.2), inserts, and a duplicate.
    for instruction in [&[0x3f, 0xbd, 0x01][..], &[0x21], &[0xc0, 0x01, b'a'], &[0x41, b'a', 0], &[0x00]] {
        let bytes = [&[2], instruction].concat();
        assert_eq!(read(Connection::new, &bytes), Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR), "{bytes:x?}");
    }
    let flood = [vec![2], vec![0x20; 5_000]].concat();
    assert_eq!(read(Connection::new, &flood), Err(ErrorCode::EXCESSIVE_LOAD));
}

#[test]
fn the_decoder_may_cancel_streams_alone() {
    assert_eq!(read(Connection::new, &[3, 0x44, 0x7f, 0x80, 0x01, 0x40]), Ok(Reading::Continue));
    for instruction in [0x84, 0x00, 0x01] {
        assert_eq!(read(Connection::new, &[3, instruction]), Err(ErrorCode::QPACK_DECODER_STREAM_ERROR));
    }
}
