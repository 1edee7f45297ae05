//! The files of the page, which are built in. They need no key, and have no data.

/// A file of the page: its path, its type, and its content.
type File = (&'static str, &'static str, &'static [u8]);

const FILES: [File; 6] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../../../desk/dist/index.html")),
    ("/index.html", "text/html; charset=utf-8", include_bytes!("../../../../desk/dist/index.html")),
    ("/inspector.js", "text/javascript; charset=utf-8", include_bytes!("../../../../desk/dist/inspector.js")),
    ("/inspector.css", "text/css; charset=utf-8", include_bytes!("../../../../desk/dist/inspector.css")),
    ("/mark.svg", "image/svg+xml", include_bytes!("../../../../desk/dist/mark.svg")),
    ("/licences.txt", "text/plain; charset=utf-8", include_bytes!("../../../../desk/dist/licences.txt")),
];

/// What the page may do: its own script and style, requests to itself, pictures from its memory. Nothing makes markup
/// out of text.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src \
                                 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                                 require-trusted-types-for 'script'; trusted-types 'none'";

/// The file at a path: its type and its content.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|(found, ..)| *found == path).map(|(_, kind, content)| (*kind, *content))
}
