//! Networks of machines: their ranges and policies.

use std::net::IpAddr;

use ipnet::IpNet;
use sallyport_model::{AccountId, NetworkId};
use sallyport_network::{address::overlap, name::Name, ranges::free_ranges, route::NetworkRoute};

use super::machines::{StoredMachine, machines};
use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbConnection, DbRow},
    sql,
    write::Write,
};

/// Bound on the networks of an organisation.
pub const MAX_NETWORKS_PER_ORGANISATION: usize = 100;

/// A network to create.
#[derive(Debug, Clone)]
pub struct NewNetwork {
    /// Its id.
    pub id: NetworkId,
    /// Its organisation.
    pub account: AccountId,
    /// Its name.
    pub name: Name,
    /// Its ranges, which make a network; `None` for free ones.
    pub ranges: Option<Vec<IpNet>>,
    /// Random bytes by which free ranges are chosen.
    pub random: [u8; 16],
    /// The time, in seconds since 1970.
    pub created_at: i64,
}

/// A network with its machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredNetwork {
    /// Its id.
    pub id: NetworkId,
    /// Its organisation.
    pub account: AccountId,
    /// Its name.
    pub name: Name,
    /// Its ranges, one of each family.
    pub ranges: Vec<IpNet>,
    /// Its policy's document, if one is set.
    pub policy: Option<String>,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
    /// Its machines, by name.
    pub machines: Vec<StoredMachine>,
    /// The address of each range at which the search for a free one begins.
    pub(super) next: Vec<IpAddr>,
}

/// What a list shows of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSummary {
    /// Its id.
    pub id: NetworkId,
    /// Its organisation.
    pub account: AccountId,
    /// Its name.
    pub name: Name,
    /// Its ranges, one of each family.
    pub ranges: Vec<IpNet>,
    /// Whether a policy is set.
    pub has_policy: bool,
    /// How many machines it has.
    pub machines: usize,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
}

impl StoredNetwork {
    /// The network as lists show it.
    #[must_use]
    pub fn summary(&self) -> NetworkSummary {
        NetworkSummary {
            id: self.id,
            account: self.account,
            name: self.name.clone(),
            ranges: self.ranges.clone(),
            has_policy: self.policy.is_some(),
            machines: self.machines.len(),
            created_at: self.created_at,
        }
    }

    /// The network as edges know it.
    #[must_use]
    pub fn route(&self) -> NetworkRoute {
        NetworkRoute {
            id: self.id,
            account: self.account,
            name: self.name.clone(),
            ranges: self.ranges.clone(),
            policy: self.policy.clone(),
            machines: self.machines.iter().map(|machine| machine.route.clone()).collect(),
        }
    }
}

impl Store {
    /// Makes a network without machines. Its ranges overlap those of no other network of the organisation.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], [`StoreError::RangeTaken`], [`StoreError::NoFreeRange`], [`StoreError::Limit`], or a
    /// failure of the database.
    pub async fn create_network(&self, new: &NewNetwork) -> Result<StoredNetwork, StoreError> {
        let mut write = self.write().await?;
        let (count, what) =
            ("SELECT count(*) FROM networks WHERE account = $1", "networks for one organisation: remove some first");
        write.require_room(count, new.account.as_bytes(), MAX_NETWORKS_PER_ORGANISATION, what).await?;
        let rows = sql::query("SELECT * FROM networks WHERE account = $1")
            .bind(new.account.as_bytes().as_slice())
            .fetch_all(write.sql())
            .await?;
        let others = rows.iter().map(network).collect::<Result<Vec<_>, _>>()?;
        if others.iter().any(|other| other.name == new.name) {
            return Err(StoreError::NameTaken { name: new.name.to_string(), by: "another network".to_owned() });
        }
        let taken = || others.iter().flat_map(|other| other.ranges.iter().map(move |range| (range, &other.name)));
        let ranges = match &new.ranges {
            Some(ranges) => {
                let pairs = ranges.iter().flat_map(|range| taken().map(move |(other, name)| (range, other, name)));
                for (range, other, name) in pairs {
                    if overlap(range, other) {
                        return Err(StoreError::RangeTaken { range: *range, other: *other, network: name.clone() });
                    }
                }
                ranges.clone()
            }
            None => {
                let taken: Vec<_> = taken().map(|(range, _)| *range).collect();
                free_ranges(&taken, new.random).ok_or(StoreError::NoFreeRange)?.to_vec()
            }
        };
        sql::query(
            "INSERT INTO networks (id, account, name, ranges, next_leases, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(new.id.as_bytes().as_slice())
        .bind(new.account.as_bytes().as_slice())
        .bind(new.name.as_str())
        .bind(row::json(&ranges)?)
        .bind("[]")
        .bind(new.created_at)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        let NewNetwork { id, account, name, created_at, .. } = new.clone();
        Ok(StoredNetwork {
            id,
            account,
            name,
            ranges,
            policy: None,
            created_at,
            machines: Vec::new(),
            next: Vec::new(),
        })
    }

    /// All networks of all organisations.
    ///
    /// # Errors
    /// The database fails.
    pub async fn networks(&self) -> Result<Vec<StoredNetwork>, StoreError> {
        let mut read = self.read().await?;
        let rows = sql::query("SELECT * FROM networks ORDER BY name, id").fetch_all(&mut *read).await?;
        with_machines(&mut read, &rows).await
    }

    /// The networks of the organisation, by name, without reading their machines.
    ///
    /// # Errors
    /// The database fails.
    pub async fn networks_of(&self, account: AccountId) -> Result<Vec<NetworkSummary>, StoreError> {
        let mut read = self.read().await?;
        let query = sql::query(
            "SELECT id, account, name, ranges, policy IS NOT NULL AS has_policy, created_at,
                    (SELECT count(*) FROM network_machines WHERE network = networks.id) AS machines
             FROM networks WHERE account = $1 ORDER BY name",
        );
        let rows = query.bind(account.as_bytes().as_slice()).fetch_all(&mut *read).await?;
        rows.iter().map(summary).collect()
    }

    /// The network with this id.
    ///
    /// # Errors
    /// The database fails.
    pub async fn network(&self, id: NetworkId) -> Result<Option<StoredNetwork>, StoreError> {
        let mut read = self.read().await?;
        whole(&mut read, id).await
    }

    /// The network of the organisation with this name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn network_named(&self, account: AccountId, name: &Name) -> Result<Option<StoredNetwork>, StoreError> {
        let mut read = self.read().await?;
        let rows = sql::query("SELECT * FROM networks WHERE account = $1 AND name = $2")
            .bind(account.as_bytes().as_slice())
            .bind(name.as_str())
            .fetch_all(&mut *read)
            .await?;
        Ok(with_machines(&mut read, &rows).await?.pop())
    }

