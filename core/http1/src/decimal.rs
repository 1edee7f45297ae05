//! Lengths in decimal digits.

use bytes::{BufMut, BytesMut};

use crate::limits::MAX_BODY_BYTES;

/// A length: digits alone, at most [`MAX_BODY_BYTES`].
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit().then(|| number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))).flatten()
    })?;
    (number <= MAX_BODY_BYTES).then_some(number)
}

/// Writes the number in decimal digits.
pub(crate) fn put_decimal(out: &mut BytesMut, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[at..]);
}
