//! Balancers of sites.

use http::Method;
use sallyport_api::{Balancer, SetBalancer};

use crate::{ApiClient, ClientError, client::query_value};

impl ApiClient {
    /// The balancers of all sites.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn balancers(&self) -> Result<Vec<Balancer>, ClientError> {
        self.list("/v1/balancers").await
    }

    /// The balancer of a site, its services and its edges.
    ///
    /// # Errors
    /// The site has none.
    pub async fn balancer(&self, site: &str) -> Result<Balancer, ClientError> {
        self.get(&path(site)).await
    }

    /// Sets the balancer of a site.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn set_balancer(&self, site: &str, set: &SetBalancer) -> Result<Balancer, ClientError> {
        self.send(Method::PUT, &path(site), set).await
    }

    /// Removes the balancer of a site.
    ///
    /// # Errors
    /// The site has none.
    pub async fn delete_balancer(&self, site: &str) -> Result<(), ClientError> {
        self.delete(&path(site)).await
    }
}

fn path(site: &str) -> String {
    format!("/v1/balancers/{}", query_value(site))
}
