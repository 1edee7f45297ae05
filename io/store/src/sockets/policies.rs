//! Policies, and their attachments to sockets.

use std::collections::HashMap;

use sallyport_model::{AccountId, AttachedPolicy, LabelSelector, Labels, PolicyId, PolicyName, SocketId, SocketRoute};

use super::{labels, socket};
use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbConnection, DbRow},
    sql,
    write::Write,
};

/// Bound on the policies of an organisation.
pub const MAX_POLICIES_PER_ORGANISATION: usize = 100;

/// A new policy.
#[derive(Debug, Clone)]
pub struct NewPolicy {
    /// Its id.
    pub id: PolicyId,
    /// The organisation of the policy.
    pub organisation: AccountId,
    /// Its name in the organisation.
    pub name: PolicyName,
    /// Its rules, as JSON.
    pub document: String,
    /// Its labels.
    pub labels: Labels,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
}

/// A policy of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its id.
    pub id: PolicyId,
    /// Its name.
    pub name: PolicyName,
    /// Its rules, as JSON.
    pub document: String,
    /// Its labels.
    pub labels: Labels,
    /// Whether it applies to all sockets of the organisation.
    pub everywhere: bool,
    /// The sockets that it is attached to individually, oldest first.
    pub sockets: Vec<SocketId>,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
    /// Time of the last change of its name or its rules.
    pub updated_at: i64,
}

/// What a policy is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// All sockets of the organisation, including later ones.
    Everywhere,
    /// One socket.
    Socket(SocketId),
}

impl Attachment {
    fn socket(self) -> Option<SocketId> {
        match self {
            Self::Everywhere => None,
            Self::Socket(socket) => Some(socket),
        }
    }
}

/// Changes to a policy; `None` keeps the former value.
#[derive(Debug, Clone, Default)]
pub struct PolicyChange {
    /// Its name.
    pub name: Option<PolicyName>,
    /// Its rules, as JSON.
    pub document: Option<String>,
    /// All its labels.
    pub labels: Option<Labels>,
    /// An additional attachment.
    pub attach: Option<Attachment>,
    /// An attachment to remove.
    pub detach: Option<Attachment>,
    /// Time of the change in seconds since 1970.
    pub now: i64,
}

