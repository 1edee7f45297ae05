//! The service that serves a path, and the rewriting of paths for that service.
//!
//! Origins get a path as the client wrote it, and programs read some paths differently: `/a/../b`, `/a%2fb`, `//a`,
//! `/a;x`. So a path is accepted only if every reading leads to the same service. Access rules, the choice of a service
//! and the origin then agree on the path. Every segment that can still decide must be plain, and no later segment may
//! lead upwards.

use std::borrow::Cow;

use http::uri::PathAndQuery;

/// How often a repeatedly encoded path is decoded. A path with more layers is refused.
const MAX_LAYERS: usize = 3;

/// The path can be read in more than one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path can be read in more than one way")]
pub struct AmbiguousPath;

/// The path prefixes of the services of one name.
#[derive(Debug, Clone, Default)]
pub struct PathTable {
    /// Index and segments of each prefix, longest first.
    prefixes: Vec<(usize, Vec<String>)>,
}

impl PathTable {
    /// A table of these prefixes. Each begins with a slash, and has plain segments.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> Self {
        let segments = |prefix: &str| prefix.split('/').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        let mut prefixes: Vec<(usize, Vec<String>)> =
            prefixes.into_iter().enumerate().map(|(place, prefix)| (place, segments(prefix))).collect();
        prefixes.sort_by_key(|(_, segments)| std::cmp::Reverse(segments.len()));
        Self { prefixes }
    }

    /// The index of the longest prefix of the path, by whole segments; `None` if no prefix matches. `*`, the target of
    /// OPTIONS, matches only the root.
    ///
    /// # Errors
    /// Readings of the path lead to different services.
    pub fn find(&self, path: &str) -> Result<Option<usize>, AmbiguousPath> {
        let Some(rest) = path.strip_prefix('/') else {
            return if path == "*" { Ok(self.longest_match(&[])) } else { Err(AmbiguousPath) };
        };
        let mut first: Vec<Cow<'_, str>> = Vec::new();
        let mut segments = rest.split('/').peekable();
        while let Some(raw) = segments.next() {
            let decoded = decode(raw)?;
            if has_parent_reference(raw, &decoded)? {
                return Err(AmbiguousPath);
            }
            // A trailing slash ends no segment.
            let is_end = decoded.is_empty() && segments.peek().is_none();
            if !is_end && self.may_match_longer(&first) {
                if !is_plain(&decoded) {
                    return Err(AmbiguousPath);
                }
                first.push(decoded);
            }
        }
        Ok(self.longest_match(&first))
    }

    /// Whether a longer prefix begins with `path`, so that the next segment decides.
    fn may_match_longer(&self, path: &[Cow<'_, str>]) -> bool {
        let begins =
            |prefix: &[String]| prefix.len() > path.len() && path.iter().zip(prefix).all(|(one, wanted)| one == wanted);
        self.prefixes.iter().any(|(_, prefix)| begins(prefix))
    }

    fn longest_match(&self, path: &[Cow<'_, str>]) -> Option<usize> {
        let is_beneath = |prefix: &[String]| {
            prefix.len() <= path.len() && prefix.iter().zip(path).all(|(wanted, segment)| wanted == segment)
        };
        self.prefixes.iter().find(|(_, prefix)| is_beneath(prefix)).map(|(place, _)| *place)
    }
}

/// Decodes the percent-encoding of a segment. Refuses malformed encodings and control characters.
fn decode(raw: &str) -> Result<Cow<'_, str>, AmbiguousPath> {
    if !raw.contains('%') {
        return if raw.chars().any(char::is_control) { Err(AmbiguousPath) } else { Ok(Cow::Borrowed(raw)) };
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_first_chunk::<2>().ok_or(AmbiguousPath)?;
            bytes.push(decode_hex(*digits).ok_or(AmbiguousPath)?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    // A lenient decoder could read invalid UTF-8 as a slash or a dot.
    let decoded = String::from_utf8(bytes).map_err(|_| AmbiguousPath)?;
    if decoded.chars().any(char::is_control) { Err(AmbiguousPath) } else { Ok(Cow::Owned(decoded)) }
}

fn decode_hex(digits: [u8; 2]) -> Option<u8> {
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(hex(digits[0])? << 4 | hex(digits[1])?)
}

/// Whether every program reads the decoded segment as this one segment.
fn is_plain(segment: &str) -> bool {
    let is_trimmed = |last: char| last == '.' || last.is_whitespace();
    !segment.is_empty() && !segment.contains(['/', '\\', '%', ';']) && !segment.ends_with(is_trimmed)
}

/// Whether some program goes up a level at the segment, in any layer of encoding.
fn has_parent_reference(raw: &str, decoded: &str) -> Result<bool, AmbiguousPath> {
    // Most segments have none of these.
    if !decoded.contains(['.', '\\']) && !decoded.contains('%') {
        return Ok(false);
    }
    let mut layer = Cow::Borrowed(decoded);
    for _ in 0..MAX_LAYERS {
        if has_dots(raw) || has_dots(&layer) {
            return Ok(true);
        }
        match decode_again(&layer) {
            Some(inner) => layer = Cow::Owned(inner),
            None => return Ok(false),
        }
    }
    Err(AmbiguousPath)
}

/// Whether the text has a backslash, or a segment of only dots before parameters and blanks.
fn has_dots(text: &str) -> bool {
    let is_dots = |segment: &str| {
        let name = segment.split(';').next().unwrap_or_default();
        name.contains('.') && name.chars().all(|c| c == '.' || c.is_whitespace())
    };
    text.contains('\\') || text.split('/').any(is_dots)
}

/// Decodes the text once more; `None` if nothing is encoded. Leaves malformed encodings unchanged.
fn decode_again(text: &str) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut is_encoded = false;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let inner = behind.split_first_chunk::<2>().and_then(|(digits, behind)| Some((decode_hex(*digits)?, behind)));
        match inner {
            Some((byte, behind)) if *first == b'%' => {
                bytes.push(byte);
                rest = behind;
                is_encoded = true;
            }
            _ => bytes.push(*first),
        }
    }
    is_encoded.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Replaces the first `segments` of the path by `replacement`, and leaves the rest as written.
///
/// # Errors
/// The rest begins with an empty segment, which programs read differently at the start of a path.
pub fn replace_prefix(
    target: &PathAndQuery,
    segments: usize,
    replacement: &str,
) -> Result<PathAndQuery, AmbiguousPath> {
    let path = target.path();
    if !path.starts_with('/') {
        return Ok(target.clone());
    }
    let mut rest = path;
    for _ in 0..segments {
        let behind = rest.get(1..).unwrap_or_default();
        rest = behind.find('/').and_then(|end| behind.get(end..)).unwrap_or_default();
    }
    if rest.starts_with("//") {
        return Err(AmbiguousPath);
    }
    let replacement = replacement.trim_end_matches('/');
    let path = if replacement.is_empty() && rest.is_empty() { "/" } else { rest };
    let (mark, query) = target.query().map_or(("", ""), |query| ("?", query));
    [replacement, path, mark, query].concat().parse().map_err(|_| AmbiguousPath)
}

/// The reverse of [`replace_prefix`], for the path of an origin's redirect; `None` if the path is not beneath
/// `replacement`.
pub(crate) fn restore_prefix(path: &str, prefix: &str, replacement: &str) -> Option<String> {
    let rest = path.strip_prefix(replacement.trim_end_matches('/'))?;
    if !(rest.is_empty() || rest.starts_with(['/', '?', '#'])) {
        return None;
    }
    let prefix = prefix.trim_end_matches('/');
    let slash = if prefix.is_empty() && !rest.starts_with('/') { "/" } else { "" };
    Some([prefix, slash, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prefixes: &[&str], path: &str) -> Result<Option<usize>, AmbiguousPath> {
        PathTable::new(prefixes.iter().copied()).find(path)
    }

    #[test]
    fn the_longest_prefix_wins_by_whole_segments() {
        let prefixes = ["/api", "/", "/api/v2", "/docs"];
        for (path, place) in [
            ("/", 1),
            ("/x", 1),
            ("/api", 0),
            ("/api/", 0),
            ("/api/x", 0),
            ("/apis", 1),
            ("/ap", 1),
            ("/API", 1),
            ("/api/v2", 2),
            ("/api/v2/", 2),
            ("/api/v2/x/y", 2),
            ("/api/v22", 0),
            ("/%61pi/v%32/x", 2),
            ("/docs/a%2Fb", 3),
            ("/x/docs", 1),
            ("*", 1),
        ] {
            assert_eq!(found(&prefixes, path), Ok(Some(place)), "{path}");
        }
        assert_eq!(found(&["/api"], "/x"), Ok(None));
        assert_eq!(found(&["/api"], "/"), Ok(None));
        assert_eq!(found(&["/api"], "*"), Ok(None));
        assert_eq!(found(&[], "/x"), Ok(None));
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "//api",
            "/x/../api",
            "/api/../x",
            "/api/x/../../x",
            "/./api",
            "/api/.",
            "/%2e%2e/api",
            "/api/%2E%2e/x",
            "/api/%252e%252e/x",
            "/api/%25252e%25252e/x",
            "/api/..;/x",
            "/api/..;a=b/x",
            "/api/..%3b/x",
            "/api/.. /x",
            "/api/..%20/x",
            "/api/..%c2%a0/x",
            "/api/...",
            "/api/x%2f..%2f..%2fx",
            "/api/x%252f..%252fx",
            "/api/..%5cx",
            "/api\\x",
            "/api%5cx",
            "/api%2fx",
            "/api%2Fx",
            "/api%252fx",
            "/api;x=1/y",
            "/api%3bx",
            "/api.",
            "/api%20",
            "/api%00",
            "/api/%00",
            "/api/%0a",
            "/api/%",
            "/api/%6",
            "/api/%zz",
            "/api/%c0%ae%c0%ae/x",
            "/api/%ff",
            "api",
            "",
            "**",
        ] {
            assert_eq!(found(&["/", "/api"], path), Err(AmbiguousPath), "{path}");
        }
    }

    #[test]
    fn encodings_behind_the_prefix_are_accepted() {
        // Behind the prefix and without a way up, such segments concern only the origin.
        for path in [
            "/api/a%2Fb",
            "/api/a;x=1",
            "/api//x",
            "/api/100%25",
            "/api/a%252Fb",
            "/api/.well-known",
            "/api/a.",
            "/api/%20",
            "/api/a..b",
        ] {
            assert_eq!(found(&["/", "/api"], path), Ok(Some(1)), "{path}");
        }
        assert_eq!(found(&["/", "/api/v2"], "/files/a;b"), Ok(Some(0)), "no prefix begins with /files");
        assert_eq!(found(&["/", "/api/v2"], "/api/a;b"), Err(AmbiguousPath));
        // If the root is the only prefix, no segment decides.
        for path in ["//x", "/a;b", "/a%2Fb"] {
            assert_eq!(found(&["/"], path), Ok(Some(0)), "{path}");
        }
    }

    #[test]
    fn a_prefix_is_replaced_and_the_rest_is_unchanged() {
        let replaced = |target: &str, segments, replacement: &str| {
            replace_prefix(&target.parse().unwrap(), segments, replacement).map(|target| target.to_string())
        };
        for (target, segments, replacement, expected) in [
            ("/api/x?y=1", 1, "/", "/x?y=1"),
            ("/api", 1, "/", "/"),
            ("/api?y", 1, "/", "/?y"),
            ("/api/", 1, "/", "/"),
            ("/api", 1, "/v2", "/v2"),
            ("/api/", 1, "/v2", "/v2/"),
            ("/%61pi/a%2Fb", 1, "/v2", "/v2/a%2Fb"),
            ("/a/b/c", 2, "/x/y", "/x/y/c"),
            ("/x", 0, "/v2", "/v2/x"),
            ("/", 0, "/v2", "/v2/"),
            ("*", 0, "/v2", "*"),
        ] {
            assert_eq!(replaced(target, segments, replacement), Ok(expected.to_owned()), "{target} {replacement}");
        }
        assert_eq!(replaced("/api//x", 1, "/"), Err(AmbiguousPath));
        assert_eq!(replaced("/api//x", 1, "/v2"), Err(AmbiguousPath));
    }

    #[test]
    fn the_prefix_is_restored_in_redirects() {
        for (path, prefix, replacement, expected) in [
            ("/x?y", "/api", "/", Some("/api/x?y")),
            ("/", "/api", "/", Some("/api/")),
            ("", "/api", "/", Some("/api")),
            ("/v2/x", "/api", "/v2", Some("/api/x")),
            ("/v2", "/api", "/v2", Some("/api")),
            ("/v2", "/", "/v2", Some("/")),
            ("/v2#a", "/", "/v2", Some("/#a")),
            ("/v22", "/api", "/v2", None),
            ("/x", "/api", "/v2", None),
        ] {
            assert_eq!(restore_prefix(path, prefix, replacement).as_deref(), expected, "{path}");
        }
    }
}
