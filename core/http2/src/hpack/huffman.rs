//! The Huffman code of RFC 7541 appendix B.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and follow the
//! shorter ones. So only the lengths are listed here, and the compiler computes the tables.

use super::DecodeError;

/// The length of each symbol's code, in bits. The code of EOS, which is not a byte, is the last one of length 30.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The shortest code, in bits.
const MIN_BITS: usize = 5;
/// The longest code, in bits.
const MAX_BITS: usize = 30;
/// Codes up to this length, in bits, are looked up directly.
const SHORT_BITS: usize = 8;

/// The codes of one length.
#[derive(Clone, Copy)]
struct Long {
    /// The bits of the first code behind these, from the left of 32.
    end: u32,
    /// The first of these codes, from the left of 32.
    first: u32,
    /// The position of the first symbol.
    symbols_at: u8,
}

struct Tables {
    /// The code of each symbol, from the right.
    codes: [u32; 256],
    /// Short codes, by the next eight bits: the symbol, and from bit 8 on the length; 0 for the beginning of a longer
    /// code.
    short: [u16; 1 << SHORT_BITS],
    /// By length; lengths without codes are empty.
    long: [Long; MAX_BITS + 1],
    /// In the order of the codes.
    symbols: [u8; 256],
}

static TABLES: Tables = {
    let mut short = [0; 1 << SHORT_BITS];
    let mut long = [Long { end: 0, first: 0, symbols_at: 0 }; MAX_BITS + 1];
    let mut symbols = [0; 256];
    let mut codes = [0; 256];
    let mut placed = 0;
    let mut code = 0_u32;
    let mut bits = MIN_BITS;
    while bits <= MAX_BITS {
        let left = 32 - bits;
        long[bits] = Long { end: 0, first: code << left, symbols_at: placed as u8 };
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == bits {
                symbols[placed] = symbol as u8;
                placed += 1;
                codes[symbol] = code;
                if bits <= SHORT_BITS {
                    let from = (code as usize) << (SHORT_BITS - bits);
                    let mut n = from;
                    while n < from + (1 << (SHORT_BITS - bits)) {
                        short[n] = (bits as u16) << 8 | symbol as u16;
                        n += 1;
                    }
                }
                code += 1;
            }
            symbol += 1;
        }
        long[bits].end = code << left;
        code <<= 1;
        bits += 1;
    }
    // All codes of 30 bits, except EOS, which is all ones.
    assert!(placed == 256 && code == ((1 << MAX_BITS) - 1) << 1);
    Tables { codes, short, long, symbols }
};

/// The greatest decoded length of a string.
#[inline]
#[must_use]
pub const fn max_decoded_len(encoded_len: usize) -> usize {
    encoded_len * 8 / MIN_BITS
}

/// Number of short codes in 64 bits in any case, if the first begins within the first byte.
const SHORT_CODES: usize = 7;

/// Decodes a string into `out`, which must have room for the greatest length, and returns the length.
///
/// # Errors
/// The code is invalid, or `out` has too little room.
pub fn decode(encoded: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut len = 0;
    let mut rest = encoded;
    // Decoded bits of the first byte.
    let mut taken = 0;
    while let Some(eight) = rest.first_chunk::<8>() {
        let mut bits = u64::from_be_bytes(*eight) << taken;
        let room = out.get_mut(len..).and_then(|out| out.first_chunk_mut::<SHORT_CODES>());
        for symbol in room.ok_or(DecodeError::Huffman)? {
            let short = TABLES.short[usize::from((bits >> 56) as u8)];
            if short == 0 {
                // The whole long code is available.
                if taken + MAX_BITS as u32 <= u64::BITS {
                    let (long, length) = next_long((bits >> 32) as u32)?;
                    *symbol = long;
                    len += 1;
                    taken += length;
                }
                break;
            }
            *symbol = short as u8;
            len += 1;
            let length = u32::from(short >> 8);
            bits <<= length;
            taken += length;
        }
        rest = rest.get(taken as usize / 8..).unwrap_or_default();
        taken %= 8;
    }
    Ok(len + decode_end(rest, taken, out.get_mut(len..).unwrap_or_default())?)
}

/// Decodes the last bytes of a string, fewer than eight, of whose first byte `taken` bits are decoded.
fn decode_end(rest: &[u8], taken: u32, out: &mut [u8]) -> Result<usize, DecodeError> {
    // Padding with ones after the last bit looks like the beginning of EOS. The bits are inverted here, so that
    // shifting adds padding.
    let mut inverted = rest.iter().rev().fold(0, |bits, byte| bits >> 8 | u64::from(!byte) << 56) << taken;
    let mut have = (rest.len() as u32 * 8).saturating_sub(taken);
    let mut len = 0;
    //= RFC 7541 section 5.2
    //# A padding strictly longer than 7 bits MUST be treated as a decoding error. A padding not corresponding to the
    //# most significant bits of the code for the EOS symbol MUST be treated as a decoding error.
    while have > 0 && (have >= 8 || inverted != 0) {
        let bits = !inverted;
        let short = TABLES.short[usize::from((bits >> 56) as u8)];
        let (symbol, length) =
            if short == 0 { next_long((bits >> 32) as u32)? } else { (short as u8, u32::from(short >> 8)) };
        have = have.checked_sub(length).ok_or(DecodeError::Huffman)?;
        *out.get_mut(len).ok_or(DecodeError::Huffman)? = symbol;
        len += 1;
        inverted <<= length;
    }
    Ok(len)
}

/// The leftmost code, which is longer than a short one: its symbol and length.
#[cold]
fn next_long(bits: u32) -> Result<(u8, u32), DecodeError> {
    for (length, codes) in TABLES.long.iter().enumerate().skip(SHORT_BITS + 1) {
        if bits < codes.end {
            let nth = (bits - codes.first) >> (32 - length);
            let symbol = TABLES.symbols.get(usize::from(codes.symbols_at) + nth as usize);
            return symbol.map(|symbol| (*symbol, length as u32)).ok_or(DecodeError::Huffman);
        }
    }
    //= RFC 7541 section 5.2
    //# A Huffman-encoded string literal containing the EOS symbol MUST be treated as a decoding error.
    Err(DecodeError::Huffman)
}

/// The length of a string with the Huffman code, in bytes.
#[inline]
#[must_use]
pub fn encoded_len(string: &[u8]) -> usize {
    let bits: usize = string.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Appends a string with the Huffman code, and its padding.
pub fn encode(string: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut have) = (0_u64, 0_u32);
    for byte in string {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(TABLES.codes[usize::from(*byte)]);
        have += length;
        // Fewer than 32 bits are left over, and no code has more.
        if have >= 32 {
            have -= 32;
            out.extend_from_slice(&((bits >> have) as u32).to_be_bytes());
        }
    }
    //= RFC 7541 section 5.2
    //# the most significant bits of the code corresponding to the EOS (end-of-string) symbol are used as padding
    let padding = have.next_multiple_of(8) - have;
    let last = (bits << padding | ((1 << padding) - 1)) << (32 - have - padding);
    out.extend_from_slice((last as u32).to_be_bytes().get(..(have as usize).div_ceil(8)).unwrap_or_default());
}
