//! Bodies for reading: decoded, and laid out by their type.

use serde::de::IgnoredAny;

use crate::{
    answer::{Part, View, ViewKind},
    decode::{Decoded, MAX_DECODED_BYTES, decode},
    message::Message,
    multipart,
    redact::unescaped,
};

/// The longest text of a view, in bytes.
const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// The longest text of a part, in bytes.
const MAX_PART_BYTES: usize = 64 * 1024;
/// How many parts of a form are shown.
const MAX_PARTS: usize = 1_000;
/// How deep JSON is indented.
const MAX_INDENT: usize = 64;
/// Images that a browser shows without running anything.
const IMAGES: &[&str] = &[
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
];

/// The body of a message for reading.
#[must_use]
pub fn view(message: &Message) -> View {
    let declared = message.content_type();
    let Decoded { bytes, is_truncated, problem } = decode(&message.encoding(), &message.body.bytes, MAX_DECODED_BYTES);
    let mut view = View {
        kind: ViewKind::Empty,
        content_type: Some(declared.clone()).filter(|found| !found.is_empty()),
        bytes: bytes.len() as u64,
        is_truncated: is_truncated || message.body.is_truncated,
        text: None,
        parts: Vec::new(),
        problem,
        problem_line: None,
        problem_column: None,
    };
    if bytes.is_empty() {
        return view;
    }
    let essence = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence.starts_with("application/grpc") {
        view.kind = ViewKind::Grpc;
    } else if IMAGES.contains(&essence.as_str()) {
        view.kind = ViewKind::Image;
    } else if essence == "application/x-www-form-urlencoded" {
        view.kind = ViewKind::Form;
        view.parts = form(&bytes);
        view.set_text(&bytes);
    } else if let Some(boundary) = multipart::boundary(&declared) {
        view.kind = ViewKind::Multipart;
        view.parts = multipart::parts(&bytes, &boundary).into_iter().map(|part| shown_part(part, &bytes)).collect();
    } else if essence.ends_with("json") || (is_text(&bytes) && looks_like_json(&bytes)) {
        view.set_json(&bytes, essence.ends_with("json"));
    } else if is_text(&bytes) {
        view.kind = ViewKind::Text;
        view.set_text(&bytes);
        if std::str::from_utf8(&bytes).is_err() && !view.is_truncated && view.problem.is_none() {
            view.problem = Some("The text is not UTF-8: unreadable bytes are replaced.".to_owned());
        }
    } else {
        view.kind = ViewKind::Binary;
    }
    view
}

impl View {
    fn set_text(&mut self, bytes: &[u8]) {
        self.is_truncated |= bytes.len() > MAX_TEXT_BYTES;
        self.text = Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]).into_owned());
    }

    fn set_json(&mut self, bytes: &[u8], is_declared: bool) {
        match serde_json::from_slice::<IgnoredAny>(bytes) {
            Ok(_) => {
                self.kind = ViewKind::Json;
                self.set_text(&indented(bytes));
            }
            Err(error) => {
                self.kind = if is_declared { ViewKind::Json } else { ViewKind::Text };
                self.set_text(bytes);
                if is_declared && self.problem.is_none() {
                    let (line, column) = (error.line(), error.column());
                    let what = error.to_string();
                    let what = what.split(" at line ").next().unwrap_or_default();
                    self.problem = Some(format!("The JSON is malformed at line {line}, column {column}: {what}."));
                    (self.problem_line, self.problem_column) = (u32::try_from(line).ok(), u32::try_from(column).ok());
                }
            }
        }
    }
}

fn form(bytes: &[u8]) -> Vec<Part> {
    let pairs = bytes.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).take(MAX_PARTS);
    let shown = |pair: &[u8]| {
        let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let value = unescaped(pair.get(end + 1..).unwrap_or_default());
        let (name, bytes) = (Some(unescaped(&pair[..end])), value.len() as u64);
        Part { name, file_name: None, content_type: None, bytes, text: Some(cut(&value, MAX_PART_BYTES).to_owned()) }
    };
    pairs.map(shown).collect()
}

