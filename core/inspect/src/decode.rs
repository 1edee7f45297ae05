//! Decodes the content codings of bodies, within bounds: a small body may unfold to a huge one.

use std::io::Read;

/// How many bytes of a decoded body are kept.
pub const MAX_DECODED_BYTES: usize = 8 * 1024 * 1024;
/// How many codings one body may have.
const MAX_CODINGS: usize = 3;
/// The memory for one step, in bytes.
const STEP_BYTES: usize = 16 * 1024;

/// A body after its content codings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// What was decoded.
    pub bytes: Vec<u8>,
    /// Whether more would follow beyond the bound.
    pub is_truncated: bool,
    /// Why the rest could not be decoded, as a sentence.
    pub problem: Option<String>,
}

/// Decodes a body with this `Content-Encoding`, up to `max` bytes. What came before a fault is kept.
#[must_use]
pub fn decode(encoding: &str, body: &[u8], max: usize) -> Decoded {
    let codings: Vec<String> = encoding
        .split(',')
        .map(|coding| coding.trim().to_ascii_lowercase())
        .filter(|coding| !coding.is_empty() && coding != "identity")
        .collect();
    if codings.len() > MAX_CODINGS {
        let problem = Some(format!("The body has more than {MAX_CODINGS} content codings."));
        return Decoded { bytes: body[..body.len().min(max)].to_vec(), is_truncated: body.len() > max, problem };
    }
    let mut decoded = Decoded { bytes: body.to_vec(), ..Decoded::default() };
    for coding in codings.iter().rev() {
        let input = std::mem::take(&mut decoded.bytes);
        decoded = decode_one(coding, input, max);
        if decoded.problem.is_some() {
            return decoded;
        }
    }
    if decoded.bytes.len() > max {
        decoded.bytes.truncate(max);
        decoded.is_truncated = true;
    }
    decoded
}

fn decode_one(coding: &str, input: Vec<u8>, max: usize) -> Decoded {
    let body = input.as_slice();
    match coding {
        "gzip" | "x-gzip" => read(flate2::read::MultiGzDecoder::new(body), coding, max),
        // Servers send both forms under this name (RFC 9110 section 8.4.1.2).
        "deflate" if body.first().is_some_and(|first| first & 0x0f == 8) => {
            read(flate2::read::ZlibDecoder::new(body), coding, max)
        }
        "deflate" => read(flate2::read::DeflateDecoder::new(body), coding, max),
        "br" => read(brotli_decompressor::Decompressor::new(body, STEP_BYTES), coding, max),
        "zstd" => match ruzstd::decoding::StreamingDecoder::new(body) {
            Ok(decoder) => read(decoder, coding, max),
            Err(_) => broken(coding, Vec::new()),
        },
        other => {
            let problem = format!("The content coding {:?} is not known here.", clean(other));
            Decoded { bytes: input, is_truncated: false, problem: Some(problem) }
        }
    }
}

fn read(mut from: impl Read, coding: &str, max: usize) -> Decoded {
    let (mut bytes, mut step) = (Vec::new(), vec![0; STEP_BYTES]);
    loop {
        match from.read(&mut step) {
            Ok(0) => return Decoded { bytes, ..Decoded::default() },
            Ok(read) => {
                let taken = read.min(max - bytes.len());
                bytes.extend_from_slice(&step[..taken]);
                if taken < read {
                    return Decoded { bytes, is_truncated: true, problem: None };
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return broken(coding, bytes),
        }
    }
}

fn broken(coding: &str, bytes: Vec<u8>) -> Decoded {
    let after = bytes.len();
    let problem = Some(format!("The body is broken or incomplete {coding} after {after} decoded bytes."));
    Decoded { bytes, is_truncated: false, problem }
}

fn clean(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(32).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let text = b"hello hello hello".as_slice();
        assert_eq!(decode("gzip", &gzip(text), 100).bytes, text);
        assert_eq!(decode("identity", text, 100).bytes, text);
        assert_eq!(decode("gzip, GZIP", &gzip(&gzip(text)), 100).bytes, text);
        // `printf hello | brotli` and `printf hello | zstd`.
        assert_eq!(decode("br", &[0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03], 100).bytes, b"hello");
        let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x05, 0x29, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        assert_eq!(decode("zstd", &zstd, 100).bytes, b"hello");
    }

    #[test]
    fn a_bomb_unfolds_to_the_bound_and_broken_bodies_keep_their_start() {
        let bomb = gzip(&vec![0; 64 * 1024 * 1024]);
        let decoded = decode("gzip", &bomb, MAX_DECODED_BYTES);
        assert_eq!((decoded.bytes.len(), decoded.is_truncated), (MAX_DECODED_BYTES, true));
        let twice = decode("gzip, gzip", &gzip(&bomb), MAX_DECODED_BYTES);
        assert!(twice.bytes.len() <= MAX_DECODED_BYTES && twice.is_truncated);
        let random: Vec<u8> = (0..200_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let whole = gzip(&random);
        let broken = decode("gzip", &whole[..whole.len() / 2], 1_000_000);
        assert!(!broken.bytes.is_empty() && random.starts_with(&broken.bytes));
        assert!(broken.problem.unwrap().contains("broken or incomplete gzip"));
        for coding in ["gzip", "br", "zstd", "deflate"] {
            assert!(decode(coding, b"this is no such thing at all", 100).problem.is_some(), "{coding}");
        }
        assert!(decode("snappy\u{1b}", b"x", 100).problem.unwrap().contains("\"snappy\" is not known"));
        assert!(decode("gzip,gzip,gzip,gzip", b"x", 100).problem.unwrap().contains("more than 3"));
    }
}