impl Store {
    /// Creates a policy without attachments.
    ///
    /// # Errors
    /// [`StoreError::PolicyNameTaken`], [`StoreError::Limit`], [`StoreError::Gone`] if the organisation does not exist,
    /// or a failure of the database.
    pub async fn create_policy(&self, new: &NewPolicy) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let (count, what) = (
            "SELECT count(*) FROM policies WHERE organisation = $1",
            "policies for one organisation: delete some first",
        );
        write.require_room(count, new.organisation.as_bytes(), MAX_POLICIES_PER_ORGANISATION, what).await?;
        let inserted = sql::query(
            "INSERT INTO policies (id, organisation, position, name, document, created_at, updated_at, labels)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM policies WHERE organisation = $2), \
             $3, $4, $5, $5, $6
             FROM accounts WHERE id = $2",
        )
        .bind(new.id.as_bytes().as_slice())
        .bind(new.organisation.as_bytes().as_slice())
        .bind(new.name.as_str())
        .bind(&new.document)
        .bind(new.created_at)
        .bind(row::json(&new.labels)?)
        .execute(write.sql())
        .await
        .map_err(|error| named(error, &new.name))?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.commit().await
    }

    /// The organisation's policies with these labels after a position, oldest first, with their positions; at most
    /// [`MAX_POLICIES_PER_ORGANISATION`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn policies(
        &self,
        organisation: AccountId,
        selectors: &[LabelSelector],
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Policy)>, StoreError> {
        let mut read = self.read().await?;
        let query = sql::query(labels::selected!(
            "SELECT * FROM policies WHERE organisation = $1 AND position > $2 ",
            "labels",
            " ORDER BY position LIMIT $3"
        ))
        .bind(organisation.as_bytes().as_slice())
        .bind(after)
        .bind(limit);
        let rows = labels::bind(query, selectors)?.fetch_all(&mut *read).await?;
        let mut places = attachments(&mut read, organisation).await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, policy(found, &mut places)?))).collect()
    }

    /// A policy of the organisation.
    ///
    /// # Errors
    /// The database fails.
    pub async fn policy(&self, organisation: AccountId, id: PolicyId) -> Result<Option<Policy>, StoreError> {
        let mut read = self.read().await?;
        find(&mut read, organisation, id).await
    }

    /// The id of the organisation's policy with this name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn policy_named(
        &self,
        organisation: AccountId,
        name: &PolicyName,
    ) -> Result<Option<PolicyId>, StoreError> {
        let found = sql::query("SELECT id FROM policies WHERE organisation = $1 AND name = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(name.as_str())
            .fetch_optional(&self.reader)
            .await?;
        found.map(|found| Ok(PolicyId::from_bytes(row::bytes(&found, "id")?))).transpose()
    }

    /// The policies that would apply to a new socket of the organisation with these policies attached: they, and those
    /// of all its sockets.
    ///
    /// # Errors
    /// The database fails.
    pub async fn policies_of_new_socket(
        &self,
        organisation: AccountId,
        attached: &[PolicyId],
    ) -> Result<Vec<AttachedPolicy>, StoreError> {
        let rows = sql::query(
            "SELECT id, name, document,
                    EXISTS (SELECT 1 FROM policy_attachments WHERE policy = id AND socket IS NULL) AS everywhere
             FROM policies WHERE organisation = $1 ORDER BY name",
        )
        .bind(organisation.as_bytes().as_slice())
        .fetch_all(&self.reader)
        .await?;
        let all = rows.iter().map(|found| Ok((found.try_get::<bool>("everywhere")?, attached_policy(found)?)));
        let all = all.collect::<Result<Vec<_>, StoreError>>()?;
        Ok(all.into_iter().filter(|(all, policy)| *all || attached.contains(&policy.id)).map(|(_, p)| p).collect())
    }

    /// Changes a policy of the organisation, or its attachments. `is_current` gets the policy before the change. `check` gets all sockets of the organisation before
    /// and after the change, without their tunnels, in the same order, within the transaction. Returns the changed
    /// policy, or `None` if it does not exist.
    ///
    /// # Errors
    /// An error of `is_current` or `check`, [`StoreError::PolicyNameTaken`], [`StoreError::Gone`] if the organisation has no such
    /// socket, or a failure of the database; nothing is changed then.
    pub async fn change_policy<E: From<StoreError>>(
        &self,
        organisation: AccountId,
        id: PolicyId,
        change: PolicyChange,
        is_current: impl FnOnce(&Policy) -> Result<(), E> + Send,
        check: impl FnOnce(&[SocketRoute], &[SocketRoute]) -> Result<(), E> + Send,
    ) -> Result<Option<Policy>, E> {
        let mut write = self.write().await?;
        let Some(found) = find(write.sql(), organisation, id).await? else { return Ok(None) };
        is_current(&found)?;
        let before = concerned(write.sql(), organisation).await?;
        apply(&mut write, organisation, id, change).await?;
        let after = concerned(write.sql(), organisation).await?;
        check(&before, &after)?;
        let changed = find(write.sql(), organisation, id).await?;
        write.commit().await?;
        Ok(changed)
    }

    /// Deletes a policy of the organisation without attachments, unless `check` fails, which gets the policy within the
    /// transaction. Returns whether it existed.
    ///
    /// # Errors
    /// An error of `check`, [`StoreError::PolicyAttached`], or a failure of the database.
    pub async fn delete_policy<E: From<StoreError>>(
        &self,
        organisation: AccountId,
        id: PolicyId,
        check: impl FnOnce(&Policy) -> Result<(), E> + Send,
    ) -> Result<bool, E> {
        let mut write = self.write().await?;
        let Some(found) = find(write.sql(), organisation, id).await? else { return Ok(false) };
        check(&found)?;
        if found.everywhere || !found.sockets.is_empty() {
            let what = match (found.everywhere, found.sockets.len()) {
                (true, _) => "all sockets".to_owned(),
                (false, 1) => "1 socket".to_owned(),
                (false, count) => format!("{count} sockets"),
            };
            return Err(StoreError::PolicyAttached { what }.into());
        }
        let delete = sql::query("DELETE FROM policies WHERE id = $1").bind(id.as_bytes().as_slice());
        delete.execute(write.sql()).await.map_err(StoreError::from)?;
        write.commit().await?;
        Ok(true)
    }

    /// The routes of all sockets of an organisation, for edges.
    ///
    /// # Errors
    /// The database fails.
    pub async fn routes_of(&self, organisation: AccountId) -> Result<Vec<SocketRoute>, StoreError> {
        self.routes_where(Some(organisation)).await
    }
}

