//! Networks of machines: lets machines join, and relays packets between the machines of this edge.
//!
//! May use nothing of the other rooms. `core/network` decides about each packet. A machine at another edge is away for
//! the machines here.

mod machine;
mod metrics;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Instant,
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_bus::ServedNetworks;
use sallyport_model::{CredentialHash, MachineId, NetworkId};
use sallyport_network::{
    relay::{Relay, place_of},
    route::NetworkRoute,
};
use sallyport_tunnel::{JoinedMachine, Networks as JoinNetworks, packets::PacketQueue};
use sallyport_wire::{JoinNetwork, NOT_YET_KNOWN, Refusal};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use self::{machine::MachineHandler, metrics::NetworkMetrics};

/// The networks that this edge serves.
pub(crate) struct Networks {
    served: ServedNetworks,
    relays: Mutex<Relays>,
    metrics: NetworkMetrics,
    /// Itself, for the machines that join.
    own: Weak<Self>,
}

#[derive(Default)]
struct Relays {
    /// The networks with a machine here.
    by_network: HashMap<NetworkId, Arc<NetworkRelay>>,
    /// Why no machine may join any more; `None` until the edge stops.
    going_away: Option<Refusal>,
}

/// A network with its machines at this edge.
struct NetworkRelay {
    id: NetworkId,
    state: Mutex<RelayState>,
}

struct RelayState {
    relay: Relay,
    /// The network that the relay has.
    network: Arc<NetworkRoute>,
    carriers: HashMap<MachineId, MachineCarrier>,
}

/// The carrier of a machine.
struct MachineCarrier {
    queue: Arc<PacketQueue>,
    credential: CredentialHash,
}

