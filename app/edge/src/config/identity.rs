//! The keys and logins that an edge needs to identify clients.

use std::sync::Arc;

use sallyport_bus::Identities;
use sallyport_identity::{AssertionKey, Purpose, Sealer};
use serde::Serialize;

use crate::util::ids;

/// The keys and logins by which an edge identifies clients. Without them, sockets with an identity setting admit no
/// client.
#[derive(Debug, Clone)]
pub struct EdgeIdentity {
    /// Seals and opens the values that browsers carry; control has the same key.
    pub sealer: Arc<Sealer>,
    /// The valid logins and tokens.
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