    /// Sets or removes the policy of a network. `check` gets the network with its present machines and the new policy.
    /// Returns whether the network exists.
    ///
    /// # Errors
    /// An error of `check`, or a failure of the database; nothing is changed then.
    pub async fn set_network_policy<E: From<StoreError>>(
        &self,
        id: NetworkId,
        policy: Option<&str>,
        check: impl FnOnce(&NetworkRoute) -> Result<(), E> + Send,
    ) -> Result<bool, E> {
        let mut write = self.write().await?;
        let Some(mut network) = whole(write.sql(), id).await? else { return Ok(false) };
        network.policy = policy.map(str::to_owned);
        check(&network.route())?;
        let update = sql::query("UPDATE networks SET policy = $2 WHERE id = $1");
        let update = update.bind(id.as_bytes().as_slice()).bind(policy);
        update.execute(write.sql()).await.map_err(StoreError::from)?;
        write.commit().await?;
        Ok(true)
    }

    /// Removes a network; with machines only if `is_forced`. Returns whether it existed.
    ///
    /// # Errors
    /// [`StoreError::NetworkInUse`], or a failure of the database.
    pub async fn delete_network(&self, id: NetworkId, is_forced: bool) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let count = sql::query_scalar::<i64>("SELECT count(*) FROM network_machines WHERE network = $1");
        let machines = count.bind(id.as_bytes().as_slice()).fetch_one(write.sql()).await?;
        if machines > 0 && !is_forced {
            return Err(StoreError::NetworkInUse { machines: machines.unsigned_abs() });
        }
        let done = sql::query("DELETE FROM networks WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}

/// The network with its machines.
pub(super) async fn whole(read: &mut DbConnection, id: NetworkId) -> Result<Option<StoredNetwork>, StoreError> {
    let rows =
        sql::query("SELECT * FROM networks WHERE id = $1").bind(id.as_bytes().as_slice()).fetch_all(&mut *read).await?;
    Ok(with_machines(read, &rows).await?.pop())
}

/// Stores where the search for a free address begins.
pub(super) async fn set_next(write: &mut Write, id: NetworkId, next: &[IpAddr]) -> Result<(), StoreError> {
    sql::query("UPDATE networks SET next_leases = $2 WHERE id = $1")
        .bind(id.as_bytes().as_slice())
        .bind(row::json(&next)?)
        .execute(write.sql())
        .await?;
    Ok(())
}

async fn with_machines(read: &mut DbConnection, rows: &[DbRow]) -> Result<Vec<StoredNetwork>, StoreError> {
    let mut networks = rows.iter().map(network).collect::<Result<Vec<_>, _>>()?;
    for network in &mut networks {
        network.machines = machines(read, network.id).await?;
    }
    Ok(networks)
}

fn summary(found: &DbRow) -> Result<NetworkSummary, StoreError> {
    let machines: i64 = found.try_get("machines")?;
    Ok(NetworkSummary {
        id: NetworkId::from_bytes(row::bytes(found, "id")?),
        account: AccountId::from_bytes(row::bytes(found, "account")?),
        name: row::parsed(found, "name")?,
        ranges: row::from_json(found, "ranges")?,
        has_policy: found.try_get("has_policy")?,
        machines: usize::try_from(machines).unwrap_or_default(),
        created_at: found.try_get("created_at")?,
    })
}

fn network(found: &DbRow) -> Result<StoredNetwork, StoreError> {
    Ok(StoredNetwork {
        id: NetworkId::from_bytes(row::bytes(found, "id")?),
        account: AccountId::from_bytes(row::bytes(found, "account")?),
        name: row::parsed(found, "name")?,
        ranges: row::from_json(found, "ranges")?,
        policy: found.try_get("policy")?,
        created_at: found.try_get("created_at")?,
        machines: Vec::new(),
        next: row::from_json(found, "next_leases")?,
    })
}
