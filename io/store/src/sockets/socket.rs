//! Sockets, their names, and the routes that edges need.

use std::collections::HashMap;

use sallyport_model::{
    AccountId, AttachedPolicy, BasicAuth, DisplayName, DomainName, LabelSelector, Labels, OriginProtocol, PolicyId,
    ShortId, Socket, SocketId, SocketName, SocketRoute, SocketSettings, SocketType, TunnelId, TunnelRoute,
};

use super::{
    labels, origins, policies,
    ports::{PortRequest, take_port},
    socket_names::{self, NameConflict},
    tunnels,
};
use crate::{
    accounts::account::{MAX_GUEST_SOCKETS, guest_account},
    cluster::controls::HolderId,
    db::{
        Position, Store,
        error::StoreError,
        idempotency::{Creation, IdempotencyKey},
        row::{self, DbRow},
        sql,
        write::Write,
    },
    identity::authorities::AuthorityKind,
    names::domains,
};

/// Bound on the sockets of an account.
pub const MAX_SOCKETS_PER_ACCOUNT: usize = 1_000;

/// A hash that identifies the creator of a temporary socket. The same creator gets the socket's name and port again.
pub type Maker = [u8; 32];

/// A new socket.
#[derive(Debug, Clone)]
pub struct NewSocket {
    /// The id of the socket.
    pub id: SocketId,
    /// The owner of the socket.
    pub account: AccountId,
    /// The name that the owner gives the socket.
    pub display_name: DisplayName,
    /// What to do if another socket of the account has the name.
    pub name_conflict: NameConflict,
    /// The DNS label that the owner has chosen; `None`: a generated one.
    pub label: Option<SocketName>,
    /// The type of the socket.
    pub socket_type: SocketType,
    /// The HTTP version between edge and origin.
    pub origin_protocol: OriginProtocol,
    /// A user name and password that every client must give.
    pub basic_auth: Option<BasicAuth>,
    /// The port that the socket gets.
    pub port: PortRequest,
    /// The number of sockets with a port of their own that the account may have, this one included.
    pub max_ports: usize,
    /// All other settings.
    pub settings: SocketSettings,
    /// The labels.
    pub labels: Labels,
    /// Policies of the organisation that are attached from the start.
    pub policies: Vec<PolicyId>,
    /// Verified domains of the account that lead to the socket from the start.
    pub domains: Vec<DomainName>,
    /// Sockets without a service, from which the domains may be taken.
    pub idle: Vec<SocketId>,
    /// The holder of a temporary socket, which ends with its forward, at the latest with the holder.
    pub temporary: Option<HolderId>,
    /// The creator, which may get the name and the port again after the socket has ended; `None`: no reuse.
    pub maker: Option<Maker>,
    /// Time of creation, in seconds since 1970.
    pub created_at: i64,
}

/// Changes to a socket; `None` keeps the former value.
#[derive(Debug, Clone, Default)]
pub struct SocketChange {
    /// The name that the owner gives the socket.
    pub display_name: Option<DisplayName>,
    /// The type of the socket.
    pub socket_type: Option<SocketType>,
    /// The HTTP version between edge and origin.
    pub origin_protocol: Option<OriginProtocol>,
    /// Basic authentication; `Some(None)` opens the socket to everybody.
    pub basic_auth: Option<Option<BasicAuth>>,
    /// All other settings.
    pub settings: Option<SocketSettings>,
    /// All labels.
    pub labels: Option<Labels>,
}

/// Fails if the account has reached its limit of ports.
async fn bound_ports(write: &mut Write, account: AccountId, max: usize) -> Result<(), StoreError> {
    let count: i64 = sql::query_scalar("SELECT count(*) FROM sockets WHERE account = $1 AND port IS NOT NULL")
        .bind(account.as_bytes().as_slice())
        .fetch_one(write.sql())
        .await?;
    if count < max as i64 {
        return Ok(());
    }
    let what = if account == guest_account() {
        "ports for guests at a time: try again later, or with an account"
    } else {
        "sockets with a port of their own for one account: delete a tcp, tls or udp socket, or ask the operator for \
         more --ports-per-account"
    };
    Err(StoreError::Limit { what, max })
}

