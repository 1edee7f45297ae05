//! Lines for `/healthz` about the bus.

use std::time::Instant;

use sallyport_bus::{Fleet, Nats};

/// The faults of the connection to the bus and of the directory, one a line; empty without faults.
pub(crate) fn bus_health(nats: &Nats, fleet: &Fleet) -> String {
    let ago = |since: Instant| since.elapsed().as_secs();
    let link = nats.link();
    let mut notes = String::new();
    if link.is_refused {
        notes += &format!("bus: refuses the credentials, for {} s\n", ago(link.since));
    } else if !link.is_up {
        notes += &format!("bus: away for {} s\n", ago(link.since));
    }
    if let Some(since) = fleet.stale_since() {
        notes += &format!("directory: stale for {} s\n", ago(since));
    }
    notes
}
