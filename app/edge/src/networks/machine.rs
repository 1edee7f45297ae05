//! The packets of one machine.

use std::{sync::Arc, time::Instant};

use sallyport_model::MachineId;
use sallyport_network::relay::{DropReason, Verdict};
use sallyport_tunnel::packets::{PacketHandler, PacketQueue};
use sallyport_wire::{Violation, frame::VIRTIO_HEADER_BYTES, packets::Parcels};

use super::{NetworkRelay, Networks, RelayState, metrics::Dropped};

/// Passes the packets of a machine on, until it is dropped.
pub(super) struct MachineHandler {
    networks: Arc<Networks>,
    relay: Arc<NetworkRelay>,
    machine: MachineId,
    queue: Arc<PacketQueue>,
}

impl MachineHandler {
    pub(super) fn new(
        networks: Arc<Networks>,
        relay: Arc<NetworkRelay>,
        machine: MachineId,
        queue: Arc<PacketQueue>,
    ) -> Self {
        Self { networks, relay, machine, queue }
    }

    /// Passes a parcel on.
    fn relay(&self, state: &mut RelayState, parcel: &[u8], now: Instant) -> Result<(), Dropped> {
        let to = match state.relay.judge(self.machine, parcel, now) {
            Verdict::Forward(to) => to,
            Verdict::Drop(reason) => {
                if let DropReason::Denied(rule) = reason {
                    let rule = rule.map(tracing::field::display);
                    tracing::debug!(machine = %self.machine, rule, "the policy of a network denies a packet");
                }
                return Err(Dropped::Judged(reason.place()));
            }
        };
        let carrier = state.carriers.get(&to).ok_or(Dropped::Away)?;
        if carrier.queue.push(parcel) { Ok(()) } else { Err(Dropped::QueueFull) }
    }
}

impl PacketHandler for MachineHandler {
    fn packets(&mut self, parcels: Parcels<'_>) -> Result<(), Violation> {
        let now = Instant::now();
        let mut state = self.relay.state.lock();
        // A carrier that was replaced, or whose machine was removed, has no say any more.
        if !state.carriers.get(&self.machine).is_some_and(|carrier| Arc::ptr_eq(&carrier.queue, &self.queue)) {
            return Ok(());
        }
        for parcel in parcels {
            let parcel = parcel?;
            match self.relay(&mut state, parcel, now) {
                Ok(()) => self.networks.metrics.forwarded(parcel.len() - VIRTIO_HEADER_BYTES),
                Err(reason) => self.networks.metrics.dropped(reason),
            }
        }
        Ok(())
    }
}

impl Drop for MachineHandler {
    fn drop(&mut self) {
        self.networks.leave(&self.relay, self.machine, &self.queue);
    }
}
