//! A slow and simple parser of a complete HTTP/1 request stream, as a reference for the server.
//!
//! The parser splits the stream into lines of owned text, and does not support input in pieces.

/// How many bytes are accepted, and whether the rest is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passed: usize,
    pub(crate) refused: bool,
}

enum Step<T> {
    Done(T),
    NeedsMore,
    Wrong(usize),
}

/// Parses a stream. `max_head_bytes` is small enough for the inputs of the tests.
pub(crate) fn parse_stream(stream: &[u8], max_head_bytes: usize) -> Verdict {
    let mut at = 0;
    loop {
        let (head_bytes, body) = match read_head(&stream[at..], max_head_bytes) {
            Step::Done(head) => head,
            Step::NeedsMore => return Verdict { passed: at, refused: false },
            Step::Wrong(_) => return Verdict { passed: at, refused: true },
        };
        at += head_bytes;
        match body {
            Body::Length(length) => {
                let left = (stream.len() - at) as u64;
                if left < length {
                    return Verdict { passed: stream.len(), refused: false };
                }
                at += usize::try_from(length).unwrap();
            }
            Body::Chunked => match read_chunks(&stream[at..]) {
                Step::Done(bytes) => at += bytes,
                Step::NeedsMore => return Verdict { passed: stream.len(), refused: false },
                Step::Wrong(offset) => return Verdict { passed: at + offset, refused: true },
            },
        }
    }
}

enum Body {
    Length(u64),
    Chunked,
}

/// The next line without its CRLF. Refuses bytes that no line may have.
fn next_line(bytes: &[u8]) -> Step<String> {
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' => {
                return match bytes.get(index + 1) {
                    Some(b'\n') => Step::Done(bytes[..index].iter().map(|b| char::from(*b)).collect()),
                    Some(_) => Step::Wrong(index + 1),
                    None => Step::NeedsMore,
                };
            }
            b'\t' => {}
            0..=0x1f | 0x7f => return Step::Wrong(index),
            _ => {}
        }
    }
    Step::NeedsMore
}

fn read_head(bytes: &[u8], max_head_bytes: usize) -> Step<(usize, Body)> {
    let mut lines = Vec::new();
    let mut at = 0;
    let mut skipped = false;
    loop {
        let visible = &bytes[..bytes.len().min(max_head_bytes)];
        let line = match next_line(&visible[at..]) {
            Step::Done(line) => line,
            Step::NeedsMore if bytes.len() >= max_head_bytes => return Step::Wrong(0),
            Step::NeedsMore => return Step::NeedsMore,
            Step::Wrong(offset) => return Step::Wrong(offset),
        };
        at += line.chars().count() + 2;
        if line.is_empty() && lines.is_empty() && !skipped {
            skipped = true;
            continue;
        }
        if line.is_empty() && !lines.is_empty() {
            break;
        }
        lines.push(line);
        // An invalid line is refused before the head is complete.
        if check_head(&lines, false).is_none() {
            return Step::Wrong(0);
        }
    }
    match check_head(&lines, true) {
        Some(body) => Step::Done((at, body)),
        None => Step::Wrong(0),
    }
}

