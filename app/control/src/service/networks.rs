//! Networks of machines: making, finding and removing them, their machines and their policies.

use std::net::IpAddr;

use http::StatusCode;
use ipnet::IpNet;
use sallyport_api::{
    CreateMachine, CreateNetwork, Machine as ApiMachine, Network as ApiNetwork, NetworkPolicy, Secret, SetNetworkPolicy,
};
use sallyport_model::{AccountId, CredentialHash, MachineId, NetworkId};
use sallyport_network::{address, members::Members, name::Name, policy::Unknown, route::NetworkRoute};
use sallyport_store::{NetworkSummary, NewMachine, NewNetwork, StoreError, StoredMachine, StoredNetwork};

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// How credentials of machines begin.
const CREDENTIAL_PREFIX: &str = "spm_";
/// The most bytes of the document of a policy: a request has no more than 65,536.
const MAX_POLICY_BYTES: usize = 48 * 1024;
/// The most bytes of a network as the bus carries it: one message of at most 1,000,000 bytes, with room beside it.
const MAX_NETWORK_BYTES: usize = 900_000;

impl App {
    /// The network in the form of the API.
    pub(crate) fn network_to_api(&self, network: &NetworkSummary) -> ApiNetwork {
        ApiNetwork {
            id: network.id.uuid(),
            organisation: network.account.uuid(),
            name: network.name.to_string(),
            ranges: network.ranges.iter().map(ToString::to_string).collect(),
            domain: format!("{}.{}", network.name, self.config.domain),
            machines: network.machines,
            has_policy: network.has_policy,
            created_at: date(network.created_at),
        }
    }

    /// The network of the organisation with this id or name.
    pub(crate) async fn find_network(
        &self,
        organisation: AccountId,
        id_or_name: &str,
    ) -> Result<StoredNetwork, ApiError> {
        let found = match (id_or_name.parse::<NetworkId>(), id_or_name.parse::<Name>()) {
            (Ok(id), _) => self.store.network(id).await?,
            (_, Ok(name)) => self.store.network_named(organisation, &name).await?,
            _ => None,
        };
        let found = found.filter(|network| network.account == organisation);
        found.ok_or_else(|| ApiError::not_found("network"))
    }

    /// Makes a network; edges have it when this returns.
    pub(crate) async fn create_network(
        &self,
        organisation: AccountId,
        create: CreateNetwork,
    ) -> Result<StoredNetwork, ApiError> {
        self.limits.create(organisation, self.clock.now().monotonic)?;
        let name = name("name", &create.name)?;
        let ranges = create.ranges.map(|texts| networks("ranges", &texts)).transpose()?;
        if let Some(ranges) = &ranges {
            Members::new(name.clone(), ranges.clone()).map_err(|error| ApiError::field("ranges", error))?;
        }
        let new = NewNetwork {
            id: NetworkId::from_random(random::bytes()?),
            account: organisation,
            name,
            ranges,
            random: random::bytes()?,
            created_at: self.clock.now().unix_seconds,
        };
        let network = self.store.create_network(&new).await?;
        self.publish_network(network.id).await?;
        audit::set_target(&network.name);
        tracing::info!(%organisation, network = %network.id, name = %network.name, "network created");
        Ok(network)
    }

    /// Removes a network; edges know it when this returns.
    pub(crate) async fn delete_network(&self, network: &StoredNetwork, is_forced: bool) -> Result<(), ApiError> {
        audit::set_target(&network.name);
        if !self.store.delete_network(network.id, is_forced).await? {
            return Err(ApiError::not_found("network"));
        }
        self.publish_network(network.id).await?;
        tracing::info!(network = %network.id, name = %network.name, "network removed");
        Ok(())
    }

    /// The policy of a network in the form of the API.
    pub(crate) fn network_policy(&self, network: &StoredNetwork) -> Result<NetworkPolicy, ApiError> {
        let document = network.policy.clone().ok_or_else(|| ApiError::not_found("policy: the network has none"))?;
        let policy = network.route().policy().map_err(ApiError::internal)?;
        Ok(NetworkPolicy { document, rules: policy.map(|policy| policy.rules().len()).unwrap_or_default() })
    }

