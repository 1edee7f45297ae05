//! Frames by hand.

use quinn::{ConnectionError, VarInt};
use sallyport_http3::ErrorCode;

use super::harness::*;

/// A string without the Huffman code, after the bits of `pattern`; `bits` of them are the prefix of the length.
fn plain(pattern: u8, bits: u32, text: &str) -> Vec<u8> {
    let mask = (1_usize << bits) - 1;
    let mut out = Vec::new();
    if text.len() < mask {
        out.push(pattern | text.len() as u8);
    } else {
        out.push(pattern | mask as u8);
        let mut rest = text.len() - mask;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    [out, text.as_bytes().to_vec()].concat()
}

/// A frame of this type.
pub(super) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32 | 0x8000_0000).to_be_bytes();
    [&[kind], &length[..], payload].concat()
}

/// A HEADERS frame with these fields.
pub(super) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = fields.iter().flat_map(|(name, value)| [plain(0x20, 3, name), plain(0, 7, value)]);
    frame(1, &[vec![0, 0], fields.flatten().collect()].concat())
}

/// The head of a request, with the usual fields before these.
pub(super) fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let usual = [(":method", method), (":scheme", "https"), (":authority", HOST), (":path", path)];
    section(&[&usual[..], fields].concat())
}

/// The code on the wire.
pub(super) fn code(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap()
}

/// The code with which the server closes the connection.
pub(super) async fn close_code(connection: &quinn::Connection) -> VarInt {
    match soon(connection.closed()).await {
        ConnectionError::ApplicationClosed(close) => close.error_code,
        other => panic!("{other}"),
    }
}

/// A stream with these bytes; it ends with them if `ends`.
pub(super) async fn open(
    connection: &quinn::Connection,
    bytes: &[u8],
    ends: bool,
) -> (quinn::SendStream, quinn::RecvStream) {
    let (mut send, recv) = soon(connection.open_bi()).await.unwrap();
    send.write_all(bytes).await.unwrap();
    if ends {
        send.finish().unwrap();
    }
    (send, recv)
}

/// The first bytes of a response with this status: a HEADERS frame with a field section.
pub(super) fn starts_with_status(response: &[u8], status: &[u8]) -> bool {
    response.first() == Some(&1) && response.get(3..).is_some_and(|section| section.starts_with(status))
}

/// `:status` in QPACK: an index, or a literal.
pub(super) const CONTINUE: &[u8] = &[0, 0, 0xff, 0];
pub(super) const OK: &[u8] = &[0, 0, 0xd9];
