//! Addresses that edges share by slices of ports, and the leases of slices.

use std::net::IpAddr;

use sallyport_ports::{EgressAddress, Lease, MAX_ADDRESSES};

use crate::db::{Store, error::StoreError, row, row::DbRow, sql};

/// An egress address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEgressAddress {
    /// The address with its tags.
    pub address: EgressAddress,
    /// When it was added, in seconds since 1970.
    pub created_at: i64,
}

/// All egress addresses, and the leases of their slices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredEgress {
    /// The addresses, sorted as text.
    pub addresses: Vec<StoredEgressAddress>,
    /// The leases, also those that have ended.
    pub leases: Vec<Lease>,
}

impl Store {
    /// All egress addresses, and the leases of their slices.
    ///
    /// # Errors
    /// The database fails.
    pub async fn egress(&self) -> Result<StoredEgress, StoreError> {
        let mut read = self.read().await?;
        let addresses = sql::query("SELECT * FROM egress_addresses ORDER BY address").fetch_all(&mut *read).await?;
        let leases = sql::query("SELECT * FROM egress_leases ORDER BY address, slice").fetch_all(&mut *read).await?;
        let address = |found: &DbRow| {
            Ok(StoredEgressAddress {
                address: row::from_json(found, "content")?,
                created_at: found.try_get("created_at")?,
            })
        };
        Ok(StoredEgress {
            addresses: addresses.iter().map(address).collect::<Result<_, StoreError>>()?,
            leases: leases.iter().map(|found| row::from_json(found, "content")).collect::<Result<_, _>>()?,
        })
    }

    /// Adds an egress address.
    ///
    /// # Errors
    /// [`StoreError::EgressTaken`], [`StoreError::Limit`], or a failure of the database.
    pub async fn create_egress_address(&self, new: &StoredEgressAddress) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let known = sql::query("SELECT address FROM egress_addresses").fetch_all(write.sql()).await?;
        if known.len() >= MAX_ADDRESSES {
            return Err(StoreError::Limit { what: "egress addresses: remove some first", max: MAX_ADDRESSES });
        }
        let done = sql::query(
            "INSERT INTO egress_addresses (address, content, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(new.address.address.to_string())
        .bind(row::json(&new.address)?)
        .bind(new.created_at)
        .execute(write.sql())
        .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::EgressTaken { address: new.address.address });
        }
        write.commit().await
    }

    /// Removes an egress address with the leases of its slices. Returns whether it was there.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_egress_address(&self, address: IpAddr) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let done = sql::query("DELETE FROM egress_addresses WHERE address = $1")
            .bind(address.to_string())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }

    /// Writes a lease in place of the former one, if that is still as the caller knows it. Returns whether it was.
    ///
    /// # Errors
    /// The database fails, or the address is gone.
    pub async fn put_egress_lease(&self, lease: &Lease, former: Option<&Lease>) -> Result<bool, StoreError> {
        let (address, slice) = (lease.address.to_string(), i64::from(lease.slice.number()));
        let mut write = self.write().await?;
        let is_there = sql::query("SELECT address FROM egress_addresses WHERE address = $1")
            .bind(&address)
            .fetch_optional(write.sql())
            .await?;
        if is_there.is_none() {
            return Ok(false);
        }
        let found = sql::query("SELECT content FROM egress_leases WHERE address = $1 AND slice = $2")
            .bind(&address)
            .bind(slice)
            .fetch_optional(write.sql())
            .await?;
        let known: Option<Lease> = found.as_ref().map(|found| row::from_json(found, "content")).transpose()?;
        if known.as_ref() != former {
            return Ok(false);
        }
        sql::query(
            "INSERT INTO egress_leases (address, slice, content) VALUES ($1, $2, $3)
             ON CONFLICT (address, slice) DO UPDATE SET content = excluded.content",
        )
        .bind(&address)
        .bind(slice)
        .bind(row::json(lease)?)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(true)
    }
}
