//! Path patterns, and paths in the form in which they are compared.

use std::{borrow::Cow, fmt, str::FromStr};

use unicode_normalization::UnicodeNormalization as _;

/// The longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 256;
/// The most segments of a pattern.
const MAX_PATTERN_SEGMENTS: usize = 16;
/// The longest path that rules evaluate, in bytes and in segments, which bounds the cost of a request at the edge.
/// Longer paths are [`PathView::Odd`].
const MAX_PATH_BYTES: usize = 2_048;
const MAX_PATH_SEGMENTS: usize = 128;

/// A path and everything below it.
///
/// `/admin` matches `/admin`, `/admin/` and `/admin/users`, but not `/administrator`. Within a segment `*` matches any
/// number of characters; a segment `**` matches any number of segments. `/` matches every path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern(String);

/// The text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// It does not begin with a slash, or exceeds a limit.
    #[error(
        "{text:?} is no path: begin with a slash, and use at most {MAX_PATTERN_BYTES} bytes, {MAX_PATTERN_SEGMENTS} \
         segments and one **"
    )]
    Syntax {
        /// The text, cut to 64 characters.
        text: String,
    },
    /// It has a part that no normalised path has.
    #[error("{text:?} matches no path: {found} is taken out of a path, or refused, before rules see it")]
    NeverMatches {
        /// The text, cut to 64 characters.
        text: String,
        /// The part.
        found: &'static str,
    },
}

impl PathPattern {
    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches every path.
    pub(crate) fn is_everything(&self) -> bool {
        self.segments().all(|segment| segment == "**")
    }

    /// Whether it matches everything that the other pattern matches. Conservative: may be false if that is hard to find
    /// out.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.is_everything() || (!self.is_wild() && self.folded().matches(&other.folded().0)) || self == other
    }

    /// Whether it has a wildcard.
    pub(crate) fn is_wild(&self) -> bool {
        self.0.contains('*')
    }

    /// The pattern for case-insensitive comparison ([`fold`]).
    pub(crate) fn folded(&self) -> Self {
        Self(fold(&self.0))
    }

    fn segments(&self) -> impl Iterator<Item = &str> + Clone {
        segments(&self.0)
    }

    /// Whether the plain path matches. Linear in the length of the path; with `**` also in the number of segments of
    /// both.
    pub(crate) fn matches(&self, path: &str) -> bool {
        text_matches(&self.0, path)
    }
}

/// The text in lower case and composed (NFC). Case-insensitive file systems and services also ignore the case beyond
/// ASCII, and treat composed and decomposed `é` alike.
fn fold(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase().nfc().collect() }
}

/// Whether the plain path matches the text of a pattern.
pub(crate) fn text_matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (segments(pattern), segments(path));
    while let Some(wanted) = pattern.next() {
        if wanted == "**" {
            // After the only `**` the rest may begin at any segment.
            return loop {
                if begins_with(path.clone(), pattern.clone()) {
                    break true;
                }
                if path.next().is_none() {
                    break false;
                }
            };
        }
        if !path.next().is_some_and(|segment| segment_matches(wanted, segment)) {
            return false;
        }
    }
    // Everything below matches, too.
    true
}

/// Whether the path starts with segments that match these, one by one.
fn begins_with<'a, 'b>(mut path: impl Iterator<Item = &'a str>, mut pattern: impl Iterator<Item = &'b str>) -> bool {
    pattern.all(|wanted| path.next().is_some_and(|segment| segment_matches(wanted, segment)))
}

