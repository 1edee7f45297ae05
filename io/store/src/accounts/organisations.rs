//! Organisations: their names and their members.
//!
//! An organisation has the id of the account that it was created with. That account is its founder, and an owner as
//! long as the account exists. No table stores this, so no statement can change it.

use sallyport_model::{Account, AccountId, DisplayName, Email, Role};

use super::account;
use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// Bound on the members of an organisation, without its founder.
pub const MAX_MEMBERS_PER_ORGANISATION: usize = 500;
/// Bound on the organisations of an account, without its own.
pub const MAX_ORGANISATIONS_PER_ACCOUNT: usize = 50;

/// An organisation, as seen by a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The organisation's id.
    pub organisation: AccountId,
    /// Its name.
    pub name: String,
    /// The role of the account in the organisation.
    pub role: Role,
}

/// A member of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The account.
    pub account: Account,
    /// The role of the account.
    pub role: Role,
    /// Time of joining, in seconds since 1970.
    pub since: i64,
}

/// The result of changing a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChangeOutcome {
    /// The change was made.
    Done,
    /// The account is not a member of the organisation.
    NotFound,
    /// The account is the founder's, which stays an owner.
    Founder,
    /// The calling account may not grant or revoke this role.
    NotAllowed,
}

/// The position of the founder in the list of members: before all others.
const FOUNDER_POSITION: Position = 1;

impl Store {
    /// The account's role in the organisation, if it is a member.
    ///
    /// # Errors
    /// The database fails.
    pub async fn role(&self, organisation: AccountId, account: AccountId) -> Result<Option<Role>, StoreError> {
        if organisation == account {
            return Ok(Some(Role::Owner));
        }
        let found = sql::query("SELECT role FROM members WHERE organisation = $1 AND account = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(account.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(|found| row::parsed(found, "role")).transpose()
    }

    /// The organisations of the account: its own first, then by age of the membership.
    ///
    /// # Errors
    /// The database fails.
    pub async fn memberships(&self, account: AccountId) -> Result<Vec<Membership>, StoreError> {
        let rows = sql::query(
            "SELECT o.id, o.name, o.organisation_name, m.role, m.created_at FROM members m
             JOIN accounts o ON o.id = m.organisation WHERE m.account = $1
             UNION ALL SELECT id, name, organisation_name, 'owner', -1 FROM accounts WHERE id = $1
             ORDER BY 5, 1",
        )
        .bind(account.as_bytes().as_slice())
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(membership).collect()
    }

    /// One organisation of the account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn membership(
        &self,
        organisation: AccountId,
        account: AccountId,
    ) -> Result<Option<Membership>, StoreError> {
        let found = sql::query(
            "SELECT o.id, o.name, o.organisation_name, coalesce(m.role, 'owner') AS role FROM accounts o
             LEFT JOIN members m ON m.organisation = o.id AND m.account = $2
             WHERE o.id = $1 AND (o.id = $2 OR m.account IS NOT NULL)",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(membership).transpose()
    }

    /// Renames the organisation. Returns whether it exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn rename_organisation(&self, organisation: AccountId, name: &DisplayName) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let changed = sql::query("UPDATE accounts SET organisation_name = $2 WHERE id = $1")
            .bind(organisation.as_bytes().as_slice())
            .bind(name.as_str())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(changed.rows_affected() > 0)
    }