impl Networks {
    /// These networks, without machines so far.
    pub(crate) fn new(served: ServedNetworks) -> Arc<Self> {
        let (relays, metrics) = Default::default();
        Arc::new_cyclic(|own| Self { served, relays, metrics, own: own.clone() })
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Follows the networks for as long as the edge serves.
    pub(crate) async fn run(&self) {
        let mut changes = self.served.subscribe();
        while changes.changed().await.is_ok() {
            let relays: Vec<_> = self.relays.lock().by_network.values().cloned().collect();
            for relay in relays {
                self.follow(&relay);
            }
        }
    }

    /// Ends all carriers, and lets no machine join any more. Machines join again, where possible at another process or
    /// edge.
    pub(crate) fn go_away(&self, message: &str) {
        let refusal = Refusal::new("shutting-down", message, true);
        let mut relays = self.relays.lock();
        for relay in relays.by_network.values() {
            for carrier in relay.state.lock().carriers.values() {
                carrier.queue.end(Some(refusal.clone()));
            }
        }
        relays.going_away = Some(refusal);
    }

    /// The network of a machine, if the credential is right.
    fn proven(&self, question: &JoinNetwork) -> Result<(Arc<NetworkRoute>, CredentialHash), Refusal> {
        let id = question.machine;
        let network = self.served.of_machine(id);
        let machine = network.as_ref().and_then(|network| network.machines.iter().find(|machine| machine.id == id));
        let (Some(network), Some(machine)) = (&network, machine) else {
            let text = format!("this edge does not know the machine {id}: it is new, or was removed");
            return Err(Refusal::new(NOT_YET_KNOWN, &text, true));
        };
        let given: [u8; 32] = Sha256::digest(question.credential.as_bytes()).into();
        if !bool::from(given.ct_eq(&machine.credential.0)) {
            let text = format!("the credential is not that of the machine {id}");
            return Err(Refusal::new("bad-credential", &text, false));
        }
        Ok((network.clone(), machine.credential))
    }

    /// Adds the carrier of a machine, unless the edge stops. A former carrier of the machine ends.
    fn enter(
        &self,
        network: Arc<NetworkRoute>,
        machine: MachineId,
        carrier: MachineCarrier,
    ) -> Result<Arc<NetworkRelay>, Refusal> {
        let mut relays = self.relays.lock();
        if let Some(refusal) = &relays.going_away {
            return Err(refusal.clone());
        }
        let relay = relays.by_network.entry(network.id).or_insert_with(|| {
            let relay = Relay::new(&network, Instant::now());
            let state = RelayState { relay, network: network.clone(), carriers: HashMap::new() };
            Arc::new(NetworkRelay { id: network.id, state: Mutex::new(state) })
        });
        let former = relay.state.lock().carriers.insert(machine, carrier);
        let relay = relay.clone();
        drop(relays);
        match former {
            Some(former) => {
                let text = "the machine has joined again, from here or from another place";
                former.queue.end(Some(Refusal::new("replaced", text, false)));
            }
            None => {
                self.metrics.machines.inc();
            }
        }
        // The network may have changed before its relay could be told.
        self.follow(&relay);
        Ok(relay)
    }

    /// Removes the carrier of a machine, unless a newer one has taken its place.
    fn leave(&self, relay: &NetworkRelay, machine: MachineId, queue: &Arc<PacketQueue>) {
        let mut relays = self.relays.lock();
        let mut state = relay.state.lock();
        if state.carriers.get(&machine).is_some_and(|carrier| Arc::ptr_eq(&carrier.queue, queue)) {
            state.carriers.remove(&machine);
            self.metrics.machines.dec();
            tracing::info!(%machine, network = %state.network.name, "a machine has left its network");
        }
        let is_known = relays.by_network.get(&relay.id).is_some_and(|known| std::ptr::eq(&**known, relay));
        if is_known && state.carriers.is_empty() {
            relays.by_network.remove(&relay.id);
        }
    }

    /// Has the relay take its network as it is now: ends the carriers of removed machines, and tells the others their
    /// place.
    fn follow(&self, relay: &NetworkRelay) {
        let mut state = relay.state.lock();
        // Read under the lock: an older network never takes the place of a newer one.
        let now = self.served.network(relay.id);
        let machines = now.iter().flat_map(|network| &network.machines);
        let members: HashMap<_, _> = machines.map(|machine| (machine.id, machine.credential)).collect();
        let is_member = |id: &MachineId, carrier: &MachineCarrier| members.get(id) == Some(&carrier.credential);
        for (machine, carrier) in state.carriers.extract_if(|id, carrier| !is_member(id, carrier)) {
            self.metrics.machines.dec();
            carrier.queue.end(Some(Refusal::new("removed", "the machine was removed from its network", false)));
            tracing::info!(%machine, "a machine was removed from its network");
        }
        let Some(network) = now.filter(|now| !Arc::ptr_eq(now, &state.network)) else { return };
        state.relay.set_network(&network);
        let former = std::mem::replace(&mut state.network, network.clone());
        for (id, carrier) in &state.carriers {
            let place = place_of(&network, *id).filter(|place| place_of(&former, *id).as_ref() != Some(place));
            place.into_iter().for_each(|place| carrier.queue.tell(place));
        }
    }
}

impl JoinNetworks for Networks {
    fn join(&self, question: &JoinNetwork, peer: SocketAddr) -> Result<JoinedMachine, Refusal> {
        let machine = question.machine;
        let (network, credential) = self.proven(question).inspect_err(|refusal| {
            tracing::debug!(%peer, %machine, code = refusal.code, "a machine may not join its network");
        })?;
        let gone = || Refusal::new("shutting-down", "the edge is shutting down", true);
        let own = self.own.upgrade().ok_or_else(gone)?;
        let queue = Arc::new(PacketQueue::default());
        place_of(&network, machine).into_iter().for_each(|place| queue.tell(place));
        let relay = self.enter(network.clone(), machine, MachineCarrier { queue: queue.clone(), credential })?;
        tracing::info!(%machine, network = %network.name, "a machine has joined its network");
        let handler = Box::new(MachineHandler::new(own, relay, machine, queue.clone()));
        Ok(JoinedMachine { queue, handler })
    }
}