    /// Sets the policy of a network; edges have it when this returns.
    pub(crate) async fn set_network_policy(
        &self,
        network: &StoredNetwork,
        set: SetNetworkPolicy,
    ) -> Result<NetworkPolicy, ApiError> {
        audit::set_target(&network.name);
        let SetNetworkPolicy { document, force } = set;
        if document.len() > MAX_POLICY_BYTES {
            let detail = format!("it has {} bytes, and at most {MAX_POLICY_BYTES} are allowed", document.len());
            return Err(ApiError::field("document", detail));
        }
        let unknown = if force { Unknown::IsNobody } else { Unknown::IsRefused };
        let mut rules = 0;
        let check = |route: &NetworkRoute| {
            let policy = route.check_policy(&document, unknown).map_err(|error| ApiError::field("document", error))?;
            rules = policy.rules().len();
            check_size(route)
        };
        if !self.store.set_network_policy(network.id, Some(&document), check).await? {
            return Err(ApiError::not_found("network"));
        }
        self.publish_network(network.id).await?;
        tracing::info!(network = %network.id, rules, "the policy of a network was set");
        Ok(NetworkPolicy { document, rules })
    }

    /// Removes the policy of a network; edges know it when this returns.
    pub(crate) async fn delete_network_policy(&self, network: &StoredNetwork) -> Result<(), ApiError> {
        audit::set_target(&network.name);
        if network.policy.is_none() {
            return Err(ApiError::not_found("policy: the network has none"));
        }
        self.store.set_network_policy(network.id, None, |_| Ok::<(), ApiError>(())).await?;
        self.publish_network(network.id).await?;
        tracing::info!(network = %network.id, "the policy of a network was removed");
        Ok(())
    }

    /// Adds a machine to a network; edges have it when this returns.
    pub(crate) async fn create_machine(
        &self,
        network: &StoredNetwork,
        added_by: AccountId,
        create: CreateMachine,
    ) -> Result<(StoredNetwork, StoredMachine, Secret), ApiError> {
        self.limits.create(network.account, self.clock.now().monotonic)?;
        let groups = create.groups.unwrap_or_default();
        let (credential, hash) = random::secret(CREDENTIAL_PREFIX)?;
        let new = NewMachine {
            id: MachineId::from_random(random::bytes()?),
            name: name("name", &create.name)?,
            credential: CredentialHash(hash),
            routes: networks("routes", &create.routes.unwrap_or_default())?,
            groups: groups.iter().map(|group| name("groups", group)).collect::<Result<_, _>>()?,
            is_exit: create.is_exit,
            added_by,
            created_at: self.clock.now().unix_seconds,
        };
        let check = |route: &NetworkRoute| {
            let mut exits = route.machines.iter().filter(|machine| machine.is_exit && machine.id != new.id);
            if let Some(exit) = exits.next().filter(|_| new.is_exit) {
                let detail = format!("{} is the exit of the network already: remove it first", exit.name);
                return Err(ApiError::new(StatusCode::CONFLICT, "exit-taken", detail));
            }
            route.policy().map_err(|error| {
                let detail = format!("the policy of the network would not hold with this machine: {error}");
                ApiError::new(StatusCode::CONFLICT, "policy-refuses", detail)
            })?;
            check_size(route)
        };
        let added = self.store.add_machine(network.id, &new, &self.way_out(), check).await?;
        let (network, machine) = added.ok_or_else(|| ApiError::not_found("network"))?;
        self.publish_network(network.id).await?;
        audit::set_target(format_args!("{}/{}", network.name, machine.route.name));
        tracing::info!(network = %network.id, machine = %machine.route.id, name = %new.name, "machine added");
        Ok((network, machine, credential))
    }

