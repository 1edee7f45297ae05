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
    let host = if exchange.host.is_empty() { "unknown.invalid" } else { &exchange.host };
    let mut url = format!("{scheme}://");
    for byte in host.bytes().chain(exchange.target.bytes()) {
        if byte.is_ascii_graphic() {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}
