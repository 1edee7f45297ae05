//! Properties for arbitrary input.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use sallyport_http2::{Piece, Room};

use crate::client::*;

/// Client frames, valid and invalid.
fn client_bytes() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop::sample::select(vec![0_u32, 1, 2, 3, 5, 7, 9]);
    let kind = 0_u8..11;
    let any_frame = (kind, any::<u8>(), stream.clone(), prop::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload));
    let head = (stream.clone(), prop::bool::ANY)
        .prop_map(|(stream, ends)| frame(HEADERS, END_HEADERS | u8::from(ends), stream, &post_with(&[])));
    let data = (stream.clone(), prop::bool::ANY, 0_usize..20_000)
        .prop_map(|(stream, ends, size)| frame(DATA, u8::from(ends), stream, &vec![5; size.min(16_384)]));
    let more = (stream, 0_u32..200_000).prop_map(|(stream, more)| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes()));
    prop_oneof![1 => any_frame, 4 => head, 4 => data, 2 => more]
}

/// Serves the streams: reads bodies, and sends responses of various lengths.
fn serve(tested: &mut Tested, serving: &mut Vec<(u32, usize)>, unread: &mut i64) {
    while let Some(request) = tested.server.poll_request() {
        tested.server.send_head(request.stream, StatusCode::OK, &HeaderMap::new(), false);
        serving.push((request.stream, 30_000));
    }
    *unread += i64::try_from(tested.server.received()).unwrap();
    serving.retain_mut(|(stream, left)| {
        while let Piece::Data(data) = tested.server.poll_body(*stream) {
            *unread -= i64::try_from(data.len()).unwrap();
        }
        while *left > 0
            && let Room::Bytes(room) = tested.server.room(*stream)
        {
            let size = room.min(*left);
            *left -= size;
            tested.server.send_data(*stream, Bytes::from(vec![9; size]), *left == 0);
        }
        let is_over = *left == 0 || tested.server.is_reset(*stream);
        if is_over {
            *unread -= i64::try_from(tested.server.release_body(*stream)).unwrap();
            tested.server.release_response(*stream);
        }
        !is_over
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_cut(
        client_bytes in prop::collection::vec(client_bytes(), 1..30),
        cut in 1_usize..40,
    ) {
        let bytes = client_bytes.concat();
        let mut whole = Tested::new();
        whole.send(&bytes);
        let mut pieces = Tested::new();
        for piece in bytes.chunks(cut) {
            pieces.send(piece);
        }
        prop_assert_eq!(whole.server.failure(), pieces.server.failure());
        // When window is granted depends on the amounts read at a time.
        let answers = |tested: &mut Tested| {
            tested.frames().into_iter().filter(|frame| frame.kind != WINDOW_UPDATE).collect::<Vec<_>>()
        };
        prop_assert_eq!(answers(&mut whole), answers(&mut pieces));
        let stream = |tested: &mut Tested| {
            let mut found = Vec::new();
            while let Some(request) = tested.server.poll_request() {
                let mut body = 0;
                while let Piece::Data(data) = tested.server.poll_body(request.stream) {
                    body += data.len();
                }
                found.push((request.stream, body, tested.server.is_body_over(request.stream)));
            }
            found
        };
        prop_assert_eq!(stream(&mut whole), stream(&mut pieces));
    }

    #[test]
    fn dropped_streams_leave_nothing_behind(client_bytes in prop::collection::vec(client_bytes(), 1..60)) {
        let mut tested = Tested::new();
        let (mut serving, mut unread) = (Vec::new(), 0);
        for bytes in client_bytes {
            tested.send(&bytes);
            serve(&mut tested, &mut serving, &mut unread);
            prop_assert!(tested.server.output().len() < 120_000);
            tested.frames();
        }
        for (stream, _) in serving {
            tested.server.release_response(stream);
            unread -= i64::try_from(tested.server.release_body(stream)).unwrap();
        }
        tested.frames();
        prop_assert!(tested.server.is_idle());
        prop_assert_eq!(unread, 0, "received bytes were returned, or counted");
    }
}
