//! Bodies of type `multipart/*` (RFC 2046 section 5.1).

use std::ops::Range;

use crate::redact::{REDACTED, is_secret_name};

/// How many parts are read.
const MAX_PARTS: usize = 1_000;
/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// One part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name in the form.
    pub(crate) name: Option<String>,
    /// The name of its file.
    pub(crate) file_name: Option<String>,
    /// Its type.
    pub(crate) content_type: Option<String>,
    /// Where its content is.
    pub(crate) content: Range<usize>,
}

/// The boundary of a multipart type.
pub(crate) fn boundary(content_type: &str) -> Option<String> {
    if !content_type.trim_start().get(..10)?.eq_ignore_ascii_case("multipart/") {
        return None;
    }
    parameter(content_type, "boundary").filter(|found| !found.is_empty() && found.len() <= MAX_BOUNDARY_BYTES)
}

/// A parameter of a field's value, without its quotes.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once(';') {
        rest = after.trim_start();
        let Some((name, value)) = rest.split_once('=') else { continue };
        let is_wanted = name.trim().eq_ignore_ascii_case(wanted);
        let (found, after) = match value.strip_prefix('"') {
            None => value.split_at(value.find(';').unwrap_or(value.len())),
            Some(quoted) => quoted.split_at(end_of_quoted(quoted)),
        };
        if is_wanted {
            return Some(found.trim().replace("\\\"", "\"").replace("%22", "\""));
        }
        rest = after;
    }
    None
}

fn end_of_quoted(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' && bytes.get(at + 1).is_some_and(u8::is_ascii) { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// The parts of a body. What is cut has its last part up to the cut.
pub(crate) fn parts(body: &[u8], boundary: &str) -> Vec<Part> {
    let delimiter = format!("--{boundary}");
    let finder = memchr::memmem::Finder::new(delimiter.as_bytes());
    let mut found = Vec::new();
    let Some(mut at) = finder.find(body).map(|at| at + delimiter.len()) else { return found };
    while found.len() < MAX_PARTS && !body[at..].starts_with(b"--") {
        let Some(line) = memchr::memchr(b'\n', &body[at..]) else { break };
        let start = at + line + 1;
        let end = finder.find(&body[start..]).map_or(body.len(), |next| start + next);
        found.push(part(body, start, end));
        if end == body.len() {
            break;
        }
        at = end + delimiter.len();
    }
    found
}

fn part(body: &[u8], start: usize, end: usize) -> Part {
    let whole = &body[start..end];
    let (head, content) = if whole.starts_with(b"\r\n") {
        (0, 2)
    } else {
        match memchr::memmem::find(whole, b"\r\n\r\n") {
            Some(head) => (head, head + 4),
            None => (whole.len(), whole.len()),
        }
    };
    let content_end = if whole[content..].ends_with(b"\r\n") { end - 2 } else { end };
    let mut part = Part { name: None, file_name: None, content_type: None, content: start + content..content_end };
    for line in String::from_utf8_lossy(&whole[..head]).lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-disposition") {
            part.name = parameter(value, "name");
            part.file_name = parameter(value, "filename");
        } else if name.eq_ignore_ascii_case("content-type") {
            part.content_type = Some(value.trim().to_owned());
        }
    }
    part
}

/// The body without the contents of secret parts; `None` if there are none.
pub(crate) fn redacted(body: &[u8], boundary: &str) -> Option<Vec<u8>> {
    let (mut out, mut at) = (Vec::new(), 0);
    for part in parts(body, boundary) {
        if part.name.is_some_and(|name| is_secret_name(&name)) && !part.content.is_empty() {
            out.extend_from_slice(&body[at..part.content.start]);
            out.extend_from_slice(REDACTED.as_bytes());
            at = part.content.end;
        }
    }
    (at > 0).then(|| [&out, &body[at..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\ncontent-disposition: \
        form-data; name=\"f\"; filename=\"<img src=x>.svg\"\r\nContent-Type: image/svg+xml\r\n\r\n<svg/>\r\n--x\r\n\
        Content-Disposition: form-data; name=\"password\"\r\n\r\nhunter2\r\n--x--\r\n";

    #[test]
    fn parts_have_names_files_and_types() {
        let parts = parts(BODY, "x");
        assert_eq!(parts.len(), 3);
        assert_eq!((parts[0].name.as_deref(), &BODY[parts[0].content.clone()]), (Some("a"), &b"1"[..]));
        assert_eq!(parts[1].file_name.as_deref(), Some("<img src=x>.svg"));
        assert_eq!(parts[1].content_type.as_deref(), Some("image/svg+xml"));
        let redacted = String::from_utf8(redacted(BODY, "x").unwrap()).unwrap();
        assert!(!redacted.contains("hunter2") && redacted.ends_with("[redacted]\r\n--x--\r\n"), "{redacted}");
    }

    #[test]
    fn a_boundary_is_a_parameter_and_cut_bodies_have_parts() {
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\"; x=y").as_deref(), Some("a b"));
        assert_eq!(boundary("Multipart/Form-Data;charset=x; Boundary=ab").as_deref(), Some("ab"));
        assert_eq!(boundary("text/plain; boundary=x"), None);
        for end in 0..BODY.len() {
            parts(&BODY[..end], "x");
            redacted(&BODY[..end], "x");
        }
        assert!(parts(b"--x", "x").is_empty() && parts(b"", "x").is_empty());
    }
}
