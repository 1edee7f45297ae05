//! Which region the name server answers whom.

use http::Method;
use sallyport_api::{AnycastDials, AnycastResolution, AnycastResolveQuery, SetAnycastDials};

use crate::{ApiClient, ClientError, client::query_value};

impl ApiClient {
    /// The dials of regions for DNS.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn anycast_dials(&self) -> Result<AnycastDials, ClientError> {
        self.get("/v1/anycast/dials").await
    }

    /// Replaces the dials of regions for DNS.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn set_anycast_dials(&self, set: &SetAnycastDials) -> Result<AnycastDials, ClientError> {
        self.send(Method::PUT, "/v1/anycast/dials", set).await
    }

    /// Which region the name server would answer a client, and why.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn resolve_anycast(&self, query: &AnycastResolveQuery) -> Result<AnycastResolution, ClientError> {
        let parameters = [
            ("client", Some(query.client.as_str())),
            ("resolver", query.resolver.as_deref()),
            ("name", query.name.as_deref()),
        ];
        let given = parameters.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        let text: Vec<_> = given.map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        self.get(&format!("/v1/anycast/resolve?{}", text.join("&"))).await
    }
}