fn shown_part(part: multipart::Part, body: &[u8]) -> Part {
    let content = &body[part.content];
    let start = &content[..content.len().min(MAX_PART_BYTES)];
    let text = is_text(start).then(|| String::from_utf8_lossy(start).into_owned());
    let multipart::Part { name, file_name, content_type, .. } = part;
    Part { name, file_name, content_type, bytes: content.len() as u64, text }
}

/// The start of a text, at most so many bytes.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Whether bytes are text, as far as their start shows.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(4_096)];
    let odd = start.iter().filter(|byte| **byte < 9 || (14..32).contains(*byte) && **byte != 27).count();
    let broken = String::from_utf8_lossy(start).matches('\u{fffd}').count();
    let is_broken = broken > 1 && broken * 10 > start.len();
    !start.contains(&0) && odd * 20 <= start.len() && !is_broken
}

fn looks_like_json(bytes: &[u8]) -> bool {
    matches!(bytes.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}

/// Valid JSON with a line for each value. Numbers, strings and the order of keys stay as they are.
fn indented(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut depth, mut at) = (Vec::with_capacity(bytes.len() * 2), 0_usize, 0);
    let new_line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth.min(MAX_INDENT), b' ');
    };
    while let Some(&byte) = bytes.get(at) {
        if out.len() > MAX_TEXT_BYTES {
            break;
        }
        at += 1;
        match byte {
            b'"' => {
                let start = at - 1;
                while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                at = (at + 1).min(bytes.len());
                out.extend_from_slice(&bytes[start..at]);
            }
            b'{' | b'[' => {
                out.push(byte);
                let rest = &bytes[at..];
                let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                if let Some(end @ (b'}' | b']')) = rest.get(blank) {
                    out.push(*end);
                    at += blank + 1;
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ if byte.is_ascii_whitespace() => {}
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::message::{Body, Field};

    fn of(content_type: &str, body: &[u8]) -> View {
        let value = Bytes::copy_from_slice(content_type.as_bytes());
        let fields = vec![Field { name: "Content-Type".to_owned(), value, is_redacted: false }];
        let body = Body { bytes: Bytes::copy_from_slice(body), passed: body.len() as u64, ..Body::default() };
        view(&Message { version: "HTTP/1.1", fields, trailers: Vec::new(), body })
    }

    #[test]
    fn json_is_indented_and_keeps_what_it_says() {
        let json = of(
            "application/vnd.x+json; charset=utf-8",
            br#"{"a":1.10,"a":12345678901234567890123,"b":[{},[ ],"x\",{"]}"#,
        );
        assert_eq!(json.kind, ViewKind::Json);
        let expected = "{\n  \"a\": 1.10,\n  \"a\": 12345678901234567890123,\n  \"b\": [\n    {},\n    [],\n    \"x\\\",{\"\n  ]\n}";
        assert_eq!(json.text.as_deref(), Some(expected));
        let broken = of("application/json", b"{\n  \"a\": 1,\n  oops\n}");
        assert_eq!((broken.problem_line, broken.problem_column), (Some(3), Some(3)), "{broken:?}");
        assert!(broken.text.unwrap().contains("oops"));
        let deep = of("application/json", "[".repeat(100_000).as_bytes());
        assert!(deep.problem.is_some());
        assert_eq!(of("text/plain", b" {\"a\":1}").kind, ViewKind::Json);
        assert_eq!(of("text/plain", b"{not json").kind, ViewKind::Text);
    }

    #[test]
    fn each_type_has_its_view() {
        assert_eq!(of("image/svg+xml", b"<svg onload=alert(1)>").kind, ViewKind::Text, "it could run something");
        assert_eq!(of("image/png", b"\x89PNG").kind, ViewKind::Image);
        assert_eq!(of("", b"\0\x01\x02").kind, ViewKind::Binary);
        assert_eq!(of("text/html", b"").kind, ViewKind::Empty);
        let form = of("application/x-www-form-urlencoded", b"a=1&b=%3Cscript%3E+x&c");
        assert_eq!(form.parts[1].text.as_deref(), Some("<script> x"));
        assert_eq!(form.parts.len(), 3);
        let latin = of("text/plain", b"caf\xe9 au lait, and so on and so on");
        assert!(latin.kind == ViewKind::Text && latin.problem.is_some(), "{latin:?}");
    }
}
