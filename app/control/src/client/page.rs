//! Small pages for people, without scripts.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// The style of all pages; its hash stands in their policy, and nothing else may style them.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1rem;color:#1b1f24;\
background:#fff}h1{font-size:1.3rem}code{font-size:1.05em}button,input{font:inherit;padding:.5rem 1rem;margin:.25rem .5rem .25rem 0}\
.go{background:#0b57d0;color:#fff;border:0;border-radius:.3rem}";

/// The text in HTML.
pub(super) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len() + 16), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
        out
    })
}

/// A page; the title is plain text, the body is HTML.
pub(super) fn page(status: StatusCode, title: &str, body: &str) -> Response {
    use base64::Engine as _;
    use sha2::Digest as _;
    let title = escape(title);
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>{body}\
         </body></html>\n"
    );
    let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' \
         http://127.0.0.1:* http://[::1]:* http://localhost:*"
    );
    let mut response = (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    let headers = response.headers_mut();
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A page that says what is wrong.
pub(super) fn refusal(status: StatusCode, sentence: &str) -> Response {
    page(status, "That did not work", &format!("<p>{}</p>", escape(sentence)))
}
