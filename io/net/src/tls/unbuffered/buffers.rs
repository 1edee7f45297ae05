//! Buffers that connections borrow while they hold bytes.

use std::cell::RefCell;

use sallyport_tls_records::{MAX_PLAIN_BYTES, OVERHEAD_BYTES};

/// Number of full records that fit in a buffer.
pub(super) const MAX_RECORDS: usize = 4;
/// Size of a buffer in bytes.
pub(super) const BUFFER_BYTES: usize = MAX_RECORDS * (MAX_PLAIN_BYTES + OVERHEAD_BYTES);
/// Number of spare buffers of a thread.
const MAX_SPARE_BUFFERS: usize = 8;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer with arbitrary content.
pub(super) fn take() -> Box<[u8]> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

/// Returns a buffer to the spare ones; a buffer of another size is freed.
pub(super) fn give_back(buffer: Box<[u8]>) {
    if buffer.len() != BUFFER_BYTES {
        return;
    }
    // At the end of the thread the buffer is freed.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(buffer);
        }
    });
}
