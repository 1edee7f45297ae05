//! The networks of machines whose packets edges carry.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use sallyport_model::{MachineId, NetworkId};
use sallyport_network::route::NetworkRoute;
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The networks of machines. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServedNetworks {
    maps: Arc<RwLock<NetworkMaps>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

#[derive(Debug, Default)]
struct NetworkMaps {
    by_id: HashMap<NetworkId, Arc<NetworkRoute>>,
    by_machine: HashMap<MachineId, NetworkId>,
}

impl NetworkMaps {
    fn remove(&mut self, id: NetworkId) {
        let Some(former) = self.by_id.remove(&id) else { return };
        for machine in &former.machines {
            self.by_machine.remove(&machine.id);
        }
    }

    fn insert(&mut self, network: NetworkRoute) {
        self.remove(network.id);
        self.by_machine.extend(network.machines.iter().map(|machine| (machine.id, network.id)));
        self.by_id.insert(network.id, Arc::new(network));
    }
}

impl ServedNetworks {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Adds a network, or replaces its former version.
    pub fn put(&self, network: NetworkRoute) {
        let id = network.id;
        let is_known = self.maps.read().by_id.get(&id).is_some_and(|known| **known == network);
        if !is_known {
            self.maps.write().insert(network);
            self.changed.send_replace(());
        }
        self.hints.notify(ConfigKey::Network(id));
    }

    /// Removes a network.
    pub fn remove(&self, id: NetworkId) {
        self.maps.write().remove(id);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Network(id));
    }

    /// The network with this id.
    #[must_use]
    pub fn network(&self, id: NetworkId) -> Option<Arc<NetworkRoute>> {
        self.maps.read().by_id.get(&id).cloned()
    }

    /// The network that has this machine.
    #[must_use]
    pub fn of_machine(&self, id: MachineId) -> Option<Arc<NetworkRoute>> {
        let maps = self.maps.read();
        maps.by_id.get(maps.by_machine.get(&id)?).cloned()
    }

    /// Every network, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<NetworkRoute>> {
        self.maps.read().by_id.values().cloned().collect()
    }

    /// Changes after each change of a network from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::{AccountId, CredentialHash};
    use sallyport_network::route::MachineRoute;

    use super::*;
    use crate::{Bus, ConfigValue};

    fn office(machines: &[u8]) -> NetworkRoute {
        let machine = |number: &u8| MachineRoute {
            id: MachineId::from_random([*number; 16]),
            name: format!("m{number}").parse().unwrap(),
            credential: CredentialHash([*number; 32]),
            addresses: vec![[10, 20, 0, *number].into()],
            routes: Vec::new(),
            groups: Vec::new(),
            is_exit: false,
        };
        NetworkRoute {
            id: NetworkId::from_random([1; 16]),
            account: AccountId::from_random([2; 16]),
            name: "office".parse().unwrap(),
            ranges: vec!["10.20.0.0/24".parse().unwrap()],
            policy: None,
            machines: machines.iter().map(machine).collect(),
        }
    }

    #[test]
    fn a_machine_finds_its_network_until_one_of_both_is_gone() {
        let bus = Bus::default();
        let mut changed = bus.networks.subscribe();
        let value = ConfigValue::Network(Box::new(office(&[1, 2])));
        let read = ConfigValue::from_bytes(value.key(), &value.to_bytes().unwrap()).unwrap();
        assert_eq!(value.key().to_string().parse(), Ok(value.key()));
        bus.apply_config(read);
        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        bus.apply_config(value.clone());
        assert!(!changed.has_changed().unwrap(), "the same again changes nothing");
        let of = |number: u8| bus.networks.of_machine(MachineId::from_random([number; 16])).map(|one| one.id);
        let office_id = NetworkId::from_random([1; 16]);
        assert_eq!((of(1), of(2), of(3)), (Some(office_id), Some(office_id), None));
        bus.networks.put(office(&[2]));
        assert_eq!((of(1), of(2)), (None, Some(office_id)));
        bus.forget_config(value.key());
        assert!(changed.has_changed().unwrap());
        assert!(of(2).is_none() && bus.networks.network(office_id).is_none() && bus.networks.all().is_empty());
    }
}
