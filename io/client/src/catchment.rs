//! Where clients land.

use http::Method;
use sallyport_api::{
    CatchmentSuggestion, ImportCatchment, ImportedCatchment, LandingPage, LandingQuery, LandingsBy, Measurement,
    MeasurementPage, StartMeasurement,
};

use crate::{ApiClient, ClientError};

impl ApiClient {
    /// Where networks land.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn catchment(&self, query: &LandingQuery) -> Result<LandingPage, ClientError> {
        let by = match query.by.unwrap_or_default() {
            LandingsBy::Prefix => "prefix",
            LandingsBy::As => "as",
            LandingsBy::Country => "country",
            LandingsBy::Site => "site",
        };
        let limit = query.limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
        self.get(&format!("/v1/catchment?by={by}{limit}")).await
    }

    /// The change that would gain the most.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn catchment_suggestion(&self) -> Result<CatchmentSuggestion, ClientError> {
        self.get("/v1/catchment/suggestion").await
    }

    /// Starts a measurement.
    ///
    /// # Errors
    /// The API refuses, or another measurement runs.
    pub async fn start_measurement(&self, start: &StartMeasurement) -> Result<Measurement, ClientError> {
        self.send(Method::POST, "/v1/catchment/measurements", start).await
    }

    /// The last measurements.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn measurements(&self) -> Result<MeasurementPage, ClientError> {
        self.get("/v1/catchment/measurements").await
    }

    /// Adds what others have measured.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn import_catchment(&self, import: &ImportCatchment) -> Result<ImportedCatchment, ClientError> {
        self.send(Method::POST, "/v1/catchment/imports", import).await
    }
}
