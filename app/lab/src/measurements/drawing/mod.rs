//! Drawings and pages of reports: SVG and HTML that need nothing else. Pure.

mod bars;
mod page;
#[cfg(test)]
mod tests;

pub use bars::bars;
pub use page::page;

/// The text as content of XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
