//! Making, finding, changing and deleting tunnels.

use sallyport_api::{CreateTunnel, Secret, UpdateTunnel};
use sallyport_model::{
    AccountId, Capacity, CapacityError, CredentialHash, DEFAULT_WEIGHT, DisplayName, MAX_WEIGHT, PathPrefix, PathRoute,
    ShortId, Socket, SocketId, SocketType, Tunnel, TunnelId,
};
use sallyport_store::{Creation, HolderId, IdempotencyKey, NewTunnel, StoreError};

use super::sockets::check_name;
use crate::{audit, problem::ApiError, security::random, state::App};

/// In paths, stands for any socket of the account.
pub(crate) const ANY_SOCKET: &str = "-";

/// How tunnel credentials begin.
const CREDENTIAL_PREFIX: &str = "spc_";
/// How many random forward ports are tried before giving up.
const MAX_FORWARD_PORT_TRIES: usize = 64;
/// The lowest forward port: lower ones stand for temporary sockets.
const MIN_FORWARD_PORT: u16 = 1_024;

impl App {
    /// Makes a tunnel at a socket of the account; edges have it when this returns.
    pub(crate) async fn create_tunnel(
        &self,
        socket: &Socket,
        create: CreateTunnel,
        temporary: Option<HolderId>,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<(Tunnel, Secret)>, ApiError> {
        self.limits.create(socket.account, self.clock.now().monotonic)?;
        create.name.as_ref().map(check_name).transpose()?;
        let (credential, hash) = random::secret(CREDENTIAL_PREFIX)?;
        let new = NewTunnel {
            id: TunnelId::from_random(random::bytes()?),
            socket: socket.id,
            name: create.name,
            credential: CredentialHash(hash),
            weight: checked_weight(create.weight.unwrap_or(DEFAULT_WEIGHT))?,
            path: checked_path(create.path, create.rewrite_path, socket.socket_type)?,
            capacity: checked_capacity(create.capacity.unwrap_or_default())?,
            labels: create.labels,
            temporary,
            created_at: self.clock.now().unix_seconds,
        };
        if !new.capacity.is_empty() {
            self.check_room_for_limits(socket.account, Some(socket.id))?;
        }
        let made = self.store.create_tunnel(socket.account, &new, &self.forward_ports()?, keyed).await;
        match made {
            Ok(Creation::Made(tunnel)) => {
                self.publish(socket.id).await?;
                audit::set_target(format_args!("{}/{}", socket.name, tunnel.id));
                tracing::info!(socket = %socket.id, tunnel = %tunnel.id, "tunnel created");
                Ok(Creation::Made((tunnel, credential)))
            }
            Ok(Creation::Repeated(stored)) => Ok(Creation::Repeated(stored)),
            Err(StoreError::Gone) => Err(ApiError::not_found("socket")),
            Err(error) => Err(error.into()),
        }
    }

    /// Random forward ports, outside the range of sockets' own ports, which have another meaning in a forward.
    fn forward_ports(&self) -> Result<Vec<u16>, ApiError> {
        let mut ports = Vec::with_capacity(MAX_FORWARD_PORT_TRIES);
        for _ in 0..MAX_FORWARD_PORT_TRIES {
            let port = u16::from_ne_bytes(random::bytes()?);
            if port >= MIN_FORWARD_PORT && !self.config.port_range.contains(&port) {
                ports.push(port);
            }
        }
        Ok(ports)
    }

    /// Finds a tunnel of the account at this socket, or at any with [`ANY_SOCKET`]: by id, else by name, else by the
    /// beginning of its id.
    pub(crate) async fn find_tunnel(&self, account: AccountId, socket: &str, id: &str) -> Result<Tunnel, ApiError> {
        let socket = if socket == ANY_SOCKET { None } else { Some(self.find_socket(account, socket).await?) };
        let place = socket.as_ref().map_or(ANY_SOCKET, |socket| socket.name.as_str());
        audit::set_target(format_args!("{place}/{id}"));
        let found = self.tunnel_called(account, id).await?;
        let is_there = |tunnel: &Tunnel| socket.as_ref().is_none_or(|socket| socket.id == tunnel.socket);
        found.filter(is_there).ok_or_else(|| ApiError::not_found("tunnel"))
    }

    async fn tunnel_called(&self, account: AccountId, text: &str) -> Result<Option<Tunnel>, ApiError> {
        if let Ok(id) = text.parse::<TunnelId>() {
            return Ok(self.store.tunnel_of_account(account, id).await?);
        }
        if let Ok(name) = text.parse::<DisplayName>()
            && let Some(tunnel) = self.store.tunnel_by_name(account, &name).await?
        {
            return Ok(Some(tunnel));
        }
        match text.parse::<ShortId>() {
            Ok(start) => Ok(self.store.tunnel_by_short_id(account, &start).await?),
            Err(_) => Ok(None),
        }
    }

    /// Changes the name, weight or path of a tunnel; edges have the change when this returns.
    pub(crate) async fn change_tunnel(
        &self,
        account: AccountId,
        mut tunnel: Tunnel,
        update: UpdateTunnel,
    ) -> Result<Tunnel, ApiError> {
        update.name.iter().flatten().try_for_each(check_name)?;
        let weight = update.weight.map(checked_weight).transpose()?;
        let capacity = update.capacity.map(|capacity| checked_capacity(capacity.unwrap_or_default())).transpose()?;
        let path = if update.path.is_some() || update.rewrite_path.is_some() {
            let socket = self.store.socket(account, tunnel.socket).await?;
            let socket = socket.ok_or_else(|| ApiError::not_found("tunnel"))?;
            changed_path(&tunnel.path, update.path, update.rewrite_path, socket.socket_type)?
        } else {
            None
        };
        if let Some(name) = update.name {
            let changed = self.store.rename_tunnel(account, tunnel.id, name.as_ref()).await?;
            tunnel = changed.ok_or_else(|| ApiError::not_found("tunnel"))?;
            tracing::info!(socket = %tunnel.socket, tunnel = %tunnel.id, "tunnel got another name");
        }
        if capacity.as_ref().is_some_and(|capacity| !capacity.is_empty()) {
            self.check_room_for_limits(account, Some(tunnel.socket))?;
        }
        let labels = update.labels.map(Option::unwrap_or_default);
        if weight.is_some() || path.is_some() || capacity.is_some() || labels.is_some() {
            let (path, capacity, labels) = (path.as_ref(), capacity.as_ref(), labels.as_ref());
            let changed = self.store.change_tunnel(tunnel.socket, tunnel.id, weight, path, capacity, labels).await?;
            tunnel = changed.ok_or_else(|| ApiError::not_found("tunnel"))?;
            self.publish(tunnel.socket).await?;
            tracing::info!(
                socket = %tunnel.socket, tunnel = %tunnel.id, weight = tunnel.weight, path = %tunnel.path.prefix,
                "tunnel changed"
            );
        }
        Ok(tunnel)
    }

    /// Gives a tunnel a new credential; the old one is invalid when this returns.
    pub(crate) async fn change_credential(&self, tunnel: &Tunnel) -> Result<(Tunnel, Secret), ApiError> {
        let (credential, hash) = random::secret(CREDENTIAL_PREFIX)?;
        let changed = self.store.change_credential(tunnel.socket, tunnel.id, CredentialHash(hash)).await?;
        let tunnel = changed.ok_or_else(|| ApiError::not_found("tunnel"))?;
        self.publish(tunnel.socket).await?;
        tracing::info!(socket = %tunnel.socket, tunnel = %tunnel.id, "tunnel got a new credential");
        Ok((tunnel, credential))
    }

    /// Deletes a tunnel; edges know it when this returns.
    pub(crate) async fn delete_tunnel(&self, socket: SocketId, tunnel: TunnelId) -> Result<(), ApiError> {
        if !self.store.delete_tunnel(socket, tunnel).await? {
            return Err(ApiError::not_found("tunnel"));
        }
        self.publish(socket).await?;
        tracing::info!(%socket, %tunnel, "tunnel deleted");
        Ok(())
    }
}

/// Checks the paths of an origin, which only HTTP sockets can have.
pub(super) fn checked_path(
    prefix: Option<PathPrefix>,
    rewrite: Option<PathPrefix>,
    socket_type: SocketType,
) -> Result<PathRoute, ApiError> {
    let path = PathRoute { prefix: prefix.unwrap_or_default(), rewrite };
    if !path.is_plain() && !socket_type.is_http() {
        let field = if path.prefix.is_root() { "rewrite_path" } else { "path" };
        let detail = format!("paths are for http and https sockets, and this one is of the type {socket_type}");
        return Err(ApiError::field(field, detail));
    }
    Ok(path)
}

/// The paths of an origin after the change.
pub(super) fn changed_path(
    now: &PathRoute,
    prefix: Option<Option<PathPrefix>>,
    rewrite: Option<Option<PathPrefix>>,
    socket_type: SocketType,
) -> Result<Option<PathRoute>, ApiError> {
    if prefix.is_none() && rewrite.is_none() {
        return Ok(None);
    }
    let prefix = prefix.unwrap_or_else(|| Some(now.prefix.clone()));
    checked_path(prefix, rewrite.unwrap_or_else(|| now.rewrite.clone()), socket_type).map(Some)
}

/// Checks what an origin can carry.
pub(super) fn checked_capacity(capacity: Capacity) -> Result<Capacity, ApiError> {
    capacity.check().map_err(|error| {
        let field = if matches!(error, CapacityError::Connections) { "max_connections" } else { "shared" };
        ApiError::field(&format!("capacity.{field}"), error)
    })?;
    Ok(capacity)
}

/// Checks a weight.
pub(super) fn checked_weight(weight: u16) -> Result<u16, ApiError> {
    if weight > MAX_WEIGHT {
        return Err(ApiError::field("weight", format!("a weight is 0 to {MAX_WEIGHT}")));
    }
    Ok(weight)
}