/// The segments of a path or pattern; a trailing slash adds none.
fn segments(path: &str) -> std::iter::Filter<std::str::Split<'_, char>, fn(&&str) -> bool> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Whether the segment matches, with `*` as a wildcard. The parts between wildcards are searched from left to right;
/// the first position is as good as any.
fn segment_matches(pattern: &str, segment: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == segment };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = segment.strip_prefix(first).and_then(|left| left.strip_suffix(last)) else { return false };
    middle.split('*').all(|wanted| match left.split_once(wanted) {
        _ if wanted.is_empty() => true,
        Some((_, behind)) => {
            left = behind;
            true
        }
        None => false,
    })
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, PathPatternError> {
        let quoted = || text.chars().take(64).collect::<String>();
        let is_bounded = text.len() <= MAX_PATTERN_BYTES
            && segments(text).count() <= MAX_PATTERN_SEGMENTS
            && segments(text).filter(|segment| *segment == "**").count() <= 1;
        if !text.starts_with('/') || !is_bounded {
            return Err(PathPatternError::Syntax { text: quoted() });
        }
        let found = if text.contains('?') || text.contains('#') {
            Some("what follows ? or #")
        } else if text.contains('%') {
            Some("percent-encoding (write the character itself)")
        } else {
            oddity(text)
        };
        match found {
            Some(found) => Err(PathPatternError::NeverMatches { text: quoted(), found }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for PathPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for PathPattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A path as rules evaluate it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathView<'a> {
    /// All programs agree on this decoded path.
    Plain {
        /// The decoded path.
        path: Cow<'a, str>,
        /// In lower case, if that differs.
        folded: Option<String>,
    },
    /// Programs disagree about the path, so it may be any.
    Odd,
}

impl<'a> PathView<'a> {
    /// The view of a received path, with or without a query.
    pub(crate) fn of(raw: &'a str) -> Self {
        let path = raw.split(['?', '#']).next().unwrap_or_default();
        let decoded = if path.contains('%') {
            match decode(path) {
                Some(decoded) => Cow::Owned(decoded),
                None => return Self::Odd,
            }
        } else {
            Cow::Borrowed(path)
        };
        // `*` is the target of OPTIONS; any other path begins with a slash.
        let is_bounded = decoded.len() <= MAX_PATH_BYTES && segments(&decoded).count() <= MAX_PATH_SEGMENTS;
        if !decoded.starts_with('/') || !is_bounded || oddity(&decoded).is_some() {
            return Self::Odd;
        }
        let may_differ = decoded.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let folded = may_differ.then(|| fold(&decoded));
        Self::Plain { path: decoded, folded }
    }
}

/// The percent-decoded path; `None` if programs disagree about it: incomplete encoding, an encoded slash, an encoded
/// percent sign (which another program may decode once more), invalid UTF-8.
fn decode(path: &str) -> Option<String> {
    let hex = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let mut byte = *first;
        if byte == b'%' {
            let (digits, behind) = rest.split_first_chunk::<2>()?;
            byte = hex(&digits[0])? << 4 | hex(&digits[1])?;
            rest = behind;
            if matches!(byte, b'%' | b'/' | b'?' | b'#') {
                return None;
            }
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

/// A part of a decoded path that some programs remove and others keep.
fn oddity(path: &str) -> Option<&'static str> {
    if path.contains('\\') {
        return Some("a backslash");
    }
    if path.contains(';') {
        return Some("a semicolon");
    }
    if path.chars().any(char::is_control) {
        return Some("a control character");
    }
    if path.contains("//") {
        return Some("an empty segment");
    }
    // Some programs strip trailing blanks and dots of a segment: `/admin.` is `/admin` to them, and `..` can be hidden.
    let is_cut = |segment: &str| segment.ends_with(|last: char| last == '.' || last.is_whitespace());
    path.split('/').any(is_cut).then_some("a segment that ends in a dot or a blank")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        match PathView::of(path) {
            PathView::Plain { path, .. } => pattern.parse::<PathPattern>().unwrap().matches(&path),
            PathView::Odd => panic!("{path} is odd"),
        }
    }

    #[test]
    fn a_pattern_means_a_path_and_everything_beneath_it() {
        for path in ["/admin", "/admin/", "/admin/users", "/%61dmin", "/adm%69n/x?y=/..", "/admin/a%20b"] {
            assert!(matches("/admin", path), "{path}");
            assert!(matches("/", path) && matches("/**", path), "{path}");
        }
        for path in ["/", "/administrator", "/x/admin", "/Admin", "/adm"] {
            assert!(!matches("/admin", path), "{path}");
        }
        assert!(matches("/admin/", "/admin"), "a slash at the end says nothing");
        assert!("/Admin".parse::<PathPattern>().unwrap().folded().matches("/admin/x"));
        let umlaut = "/\u{dc}bung".parse::<PathPattern>().unwrap().folded();
        assert!(umlaut.matches("/\u{fc}bung") && !umlaut.matches("/ubung"));
    }

    #[test]
    fn stars_stand_for_characters_and_segments() {
        for (pattern, path, expected) in [
            ("/*.php", "/index.php", true),
            ("/*.php", "/index.php/x", true),
            ("/*.php", "/a/index.php", false),
            ("/**/*.php", "/a/b/index.php", true),
            ("/**/*.php", "/index.php", true),
            ("/a*b*c", "/aXbbYc", true),
            ("/a*b*c", "/aXbbY", false),
            ("/*/x", "/y/x/z", true),
            ("/*/x", "/x", false),
            ("/a/**/b/*/c", "/a/1/b/b/2/c/d", true),
            ("/a/**/b/*/c", "/a/1/c/2/b", false),
            ("/**/b", "/a/1/c/2/b", true),
            ("/a/**", "/a", true),
            ("/*a*a", "/aa", true),
            ("/*a*a", "/a", false),
            ("/a*a", "/a", false),
            ("/*ab*ab*", "/xabab", true),
            ("/*ab*ab*", "/xabxa", false),
            ("/**/a/b", "/a/a/a/b", true),
            ("/**/a/b", "/a/x/b/a", false),
            ("/*", "/", false),
            ("/é*", "/%C3%A9t%C3%A9", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        let long = format!("/{}", "a/".repeat(MAX_PATH_SEGMENTS));
        assert!(!matches(&format!("/**{}/b", "/a*a*".repeat(14)), &long), "and takes no time to speak of");
    }

    #[test]
    fn paths_that_programs_read_differently_are_odd() {
        for path in [
            "/public/../admin",
            "/public/..",
            "/./admin",
            "/%2e%2e/admin",
            "/.%2E/admin",
            "//admin",
            "/x//admin",
            "/public/..;/admin",
            "/admin;x=1",
            "/x%2fadmin",
            "/x%2Fadmin",
            "/x\\admin",
            "/x%5cadmin",
            "/%2561dmin",
            "/%61dmin%",
            "/%6",
            "/%zz",
            "/ad%00min",
            "/ad%09min",
            "/%c0%afadmin",
            "/%ff",
            "/.. /admin",
            "/...",
            "/admin.",
            "/admin%20",
            "/admin%c2%a0",
            "/admin./users",
            "*",
            "",
            "admin",
            "/a%3fb",
            "/a%23b",
            &"/a".repeat(MAX_PATH_SEGMENTS + 1),
            &format!("/{}", "a".repeat(MAX_PATH_BYTES)),
        ] {
            assert_eq!(PathView::of(path), PathView::Odd, "{path}");
        }
        for path in ["/", "/a.b", "/.well-known/x", "/a..b", "/~user", "/a:b@c", "/a b", "/x?a=%2f..//;"] {
            assert!(matches!(PathView::of(path), PathView::Plain { .. }), "{path}");
        }
        let plain = PathView::Plain { path: Cow::Borrowed("/plain"), folded: None };
        assert_eq!(PathView::of("/plain?x"), plain);
    }

    #[test]
    fn letters_beyond_ascii_have_small_ones_and_are_composed_where_capitals_do_not_count() {
        for (path, folded) in [("/%C3%9Cbung", "/\u{fc}bung"), ("/cafe%CC%81", "/caf\u{e9}"), ("/A", "/a")] {
            let PathView::Plain { folded: seen, .. } = PathView::of(path) else { panic!("{path} is odd") };
            assert_eq!(seen.as_deref(), Some(folded), "{path}");
        }
        assert_eq!("/Cafe\u{301}".parse::<PathPattern>().unwrap().folded().0, "/caf\u{e9}");
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_refused() {
        for text in ["", "admin", "*", "/**/a/**", &"/a".repeat(17), &format!("/{}", "a".repeat(MAX_PATTERN_BYTES))] {
            assert!(matches!(text.parse::<PathPattern>(), Err(PathPatternError::Syntax { .. })), "{text}");
        }
        for text in ["/a/../b", "/a//b", "/a;b", "/a\\b", "/%61", "/a?b", "/a\n", "/."] {
            let error = text.parse::<PathPattern>().unwrap_err().to_string();
            assert!(error.contains("matches no path"), "{error}");
        }
        let covers = |a: &str, b: &str| a.parse::<PathPattern>().unwrap().covers(&b.parse().unwrap());
        assert!(covers("/", "/a*") && covers("/a", "/a/b*") && covers("/a*", "/a*") && covers("/a", "/a"));
        assert!(!covers("/a", "/") && !covers("/a/b", "/a/*") && !covers("/a", "/ab"));
    }
}
