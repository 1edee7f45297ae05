//! Making, finding, changing and deleting direct origins.

use std::net::IpAddr;

use http::StatusCode;
use sallyport_api::{CreateDirectOrigin, UpdateDirectOrigin};
use sallyport_model::{
    Capacity, DEFAULT_WEIGHT, DirectOrigin, DirectOriginId, EdgeName, OriginAddr, OriginTlsSettings, Socket, SocketType,
};
use sallyport_store::{Creation, DirectOriginChange, IdempotencyKey, StoreError};

use super::tunnels::{changed_path, checked_capacity, checked_path, checked_weight};
use crate::{audit, problem::ApiError, security::random, state::App};

impl App {
    /// Makes a direct origin at a socket of the account; when this returns, edges know it.
    pub(crate) async fn create_direct_origin(
        &self,
        socket: &Socket,
        create: CreateDirectOrigin,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<DirectOrigin>, ApiError> {
        self.limits.create(socket.account, self.clock.now().monotonic)?;
        let origin = DirectOrigin {
            id: DirectOriginId::from_random(random::bytes()?),
            socket: socket.id,
            address: self.dialable(&create.address)?,
            region: create.region,
            weight: checked_weight(create.weight.unwrap_or(DEFAULT_WEIGHT))?,
            tls: checked_tls(create.tls.unwrap_or_default(), socket.socket_type)?,
            path: checked_path(create.path, create.rewrite_path, socket.socket_type)?,
            capacity: checked_capacity(create.capacity.unwrap_or_default())?,
            created_at: self.clock.now().unix_seconds,
        };
        self.check_limit(&origin.capacity, socket)?;
        let made = self.store.create_direct_origin(socket.account, &origin, keyed).await;
        let made = made.map_err(|error| match error {
            StoreError::Gone => ApiError::not_found("socket"),
            error => error.into(),
        })?;
        if let Creation::Made(origin) = &made {
            self.publish(socket.id).await?;
            audit::set_target(format_args!("{}/{}", socket.name, origin.address));
            tracing::info!(
                socket = %socket.id, origin = %origin.id, address = %origin.address,
                "direct origin created"
            );
        }
        Ok(made)
    }

    /// Refuses a limit beyond what plans can have.
    fn check_limit(&self, capacity: &Capacity, socket: &Socket) -> Result<(), ApiError> {
        if capacity.is_empty() { Ok(()) } else { self.check_room_for_limits(socket.account, Some(socket.id)) }
    }

    /// A direct origin of the socket.
    pub(crate) async fn find_direct_origin(&self, socket: &Socket, id: &str) -> Result<DirectOrigin, ApiError> {
        audit::set_target(format_args!("{}/{id}", socket.name));
        let found = match id.parse::<DirectOriginId>() {
            Ok(id) => self.store.direct_origin(socket.id, id).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| ApiError::not_found("direct origin"))
    }

    /// Changes a direct origin; when this returns, edges know it.
    pub(crate) async fn update_direct_origin(
        &self,
        socket: &Socket,
        id: &str,
        update: UpdateDirectOrigin,
    ) -> Result<DirectOrigin, ApiError> {
        let found = self.find_direct_origin(socket, id).await?;
        if update.is_empty() {
            return Err(ApiError::field(
                "",
                "nothing is to change: send an address, a region, a weight, tls, a path, a rewrite_path or a capacity",
            ));
        }
        let tls = update.tls.map(|tls| checked_tls(tls.unwrap_or_default(), socket.socket_type)).transpose()?;
        let change = DirectOriginChange {
            address: update.address.as_deref().map(|address| self.dialable(address)).transpose()?,
            region: update.region,
            weight: update.weight.map(checked_weight).transpose()?,
            tls,
            path: changed_path(&found.path, update.path, update.rewrite_path, socket.socket_type)?,
            capacity: update.capacity.map(|capacity| checked_capacity(capacity.unwrap_or_default())).transpose()?,
        };
        if let Some(capacity) = &change.capacity {
            self.check_limit(capacity, socket)?;
        }
        let changed = self.store.change_direct_origin(socket.id, found.id, change).await?;
        let origin = changed.ok_or_else(|| ApiError::not_found("direct origin"))?;
        self.publish(socket.id).await?;
        tracing::info!(socket = %socket.id, origin = %origin.id, address = %origin.address, "direct origin changed");
        Ok(origin)
    }

    /// Deletes a direct origin; when this returns, edges know it.
    pub(crate) async fn delete_direct_origin(&self, socket: &Socket, id: &str) -> Result<(), ApiError> {
        let found = self.find_direct_origin(socket, id).await?;
        if !self.store.delete_direct_origin(socket.id, found.id).await? {
            return Err(ApiError::not_found("direct origin"));
        }
        self.publish(socket.id).await?;
        tracing::info!(socket = %socket.id, origin = %found.id, "direct origin deleted");
        Ok(())
    }

    /// Parses the address, and checks that edges may dial it. Edges check the resolved address again at every dial,
    /// because the name may lead elsewhere there and later.
    fn dialable(&self, address: &str) -> Result<OriginAddr, ApiError> {
        let networks = &self.config.direct_origins;
        if networks.is_empty() {
            let detail = "edges dial no addresses themselves here: the operator has to name the networks that they may \
                          dial, with --direct-origins NETWORK,... of `sallyport up`, or of `sallyport control` and \
                          each `sallyport edge`; a tunnel needs none of that";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "direct-origins-off", detail));
        }
        let address = address.parse::<OriginAddr>().map_err(|error| ApiError::field("address", error))?;
        if let Some(ip) = address.ip()
            && !networks.permit(ip)
        {
            let detail = format!(
                "{ip} is in none of the networks that edges may dial here: use another address, or ask the operator to \
                 name its network with --direct-origins"
            );
            return Err(ApiError::field("address", detail));
        }
        if let Some(edge) = address.ip().and_then(|ip| self.edge_at(ip, address.port)) {
            let detail = format!(
                "{address} is where the edge {edge} serves clients: edges do not dial edges, because the traffic would \
                 loop; name the service itself"
            );
            return Err(ApiError::field("address", detail));
        }
        Ok(address)
    }

    /// The edge that serves clients at this address, at the shared port or a socket's own, as far as is known. Edges
    /// check this themselves at every dial.
    fn edge_at(&self, ip: IpAddr, port: u16) -> Option<EdgeName> {
        let there = self.fleet.at(ip);
        let of_all = there.iter().find(|(_, shared)| *shared == port);
        let of_one = || there.first().filter(|_| self.routes.all().iter().any(|route| route.port == Some(port)));
        of_all.or_else(of_one).map(|(name, _)| name.clone())
    }
}

fn checked_tls(tls: OriginTlsSettings, socket_type: SocketType) -> Result<OriginTlsSettings, ApiError> {
    if !tls.is_empty() && socket_type != SocketType::Https {
        let detail = format!(
            "edges speak TLS with the origins of https sockets alone, and this one is of the type {socket_type}"
        );
        return Err(ApiError::field("tls", detail));
    }
    tls.check().map_err(|error| ApiError::field("tls", error))?;
    if let Some(ca) = &tls.ca {
        sallyport_pki::check_anchors(ca).map_err(|error| ApiError::field("tls.ca", error))?;
    }
    Ok(tls)
}
