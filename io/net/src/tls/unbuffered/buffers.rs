//! Buffers that connections borrow while there are bytes in them.

use std::cell::RefCell;

use sallyport_tls_records::{MAX_PLAIN_BYTES, OVERHEAD_BYTES};

/// How many full records a buffer has room for.
pub(super) const MAX_RECORDS: usize = 4;
/// The size of a buffer.
pub(super) const BUFFER_BYTES: usize = MAX_RECORDS * (MAX_PLAIN_BYTES + OVERHEAD_BYTES);
/// How many buffers a thread keeps for those who need one next.
const MAX_SPARE_BUFFERS: usize = 8;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer with anything in it.
pub(super) fn take() -> Box<[u8]> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

/// Gives back a buffer; what is of another size is only dropped.
pub(super) fn give_back(buffer: Box<[u8]>) {
    if buffer.len() != BUFFER_BYTES {
        return;
    }
    // At the end of a thread there is nobody to keep it.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(buffer);
        }
    });
}
