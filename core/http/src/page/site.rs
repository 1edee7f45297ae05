//! Name and mark of the installation, for its pages.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::Escaped;

/// The longest name of an installation, in characters.
pub const MAX_SITE_NAME_CHARS: usize = 60;
/// The largest mark of an installation, in bytes. Every page contains the mark.
pub const MAX_SITE_ICON_BYTES: usize = 8 * 1024;

/// The first bytes of a PNG picture (W3C PNG section 5.2).
const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The default mark, an open gate, in the colours of the page.
const GATE: &str = "<svg class=\"mark\" viewBox=\"0 0 32 32\" aria-hidden=\"true\">\
    <rect width=\"32\" height=\"32\" rx=\"7\"/>\
                    <path d=\"M8 26V15a8 8 0 0 1 16 0v11h-4V15a4 4 0 0 0-8 0v11z\"/></svg>";
/// The default mark in a tab, with its own colours.
const GATE_FILE: &[u8] = b"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 32 32\"><rect width=\"32\" \
                           height=\"32\" rx=\"7\" fill=\"#a34a24\"/><path fill=\"#fff\" d=\"M8 26V15a8 8 0 0 1 16 \
                           0v11h-4V15a4 4 0 0 0-8 0v11z\"/></svg>";

/// The name and the mark of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    name: String,
    /// The mark as a `data:` URL; `None` for the default.
    icon: Option<String>,
}

/// Why a name or a mark is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// The name is empty, too long or has control characters.
    #[error("a name of an installation has 1 to {MAX_SITE_NAME_CHARS} characters, and no control characters")]
    Name,
    /// The mark is too large for a page.
    #[error(
        "the mark has {0} bytes, and {MAX_SITE_ICON_BYTES} are the most: an SVG picture or a PNG picture of 64 by 64 \
         pixels fits"
    )]
    TooLarge(usize),
    /// The mark is neither a PNG nor an SVG picture.
    #[error("the mark is neither a PNG nor an SVG picture")]
    Kind,
}

impl Site {
    /// The installation with its domain as name, and the default mark.
    #[must_use]
    pub fn of_domain(domain: &str) -> Self {
        Self { name: domain.to_owned(), icon: None }
    }

    /// Sets the name.
    ///
    /// # Errors
    /// The name is empty, too long or has control characters.
    pub fn named(mut self, name: &str) -> Result<Self, SiteError> {
        let name = name.trim();
        let length = name.chars().count();
        if !(1..=MAX_SITE_NAME_CHARS).contains(&length) || name.chars().any(char::is_control) {
            return Err(SiteError::Name);
        }
        name.clone_into(&mut self.name);
        Ok(self)
    }

    /// Sets the mark: the bytes of a PNG or an SVG file.
    ///
    /// An SVG is shown as an image, in which browsers run and load nothing.
    ///
    /// # Errors
    /// The picture is too large, or neither a PNG nor an SVG.
    pub fn with_icon(mut self, picture: &[u8]) -> Result<Self, SiteError> {
        if picture.len() > MAX_SITE_ICON_BYTES {
            return Err(SiteError::TooLarge(picture.len()));
        }
        let is_svg = || std::str::from_utf8(picture).is_ok_and(|text| text.contains("<svg"));
        let kind = if picture.starts_with(PNG_SIGNATURE) {
            "png"
        } else if is_svg() {
            "svg+xml"
        } else {
            return Err(SiteError::Kind);
        };
        self.icon = Some(data_url(kind, picture));
        Ok(self)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The mark as HTML.
    pub(super) fn mark(&self) -> String {
        match &self.icon {
            Some(url) => format!("<img class=\"mark\" src=\"{}\" alt=\"\">", Escaped(url)),
            None => GATE.to_owned(),
        }
    }

    /// The URL of the mark for a tab.
    pub(super) fn icon_url(&self) -> String {
        self.icon.clone().unwrap_or_else(|| data_url("svg+xml", GATE_FILE))
    }
}

fn data_url(kind: &str, picture: &[u8]) -> String {
    format!("data:image/{kind};base64,{}", STANDARD.encode(picture))
}