/// Attaches a policy of the organisation to one of its sockets, or to all. Idempotent.
pub(crate) async fn attach(
    write: &mut Write,
    organisation: AccountId,
    policy: PolicyId,
    socket: Option<SocketId>,
) -> Result<(), StoreError> {
    let attached = sql::query(
        "INSERT INTO policy_attachments (policy, socket)
         SELECT policies.id, $3 FROM policies WHERE policies.id = $1 AND policies.organisation = $2
            AND ($3 IS NULL OR EXISTS (SELECT 1 FROM sockets WHERE id = $3 AND account = $2))
            AND NOT EXISTS (SELECT 1 FROM policy_attachments WHERE policy = $1 AND socket IS NOT DISTINCT FROM $3)",
    )
    .bind(policy.as_bytes().as_slice())
    .bind(organisation.as_bytes().as_slice())
    .bind(socket.as_ref().map(|socket| socket.as_bytes().as_slice()))
    .execute(write.sql())
    .await?;
    if attached.rows_affected() == 1 || is_attached(write, policy, socket).await? {
        Ok(())
    } else {
        Err(StoreError::Gone)
    }
}

async fn is_attached(write: &mut Write, policy: PolicyId, socket: Option<SocketId>) -> Result<bool, StoreError> {
    let count: i64 = sql::query_scalar(
        "SELECT count(*) FROM policy_attachments WHERE policy = $1 AND socket IS NOT DISTINCT FROM $2",
    )
    .bind(policy.as_bytes().as_slice())
    .bind(socket.as_ref().map(|socket| socket.as_bytes().as_slice()))
    .fetch_one(write.sql())
    .await?;
    Ok(count > 0)
}

