//! What holds of all bytes that a client of HTTP/1.1 can send: the server reads the same in any pieces.

use sallyport_http1::server::Limits;

use crate::drive::Driven;

/// The longest input that is tried, in bytes.
const MAX_INPUT: usize = 16_384;

/// Checks one connection. The first byte says in pieces of which size the others come.
pub(crate) fn http1_input(data: &[u8]) {
    let Some((size, bytes)) = data[..data.len().min(MAX_INPUT)].split_first() else { return };
    let whole = Driven::of(bytes);
    let mut cut = Driven::new(Limits::default());
    for piece in bytes.chunks(1 + usize::from(*size)) {
        if cut.refusal.is_some() {
            break;
        }
        cut.feed(piece);
    }
    assert_eq!(whole.verdict(), cut.verdict(), "in pieces of {}", 1 + usize::from(*size));
    assert_eq!(whole.log, cut.log, "in pieces of {}", 1 + usize::from(*size));
}
