//! Why a request is not admitted.

use super::AccessPage;

/// Why a request to a socket with an identity or policies does not reach an origin.
#[derive(Debug)]
pub(crate) enum Denial {
    /// The policies refuse it.
    Denied,
    /// The policies need an identity, and this edge has no data about logins.
    IdentityUnavailable,
    /// No page exists under this path of `/.sallyport/`.
    UnknownPath,
    /// The edge responds with a page, a redirect or a problem document.
    Page(AccessPage),
}

impl From<AccessPage> for Denial {
    fn from(page: AccessPage) -> Self {
        Self::Page(page)
    }
}
