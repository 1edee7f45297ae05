//! The checksum of the internet (RFC 1071). Pure.

/// The ones' complement sum of 16-bit words, folded.
pub(super) fn sum_16(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    low_16(sum as usize)
}

/// The checksum of these bytes, whose field for it is zero; zero for bytes with a right checksum.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    !sum_16(0, bytes)
}

/// The lower 16 bits.
pub(super) fn low_16(number: usize) -> u16 {
    (number & 0xffff) as u16
}
