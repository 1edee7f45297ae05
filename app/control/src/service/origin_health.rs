//! Why origins get no requests, as edges report it.

use sallyport_api::HealthFailure;
use sallyport_model::{DirectOriginId, OriginHealth, SocketRoute, TunnelId, TunnelPresence};

use crate::{clock::date, state::App};

/// The failure in the form of the API.
pub(crate) fn to_api(failure: &sallyport_model::HealthFailure) -> HealthFailure {
    HealthFailure {
        code: failure.code.as_str().to_owned(),
        message: failure.message.clone(),
        since: date(failure.since),
    }
}

/// Why the holding edge finds the origin of a tunnel unhealthy; older edges do not report a reason.
pub(crate) fn of_presence(presence: &TunnelPresence) -> Option<HealthFailure> {
    presence.failure.as_ref().filter(|_| presence.health != OriginHealth::Well).map(to_api)
}

impl App {
    /// Why the origin of a tunnel gets no requests: all edges that hold it find it unhealthy. `None` if the tunnel is
    /// down.
    pub(crate) fn tunnel_failure(&self, tunnel: TunnelId) -> Option<HealthFailure> {
        let holders = self.fleet.tunnel_on_edges(tunnel);
        if holders.is_empty() {
            return of_presence(&self.directory.get(tunnel)?);
        }
        let failures: Option<Vec<_>> = holders.iter().map(|one| of_presence(&one.presence)).collect();
        failures?.into_iter().min_by_key(|failure| failure.since)
    }

    /// Why a direct origin gets no requests.
    pub(crate) fn direct_origin_failure(&self, origin: DirectOriginId) -> Option<HealthFailure> {
        self.directory.failure(origin).as_ref().map(to_api)
    }

    /// How many origins of the socket get no requests, and why the one with the longest failure does not.
    pub(crate) fn socket_failures(&self, route: &SocketRoute) -> (u32, Option<HealthFailure>) {
        let tunnels = route.tunnels.iter().filter_map(|tunnel| self.tunnel_failure(tunnel.id));
        let direct = route.origins.iter().filter_map(|origin| self.direct_origin_failure(origin.id));
        let failures: Vec<_> = tunnels.chain(direct).collect();
        let count = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        (count, failures.into_iter().min_by_key(|failure| failure.since))
    }
}
