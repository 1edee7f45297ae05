//! Leaving from slices of egress addresses, for `edge` and `up`.

use std::{net::SocketAddr, path::Path};

use sallyport_bus::{EdgeCard, ServedEgress};
use sallyport_edge::{EgressSettings, Renewed};
use sallyport_model::EdgeId;
use sallyport_ports::SliceUse;
use tokio::sync::watch;

use crate::args::egress::EgressArgs;

/// What the next process must know of the leases.
const LEASES_FILE: &str = "egress.json";

/// How an edge leaves, by its options. `renewed` says when its leases were renewed last.
pub(super) fn settings(
    args: &EgressArgs,
    machine: EdgeId,
    served: ServedEgress,
    data: &Path,
    (renewed, name_servers): (Renewed, Vec<SocketAddr>),
) -> EgressSettings {
    EgressSettings {
        machine,
        served,
        renewed,
        name_servers,
        may_use_own_address: args.egress_own_address,
        kept: Some(data.join(LEASES_FILE)),
    }
}

/// Keeps what the edge does with its slices in the edge's entry.
pub(super) async fn keep(mut uses: watch::Receiver<Vec<SliceUse>>, card: watch::Sender<EdgeCard>) {
    loop {
        let known = uses.borrow_and_update().clone();
        card.send_if_modified(|card| std::mem::replace(&mut card.egress, known.clone()) != known);
        // The sender ends with the bus.
        if uses.changed().await.is_err() {
            return;
        }
    }
}
