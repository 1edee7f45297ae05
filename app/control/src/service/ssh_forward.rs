//! The meaning of a forward that a stock ssh client asks for (RFC 4254 section 7.1).

use std::net::IpAddr;

use sallyport_api::{CreateSocket, CreateTunnel};
use sallyport_model::{AccountId, Socket, SocketType, SshTunnelLogin, Tunnel};
use sallyport_store::{Creation, Maker, NameConflict, guest_account};

use super::Lifetime;
use crate::{
    problem::ApiError,
    request::etag::IfMatch,
    security::client::client_of,
    state::{
        App, Control,
        forwards::{ForwardRefusal, SshClient, SshTarget},
    },
};

/// The type of the temporary socket for this address and port; `None` if they stand for no temporary socket.
fn temporary_type(app: &App, address: &str, port: u16) -> Option<(SocketType, Option<u16>)> {
    let is_anywhere = address.is_empty()
        || address == "*"
        || address.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified() || ip.is_loopback());
    match port {
        _ if !is_anywhere => None,
        80 => Some((SocketType::Http, None)),
        443 => Some((SocketType::Https, None)),
        0 => Some((SocketType::Tcp, None)),
        port if app.config.port_range.contains(&port) => Some((SocketType::Tcp, Some(port))),
        _ => None,
    }
}

impl Control {
    /// What this ssh client means by a forward of this address and port. When this returns, edges know
    /// the socket and its tunnel.
    ///
    /// In this order: an address that is the name of a socket of the account means that socket, at the tunnel with this
    /// forward port or else a temporary one; a port that is the forward port of a tunnel means that tunnel; 80 and 443
    /// make a temporary `http` and `https` socket; 0 and the ports of the range make a temporary `tcp` socket. A client
    /// that has made the same one before, with the same key, gets its name and its port again where they are free. A
    /// client that has logged in for one tunnel gets that, by its forward port, or nothing.
    ///
    /// # Errors
    /// What can be asked for instead, or why it cannot be had now.
    pub async fn ssh_forward_target(
        &self,
        client: &SshClient,
        requested_address: &str,
        requested_port: u32,
    ) -> Result<SshTarget, ForwardRefusal> {
        let (app, account) = (&self.app, client.account);
        let port = u16::try_from(requested_port)
            .map_err(|_| ForwardRefusal { message: format!("{requested_port} is no port") })?;
        if let Some(login) = client.only {
            return app.forward_of_login(login, requested_address, port).await;
        }
        let is_guest = account == guest_account();
        if !is_guest {
            if let Some(socket) = app.socket_named(account, requested_address).await? {
                return app.forward_to(client, socket, port).await;
            }
            if let Some(tunnel) = app.store.tunnel_by_forward_port(account, port).await? {
                let socket = app.find_socket(account, &tunnel.socket.to_string()).await?;
                carried(&socket)?;
                return Ok(app.target(&socket, &tunnel, false));
            }
        }
        let Some((socket_type, own_port)) = temporary_type(app, requested_address, port) else {
            return Err(app.refusal(is_guest, requested_address, port));
        };
        app.temporary_socket(client, socket_type, own_port).await
    }

    /// The forward has ended: removes what was made for it. What cannot be removed now is removed at the next start.
    pub async fn ssh_forward_ended(&self, target: &SshTarget) {
        if !target.temporary {
            return;
        }
        let app = &self.app;
        if let Err(error) = app.remove_temporary(target).await {
            tracing::warn!(socket = %target.socket, tunnel = %target.tunnel, error = error.sentence(),
                "a temporary socket or tunnel cannot be removed before the next start");
        }
        app.temporary_forwards.ended(target.tunnel);
    }

    /// The account of sockets that need no account: it has temporary ones only, at most
    /// [`sallyport_store::MAX_GUEST_SOCKETS`] at a time, and [`crate::MAX_GUEST_SOCKETS_PER_ADDRESS`] of those at one
    /// address.
    ///
    /// # Errors
    /// The store does not take it.
    pub async fn guest_account(&self) -> Result<AccountId, ForwardRefusal> {
        self.app.store.create_guest_account(self.app.clock.now().unix_seconds).await?;
        Ok(guest_account())
    }
}

/// Refuses sockets whose traffic ssh cannot carry.
fn carried(socket: &Socket) -> Result<(), ForwardRefusal> {
    if socket.socket_type != SocketType::Udp {
        return Ok(());
    }
    let message =
        format!("{} is a udp socket, and ssh carries no datagrams: use sallyport tunnel connect", socket.name);
    Err(ForwardRefusal { message })
}

impl App {
    fn target(&self, socket: &Socket, tunnel: &Tunnel, temporary: bool) -> SshTarget {
        let url = self.socket_url(&socket.name, socket.socket_type, socket.port);
        SshTarget { socket: socket.id, tunnel: tunnel.id, temporary, url, port: socket.port }
    }

    /// The socket's tunnel with this forward port, or a temporary one at it.
    async fn forward_to(&self, client: &SshClient, socket: Socket, port: u16) -> Result<SshTarget, ForwardRefusal> {
        carried(&socket)?;
        if let Some(tunnel) = self.store.tunnel_by_forward_port(socket.account, port).await?
            && tunnel.socket == socket.id
        {
            return Ok(self.target(&socket, &tunnel, false));
        }
        let _turn = self.temporary_forwards.making.lock().await;
        self.temporary_tunnel(client, &socket).await
    }

