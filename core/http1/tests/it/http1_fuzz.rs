//! The property of all input: the server reads the same in pieces of any size.

use sallyport_http1::server::Config;

use crate::drive::Driven;

/// The longest input, in bytes.
const MAX_INPUT: usize = 16_384;

/// Checks one connection. The first byte of `data` is the size of the pieces, less one.
pub(crate) fn http1_input(data: &[u8]) {
    let Some((size, bytes)) = data[..data.len().min(MAX_INPUT)].split_first() else { return };
    let whole = Driven::of(bytes);
    let mut cut = Driven::new(Config::default());
    for piece in bytes.chunks(1 + usize::from(*size)) {
        if cut.refusal.is_some() {
            break;
        }
        cut.feed(piece);
    }
    assert_eq!(whole.verdict(), cut.verdict(), "in pieces of {}", 1 + usize::from(*size));
    assert_eq!(whole.log, cut.log, "in pieces of {}", 1 + usize::from(*size));
}
