//! The sockets of this cluster as the API listed them.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_api::{Socket, TunnelStatus};
use sallyport_client::{ApiClient, ClientError};
use sallyport_kube_model::{LABEL_CLUSTER, LABEL_INSTALLATION, OwnedSocket};
use sallyport_model::{LabelSelector, Labels, SocketId};

use super::spec;

/// The sockets with the label of the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct SocketList {
    /// The sockets.
    pub(super) sockets: BTreeMap<SocketId, Socket>,
    /// Those with a tunnel of another installation that is up.
    served_elsewhere: BTreeSet<SocketId>,
}

impl SocketList {
    /// Lists the sockets with the label of the cluster.
    ///
    /// # Errors
    /// The API refuses or cannot be reached.
    pub(super) async fn read(
        client: &ApiClient,
        cluster: &str,
        installation: Option<&str>,
    ) -> Result<Self, ClientError> {
        let label = LabelSelector { key: LABEL_CLUSTER.to_owned(), value: Some(cluster.to_owned()) };
        let listed = client.sockets_with(&[label]).await?;
        let mut served_elsewhere = BTreeSet::new();
        for socket in listed.iter().filter(|socket| socket.tunnels_up > 0) {
            let (Some(own), Some(theirs)) = (installation, socket.labels.get(LABEL_INSTALLATION)) else {
                continue;
            };
            if own == theirs {
                continue;
            }
            let tunnels = client.tunnels(&socket.id.into()).await?;
            let is_foreign =
                |labels: &Labels| labels.get(LABEL_INSTALLATION).is_some_and(|installation| installation != own);
            if tunnels.iter().any(|tunnel| tunnel.status == TunnelStatus::Up && is_foreign(&tunnel.labels)) {
                served_elsewhere.insert(socket.id);
            }
        }
        let sockets = listed.into_iter().map(|socket| (socket.id, socket)).collect();
        Ok(Self { sockets, served_elsewhere })
    }

    /// The sockets as core/kube has them.
    pub(super) fn owned(&self) -> Vec<OwnedSocket> {
        let of = |socket: &Socket| OwnedSocket {
            id: socket.id,
            labels: socket.labels.clone().into(),
            spec: spec::of_socket(socket),
            is_served_elsewhere: self.served_elsewhere.contains(&socket.id),
        };
        self.sockets.values().map(of).collect()
    }
}
