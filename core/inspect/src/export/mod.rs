//! Exchanges for other programs: curl commands and HAR files.
//!
//! Uses `message`, `decode` and `answer`.

mod curl;
mod har;

pub use curl::curl;
pub use har::har;

use crate::message::Exchange;

/// The public address of a request, with all but visible ASCII escaped.
fn url(exchange: &Exchange) -> String {
    let scheme =
        exchange.request.field("x-forwarded-proto").filter(|found| found == "http").map_or("https", |_| "http");
    // The edge may send another host to the service, and another path.
    let host = exchange.request.field("x-forwarded-host").unwrap_or_else(|| exchange.host.clone());
    let host = if host.is_empty() { "unknown.invalid" } else { &host };
    let target = exchange.public_target.as_ref().unwrap_or(&exchange.target);
    let mut url = format!("{scheme}://");
    for byte in host.bytes().chain(target.bytes()) {
        if byte.is_ascii_graphic() {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}
