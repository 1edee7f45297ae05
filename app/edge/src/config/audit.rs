//! The audit settings of an edge.

use std::{fmt, sync::Arc};

use sallyport_audit::AuditSink;

/// Where it is recorded who used what.
#[derive(Clone)]
pub struct EdgeAudit {
    /// Where events go.
    pub sink: Arc<dyn AuditSink>,
    /// Whether the use of every socket is recorded, or only of those that ask who comes.
    pub all: bool,
}

impl fmt::Debug for EdgeAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeAudit").field("all", &self.all).finish_non_exhaustive()
    }
}
