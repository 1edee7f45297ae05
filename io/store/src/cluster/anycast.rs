//! Prefixes that edges announce, their neighbours, and orders about edges.

use sallyport_anycast::model::{AnycastConfig, AnycastPrefix, MAX_ORDERS, MAX_PEERS, MAX_PREFIXES, Order, Peer, Place};
use sallyport_model::{AccountId, AnycastItemId};
use serde::{Serialize, de::DeserializeOwned};

use crate::db::{
    Store,
    error::StoreError,
    idempotency::{Creation, IdempotencyKey},
    row::{self, DbConnection, DbRow},
    sql,
    write::Write,
};

/// A kind of item: a prefix, a neighbour, or an order.
pub trait AnycastKind: Serialize + DeserializeOwned + Clone + Send + Sync {
    /// The kind as it is stored.
    const KIND: &'static str;
    /// The most items of the kind, and what those are.
    const MOST: (usize, &'static str);

    /// What is unique among the items of the kind.
    fn name(&self) -> String;
    /// Whether both cannot be there at once, although their names differ.
    fn is_in_the_way_of(&self, _other: &Self) -> bool {
        false
    }
    /// Whether a new item takes the place of one with the same name.
    fn is_replaced() -> bool {
        false
    }
}

impl AnycastKind for AnycastPrefix {
    const KIND: &'static str = "prefix";
    const MOST: (usize, &'static str) = (MAX_PREFIXES, "prefixes: remove some first");

    fn name(&self) -> String {
        self.net.to_string()
    }
}

impl AnycastKind for Peer {
    const KIND: &'static str = "peer";
    const MOST: (usize, &'static str) = (MAX_PEERS, "neighbours: remove some first");

    fn name(&self) -> String {
        self.name.clone()
    }

    /// An edge has one session with an address.
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let meets = self.place == other.place || [&self.place, &other.place].contains(&&Place::Everywhere);
        meets && self.address == other.address
    }
}

impl AnycastKind for Order {
    const KIND: &'static str = "order";
    const MOST: (usize, &'static str) = (MAX_ORDERS, "orders: take some back first");

    fn name(&self) -> String {
        self.place.to_string()
    }

    fn is_replaced() -> bool {
        true
    }
}

/// An item with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnycastItem<T> {
    /// Its id.
    pub id: AnycastItemId,
    /// What it is. The password of a neighbour is encrypted.
    pub item: T,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
}

/// Everything about anycast, each kind in the order of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredAnycast {
    /// The prefixes.
    pub prefixes: Vec<StoredAnycastItem<AnycastPrefix>>,
    /// The neighbours.
    pub peers: Vec<StoredAnycastItem<Peer>>,
    /// The orders.
    pub orders: Vec<StoredAnycastItem<Order>>,
}

impl StoredAnycast {
    /// What edges get.
    #[must_use]
    pub fn config(self) -> AnycastConfig {
        let mut config = AnycastConfig::default();
        config.prefixes.extend(self.prefixes.into_iter().map(|one| one.item));
        config.peers.extend(self.peers.into_iter().map(|one| one.item));
        config.orders.extend(self.orders.into_iter().map(|one| one.item));
        config
    }
}

impl Store {
    /// Everything about anycast.
    ///
    /// # Errors
    /// The database fails.
    pub async fn anycast(&self) -> Result<StoredAnycast, StoreError> {
        let mut read = self.read().await?;
        Ok(StoredAnycast {
            prefixes: items(&mut read).await?,
            peers: items(&mut read).await?,
            orders: items(&mut read).await?,
        })
    }

    /// Adds an item for the owner of the installation, which is this account.
    ///
    /// # Errors
    /// [`StoreError::AnycastTaken`], [`StoreError::Limit`], [`StoreError::KeyReused`], or a failure of the database.
    pub async fn create_anycast_item<T: AnycastKind>(
        &self,
        account: AccountId,
        new: &StoredAnycastItem<T>,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<()>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(account, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        let known: Vec<StoredAnycastItem<T>> = items(write.sql()).await?;
        let name = new.item.name();
        if T::is_replaced() {
            sql::query("DELETE FROM anycast_items WHERE kind = $1 AND name = $2")
                .bind(T::KIND)
                .bind(&name)
                .execute(write.sql())
                .await?;
        } else if let Some(taken) =
            known.iter().find(|one| one.item.name() == name || one.item.is_in_the_way_of(&new.item))
        {
            return Err(StoreError::AnycastTaken { name: taken.item.name() });
        }
        let (max, what) = T::MOST;
        if known.iter().filter(|one| one.item.name() != name).count() >= max {
            return Err(StoreError::Limit { what, max });
        }
        insert(&mut write, new).await?;
        write.remember(account, keyed, *new.id.as_bytes(), None).await?;
        write.commit().await?;
        Ok(Creation::Made(()))
    }

    /// Removes an item of this kind. Returns it, if it was there.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_anycast_item<T: AnycastKind>(
        &self,
        id: AnycastItemId,
    ) -> Result<Option<StoredAnycastItem<T>>, StoreError> {
        let mut write = self.write().await?;
        let found = items::<T>(write.sql()).await?.into_iter().find(|one| one.id == id);
        if found.is_some() {
            sql::query("DELETE FROM anycast_items WHERE id = $1")
                .bind(id.as_bytes().as_slice())
                .execute(write.sql())
                .await?;
            write.commit().await?;
        }
        Ok(found)
    }
}

async fn insert<T: AnycastKind>(write: &mut Write, new: &StoredAnycastItem<T>) -> Result<(), StoreError> {
    sql::query("INSERT INTO anycast_items (id, kind, name, content, created_at) VALUES ($1, $2, $3, $4, $5)")
        .bind(new.id.as_bytes().as_slice())
        .bind(T::KIND)
        .bind(new.item.name())
        .bind(row::json(&new.item)?)
        .bind(new.created_at)
        .execute(write.sql())
        .await?;
    Ok(())
}

async fn items<T: AnycastKind>(read: &mut DbConnection) -> Result<Vec<StoredAnycastItem<T>>, StoreError> {
    let rows =
        sql::query("SELECT * FROM anycast_items WHERE kind = $1 ORDER BY name").bind(T::KIND).fetch_all(read).await?;
    let item = |found: &DbRow| {
        Ok(StoredAnycastItem {
            id: AnycastItemId::from_bytes(row::bytes(found, "id")?),
            item: row::from_json(found, "content")?,
            created_at: found.try_get("created_at")?,
        })
    };
    rows.iter().map(item).collect()
}
