//! The bytes of field names and field values (RFC 9110).

/// Whether the byte may be in a token (RFC 9110 section 5.6.2).
#[must_use]
pub const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

/// Whether the byte may be in a field value (RFC 9110 section 5.5): no control character but the tab.
#[must_use]
pub const fn is_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..=0xff)
}