async fn apply(
    write: &mut Write,
    organisation: AccountId,
    id: PolicyId,
    change: PolicyChange,
) -> Result<(), StoreError> {
    if let Some(name) = change.name {
        sql::query("UPDATE policies SET name = $2, updated_at = $3 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(name.as_str())
            .bind(change.now)
            .execute(write.sql())
            .await
            .map_err(|error| named(error, &name))?;
    }
    if let Some(document) = change.document {
        sql::query("UPDATE policies SET document = $2, updated_at = $3 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(document)
            .bind(change.now)
            .execute(write.sql())
            .await?;
    }
    if let Some(labels) = change.labels {
        sql::query("UPDATE policies SET labels = $2, updated_at = $3 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(row::json(&labels)?)
            .bind(change.now)
            .execute(write.sql())
            .await?;
    }
    if let Some(to) = change.attach {
        attach(write, organisation, id, to.socket()).await?;
    }
    if let Some(from) = change.detach {
        sql::query("DELETE FROM policy_attachments WHERE policy = $1 AND socket IS NOT DISTINCT FROM $2")
            .bind(id.as_bytes().as_slice())
            .bind(from.socket().as_ref().map(|socket| socket.as_bytes().as_slice()))
            .execute(write.sql())
            .await?;
    }
    Ok(())
}

/// The sockets whose policies are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PolicyScope {
    Socket(SocketId),
    Organisation(AccountId),
    Everybody,
}

/// The policies of sockets, each with its socket, sorted by name.
pub(crate) async fn attached(
    connection: &mut DbConnection,
    of: PolicyScope,
) -> Result<Vec<(SocketId, AttachedPolicy)>, StoreError> {
    // A policy that is attached both to the socket and to all sockets applies once. Three texts, so that each uses its
    // index.
    macro_rules! query {
        ($one:literal, $all:literal) => {
            concat!(
                "SELECT attached.socket AS socket, policies.id AS id, policies.name AS name, \
                 policies.document AS document
                 FROM policy_attachments AS attached JOIN policies ON policies.id = attached.policy
                 WHERE attached.socket IS NOT NULL AND ",
                $one,
                " UNION
                 SELECT sockets.id, policies.id, policies.name, policies.document
                 FROM sockets JOIN policies ON policies.organisation = sockets.account
                      JOIN policy_attachments AS attached ON attached.policy = policies.id AND attached.socket IS NULL
                 WHERE ",
                $all,
                " ORDER BY 3"
            )
        };
    }
    let query = match &of {
        PolicyScope::Socket(socket) => {
            sql::query(query!("attached.socket = $1", "sockets.id = $1")).bind(socket.as_bytes().as_slice())
        }
        PolicyScope::Organisation(organisation) => {
            sql::query(query!("policies.organisation = $1", "policies.organisation = $1"))
                .bind(organisation.as_bytes().as_slice())
        }
        PolicyScope::Everybody => sql::query(query!("1 = 1", "1 = 1")),
    };
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(|found| Ok((SocketId::from_bytes(row::bytes(found, "socket")?), attached_policy(found)?))).collect()
}

/// All sockets of an organisation with their policies, without tunnels.
async fn concerned(connection: &mut DbConnection, organisation: AccountId) -> Result<Vec<SocketRoute>, StoreError> {
    let rows = sql::query("SELECT * FROM sockets WHERE account = $1 ORDER BY position")
        .bind(organisation.as_bytes().as_slice())
        .fetch_all(&mut *connection)
        .await?;
    let routes = rows.iter().map(|found| Ok(socket::route(socket::socket(found)?)));
    let mut routes = routes.collect::<Result<Vec<_>, StoreError>>()?;
    let places: HashMap<_, _> = routes.iter().enumerate().map(|(at, route)| (route.id, at)).collect();
    for (socket, policy) in attached(connection, PolicyScope::Organisation(organisation)).await? {
        if let Some(at) = places.get(&socket) {
            routes[*at].policies.push(policy);
        }
    }
    Ok(routes)
}

type AttachedSockets = HashMap<PolicyId, Vec<Option<SocketId>>>;

/// The attachments of the organisation's policies.
async fn attachments(connection: &mut DbConnection, organisation: AccountId) -> Result<AttachedSockets, StoreError> {
    let rows = sql::query(
        "SELECT attached.policy AS policy, attached.socket AS socket
         FROM policy_attachments AS attached JOIN policies ON policies.id = attached.policy
              LEFT JOIN sockets ON sockets.id = attached.socket
         WHERE policies.organisation = $1 ORDER BY sockets.position",
    )
    .bind(organisation.as_bytes().as_slice())
    .fetch_all(connection)
    .await?;
    let mut places = AttachedSockets::new();
    for found in &rows {
        let socket: Option<&[u8]> = found.try_get("socket")?;
        let socket = socket.map(|_| row::bytes(found, "socket")).transpose()?.map(SocketId::from_bytes);
        places.entry(PolicyId::from_bytes(row::bytes(found, "policy")?)).or_default().push(socket);
    }
    Ok(places)
}

async fn find(
    connection: &mut DbConnection,
    organisation: AccountId,
    id: PolicyId,
) -> Result<Option<Policy>, StoreError> {
    let found = sql::query("SELECT * FROM policies WHERE id = $1 AND organisation = $2")
        .bind(id.as_bytes().as_slice())
        .bind(organisation.as_bytes().as_slice())
        .fetch_optional(&mut *connection)
        .await?;
    let Some(found) = found else { return Ok(None) };
    let mut places = attachments(connection, organisation).await?;
    policy(&found, &mut places).map(Some)
}

fn policy(found: &DbRow, places: &mut AttachedSockets) -> Result<Policy, StoreError> {
    let id = PolicyId::from_bytes(row::bytes(found, "id")?);
    let places = places.remove(&id).unwrap_or_default();
    Ok(Policy {
        id,
        name: row::parsed(found, "name")?,
        document: found.try_get("document")?,
        labels: row::from_json(found, "labels")?,
        everywhere: places.contains(&None),
        sockets: places.into_iter().flatten().collect(),
        created_at: found.try_get("created_at")?,
        updated_at: found.try_get("updated_at")?,
    })
}

fn attached_policy(found: &DbRow) -> Result<AttachedPolicy, StoreError> {
    Ok(AttachedPolicy {
        id: PolicyId::from_bytes(row::bytes(found, "id")?),
        name: found.try_get("name")?,
        document: found.try_get("document")?,
    })
}

fn named(error: sqlx::Error, name: &PolicyName) -> StoreError {
    if StoreError::is_unique_violation(&error) {
        return StoreError::PolicyNameTaken { name: name.to_string() };
    }
    error.into()
}