impl Store {
    /// Creates a socket with the first name derived from the random numbers that was never used. `answer` is sent to
    /// the client and stored for repetitions; it must hold no secret.
    ///
    /// # Errors
    /// [`StoreError::Limit`], [`StoreError::NameTaken`], [`StoreError::NoFreeName`], [`StoreError::PortsExhausted`],
    /// [`StoreError::PortTaken`], [`StoreError::DomainUnverified`], [`StoreError::DomainInUse`], [`StoreError::KeyReused`], [`StoreError::Gone`], or a failure of the database.
    pub async fn create_socket(
        &self,
        new: NewSocket,
        randoms: &[u64],
        keyed: Option<&IdempotencyKey>,
        answer: impl FnOnce(&Socket) -> String + Send,
    ) -> Result<Creation<(Socket, String)>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(new.account, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        let count: i64 = sql::query_scalar("SELECT count(*) FROM sockets WHERE account = $1")
            .bind(new.account.as_bytes().as_slice())
            .fetch_one(write.sql())
            .await?;
        let (max, what) = if new.account == guest_account() {
            (MAX_GUEST_SOCKETS, "sockets for guests at a time: try again later, or with an account")
        } else {
            (MAX_SOCKETS_PER_ACCOUNT, "sockets for one account: delete some first")
        };
        if count >= max as i64 {
            return Err(StoreError::Limit { what, max });
        }
        if new.port != PortRequest::None {
            bound_ports(&mut write, new.account, new.max_ports).await?;
        }
        let display_name =
            socket_names::take(&mut write, new.account, new.id, new.display_name, new.name_conflict).await?;
        let (name, former_port) = match (&new.label, former_name(&mut write, new.maker).await?) {
            (Some(label), _) => (take_label(&mut write, label, new.account, new.created_at).await?, None),
            (None, Some((name, port))) => (name, port),
            (None, None) => (take_name(&mut write, randoms, new.maker, new.created_at).await?, None),
        };
        let port = take_port(&mut write, &new.port, former_port).await?;
        remember_port(&mut write, &name, port, new.maker).await?;
        let socket = Socket {
            id: new.id,
            account: new.account,
            name,
            display_name,
            socket_type: new.socket_type,
            origin_protocol: new.origin_protocol,
            basic_auth: new.basic_auth,
            port,
            settings: new.settings,
            labels: new.labels,
            created_at: new.created_at,
        };
        insert(&mut write, &socket, new.temporary).await?;
        for policy in new.policies {
            policies::attach(&mut write, socket.account, policy, Some(socket.id)).await?;
        }
        domains::attach(&mut write, (socket.account, socket.id), &new.domains, Some(&new.idle)).await?;
        let answer = answer(&socket);
        write.remember(socket.account, keyed, *socket.id.as_bytes(), Some(answer.clone())).await?;
        write.commit().await?;
        Ok(Creation::Made((socket, answer)))
    }

