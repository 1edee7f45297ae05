//! How an edge leaves from slices of egress addresses.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Instant};

use sallyport_bus::ServedEgress;
use sallyport_model::EdgeId;

/// When the edge sent the last beat that the bus has acknowledged, while all published leases are known.
pub type Renewed = Arc<dyn Fn() -> Option<Instant> + Send + Sync>;

/// How an edge leaves from slices of egress addresses.
#[derive(Clone)]
pub struct EgressSettings {
    /// The edge.
    pub machine: EdgeId,
    /// The addresses and leases, and where the edge reports what it does with them.
    pub served: ServedEgress,
    /// When the leases were renewed last.
    pub renewed: Renewed,
    /// Whether the edge leaves by the machine's own address while it can use no slice. Otherwise it opens no connection
    /// then.
    pub may_use_own_address: bool,
    /// The name servers for the names of direct origins; those of the system if there are none.
    pub name_servers: Vec<SocketAddr>,
    /// The file with what the next process must know of the leases; `None` where control is in this process.
    pub kept: Option<PathBuf>,
}

impl fmt::Debug for EgressSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = &self.may_use_own_address;
        f.debug_struct("EgressSettings").field("machine", &self.machine).field("may_use_own_address", own).finish()
    }
}
