//! What holds of every byte that a client of HTTP/1.1 sends: the guard judges alike in any pieces, and what it passes is read.

use bytes::BytesMut;
use http::HeaderMap;
use sallyport_http::{
    RequestRefusal,
    codec::{BodyReader, Piece, read_request},
    guard::{GuardLimits, Phase, RequestGuard, Verdict},
};

/// The longest input that is tried, in bytes.
const MAX_INPUT: usize = 16_384;

/// Checks one connection. The first byte says in pieces of which size the others come.
pub(crate) fn http1_input(data: &[u8]) {
    let Some((size, bytes)) = data[..data.len().min(MAX_INPUT)].split_first() else { return };
    let whole = judge([bytes]);
    let cut = judge(bytes.chunks(1 + usize::from(*size)));
    assert_eq!(whole, cut, "in pieces of {}", 1 + usize::from(*size));
    read(&whole.0);
}

/// What the guard passes of these pieces, and why it refuses the rest. Upgrades are declined.
fn judge<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Option<RequestRefusal>) {
    let mut guard = RequestGuard::new(GuardLimits::default());
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            if guard.phase() == Phase::AwaitingUpgrade {
                guard.not_upgraded();
            }
            match guard.inspect(&held) {
                Verdict::Pass { n } => {
                    passed.extend(held.drain(..n));
                    if n == 0 || held.is_empty() {
                        break;
                    }
                }
                Verdict::Refuse { pass, refusal } => {
                    passed.extend(held.drain(..pass));
                    return (passed, Some(refusal));
                }
            }
        }
    }
    (passed, None)
}

/// Reads what has passed as the connection does: heads and bodies, one behind the other.
fn read(passed: &[u8]) {
    let (mut buf, mut room) = (BytesMut::from(passed), HeaderMap::new());
    while let Some(asked) = read_request(&mut buf, &mut room).expect("what has passed is a head") {
        let mut body = BodyReader::new(asked.framing);
        while !body.is_over() {
            match body.next(&mut buf).expect("what has passed is a body") {
                Piece::Missing => return,
                Piece::Data(_) => {}
                Piece::Trailers(_) | Piece::End => break,
            }
        }
    }
}