    /// The addresses to which the tunnels of machines go, as far as control knows them.
    fn way_out(&self) -> Vec<IpAddr> {
        let host = self.config.tunnel_host.parse::<IpAddr>().ok();
        let edges = self.fleet.edges().into_iter().flat_map(|seen| seen.card.addresses.clone());
        host.into_iter().chain(edges.map(|address| address.ip())).collect()
    }

    /// Removes a machine from a network; edges know it when this returns.
    pub(crate) async fn delete_machine(
        &self,
        network: &StoredNetwork,
        machine: &StoredMachine,
    ) -> Result<(), ApiError> {
        audit::set_target(format_args!("{}/{}", network.name, machine.route.name));
        if !self.store.delete_machine(network.id, machine.route.id).await? {
            return Err(ApiError::not_found("machine"));
        }
        self.publish_network(network.id).await?;
        tracing::info!(network = %network.id, machine = %machine.route.id, "machine removed");
        Ok(())
    }

    /// Publishes the present state of a network to edges.
    async fn publish_network(&self, id: NetworkId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        match self.store.network(id).await? {
            Some(network) => self.networks.put(network.route()),
            None => self.networks.remove(id),
        }
        self.count_networks();
        Ok(())
    }

    /// Takes networks away from edges that went from the store with their organisation.
    pub(super) async fn unpublish_networks(&self, organisation: AccountId) {
        let _turn = self.publishing.lock().await;
        let gone = self.networks.all();
        gone.iter().filter(|known| known.account == organisation).for_each(|known| self.networks.remove(known.id));
        self.count_networks();
    }

    /// Reads every network from the store again. The caller holds the publishing lock, or is the only one yet.
    pub(crate) async fn reload_networks(&self) -> Result<(), StoreError> {
        let stored = self.store.networks().await?;
        for gone in self.networks.all().iter().filter(|known| !stored.iter().any(|one| one.id == known.id)) {
            self.networks.remove(gone.id);
        }
        stored.iter().for_each(|network| self.networks.put(network.route()));
        self.count_networks();
        Ok(())
    }

    fn count_networks(&self) {
        let all = self.networks.all();
        let machines: usize = all.iter().map(|network| network.machines.len()).sum();
        self.metrics.networks.set(i64::try_from(all.len()).unwrap_or(i64::MAX));
        self.metrics.machines.set(i64::try_from(machines).unwrap_or(i64::MAX));
    }
}

/// The machine in the form of the API.
pub(crate) fn machine_to_api(machine: &StoredMachine) -> ApiMachine {
    let route = &machine.route;
    ApiMachine {
        id: route.id.uuid(),
        name: route.name.to_string(),
        addresses: route.addresses.clone(),
        routes: route.routes.iter().map(ToString::to_string).collect(),
        groups: route.groups.iter().map(ToString::to_string).collect(),
        is_exit: route.is_exit,
        created_at: date(machine.created_at),
    }
}

/// The machine of the network with this id or name.
pub(crate) fn find_machine<'a>(network: &'a StoredNetwork, id_or_name: &str) -> Result<&'a StoredMachine, ApiError> {
    let is_called = |machine: &&StoredMachine| {
        machine.route.name.as_str() == id_or_name || machine.route.id.to_string() == id_or_name
    };
    network.machines.iter().find(is_called).ok_or_else(|| ApiError::not_found("machine"))
}

/// Refuses a network that the bus could not carry.
fn check_size(route: &NetworkRoute) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(route).map_err(ApiError::internal)?.len();
    if bytes > MAX_NETWORK_BYTES {
        let detail = "the network would be too large for edges: remove machines, routes or groups first";
        return Err(ApiError::new(StatusCode::CONFLICT, "limit-reached", detail));
    }
    Ok(())
}

fn name(field: &str, text: &str) -> Result<Name, ApiError> {
    text.parse().map_err(|error| ApiError::field(field, error))
}

fn networks(field: &str, texts: &[String]) -> Result<Vec<IpNet>, ApiError> {
    texts.iter().map(|text| address::network(text).map_err(|error| ApiError::field(field, error))).collect()
}