    /// The tunnel of a login by certificate, if the client asks for that tunnel.
    async fn forward_of_login(
        &self,
        login: SshTunnelLogin,
        address: &str,
        port: u16,
    ) -> Result<SshTarget, ForwardRefusal> {
        let tunnel = self.store.tunnel(login.socket, login.tunnel).await?;
        let tunnel = tunnel.ok_or_else(|| ForwardRefusal { message: "the tunnel was deleted".to_owned() })?;
        let named = self.socket_named(login.account, address).await?;
        if port != tunnel.forward_port || named.is_some_and(|socket| socket.id != login.socket) {
            let message = format!(
                "this login is for one tunnel alone: ask for its forward port, -R {}:HOST:PORT, or log in with a key \
                 of the account for anything else",
                tunnel.forward_port
            );
            return Err(ForwardRefusal { message });
        }
        let socket = self.find_socket(login.account, &login.socket.to_string()).await?;
        carried(&socket)?;
        Ok(self.target(&socket, &tunnel, false))
    }

    /// Makes a tunnel for the life of a forward; only while `making` is held.
    async fn temporary_tunnel(&self, client: &SshClient, socket: &Socket) -> Result<SshTarget, ForwardRefusal> {
        let holder = client.holder.unwrap_or(self.temporary_forwards.holder);
        match self.create_tunnel(socket, CreateTunnel::default(), Some(holder), None).await? {
            Creation::Made((tunnel, _)) => {
                if holder == self.temporary_forwards.holder {
                    self.temporary_forwards.added(tunnel.id);
                }
                self.audit_ssh(client, socket, "tunnel.create", &format!("{}/{}", socket.name, tunnel.id));
                Ok(self.target(socket, &tunnel, true))
            }
            Creation::Repeated(_) => Err(ApiError::internal("a repetition without a key").into()),
        }
    }

    async fn temporary_socket(
        &self,
        client: &SshClient,
        socket_type: SocketType,
        port: Option<u16>,
    ) -> Result<SshTarget, ForwardRefusal> {
        let name = format!("ssh forward ({socket_type})").parse().map_err(ApiError::internal)?;
        let _turn = self.temporary_forwards.making.lock().await;
        let guest_at = (client.account == guest_account()).then(|| client_of(client.address));
        if let Some(address) = guest_at {
            self.temporary_forwards.admit_guest(address, std::time::Instant::now())?;
        }
        let create = CreateSocket { port, ..CreateSocket::new(name, socket_type) };
        let maker = self.temporary_forwards.maker(client, socket_type, port);
        if client.holder.is_some()
            && let Some(maker) = maker
        {
            self.remove_lost(maker).await?;
        }
        let lifetime = Lifetime::Temporary { maker, holder: client.holder.unwrap_or(self.temporary_forwards.holder) };
        let socket =
            match self.create_socket(client.account, create, (lifetime, NameConflict::AddNumber), None, true).await? {
                Creation::Made((socket, _)) => socket,
                Creation::Repeated(_) => return Err(ApiError::internal("a repetition without a key").into()),
            };
        self.audit_ssh(client, &socket, "socket.create", socket.name.as_str());
        match self.temporary_tunnel(client, &socket).await {
            Ok(target) => {
                if let Some(address) = guest_at {
                    self.temporary_forwards.guest_came(target.tunnel, address);
                }
                Ok(target)
            }
            Err(refusal) => {
                self.delete_socket(&socket, &IfMatch::ANY).await?;
                Err(refusal)
            }
        }
    }

    /// Removes the maker's sockets at an edge that holds them no more, so that name and port are free.
    async fn remove_lost(&self, maker: Maker) -> Result<(), ApiError> {
        let mut gone = Vec::new();
        for (account, socket, tunnels) in self.store.temporary_sockets_of(maker).await? {
            let is_held = tunnels.iter().any(|tunnel| self.directory.get(*tunnel).is_some());
            if !is_held && !tunnels.is_empty() && self.store.delete_socket(account, socket).await? {
                gone.push(socket);
            }
        }
        self.unpublish(&gone).await;
        Ok(())
    }

    async fn remove_temporary(&self, target: &SshTarget) -> Result<(), ApiError> {
        let sockets = self.store.temporary_sockets().await?;
        if let Some((account, id, _)) = sockets.into_iter().find(|(_, id, _)| *id == target.socket) {
            if self.store.delete_socket(account, id).await? {
                self.unpublish(&[id]).await;
                tracing::info!(socket = %id, "temporary socket deleted");
            }
            return Ok(());
        }
        // The owner may have deleted the tunnel already.
        if self.store.delete_tunnel(target.socket, target.tunnel).await? {
            self.publish(target.socket).await?;
            tracing::info!(socket = %target.socket, tunnel = %target.tunnel, "temporary tunnel deleted");
        }
        Ok(())
    }

    fn refusal(&self, is_guest: bool, address: &str, port: u16) -> ForwardRefusal {
        let (from, to) = (self.config.port_range.start(), self.config.port_range.end());
        let anywhere = format!(
            "80 (a web service), 443 (one that speaks HTTPS), 0 (any TCP port), or a TCP port from {from} to {to}"
        );
        let address: String = address.chars().filter(|c| !c.is_control()).take(64).collect();
        let message = if is_guest {
            format!(
                "{address}:{port} cannot be forwarded: without an account, ask for port {anywhere}, without an address"
            )
        } else {
            format!(
                "{address}:{port} cannot be forwarded: ask for the forward port of one of your tunnels, for the name \
                 of one of your sockets as the address, or without an address for port {anywhere}"
            )
        };
        ForwardRefusal { message }
    }
}
