//! Making, finding, changing and deleting tunnels.

use sallyport_api::{CreateTunnel, Secret, UpdateTunnel};
use sallyport_model::{
    AccountId, CredentialHash, DEFAULT_WEIGHT, MAX_WEIGHT, PathPrefix, PathRoute, Socket, SocketId, SocketType, Tunnel,
    TunnelId,
};
use sallyport_store::{Creation, HolderId, Keyed, NewTunnel, StoreError};

use crate::{App, audit_trail, problem::ApiError, random};

/// How tunnel credentials begin.
const CREDENTIAL_PREFIX: &str = "spc_";
/// How many random forward ports are tried before giving up.
const MAX_FORWARD_PORT_TRIES: usize = 64;
/// The lowest forward port: those below stand for temporary sockets.
const MIN_FORWARD_PORT: u16 = 1_024;

impl App {
    /// Makes a tunnel at a socket of the account; when this returns, edges know it.
    pub(crate) async fn create_tunnel(
        &self,
        socket: &Socket,
        create: CreateTunnel,
        temporary: Option<HolderId>,
        keyed: Option<&Keyed>,
    ) -> Result<Creation<(Tunnel, Secret)>, ApiError> {
        self.limits.create(socket.account, self.clock.now().monotonic)?;
        let (credential, hash) = random::secret(CREDENTIAL_PREFIX)?;
        let new = NewTunnel {
            id: TunnelId::from_random(random::bytes()?),
            socket: socket.id,
            credential: CredentialHash(hash),
            weight: checked_weight(create.weight.unwrap_or(DEFAULT_WEIGHT))?,
            path: checked_path(create.path, create.rewrite_path, socket.socket_type)?,
            temporary,
            created_at: self.clock.now().unix_seconds,
        };
        let made = self.store.create_tunnel(socket.account, &new, &self.forward_ports()?, keyed).await;
        match made {
            Ok(Creation::Made(tunnel)) => {
                self.publish(socket.id).await?;
                audit_trail::target(format_args!("{}/{}", socket.name, tunnel.id));
                tracing::info!(socket = %socket.id, tunnel = %tunnel.id, "tunnel created");
                Ok(Creation::Made((tunnel, credential)))
            }
            Ok(Creation::Repeated(stored)) => Ok(Creation::Repeated(stored)),
            Err(StoreError::Gone) => Err(ApiError::not_found("socket")),
            Err(error) => Err(error.into()),
        }
    }

    /// Random forward ports. None is of the range of sockets' own ports, which ssh clients ask for with another meaning.
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

    /// A tunnel of a socket of the account.
    pub(crate) async fn find_tunnel(&self, account: AccountId, socket: &str, id: &str) -> Result<Tunnel, ApiError> {
        let socket = self.find_socket(account, socket).await?;
        self.find_tunnel_of(&socket, id).await
    }

    /// A tunnel of the socket.
    pub(crate) async fn find_tunnel_of(&self, socket: &Socket, id: &str) -> Result<Tunnel, ApiError> {
        audit_trail::target(format_args!("{}/{id}", socket.name));
        let found = match id.parse::<TunnelId>() {
            Ok(id) => self.store.tunnel(socket.id, id).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| ApiError::not_found("tunnel"))
    }

    /// Changes a tunnel of the socket; when this returns, edges know it.
    pub(crate) async fn change_tunnel(
        &self,
        socket: &Socket,
        tunnel: &Tunnel,
        update: UpdateTunnel,
    ) -> Result<Tunnel, ApiError> {
        if update.is_empty() {
            return Err(ApiError::field("weight", "nothing is to change: send a weight, a path or a rewrite_path"));
        }
        let weight = update.weight.map(checked_weight).transpose()?;
        let path = changed_path(&tunnel.path, update.path, update.rewrite_path, socket.socket_type)?;
        let changed = self.store.change_tunnel(tunnel.socket, tunnel.id, weight, path.as_ref()).await?;
        let tunnel = changed.ok_or_else(|| ApiError::not_found("tunnel"))?;
        self.publish(tunnel.socket).await?;
        tracing::info!(
            socket = %tunnel.socket, tunnel = %tunnel.id, weight = tunnel.weight, path = %tunnel.path.prefix,
            "tunnel changed"
        );
        Ok(tunnel)
    }

    /// Gives a tunnel a new credential; the old one is good for nothing when this returns.
    pub(crate) async fn change_credential(&self, tunnel: &Tunnel) -> Result<(Tunnel, Secret), ApiError> {
        let (credential, hash) = random::secret(CREDENTIAL_PREFIX)?;
        let changed = self.store.change_credential(tunnel.socket, tunnel.id, CredentialHash(hash)).await?;
        let tunnel = changed.ok_or_else(|| ApiError::not_found("tunnel"))?;
        self.publish(tunnel.socket).await?;
        tracing::info!(socket = %tunnel.socket, tunnel = %tunnel.id, "tunnel got a new credential");
        Ok((tunnel, credential))
    }

    /// Deletes a tunnel; when this returns, edges know it.
    pub(crate) async fn delete_tunnel(&self, socket: SocketId, tunnel: TunnelId) -> Result<(), ApiError> {
        if !self.store.delete_tunnel(socket, tunnel).await? {
            return Err(ApiError::not_found("tunnel"));
        }
        self.publish(socket).await?;
        tracing::info!(%socket, %tunnel, "tunnel deleted");
        Ok(())
    }
}

/// The paths that an origin is to serve, when its socket can have such.
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

/// The paths that an origin is to serve instead of these, where that is to change.
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

/// The weight, when there is such a one.
pub(super) fn checked_weight(weight: u16) -> Result<u16, ApiError> {
    if weight > MAX_WEIGHT {
        return Err(ApiError::field("weight", format!("a weight is 0 to {MAX_WEIGHT}")));
    }
    Ok(weight)
}