    /// The members after a position, the founder first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn members(
        &self,
        organisation: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Member)>, StoreError> {
        let rows = sql::query(
            "SELECT m.position, a.id, a.name, a.email, a.created_at, m.role, m.created_at AS since FROM members m
             JOIN accounts a ON a.id = m.account WHERE m.organisation = $1 AND m.position > $2
             UNION ALL SELECT $4, id, name, email, created_at, 'owner', created_at FROM accounts
             WHERE id = $1 AND $4 > $2
             ORDER BY 1 LIMIT $3",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(after)
        .bind(i64::from(limit))
        .bind(FOUNDER_POSITION)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, member(found)?))).collect()
    }

    /// The member with this account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn member(&self, organisation: AccountId, account: AccountId) -> Result<Option<Member>, StoreError> {
        let found = sql::query(
            "SELECT a.id, a.name, a.email, a.created_at, coalesce(m.role, 'owner') AS role,
             coalesce(m.created_at, a.created_at) AS since FROM accounts a
             LEFT JOIN members m ON m.organisation = $1 AND m.account = a.id
             WHERE a.id = $2 AND (a.id = $1 OR m.account IS NOT NULL)",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(member).transpose()
    }

    /// The member with this address.
    ///
    /// # Errors
    /// The database fails.
    pub async fn member_with_address(
        &self,
        organisation: AccountId,
        email: &Email,
    ) -> Result<Option<Member>, StoreError> {
        let found = sql::query(
            "SELECT a.id, a.name, a.email, a.created_at, coalesce(m.role, 'owner') AS role,
             coalesce(m.created_at, a.created_at) AS since FROM accounts a
             LEFT JOIN members m ON m.organisation = $1 AND m.account = a.id
             WHERE a.email_key = $2 AND (a.id = $1 OR m.account IS NOT NULL)",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(account::email_key(email))
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(member).transpose()
    }

    /// Changes a member's role, on behalf of a member whose own role is `by`. Invitations that the changed member sent
    /// are withdrawn.
    ///
    /// # Errors
    /// The database fails.
    pub async fn change_role(
        &self,
        organisation: AccountId,
        account: AccountId,
        role: Role,
        by: Role,
    ) -> Result<MemberChangeOutcome, StoreError> {
        self.change_member(organisation, account, by, Some(role)).await
    }

    /// Removes a member with the member's API tokens and sent invitations, on behalf of a member whose own role is
    /// `by`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn remove_member(
        &self,
        organisation: AccountId,
        account: AccountId,
        by: Role,
    ) -> Result<MemberChangeOutcome, StoreError> {
        self.change_member(organisation, account, by, None).await
    }

    async fn change_member(
        &self,
        organisation: AccountId,
        account: AccountId,
        by: Role,
        to: Option<Role>,
    ) -> Result<MemberChangeOutcome, StoreError> {
        if organisation == account {
            return Ok(MemberChangeOutcome::Founder);
        }
        let mut write = self.write().await?;
        let Some(now) = role_in(&mut write, organisation, account).await? else {
            return Ok(MemberChangeOutcome::NotFound);
        };
        if !by.may_give(now) || to.is_some_and(|to| !by.may_give(to)) {
            return Ok(MemberChangeOutcome::NotAllowed);
        }
        match to {
            Some(role) => {
                sql::query("UPDATE members SET role = $3 WHERE organisation = $1 AND account = $2")
                    .bind(organisation.as_bytes().as_slice())
                    .bind(account.as_bytes().as_slice())
                    .bind(role.as_str())
                    .execute(write.sql())
                    .await?;
            }
            None => take_out(&mut write, organisation, account).await?,
        }
        // A right that a member loses must not live on in the invitations that the member sent.
        sql::query("DELETE FROM invitations WHERE organisation = $1 AND invited_by = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(account.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(MemberChangeOutcome::Done)
    }
}

async fn take_out(write: &mut Write, organisation: AccountId, account: AccountId) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM members WHERE organisation = $1 AND account = $2",
        "DELETE FROM tokens WHERE organisation = $1 AND account = $2",
    ] {
        sql::query(statement)
            .bind(organisation.as_bytes().as_slice())
            .bind(account.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
    }
    Ok(())
}

/// The account's role in the organisation, within this transaction.
pub(crate) async fn role_in(
    write: &mut Write,
    organisation: AccountId,
    account: AccountId,
) -> Result<Option<Role>, StoreError> {
    if organisation == account {
        return Ok(Some(Role::Owner));
    }
    let found = sql::query("SELECT role FROM members WHERE organisation = $1 AND account = $2")
        .bind(organisation.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .fetch_optional(write.sql())
        .await?;
    found.as_ref().map(|found| row::parsed(found, "role")).transpose()
}

/// Adds the account to the organisation; it must not be a member yet.
pub(crate) async fn take_in(
    write: &mut Write,
    organisation: AccountId,
    account: AccountId,
    role: Role,
    now: i64,
) -> Result<(), StoreError> {
    let (count, what) =
        ("SELECT count(*) FROM members WHERE organisation = $1", "members in one organisation: it is full");
    write.require_room(count, organisation.as_bytes(), MAX_MEMBERS_PER_ORGANISATION, what).await?;
    let (count, what) =
        ("SELECT count(*) FROM members WHERE account = $1", "organisations of others for one account: leave one first");
    write.require_room(count, account.as_bytes(), MAX_ORGANISATIONS_PER_ACCOUNT, what).await?;
    sql::query(
        "INSERT INTO members (organisation, account, position, role, created_at)
         VALUES ($1, $2, (SELECT coalesce(max(position), $5) + 1 FROM members WHERE organisation = $1), $3, $4)",
    )
    .bind(organisation.as_bytes().as_slice())
    .bind(account.as_bytes().as_slice())
    .bind(role.as_str())
    .bind(now)
    .bind(FOUNDER_POSITION)
    .execute(write.sql())
    .await?;
    Ok(())
}

fn membership(found: &DbRow) -> Result<Membership, StoreError> {
    Ok(Membership {
        organisation: AccountId::from_bytes(row::bytes(found, "id")?),
        name: organisation_name(found)?,
        role: row::parsed(found, "role")?,
    })
}

/// The name of the organisation: that of its account, unless it was renamed.
pub(crate) fn organisation_name(found: &DbRow) -> Result<String, StoreError> {
    let given: Option<String> = found.try_get("organisation_name")?;
    match given {
        Some(given) => Ok(given),
        None => Ok(found.try_get("name")?),
    }
}

fn member(found: &DbRow) -> Result<Member, StoreError> {
    Ok(Member { account: account::account(found)?, role: row::parsed(found, "role")?, since: found.try_get("since")? })
}
