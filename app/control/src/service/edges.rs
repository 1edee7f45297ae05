//! How edges join, the controls that they reach, and the account that they need.

use http::StatusCode;
use sallyport_model::AccountId;

use crate::{config::EdgesConfig, problem::ApiError, state::App};

impl App {
    /// The configuration for joining edges; an error if edges cannot join.
    pub(crate) fn edges_config(&self) -> Result<&EdgesConfig, ApiError> {
        self.edges.get().ok_or_else(|| {
            let detail = "this installation is one machine: edges join one that runs as `sallyport control`";
            ApiError::new(StatusCode::CONFLICT, "one-machine", detail)
        })
    }

    /// The addresses at which edges find the controls that live now.
    pub(crate) fn control_addresses(&self, config: &EdgesConfig) -> Vec<String> {
        let mut all = self.peers.known().addresses();
        all.extend(config.bootstrap.controls.iter().filter(|own| !all.contains(own)).cloned().collect::<Vec<_>>());
        all
    }

    /// Refuses to delete the account that owns an installation with edges, while another account could own it.
    pub(crate) async fn check_that_it_is_not_needed(&self, account: AccountId) -> Result<(), ApiError> {
        if self.edges.get().is_none() || self.store.first_account().await? != Some(account) {
            return Ok(());
        }
        if self.store.count_accounts().await? > 1 {
            let detail = "this account owns the installation, and edges need an owner to join: name another owner \
                          first, with `sallyport account hand-over EMAIL`";
            return Err(ApiError::new(StatusCode::CONFLICT, "owns-installation", detail));
        }
        Ok(())
    }
}
