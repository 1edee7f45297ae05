//! The keys and logins that an edge needs to identify clients.

use std::sync::Arc;

use sallyport_bus::Identities;
use sallyport_identity::{AssertionKey, Purpose, Sealer};
use serde::Serialize;

use crate::util::ids;

/// What an edge needs to know who comes. An edge without it lets nobody into sockets that ask.
#[derive(Debug, Clone)]
pub struct EdgeIdentity {
    /// Seals and opens what browsers carry; control has the same.
    pub sealer: Arc<Sealer>,
    /// Who has logged in, and which tokens are good.
    pub identities: Identities,
    /// Signs the assertions for origins.
    pub assertions: Arc<AssertionKey>,
}

impl EdgeIdentity {
    /// Seals this value for this purpose; `None` if the result is too long for a browser.
    pub(crate) fn seal(&self, purpose: Purpose, value: &impl Serialize) -> Option<String> {
        self.sealer.seal(purpose, value, ids::random())
    }
}
