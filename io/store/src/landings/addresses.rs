//! Which address of each network is pinged, and which networks want no pings.

use std::net::IpAddr;

use sallyport_catchment::Prefix;

use crate::db::{Store, error::StoreError, row, sql, write::Write};

/// The most networks with an address to ping.
pub const MAX_PING_TARGETS: usize = 20_000;
/// The most networks that want no pings.
pub const MAX_OPT_OUTS: usize = 20_000;

impl Store {
    /// The address to ping of each network, by network.
    ///
    /// # Errors
    /// The database fails.
    pub async fn ping_targets(&self) -> Result<Vec<IpAddr>, StoreError> {
        let rows = sql::query("SELECT address FROM catchment_targets ORDER BY prefix").fetch_all(&self.reader).await?;
        rows.iter().map(|found| row::parsed(found, "address")).collect()
    }

    /// Adds addresses to ping, after all others were removed if `replaces`. A network has one address: the last.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database; nothing is changed then.
    pub async fn put_ping_targets(&self, addresses: &[IpAddr], replaces: bool) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        if replaces {
            sql::query("DELETE FROM catchment_targets").execute(write.sql()).await?;
        }
        for address in addresses {
            sql::query(
                "INSERT INTO catchment_targets (prefix, address) VALUES ($1, $2)
                 ON CONFLICT (prefix) DO UPDATE SET address = excluded.address",
            )
            .bind(Prefix::of(*address).to_string())
            .bind(address.to_canonical().to_string())
            .execute(write.sql())
            .await?;
        }
        require_at_most(&mut write, "SELECT count(*) FROM catchment_targets", MAX_PING_TARGETS, "addresses to ping")
            .await?;
        write.commit().await
    }

    /// The networks that want no pings.
    ///
    /// # Errors
    /// The database fails.
    pub async fn ping_opt_outs(&self) -> Result<Vec<Prefix>, StoreError> {
        let rows = sql::query("SELECT prefix FROM catchment_opt_outs ORDER BY prefix").fetch_all(&self.reader).await?;
        rows.iter().map(|found| row::parsed(found, "prefix")).collect()
    }

    /// Adds networks that want no pings, after all others were removed if `replaces`.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database; nothing is changed then.
    pub async fn put_ping_opt_outs(&self, prefixes: &[Prefix], replaces: bool) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        if replaces {
            sql::query("DELETE FROM catchment_opt_outs").execute(write.sql()).await?;
        }
        for prefix in prefixes {
            sql::query("INSERT INTO catchment_opt_outs (prefix) VALUES ($1) ON CONFLICT DO NOTHING")
                .bind(prefix.to_string())
                .execute(write.sql())
                .await?;
        }
        let what = "networks that want no pings";
        require_at_most(&mut write, "SELECT count(*) FROM catchment_opt_outs", MAX_OPT_OUTS, what).await?;
        write.commit().await
    }
}

async fn require_at_most(
    write: &mut Write,
    count: &'static str,
    max: usize,
    what: &'static str,
) -> Result<(), StoreError> {
    let there: i64 = sql::query_scalar(count).fetch_one(write.sql()).await?;
    if there > max as i64 { Err(StoreError::Limit { what, max }) } else { Ok(()) }
}
