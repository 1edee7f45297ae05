//! Machines of networks, which join on a carrier of their own.

use std::{net::SocketAddr, sync::Arc};

use sallyport_wire::{JoinNetwork, Refusal, Side};
use tracing::debug;

use super::EdgeTunnels;
use crate::{
    Carrier,
    packets::{PacketHandler, PacketQueue, carry_packets},
};

/// Lets machines join their networks.
pub trait Networks: Send + Sync + 'static {
    /// Lets the machine at this address join, if the credential is right. Must be quick.
    ///
    /// # Errors
    /// The refusal that is sent to the machine.
    fn join(&self, question: &JoinNetwork, peer: SocketAddr) -> Result<JoinedMachine, Refusal>;
}

/// A machine that has joined, until it is dropped.
pub struct JoinedMachine {
    /// What waits for the machine; its place comes first.
    pub queue: Arc<PacketQueue>,
    /// Takes the machine's packets.
    pub handler: Box<dyn PacketHandler>,
}

impl EdgeTunnels {
    /// Sets what lets machines join networks, once. Without it, machines are refused in one sentence.
    pub fn set_networks(&self, networks: Arc<dyn Networks>) {
        let _ = self.shared.networks.set(networks);
    }

    pub(super) fn join_network(&self, question: &JoinNetwork, peer: SocketAddr) -> Result<JoinedMachine, Refusal> {
        let none = || Refusal::new("no-networks", "this edge carries no networks", false);
        self.shared.networks.get().ok_or_else(none)?.join(question, peer)
    }

    pub(super) async fn carry_packets(&self, io: impl Carrier, peer: SocketAddr, mut machine: JoinedMachine) {
        let keepalive = self.shared.config.session.keepalive;
        let end = carry_packets(io, &machine.queue, Side::Edge, keepalive, machine.handler.as_mut()).await;
        debug!(%peer, ?end, "a packet carrier ended");
    }
}
