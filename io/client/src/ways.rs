//! The ways that edges measure, and the clients that they see.

use http::Method;
use sallyport_api::{ClientPage, ClientQuery, ClientsBy, MeasureWay, WayPage};

use crate::{ApiClient, ClientError, client::query_value};

impl ApiClient {
    /// The round trips that edges measure: those of all edges, or of one by its name or id.
    ///
    /// # Errors
    /// The API refuses, or there is no such edge.
    pub async fn ways(&self, edge: Option<&str>) -> Result<WayPage, ClientError> {
        self.get(&format!("/v1/edges/ways{}", edge_query(edge))).await
    }

    /// Has edges measure the way to a host.
    ///
    /// # Errors
    /// The API refuses, or there is no such edge.
    pub async fn measure_way(&self, what: &MeasureWay) -> Result<WayPage, ClientError> {
        self.send(Method::POST, "/v1/edges/ways", what).await
    }

    /// Where the clients of edges come from.
    ///
    /// # Errors
    /// The API refuses, or there is no such edge.
    pub async fn edge_clients(&self, query: &ClientQuery) -> Result<ClientPage, ClientError> {
        let by = query.by.map(|by| match by {
            ClientsBy::Prefix => "prefix".to_owned(),
            ClientsBy::As => "as".to_owned(),
        });
        let parameters =
            [("edge", query.edge.clone()), ("by", by), ("limit", query.limit.map(|limit| limit.to_string()))];
        let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let text: Vec<_> = given.map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        self.get(&format!("/v1/edges/clients?{}", text.join("&"))).await
    }
}

/// The query that names an edge.
fn edge_query(edge: Option<&str>) -> String {
    edge.map(|edge| format!("?edge={}", query_value(edge))).unwrap_or_default()
}