fn is_version_1(version: &str) -> bool {
    version.strip_prefix("HTTP/1.").is_some_and(|minor| minor.len() == 1 && minor.as_bytes()[0].is_ascii_digit())
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn check_head(lines: &[String], is_complete: bool) -> Option<Body> {
    let words: Vec<&str> = lines[0].split(' ').collect();
    let [method, target, version] = words[..] else { return None };
    if !is_token(method) || method.len() > 32 || method == "CONNECT" || !is_version_1(version) {
        return None;
    }
    if target.chars().any(|c| !c.is_ascii_graphic() || c == '#') {
        return None;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path.contains(['<', '>', '`']) || query.contains(['<', '>', '"']) {
        return None;
    }
    let lower = target.to_lowercase();
    let absolute = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"));
    let authority = match absolute {
        Some(rest) => Some(host_and_port(&rest[..rest.find(['/', '?']).unwrap_or(rest.len())])?),
        None if target.starts_with('/') || (target == "*" && method == "OPTIONS") => None,
        None => return None,
    };
    let mut fields = Vec::new();
    for line in &lines[1..] {
        let (name, value) = line.split_once(':')?;
        if !is_token(name) {
            return None;
        }
        fields.push((name.to_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    if fields.len() > 100 {
        return None;
    }
    let all = |name: &str| fields.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>();
    let (hosts, lengths, codings) = (all("host"), all("content-length"), all("transfer-encoding"));
    if hosts.len() > 1 || lengths.len() > 1 || codings.len() > 1 {
        return None;
    }
    let host = match hosts.first() {
        Some(host) => Some(host_and_port(&host.to_lowercase())?),
        None => None,
    };
    if codings.first().is_some_and(|coding| !coding.eq_ignore_ascii_case("chunked")) {
        return None;
    }
    let length = match lengths.first() {
        Some(text) if text.chars().all(|c| c.is_ascii_digit()) && text.len() <= 19 => {
            Some(text.parse::<i64>().ok()?.unsigned_abs())
        }
        Some(_) => return None,
        None => None,
    };
    if is_complete {
        if host.is_none() && version != "HTTP/1.0" {
            return None;
        }
        if let (Some((host, port)), Some((other, other_port))) = (&host, &authority) {
            let default = |port: &Option<u32>| [None, Some(80), Some(443)].contains(port);
            let one_left_out = (port.is_none() || other_port.is_none()) && default(port) && default(other_port);
            if host != other || (port != other_port && !one_left_out) {
                return None;
            }
        }
        if !codings.is_empty() && (length.is_some() || version == "HTTP/1.0") {
            return None;
        }
    }
    Some(if codings.is_empty() { Body::Length(length.unwrap_or(0)) } else { Body::Chunked })
}

/// Splits `host:port`. The tests have no IPv6 addresses.
fn host_and_port(text: &str) -> Option<(String, Option<u32>)> {
    let (host, port) = match text.split_once(':') {
        Some((_, port)) if port.is_empty() || port.len() > 5 || port.contains(|c: char| !c.is_ascii_digit()) => {
            return None;
        }
        Some((host, port)) => (host, Some(port.parse::<u32>().ok().filter(|port| *port < 65_536)?)),
        None => (text, None),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let label_is_fine = |label: &str| {
        (1..=63).contains(&label.len()) && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    (host.len() <= 253 && host.split('.').all(label_is_fine)).then(|| (host.to_owned(), port))
}

/// The length of a chunked body, or the offset of its error.
fn read_chunks(bytes: &[u8]) -> Step<usize> {
    let mut at = 0;
    loop {
        let digits = bytes[at..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let text: String = bytes[at..at + digits].iter().map(|b| char::from(*b)).collect();
        for end in 1..=digits {
            if end > 16 || u128::from_str_radix(&text[..end], 16).unwrap() > i64::MAX as u128 {
                return Step::Wrong(at + end - 1);
            }
        }
        at += digits;
        if at == bytes.len() {
            return Step::NeedsMore;
        }
        if digits == 0 {
            return Step::Wrong(at);
        }
        let spaces = bytes[at..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        at += spaces;
        match bytes.get(at) {
            None => return Step::NeedsMore,
            Some(b';') => {
                at += 1;
                at += bytes[at..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
                match bytes.get(at) {
                    None => return Step::NeedsMore,
                    Some(byte) if !is_token(&char::from(*byte).to_string()) => return Step::Wrong(at),
                    Some(_) => {}
                }
            }
            Some(b'\r') if spaces == 0 => {}
            Some(_) => return Step::Wrong(at),
        }
        match next_line(&bytes[at..]) {
            Step::Done(rest) => at += rest.chars().count() + 2,
            Step::NeedsMore => return Step::NeedsMore,
            Step::Wrong(offset) => return Step::Wrong(at + offset),
        }
        let size = usize::try_from(u64::from_str_radix(&text, 16).unwrap()).unwrap();
        if size == 0 {
            break;
        }
        if bytes.len() - at < size {
            return Step::NeedsMore;
        }
        at += size;
        for expected in *b"\r\n" {
            match bytes.get(at) {
                None => return Step::NeedsMore,
                Some(byte) if *byte != expected => return Step::Wrong(at),
                Some(_) => at += 1,
            }
        }
    }
    loop {
        let name: String =
            bytes[at..].iter().map(|b| char::from(*b)).take_while(|c| is_token(&c.to_string())).collect();
        match bytes.get(at + name.len()) {
            None => return Step::NeedsMore,
            Some(b'\r') if name.is_empty() => {
                return match bytes.get(at + 1) {
                    None => Step::NeedsMore,
                    Some(b'\n') => Step::Done(at + 2),
                    Some(_) => Step::Wrong(at + 1),
                };
            }
            Some(b':') if !name.is_empty() => {}
            Some(_) => return Step::Wrong(at + name.len()),
        }
        if ["host", "content-length", "transfer-encoding"].contains(&name.to_lowercase().as_str()) {
            return Step::Wrong(at + name.len());
        }
        match next_line(&bytes[at..]) {
            Step::Done(line) => at += line.chars().count() + 2,
            Step::NeedsMore => return Step::NeedsMore,
            Step::Wrong(offset) => return Step::Wrong(at + offset),
        }
    }
}
