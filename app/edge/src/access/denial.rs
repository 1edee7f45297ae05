//! Why a request may not come in.

use super::AccessPage;

/// Why a request to a socket that asks who comes does not go on to an origin.
#[derive(Debug)]
pub(crate) enum Denial {
    /// The policies of the socket do not let it in.
    Denied,
    /// Who comes has to be known, and this edge cannot know anybody.
    NobodyKnown,
    /// There is no page of ours under this path.
    UnknownPath,
    /// A page, a redirect or a problem of ours is the answer.
    Page(AccessPage),
}

impl From<AccessPage> for Denial {
    fn from(answer: AccessPage) -> Self {
        Self::Page(answer)
    }
}
