//! The balancers of sites.

use std::net::IpAddr;

use sallyport_model::{MAX_BALANCED_SITES, RegionName, SiteBalancer};

use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbConnection, DbRow},
    sql,
};

/// The balancer of a site, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBalancer {
    /// What was set.
    pub balancer: SiteBalancer,
    /// When the site got it, in seconds since 1970.
    pub created_at: i64,
}

impl Store {
    /// The balancers of all sites, by the names of the sites.
    ///
    /// # Errors
    /// The database fails.
    pub async fn balancers(&self) -> Result<Vec<StoredBalancer>, StoreError> {
        let mut read = self.read().await?;
        all(&mut read).await
    }

    /// Sets the balancer of a site, in place of the former one. `free` are virtual addresses that several sites may
    /// have. Returns when the site got its balancer.
    ///
    /// # Errors
    /// [`StoreError::VirtualAddressTaken`], [`StoreError::Limit`], or a failure of the database.
    pub async fn set_balancer(&self, new: &SiteBalancer, free: &[IpAddr], now: i64) -> Result<i64, StoreError> {
        let mut write = self.write().await?;
        let known = all(write.sql()).await?;
        let (own, others): (Vec<_>, Vec<_>) = known.into_iter().partition(|one| one.balancer.site == new.site);
        for other in others.iter().map(|other| &other.balancer) {
            let taken = |address: &&IpAddr| other.addresses.contains(address) && !free.contains(address);
            if let Some(address) = new.addresses.iter().find(taken) {
                return Err(StoreError::VirtualAddressTaken { address: *address, site: other.site.clone() });
            }
        }
        if others.len() >= MAX_BALANCED_SITES {
            let what = "sites with balancers: remove some first";
            return Err(StoreError::Limit { what, max: MAX_BALANCED_SITES });
        }
        let created_at = own.first().map_or(now, |one| one.created_at);
        sql::query(
            "INSERT INTO balancers (site, content, created_at) VALUES ($1, $2, $3)
             ON CONFLICT (site) DO UPDATE SET content = excluded.content",
        )
        .bind(new.site.as_str())
        .bind(row::json(new)?)
        .bind(created_at)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(created_at)
    }

    /// Removes the balancer of a site. Returns whether there was one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_balancer(&self, site: &RegionName) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted =
            sql::query("DELETE FROM balancers WHERE site = $1").bind(site.as_str()).execute(write.sql()).await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

async fn all(read: &mut DbConnection) -> Result<Vec<StoredBalancer>, StoreError> {
    let rows = sql::query("SELECT content, created_at FROM balancers ORDER BY site").fetch_all(read).await?;
    let one = |found: &DbRow| {
        Ok(StoredBalancer { balancer: row::from_json(found, "content")?, created_at: found.try_get("created_at")? })
    };
    rows.iter().map(one).collect()
}
