//! What the fuzzer of HTTP/3's streams in `fuzz/` runs, and the tests here replay.

use bytes::Bytes;
use sallyport_http3::{Config, Connection, ErrorCode, Fault, Piece, Reading, RequestStream, UniStream};

const CONFIG: Config = Config { max_head_bytes: 2_000, max_head_frame_bytes: 5_000 };
/// The longest tested input, in bytes.
const MAX_INPUT: usize = 16_384;
/// The number of unidirectional streams.
const STREAMS: usize = 4;

/// Checks one connection. The first byte chooses between a request, and unidirectional streams.
pub(crate) fn http3_request(data: &[u8]) {
    let data = &data[..data.len().min(MAX_INPUT)];
    let Some((first, rest)) = data.split_first() else { return };
    if first & 1 == 0 { request(rest, first & 2 != 0) } else { streams(rest) }
}

/// Pieces: each is the length of the next bytes, and these.
fn pieces(mut data: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((len, rest)) = data.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        data = rest;
        pieces.push(piece);
    }
    pieces
}

/// A request in pieces is the same as the request at once.
fn request(data: &[u8], ends: bool) {
    let pieces = pieces(data);
    let whole = pieces.concat();
    let (in_pieces, at_once) = (read(&pieces, ends), read(&[&whole[..]], ends));
    assert_eq!(in_pieces, at_once);
    assert!(at_once.1.len() <= whole.len(), "no more data than bytes");
}

/// The head, trailers and end as text, the body, what was skipped, and the error.
fn read(pieces: &[&[u8]], ends: bool) -> (String, Vec<u8>, u64, Option<Fault>) {
    let mut stream = RequestStream::new(CONFIG);
    let (mut text, mut body, mut skipped) = (String::new(), Vec::new(), 0);
    let mut pieces = pieces.iter();
    let mut polls = 0;
    loop {
        polls += 1;
        assert!(polls <= 4 * MAX_INPUT, "each poll takes something");
        let piece = stream.poll();
        skipped += stream.skipped();
        match piece {
            Ok(Piece::Head(head)) => text += &format!("{head:?}"),
            Ok(Piece::Data(data)) => body.extend_from_slice(&data),
            Ok(Piece::Trailers(trailers)) => text += &format!("{trailers:?}"),
            Ok(Piece::End) => return (text + "end", body, skipped, None),
            Ok(Piece::Missing) => match pieces.next() {
                Some(piece) => stream.handle_input(Bytes::copy_from_slice(piece)),
                None if ends => stream.handle_end(),
                None => return (text, body, skipped, None),
            },
            Err(fault) => return (text, body, skipped, Some(fault)),
        }
    }
}

/// Unidirectional streams in pieces. The first byte of a piece chooses its stream, or ends it.
fn streams(data: &[u8]) {
    let mut connection = Connection::new();
    let mut streams: [Option<UniStream>; STREAMS] = Default::default();
    let (mut came, mut outcome) = (0, Ok(Reading::Continue));
    for piece in pieces(data) {
        let Some((choice, bytes)) = piece.split_first() else { continue };
        let stream = &mut streams[usize::from(*choice) % STREAMS];
        if choice & 0x80 != 0 {
            let Some(ended) = stream.take() else { continue };
            if ended.handle_end() == Err(ErrorCode::CLOSED_CRITICAL_STREAM) {
                return;
            }
            continue;
        }
        came += bytes.len();
        outcome = stream.get_or_insert_default().handle_input(&mut connection, bytes);
        match outcome {
            Ok(Reading::Continue) => {}
            Ok(Reading::Stop(_)) => *stream = None,
            Err(_) => break,
        }
    }
    if outcome == Err(ErrorCode::EXCESSIVE_LOAD) {
        // A flood shows in its bytes, or in a length that it announces.
        assert!(came > 2, "{came} bytes are no load");
    }
}
