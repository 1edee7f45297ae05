//! The property of all paths: if the table accepts a path, every reading of the path leads to the same service.

use sallyport_http::path::{PathTable, replace_prefix};

/// The prefixes of the table.
pub(crate) const PREFIXES: [&str; 5] = ["/", "/api", "/api/v2", "/docs", "/a/b/c"];
/// The longest path, in bytes.
pub(crate) const MAX_PATH: usize = 512;

/// One way to read a path.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// How often the reader decodes.
    passes: usize,
    /// Whether the reader decodes before it splits at slashes.
    decodes_first: bool,
    has_backslashes: bool,
    cuts_parameters: bool,
    merges_slashes: bool,
    trims: bool,
}

/// Checks one path.
pub(crate) fn path_input(data: &[u8]) {
    let data = &data[..data.len().min(MAX_PATH)];
    let Ok(path) = std::str::from_utf8(data) else { return };
    let table = PathTable::new(PREFIXES);
    let Ok(Some(place)) = table.find(path) else { return };
    if path == "*" {
        return;
    }
    for reading in readings() {
        let segments = reading.segments(path);
        let read = longest(&segments);
        assert_eq!(read, place, "{path:?} is {segments:?} by {reading:?}");
    }
    check_replacement(path, place);
}

fn check_replacement(path: &str, place: usize) {
    let Ok(target) = path.parse::<http::uri::PathAndQuery>() else { return };
    if target.path() != path {
        return;
    }
    let count = PREFIXES[place].split('/').filter(|segment| !segment.is_empty()).count();
    for with in ["/", "/v2"] {
        let Ok(replaced) = replace_prefix(&target, count, with) else { continue };
        let replaced = replaced.path();
        assert!(replaced.starts_with('/'), "{path:?} became {replaced:?}");
        // The path must not become one of another host.
        assert!(!replaced.starts_with("//"), "{path:?} became {replaced:?}");
        let rest = replaced.strip_prefix(with.trim_end_matches('/')).unwrap();
        assert!(path.ends_with(rest) || rest == "/", "{path:?} became {replaced:?}");
    }
}

fn readings() -> impl Iterator<Item = Reading> {
    (0..3 * 32).map(|number| {
        let is = |bit: usize| number >> bit & 1 == 1;
        Reading {
            passes: 1 + number / 32,
            decodes_first: is(0),
            has_backslashes: is(1),
            cuts_parameters: is(2),
            merges_slashes: is(3),
            trims: is(4),
        }
    })
}

impl Reading {
    fn segments(&self, path: &str) -> Vec<String> {
        let decode = |text: &str| (0..self.passes).fold(text.to_owned(), |text, _| decoded(&text));
        let mut text = if self.decodes_first { decode(path) } else { path.to_owned() };
        if self.has_backslashes {
            text = text.replace('\\', "/");
        }
        let mut segments: Vec<String> = Vec::new();
        for segment in text.split('/').skip(1) {
            let mut segment = if self.decodes_first { segment.to_owned() } else { decode(segment) };
            if self.cuts_parameters {
                segment.truncate(segment.find(';').unwrap_or(segment.len()));
            }
            if self.trims && !matches!(segment.as_str(), "." | "..") {
                segment = segment.trim_end_matches(|last: char| last == '.' || last.is_whitespace()).to_owned();
            }
            match segment.as_str() {
                "." => {}
                ".." => drop(segments.pop()),
                "" if self.merges_slashes => {}
                _ => segments.push(segment),
            }
        }
        segments
    }
}

/// The index of the longest prefix, by a linear search.
fn longest(segments: &[String]) -> usize {
    let fits = |prefix: &str| {
        let wanted: Vec<&str> = prefix.split('/').filter(|segment| !segment.is_empty()).collect();
        segments.len() >= wanted.len() && wanted.iter().zip(segments).all(|(wanted, segment)| wanted == segment)
    };
    let best = PREFIXES.into_iter().filter(|prefix| fits(prefix)).max_by_key(|prefix| prefix.len()).unwrap();
    PREFIXES.iter().position(|prefix| *prefix == best).unwrap()
}

fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
