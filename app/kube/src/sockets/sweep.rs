//! Removes tunnels of replicas that are gone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sallyport_api::TunnelStatus;
use sallyport_client::{ApiClient, TunnelRef};
use sallyport_kube_model::LABEL_REPLICA;
use sallyport_model::TunnelId;
use tokio::time::Instant;
use tracing::{debug, info};

use super::list::SocketList;
use crate::{
    control::{self, ControlApi},
    serve::{Change, Health},
};

/// The most tunnels that are remembered as down.
const MAX_REMEMBERED: usize = 100_000;

/// Tunnels that are down, and since when.
#[derive(Debug)]
pub(super) struct TunnelSweep {
    forget_after: Duration,
    down_since: HashMap<TunnelId, Instant>,
    next: Instant,
}

impl TunnelSweep {
    /// Tunnels go after this time without a connector.
    pub(super) fn new(forget_after: Duration) -> Self {
        Self { forget_after, down_since: HashMap::new(), next: Instant::now() + forget_after / 2 }
    }

    /// When the tunnels are to be looked at again.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Looks at the tunnels, if that is due, and deletes those that are down for too long. A replica whose tunnel was
    /// deleted though it lives makes another one.
    pub(super) async fn round(
        &mut self,
        api: &ControlApi,
        client: &ApiClient,
        health: &Arc<Health>,
        list: &mut SocketList,
    ) {
        let now = Instant::now();
        if self.next > now {
            return;
        }
        self.next = now + self.forget_after / 2;
        let mut down = HashMap::new();
        for socket in list.sockets.values().filter(|socket| socket.tunnels_up < socket.tunnels_total) {
            let listed = client.tunnels(&socket.id.into()).await;
            api.note(&listed);
            health.metrics.called(Change::List, control::outcome(&listed));
            let tunnels = match listed {
                Ok(tunnels) => tunnels,
                // It was deleted meanwhile.
                Err(error) if error.status() == Some(404) => continue,
                Err(error) => {
                    debug!(%error, "the tunnels cannot be listed");
                    return;
                }
            };
            for tunnel in tunnels {
                let is_ours = tunnel.labels.get(LABEL_REPLICA).is_some();
                if !is_ours || tunnel.status != TunnelStatus::Down || down.len() >= MAX_REMEMBERED {
                    continue;
                }
                let since = self.down_since.get(&tunnel.id).copied().unwrap_or(now);
                if since + self.forget_after > now {
                    down.insert(tunnel.id, since);
                    continue;
                }
                let deleted = client.delete_tunnel(&socket.id.into(), &TunnelRef::from(tunnel.id)).await;
                health.metrics.called(Change::DeleteTunnel, control::outcome(&deleted));
                match deleted {
                    Ok(()) => info!(tunnel = %tunnel.id, "deleted a tunnel that no replica holds any more"),
                    Err(error) => debug!(%error, "a tunnel was not deleted"),
                }
            }
        }
        self.down_since = down;
    }
}
