//! The audit settings of an edge.

use std::{fmt, sync::Arc};

use sallyport_audit::AuditSink;

/// Where an edge records the use of sockets.
#[derive(Clone)]
pub struct EdgeAudit {
    /// Receives the events.
    pub sink: Arc<dyn AuditSink>,
    /// Whether the use of every socket is recorded, or only of sockets with an identity or policies.
    pub all: bool,
}

impl fmt::Debug for EdgeAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeAudit").field("all", &self.all).finish_non_exhaustive()
    }
}
