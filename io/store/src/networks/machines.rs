//! Machines of networks, each with its leases.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use sallyport_model::{AccountId, CredentialHash, MachineId, NetworkId};
use sallyport_network::{
    members::{Member, Members},
    name::Name,
    route::{MachineRoute, NetworkRoute},
};
use serde::{Deserialize, Serialize};

use super::network::{StoredNetwork, set_next, whole};
use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbConnection, DbRow},
    sql,
};

/// Bound on the machines of a network.
pub const MAX_MACHINES_PER_NETWORK: usize = 2_000;

/// A machine to add to a network.
#[derive(Debug, Clone)]
pub struct NewMachine {
    /// Its id.
    pub id: MachineId,
    /// Its name.
    pub name: Name,
    /// The hash of its credential.
    pub credential: CredentialHash,
    /// Networks that others reach through it.
    pub routes: Vec<IpNet>,
    /// Groups that policies name.
    pub groups: Vec<Name>,
    /// Whether others reach every address outside of the network through it.
    pub is_exit: bool,
    /// The account that adds it.
    pub added_by: AccountId,
    /// The time, in seconds since 1970.
    pub created_at: i64,
}

/// A machine of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMachine {
    /// The machine as edges know it.
    pub route: MachineRoute,
    /// The account that added it; `None` if that is not known.
    pub added_by: Option<AccountId>,
    /// When it was added, in seconds since 1970.
    pub created_at: i64,
}

/// What a row has as JSON.
#[derive(Serialize, Deserialize)]
struct MachineContent {
    addresses: Vec<IpAddr>,
    routes: Vec<IpNet>,
    groups: Vec<Name>,
    is_exit: bool,
    #[serde(default)]
    added_by: Option<AccountId>,
}

impl Store {
    /// Adds a machine to a network, with leases of one address of each range. `way_out` has the addresses that the
    /// machine's own tunnel goes to. `check` gets the network as it would be. `None` if the network is gone.
    ///
    /// # Errors
    /// [`StoreError::Join`], [`StoreError::Limit`], an error of `check`, or a failure of the database: then nothing is
    /// leased.
    pub async fn add_machine<E: From<StoreError>>(
        &self,
        network: NetworkId,
        new: &NewMachine,
        way_out: &[IpAddr],
        check: impl FnOnce(&NetworkRoute) -> Result<(), E> + Send,
    ) -> Result<Option<(StoredNetwork, StoredMachine)>, E> {
        let mut write = self.write().await?;
        let Some(mut found) = whole(write.sql(), network).await? else { return Ok(None) };
        if found.machines.len() >= MAX_MACHINES_PER_NETWORK {
            let what = "machines for one network: remove some first";
            return Err(StoreError::Limit { what, max: MAX_MACHINES_PER_NETWORK }.into());
        }
        let mut members = members(&found)?;
        let groups = new.groups.iter().cloned().collect();
        let joined = members.join(new.name.clone(), groups, new.routes.clone(), way_out);
        let Member { addresses, groups, routes } = joined.map_err(StoreError::from)?.clone();
        let groups = groups.into_iter().collect();
        let machine = StoredMachine {
            route: MachineRoute {
                id: new.id,
                name: new.name.clone(),
                credential: new.credential,
                addresses,
                routes,
                groups,
                is_exit: new.is_exit,
            },
            added_by: Some(new.added_by),
            created_at: new.created_at,
        };
        found.machines.push(machine.clone());
        found.machines.sort_by(|one, other| one.route.name.cmp(&other.route.name));
        check(&found.route())?;
        let MachineRoute { addresses, routes, groups, is_exit, .. } = machine.route.clone();
        let content = MachineContent { addresses, routes, groups, is_exit, added_by: machine.added_by };
        sql::query(
            "INSERT INTO network_machines (id, network, name, credential, content, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(new.id.as_bytes().as_slice())
        .bind(network.as_bytes().as_slice())
        .bind(new.name.as_str())
        .bind(new.credential.0.as_slice())
        .bind(row::json(&content)?)
        .bind(new.created_at)
        .execute(write.sql())
        .await
        .map_err(StoreError::from)?;
        found.next = members.next().collect();
        set_next(&mut write, network, &found.next).await?;
        write.commit().await?;
        Ok(Some((found, machine)))
    }

    /// Removes a machine, whose addresses are leased again after all others. Returns whether it was there.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_machine(&self, network: NetworkId, machine: MachineId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done = sql::query("DELETE FROM network_machines WHERE id = $1 AND network = $2")
            .bind(machine.as_bytes().as_slice())
            .bind(network.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}

/// The machines of a network, by name.
pub(super) async fn machines(read: &mut DbConnection, network: NetworkId) -> Result<Vec<StoredMachine>, StoreError> {
    let rows = sql::query("SELECT * FROM network_machines WHERE network = $1 ORDER BY name")
        .bind(network.as_bytes().as_slice())
        .fetch_all(read)
        .await?;
    rows.iter().map(machine).collect()
}

fn machine(found: &DbRow) -> Result<StoredMachine, StoreError> {
    let MachineContent { addresses, routes, groups, is_exit, added_by } = row::from_json(found, "content")?;
    let route = MachineRoute {
        id: MachineId::from_bytes(row::bytes(found, "id")?),
        name: row::parsed(found, "name")?,
        credential: CredentialHash(row::bytes(found, "credential")?),
        addresses,
        routes,
        groups,
        is_exit,
    };
    Ok(StoredMachine { route, added_by, created_at: found.try_get("created_at")? })
}

fn members(network: &StoredNetwork) -> Result<Members, StoreError> {
    let member = |machine: &StoredMachine| {
        let MachineRoute { name, addresses, routes, groups, .. } = machine.route.clone();
        (name, Member { addresses, groups: groups.into_iter().collect(), routes })
    };
    let members: BTreeMap<_, _> = network.machines.iter().map(member).collect();
    Members::restore(network.name.clone(), network.ranges.clone(), members, &network.next)
        .map_err(|error| row::damaged("ranges", error))
}
