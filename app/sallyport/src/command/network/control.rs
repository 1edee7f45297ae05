//! What control says about the machine of this user, while the machine is out of its network.

use parking_lot::Mutex;
use sallyport_api::ConnectTo;
use sallyport_client::{ApiClient, ClientError};
use sallyport_connector::network::{Control, NetworkEdge};
use sallyport_network::name::Name;

use super::kept::KeptMachine;
use crate::{
    command::tunnel,
    context::{Context, Target},
};

/// The API, asked about one machine.
pub(super) struct ControlApi {
    client: ApiClient,
    /// Says where edges are, even if the login has ended.
    anonymous: ApiClient,
    target: Target,
    network: Name,
    kept: Mutex<KeptMachine>,
}

impl ControlApi {
    /// # Errors
    /// There is no API, or the trusted certificates cannot be used.
    pub(super) fn new(context: &Context, target: &Target, network: &Name, kept: KeptMachine) -> anyhow::Result<Self> {
        let (client, anonymous) = (context.client(target)?, context.anonymous_client(target)?);
        Ok(Self { client, anonymous, target: target.clone(), network: network.clone(), kept: Mutex::new(kept) })
    }
}

impl Control for ControlApi {
    async fn is_removed(&self) -> bool {
        let id = self.kept.lock().id.to_string();
        let found = self.client.machine(self.network.as_str(), &id).await;
        found.is_err_and(|error| is_gone(&error))
    }

    async fn other_edge(&self) -> Option<NetworkEdge> {
        let found = tunnel::edge_of(&self.anonymous).await.ok()?;
        let mut kept = self.kept.lock();
        if found == kept.edge {
            return None;
        }
        let edge = edge(&self.target, &found).ok()?;
        kept.edge = found;
        if let Err(error) = kept.write(&self.target.api, &self.network) {
            // The next start looks the edge up again.
            tracing::debug!(%error, "the file of the machine keeps the former edge");
        }
        Some(edge)
    }
}

/// Whether the API says that the machine, or its network, is there no more.
pub(super) fn is_gone(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(problem) if problem.status == 404 && problem.code == "not-found")
}

/// The way to an edge.
///
/// # Errors
/// The trusted certificates cannot be used.
pub(super) fn edge(target: &Target, connect: &ConnectTo) -> anyhow::Result<NetworkEdge> {
    let alpn: &[&[u8]] = &[sallyport_connector::ALPN];
    let tls = match &connect.ca_pem {
        Some(root) => sallyport_net::client_config_with(&target.trust, root, alpn)?,
        None => sallyport_net::client_config(&target.trust, alpn)?,
    };
    Ok(NetworkEdge {
        host: connect.host.clone(),
        port: connect.port,
        quic_port: connect.quic_port,
        tls,
        outbound: target.network.to(&connect.host, connect.port),
    })
}
