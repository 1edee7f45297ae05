//! The files of the page, which are built in: compressed once, and named by their content.

use std::{io::Write as _, sync::LazyLock};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("../../../../desk/dist/desk.html");
const JAVASCRIPT: &[u8] = include_bytes!("../../../../desk/dist/desk.js");
const STYLES: &[u8] = include_bytes!("../../../../desk/dist/desk.css");
const MARK: &[u8] = include_bytes!("../../../../desk/dist/mark.svg");
const LICENCES: &[u8] = include_bytes!("../../../../desk/dist/licences.txt");

/// How many characters of a hash are in a name.
const HASH_CHARS: usize = 16;

/// The permissions of the page: its own script and style, and requests to its own host. No text becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The header fields of every file.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A file of the page.
pub(super) struct File {
    path: String,
    media_type: &'static str,
    content: Bytes,
    /// The content in gzip.
    compressed: Bytes,
}

/// The page first, then what it loads.
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let mut page = PAGE.to_owned();
    let mut files = Vec::new();
    for (name, extension, media_type, content) in [
        ("desk", "js", "text/javascript; charset=utf-8", JAVASCRIPT),
        ("desk", "css", "text/css; charset=utf-8", STYLES),
        ("mark", "svg", "image/svg+xml", MARK),
        ("licences", "txt", "text/plain; charset=utf-8", LICENCES),
    ] {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        let path = format!("/{name}.{}.{extension}", &hash[..HASH_CHARS]);
        page = page.replace(&format!("\"/{name}.{extension}\""), &format!("\"{path}\""));
        files.push(File::new(path, media_type, Bytes::from_static(content)));
    }
    files.insert(0, File::new("/".to_owned(), "text/html; charset=utf-8", page.into()));
    files
});

/// The file at a path; the page itself where there is none.
pub(super) fn find(path: &str) -> &'static File {
    FILES.iter().find(|file| file.path == path).unwrap_or(&FILES[0])
}

impl File {
    fn new(path: String, media_type: &'static str, content: Bytes) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // A vector takes every write; without one, the plain content is served.
        let compressed =
            encoder.write_all(&content).and_then(|()| encoder.finish()).map_or_else(|_| Bytes::new(), Bytes::from);
        Self { path, media_type, content, compressed }
    }

    /// The response with this file.
    pub(super) fn response(&self, request: &HeaderMap, is_head: bool) -> Response {
        let is_compressed = !self.compressed.is_empty() && accepts_gzip(request);
        let content = if is_compressed { &self.compressed } else { &self.content };
        let body = if is_head { Body::empty() } else { Body::from(content.clone()) };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(content.len()));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        // The name of a file changes with its content; the page names the files.
        let caching = if self.path == "/" { "no-cache" } else { "public, max-age=31536000, immutable" };
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
        if is_compressed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// Whether the client takes gzip (RFC 9110 section 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        let is_refused = parts.any(|part| {
            let quality = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            quality.is_some_and(|quality| quality.trim_matches(['0', '.']).is_empty())
        });
        is_gzip && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (given, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("br", false),
            ("xgzip", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_str(given).unwrap())]);
            assert_eq!(accepts_gzip(&headers), expected, "{given}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn the_page_is_small() {
        const MAX_BYTES: usize = 100 * 1024;
        const MAX_FIRST_SCREEN_BYTES: usize = 45 * 1024;
        let sum = |files: &[File]| files.iter().map(|file| file.compressed.len()).sum::<usize>();
        let code: Vec<&File> =
            FILES.iter().filter(|file| file.path.ends_with("js") || file.path.ends_with("css")).collect();
        assert_eq!(code.len(), 2);
        assert!(code.iter().map(|file| file.compressed.len()).sum::<usize>() <= MAX_BYTES);
        // The first screen loads all but the licences.
        let (_, first_screen) = FILES.split_last().unwrap();
        assert!(sum(first_screen) <= MAX_FIRST_SCREEN_BYTES, "{}", sum(first_screen));
    }
}