    /// The account's sockets after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn sockets(
        &self,
        account: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Socket)>, StoreError> {
        self.sockets_with(account, &[], after, limit).await
    }

    /// The account's sockets with these labels after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn sockets_with(
        &self,
        account: AccountId,
        selectors: &[LabelSelector],
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Socket)>, StoreError> {
        let query = sql::query(labels::selected!(
            "SELECT * FROM sockets WHERE account = $1 AND position > $2 ",
            "labels",
            " ORDER BY position LIMIT $3"
        ))
        .bind(account.as_bytes().as_slice())
        .bind(after)
        .bind(limit);
        let rows = labels::bind(query, selectors)?.fetch_all(&self.reader).await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, socket(found)?))).collect()
    }

    /// A socket of the account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn socket(&self, account: AccountId, id: SocketId) -> Result<Option<Socket>, StoreError> {
        let found = sql::query("SELECT * FROM sockets WHERE id = $1 AND account = $2")
            .bind(id.as_bytes().as_slice())
            .bind(account.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(socket).transpose()
    }

    /// The socket with this public name, of any account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn socket_id_by_name(&self, name: &SocketName) -> Result<Option<SocketId>, StoreError> {
        let found = sql::query("SELECT id FROM sockets WHERE name = $1").bind(name.as_str());
        let found = found.fetch_optional(&self.reader).await?;
        found.map(|found| row::bytes(&found, "id").map(SocketId::from_bytes)).transpose()
    }

    /// A socket of the account, by its public name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn socket_by_name(&self, account: AccountId, name: &SocketName) -> Result<Option<Socket>, StoreError> {
        let found = sql::query("SELECT * FROM sockets WHERE name = $1 AND account = $2")
            .bind(name.as_str())
            .bind(account.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(socket).transpose()
    }

    /// The socket of the account with this display name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn socket_by_display_name(
        &self,
        account: AccountId,
        name: &DisplayName,
    ) -> Result<Option<Socket>, StoreError> {
        let found = sql::query("SELECT * FROM sockets WHERE account = $1 AND name_key = $2")
            .bind(account.as_bytes().as_slice())
            .bind(name.key())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(socket).transpose()
    }

    /// The socket of the account with this id prefix.
    ///
    /// # Errors
    /// [`StoreError::AmbiguousId`], or a failure of the database.
    pub async fn socket_by_short_id(&self, account: AccountId, start: &ShortId) -> Result<Option<Socket>, StoreError> {
        let found = sql::query("SELECT * FROM sockets WHERE account = $1 AND id >= $2 AND id <= $3 LIMIT 2")
            .bind(account.as_bytes().as_slice())
            .bind(start.first().as_slice())
            .bind(start.last().as_slice())
            .fetch_all(&self.reader)
            .await?;
        if found.len() > 1 {
            return Err(StoreError::AmbiguousId { start: start.to_string() });
        }
        found.first().map(socket).transpose()
    }

    /// Changes a socket of the account. `change` gets the current socket, within the transaction. Returns the changed
    /// socket, or `None` if it does not exist.
    ///
    /// # Errors
    /// An error of `change`, or a failure of the database; nothing is changed then.
    pub async fn change_socket<E: From<StoreError>>(
        &self,
        account: AccountId,
        id: SocketId,
        change: impl FnOnce(&Socket) -> Result<SocketChange, E> + Send,
    ) -> Result<Option<Socket>, E> {
        self.change_socket_with_policies(account, id, |socket, _| change(socket)).await
    }

    /// Like [`Store::change_socket`]; `change` also gets the policies of the socket.
    ///
    /// # Errors
    /// As [`Store::change_socket`].
    pub async fn change_socket_with_policies<E: From<StoreError>>(
        &self,
        account: AccountId,
        id: SocketId,
        change: impl FnOnce(&Socket, Vec<AttachedPolicy>) -> Result<SocketChange, E> + Send,
    ) -> Result<Option<Socket>, E> {
        let mut write = self.write().await?;
        let Some(found) = find(&mut write, account, id).await? else { return Ok(None) };
        let attached = policies::attached(write.sql(), policies::PolicyScope::Socket(id)).await?;
        let change = change(&found, attached.into_iter().map(|(_, policy)| policy).collect())?;
        if let Some(name) = change.display_name.as_ref().filter(|name| name.key() != found.display_name.key()) {
            socket_names::require_free(&mut write, account, id, name).await?;
        }
        let changed = update(&mut write, found, change).await?;
        write.commit().await?;
        Ok(Some(changed))
    }

    /// The temporary sockets, each with its holder.
    ///
    /// # Errors
    /// The database fails.
    pub async fn temporary_sockets(&self) -> Result<Vec<(AccountId, SocketId, Option<HolderId>)>, StoreError> {
        let rows =
            sql::query("SELECT account, id, holder FROM sockets WHERE temporary = 1").fetch_all(&self.reader).await?;
        let ids = |found: &DbRow| {
            let account = AccountId::from_bytes(row::bytes(found, "account")?);
            Ok((account, SocketId::from_bytes(row::bytes(found, "id")?), row::optional_bytes(found, "holder")?))
        };
        rows.iter().map(ids).collect()
    }

    /// The temporary sockets of this creator, each with its tunnels.
    ///
    /// # Errors
    /// The database fails.
    pub async fn temporary_sockets_of(
        &self,
        maker: Maker,
    ) -> Result<Vec<(AccountId, SocketId, Vec<TunnelId>)>, StoreError> {
        let mut read = self.read().await?;
        let rows = sql::query(
            "SELECT s.account, s.id FROM sockets s JOIN names n ON n.name = s.name \
             WHERE n.maker = $1 AND s.temporary = 1",
        );
        let mut found = Vec::new();
        for row in rows.bind(maker.as_slice()).fetch_all(&mut *read).await? {
            let id: [u8; 16] = row::bytes(&row, "id")?;
            let tunnels = sql::query("SELECT id FROM tunnels WHERE socket = $1").bind(id.as_slice());
            let tunnels = tunnels.fetch_all(&mut *read).await?;
            let tunnels = tunnels.iter().map(|row| row::bytes(row, "id").map(TunnelId::from_bytes));
            let account = AccountId::from_bytes(row::bytes(&row, "account")?);
            found.push((account, SocketId::from_bytes(id), tunnels.collect::<Result<_, _>>()?));
        }
        Ok(found)
    }

    /// Deletes a socket of the account with its tunnels. Its public name stays reserved. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_socket(&self, account: AccountId, id: SocketId) -> Result<bool, StoreError> {
        self.delete_socket_if(account, id, |_| Ok(())).await
    }

    /// Like [`Store::delete_socket`], unless `check` fails, which gets the current socket within the transaction.
    ///
    /// # Errors
    /// An error of `check`, or a failure of the database; nothing is deleted then.
    pub async fn delete_socket_if<E: From<StoreError>>(
        &self,
        account: AccountId,
        id: SocketId,
        check: impl FnOnce(&Socket) -> Result<(), E> + Send,
    ) -> Result<bool, E> {
        let mut write = self.write().await?;
        let Some(found) = find(&mut write, account, id).await? else { return Ok(false) };
        check(&found)?;
        let deleted = sql::query("DELETE FROM sockets WHERE id = $1 AND account = $2")
            .bind(id.as_bytes().as_slice())
            .bind(account.as_bytes().as_slice())
            .execute(write.sql())
            .await
            .map_err(StoreError::from)?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// The route of this socket for edges, or `None` if it does not exist.
    ///
    /// # Errors
    /// The database fails.
    pub async fn route(&self, id: SocketId) -> Result<Option<SocketRoute>, StoreError> {
        // One transaction, so that socket and tunnels are consistent.
        let mut read = self.read().await?;
        let found = sql::query("SELECT * FROM sockets WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&mut *read)
            .await?;
        let Some(found) = found else { return Ok(None) };
        let mut route = route(socket(&found)?);
        if asks_for_certificates(&route) {
            route.client_authority = sql::query_scalar(CLIENT_AUTHORITY)
                .bind(route.account.as_bytes().as_slice())
                .bind(AuthorityKind::ClientTls.as_str())
                .fetch_optional(&mut *read)
                .await?;
        }
        let rows = sql::query("SELECT * FROM tunnels WHERE socket = $1 ORDER BY position")
            .bind(id.as_bytes().as_slice())
            .fetch_all(&mut *read)
            .await?;
        for found in &rows {
            let tunnel = tunnels::tunnel(found)?;
            route.tunnels.push(tunnel_route(&tunnel));
        }
        let rows = sql::query("SELECT * FROM direct_origins WHERE socket = $1 ORDER BY position")
            .bind(id.as_bytes().as_slice())
            .fetch_all(&mut *read)
            .await?;
        for found in &rows {
            route.origins.push(origins::origin(found)?.into());
        }
        route.domains = domains::attached(&mut read, Some(id)).await?.into_iter().map(|(_, name)| name).collect();
        let attached = policies::attached(&mut read, policies::PolicyScope::Socket(id)).await?;
        route.policies = attached.into_iter().map(|(_, policy)| policy).collect();
        Ok(Some(route))
    }

    /// The routes of all sockets, for edges.
    ///
    /// # Errors
    /// The database fails.
    pub async fn routes(&self) -> Result<Vec<SocketRoute>, StoreError> {
        self.routes_where(None).await
    }

    /// The routes of the sockets of one account, or of all, for edges.
    pub(crate) async fn routes_where(&self, account: Option<AccountId>) -> Result<Vec<SocketRoute>, StoreError> {
        let account_id = account.as_ref().map(|account| account.as_bytes().as_slice());
        let mut read = self.read().await?;
        let rows = sql::query("SELECT * FROM sockets WHERE $1 IS NULL OR account = $1")
            .bind(account_id)
            .fetch_all(&mut *read)
            .await?;
        let mut routes = HashMap::with_capacity(rows.len());
        for found in &rows {
            let route = route(socket(found)?);
            routes.insert(route.id, route);
        }
        let rows = sql::query("SELECT organisation, certificate FROM authorities WHERE kind = $1")
            .bind(AuthorityKind::ClientTls.as_str())
            .fetch_all(&mut *read)
            .await?;
        let mut authorities = HashMap::with_capacity(rows.len());
        for found in &rows {
            let organisation = AccountId::from_bytes(row::bytes(found, "organisation")?);
            authorities.insert(organisation, found.try_get::<Vec<u8>>("certificate")?);
        }
        for route in routes.values_mut().filter(|route| asks_for_certificates(route)) {
            route.client_authority = authorities.get(&route.account).cloned();
        }
        let rows = sql::query(
            "SELECT * FROM tunnels WHERE $1 IS NULL OR socket IN (SELECT id FROM sockets WHERE account = $1)
             ORDER BY socket, position",
        )
        .bind(account_id)
        .fetch_all(&mut *read)
        .await?;
        for found in &rows {
            let tunnel = tunnels::tunnel(found)?;
            if let Some(route) = routes.get_mut(&tunnel.socket) {
                route.tunnels.push(tunnel_route(&tunnel));
            }
        }
        let rows = sql::query(
            "SELECT * FROM direct_origins WHERE $1 IS NULL OR socket IN (SELECT id FROM sockets WHERE account = $1)
             ORDER BY socket, position",
        )
        .bind(account_id)
        .fetch_all(&mut *read)
        .await?;
        for found in &rows {
            let origin = origins::origin(found)?;
            if let Some(route) = routes.get_mut(&origin.socket) {
                route.origins.push(origin.into());
            }
        }
        for (socket, name) in domains::attached(&mut read, None).await? {
            if let Some(route) = routes.get_mut(&socket) {
                route.domains.push(name);
            }
        }
        for (socket, policy) in policies::attached(
            &mut read,
            account.map_or(policies::PolicyScope::Everybody, policies::PolicyScope::Organisation),
        )
        .await?
        {
            if let Some(route) = routes.get_mut(&socket) {
                route.policies.push(policy);
            }
        }
        Ok(routes.into_values().collect())
    }
}

async fn find(write: &mut Write, account: AccountId, id: SocketId) -> Result<Option<Socket>, StoreError> {
    let found = sql::query("SELECT * FROM sockets WHERE id = $1 AND account = $2")
        .bind(id.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .fetch_optional(write.sql())
        .await?;
    found.as_ref().map(socket).transpose()
}

/// Stores the changes, and returns the changed socket.
async fn update(write: &mut Write, former: Socket, change: SocketChange) -> Result<Socket, StoreError> {
    let socket = Socket {
        display_name: change.display_name.unwrap_or(former.display_name),
        socket_type: change.socket_type.unwrap_or(former.socket_type),
        origin_protocol: change.origin_protocol.unwrap_or(former.origin_protocol),
        basic_auth: change.basic_auth.unwrap_or(former.basic_auth),
        settings: change.settings.unwrap_or(former.settings),
        labels: change.labels.unwrap_or(former.labels),
        ..former
    };
    sql::query(
        "UPDATE sockets SET display_name = $2, socket_type = $3, origin_protocol = $4, basic_username = $5,
                            basic_password_hash = $6, settings = $7, name_key = $8, labels = $9
         WHERE id = $1",
    )
    .bind(socket.id.as_bytes().as_slice())
    .bind(socket.display_name.as_str())
    .bind(socket.socket_type.as_str())
    .bind(socket.origin_protocol.as_str())
    .bind(socket.basic_auth.as_ref().map(|basic| basic.username.as_str()))
    .bind(socket.basic_auth.as_ref().map(|basic| basic.password_hash.as_str()))
    .bind(row::json(&socket.settings)?)
    .bind(socket.display_name.key())
    .bind(row::json(&socket.labels)?)
    .execute(write.sql())
    .await?;
    Ok(socket)
}

/// The first name of this creator that no socket uses now, and its port.
async fn former_name(write: &mut Write, maker: Option<Maker>) -> Result<Option<(SocketName, Option<u16>)>, StoreError> {
    let Some(maker) = maker else { return Ok(None) };
    let found = sql::query(
        "SELECT name, port FROM names WHERE maker = $1 AND name NOT IN (SELECT name FROM sockets)
         ORDER BY taken_at, rowid LIMIT 1",
    )
    .bind(maker.as_slice())
    .fetch_optional(write.sql())
    .await?;
    let Some(found) = found else { return Ok(None) };
    Ok(Some((row::parsed(&found, "name")?, found.try_get("port")?)))
}

/// Records the port of a name whose creator may return; removes it from other names.
async fn remember_port(
    write: &mut Write,
    name: &SocketName,
    port: Option<u16>,
    maker: Option<Maker>,
) -> Result<(), StoreError> {
    let Some(port) = port else { return Ok(()) };
    sql::query("UPDATE names SET port = NULL WHERE port = $1").bind(port).execute(write.sql()).await?;
    if maker.is_some() {
        let update = sql::query("UPDATE names SET port = $2 WHERE name = $1").bind(name.as_str()).bind(port);
        update.execute(write.sql()).await?;
    }
    Ok(())
}

/// Reserves the first name that was never used.
async fn take_name(
    write: &mut Write,
    randoms: &[u64],
    maker: Option<Maker>,
    now: i64,
) -> Result<SocketName, StoreError> {
    for random in randoms {
        let name = SocketName::generate(*random);
        let insert = "INSERT INTO names (name, taken_at, maker) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let taken = sql::query(insert)
            .bind(name.as_str())
            .bind(now)
            .bind(maker.as_ref().map(<[u8; 32]>::as_slice))
            .execute(write.sql())
            .await?;
        if taken.rows_affected() == 1 {
            return Ok(name);
        }
    }
    Err(StoreError::NoFreeName)
}

/// Reserves a chosen label. An organisation may take the label of its own deleted socket again.
async fn take_label(
    write: &mut Write,
    label: &SocketName,
    account: AccountId,
    now: i64,
) -> Result<SocketName, StoreError> {
    let owner = socket_names::label_owner(account);
    sql::query("INSERT INTO names (name, taken_at, maker) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(label.as_str())
        .bind(now)
        .bind(owner.as_slice())
        .execute(write.sql())
        .await?;
    let free = sql::query_scalar::<i64>(
        "SELECT count(*) FROM names WHERE name = $1 AND maker = $2 AND name NOT IN (SELECT name FROM sockets)",
    )
    .bind(label.as_str())
    .bind(owner.as_slice())
    .fetch_one(write.sql())
    .await?;
    if free == 1 { Ok(label.clone()) } else { Err(StoreError::LabelTaken { label: label.to_string() }) }
}

async fn insert(write: &mut Write, socket: &Socket, temporary: Option<HolderId>) -> Result<(), StoreError> {
    let inserted = sql::query(
        "INSERT INTO sockets (id, account, position, name, display_name, socket_type, origin_protocol,
                              basic_username, basic_password_hash, port, settings, created_at, temporary, holder,
                              name_key, labels)
         SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM sockets WHERE account = $2), $3, $4, $5, $6, $7, $8,
                $9, $10, $11, $12, $13, $14, $15
         FROM accounts WHERE id = $2",
    )
    .bind(socket.id.as_bytes().as_slice())
    .bind(socket.account.as_bytes().as_slice())
    .bind(socket.name.as_str())
    .bind(socket.display_name.as_str())
    .bind(socket.socket_type.as_str())
    .bind(socket.origin_protocol.as_str())
    .bind(socket.basic_auth.as_ref().map(|basic| basic.username.as_str()))
    .bind(socket.basic_auth.as_ref().map(|basic| basic.password_hash.as_str()))
    .bind(socket.port)
    .bind(row::json(&socket.settings)?)
    .bind(socket.created_at)
    .bind(temporary.is_some())
    .bind(temporary.map(Vec::from))
    .bind(socket.display_name.key())
    .bind(row::json(&socket.labels)?)
    .execute(write.sql())
    .await?;
    if inserted.rows_affected() == 0 { Err(StoreError::Gone) } else { Ok(()) }
}

pub(crate) fn socket(found: &DbRow) -> Result<Socket, StoreError> {
    let username: Option<String> = found.try_get("basic_username")?;
    let password_hash: Option<String> = found.try_get("basic_password_hash")?;
    Ok(Socket {
        id: SocketId::from_bytes(row::bytes(found, "id")?),
        account: AccountId::from_bytes(row::bytes(found, "account")?),
        name: row::parsed(found, "name")?,
        display_name: row::display_name(found, "display_name")?,
        socket_type: row::parsed(found, "socket_type")?,
        origin_protocol: row::parsed(found, "origin_protocol")?,
        basic_auth: username.zip(password_hash).map(|(username, password_hash)| BasicAuth { username, password_hash }),
        port: found.try_get("port")?,
        settings: row::from_json(found, "settings")?,
        labels: row::from_json(found, "labels")?,
        created_at: found.try_get("created_at")?,
    })
}

/// The certificate of an organisation's authority of a kind.
const CLIENT_AUTHORITY: &str = "SELECT certificate FROM authorities WHERE organisation = $1 AND kind = $2";

/// Whether clients may authenticate by a certificate: persons at `tls` sockets, machines also at HTTP sockets.
fn asks_for_certificates(route: &SocketRoute) -> bool {
    let is_shown = route.socket_type == SocketType::Tls || route.socket_type.is_http();
    is_shown && route.settings.identity.is_some()
}

/// The route of a socket, without tunnels and direct origins.
pub(crate) fn route(socket: Socket) -> SocketRoute {
    SocketRoute {
        id: socket.id,
        account: socket.account,
        name: socket.name,
        socket_type: socket.socket_type,
        origin_protocol: socket.origin_protocol,
        basic_auth: socket.basic_auth,
        port: socket.port,
        settings: socket.settings,
        policies: Vec::new(),
        client_authority: None,
        tunnels: Vec::new(),
        origins: Vec::new(),
        domains: Vec::new(),
    }
}

fn tunnel_route(tunnel: &sallyport_model::Tunnel) -> TunnelRoute {
    TunnelRoute {
        id: tunnel.id,
        credential: tunnel.credential,
        weight: tunnel.weight,
        forward_port: tunnel.forward_port,
        path: tunnel.path.clone(),
        capacity: tunnel.capacity.clone(),
    }
}
