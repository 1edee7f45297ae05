//! What an operator has set for the name server: dials and shares of regions.

use sallyport_model::DnsSettings;

use crate::db::{Store, error::StoreError, row, sql};

impl Store {
    /// What was set for the name server.
    ///
    /// # Errors
    /// The database fails.
    pub async fn dns_settings(&self) -> Result<DnsSettings, StoreError> {
        let found = sql::query("SELECT content FROM dns_settings WHERE id = 1").fetch_optional(&self.reader).await?;
        let Some(found) = found else { return Ok(DnsSettings::default()) };
        let content: &str = found.try_get("content")?;
        serde_json::from_str(content).map_err(|error| row::damaged("content", error))
    }

    /// Replaces what was set for the name server.
    ///
    /// # Errors
    /// The database fails.
    pub async fn set_dns_settings(&self, settings: &DnsSettings) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query(
            "INSERT INTO dns_settings (id, content) VALUES (1, $1)
             ON CONFLICT (id) DO UPDATE SET content = excluded.content",
        )
        .bind(row::json(settings)?)
        .execute(write.sql())
        .await?;
        write.commit().await
    }
}
