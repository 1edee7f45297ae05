//! Networks of machines.

use http::Method;
use sallyport_api::{CreateMachine, CreateNetwork, CreatedMachine, Machine, Network, NetworkPolicy, SetNetworkPolicy};

use crate::{ApiClient, ClientError, client::path_segment};

fn path(network: &str) -> String {
    format!("/v1/networks/{}", path_segment(network))
}

impl ApiClient {
    /// The networks of the organisation.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn networks(&self) -> Result<Vec<Network>, ClientError> {
        self.list("/v1/networks").await
    }

    /// A network, by name or id.
    ///
    /// # Errors
    /// There is no such network.
    pub async fn network(&self, network: &str) -> Result<Network, ClientError> {
        self.get(&path(network)).await
    }

    /// Makes a network.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_network(&self, network: &CreateNetwork) -> Result<Network, ClientError> {
        self.send(Method::POST, "/v1/networks", network).await
    }

    /// Removes a network; with machines only if `is_forced`.
    ///
    /// # Errors
    /// There is no such network, or it has machines.
    pub async fn delete_network(&self, network: &str, is_forced: bool) -> Result<(), ClientError> {
        self.delete(&format!("{}?force={is_forced}", path(network))).await
    }

    /// The policy of a network.
    ///
    /// # Errors
    /// There is no such network, or it has no policy.
    pub async fn network_policy(&self, network: &str) -> Result<NetworkPolicy, ClientError> {
        self.get(&format!("{}/policy", path(network))).await
    }

    /// Sets the policy of a network.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn set_network_policy(
        &self,
        network: &str,
        policy: &SetNetworkPolicy,
    ) -> Result<NetworkPolicy, ClientError> {
        self.send(Method::PUT, &format!("{}/policy", path(network)), policy).await
    }

    /// Removes the policy of a network, whose machines then all talk to each other.
    ///
    /// # Errors
    /// There is no such network, or it has no policy.
    pub async fn delete_network_policy(&self, network: &str) -> Result<(), ClientError> {
        self.delete(&format!("{}/policy", path(network))).await
    }

    /// The machines of a network.
    ///
    /// # Errors
    /// There is no such network.
    pub async fn machines(&self, network: &str) -> Result<Vec<Machine>, ClientError> {
        self.list(&format!("{}/machines", path(network))).await
    }

    /// A machine of a network, by name or id.
    ///
    /// # Errors
    /// There is no such network or machine.
    pub async fn machine(&self, network: &str, machine: &str) -> Result<Machine, ClientError> {
        self.get(&format!("{}/machines/{}", path(network), path_segment(machine))).await
    }

    /// Adds a machine to a network.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_machine(&self, network: &str, machine: &CreateMachine) -> Result<CreatedMachine, ClientError> {
        self.send(Method::POST, &format!("{}/machines", path(network)), machine).await
    }

    /// Removes a machine from a network.
    ///
    /// # Errors
    /// There is no such machine.
    pub async fn delete_machine(&self, network: &str, machine: &str) -> Result<(), ClientError> {
        self.delete(&format!("{}/machines/{}", path(network), path_segment(machine))).await
    }
}
