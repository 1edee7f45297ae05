//! The message by which a connector reports its links.

use sallyport_model::LinkReport;
use serde::{Deserialize, Serialize};

use super::{clean, get_json, put_json};
use crate::{FrameType, Violation};

/// The most links of a message; further ones are ignored.
pub const MAX_LINK_REPORTS: usize = 32;
/// The longest name of a link, in bytes: an address of IPv6 fits. Longer ones are cut.
pub const MAX_LINK_NAME_BYTES: usize = 64;

/// The links of a connector, as they are now; only for edges whose WELCOME wants reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The links, at most [`MAX_LINK_REPORTS`].
    pub links: Vec<LinkReport>,
}

impl Links {
    /// Appends the message as a whole LINKS frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_json(out, FrameType::Links, &self.bounded());
    }

    /// Reads the payload of such a frame; names are cut to their bound and stripped of control characters.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let message: Self = get_json(FrameType::Links, payload)?;
        Ok(message.bounded())
    }

    fn bounded(&self) -> Self {
        let cut = |link: &LinkReport| LinkReport { name: clean(&link.name, MAX_LINK_NAME_BYTES), ..link.clone() };
        Self { links: self.links.iter().take(MAX_LINK_REPORTS).map(cut).collect() }
    }
}
