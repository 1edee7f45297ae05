//! Organisations: their names and their members.
//!
//! An organisation has the id of the account that it was made with. That account is its founder: an owner for as long
//! as there is the account, which is why no table says so and no statement here can change it.

use sallyport_model::{Account, AccountId, DisplayName, Email, Role};

use super::account;
use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// How many an organisation may have besides its founder.
pub const MAX_MEMBERS_PER_ORGANISATION: usize = 500;
/// To how many organisations besides its own an account may belong.
pub const MAX_ORGANISATIONS_PER_ACCOUNT: usize = 50;

/// An organisation, as one who belongs to it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The organisation's id.
    pub organisation: AccountId,
    /// What it is called.
    pub name: String,
    /// The role of the account in the organisation.
    pub role: Role,
}

/// Somebody who belongs to an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The account.
    pub account: Account,
    /// The role of the account.
    pub role: Role,
    /// Since when, in seconds since 1970.
    pub since: i64,
}

/// The result of changing a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChangeOutcome {
    /// The change is made.
    Done,
    /// The account does not belong to the organisation.
    NotFound,
    /// The account is the founder's, which stays an owner.
    Founder,
    /// The calling account may not give or take this role.
    NotAllowed,
}

/// The position of the founder in the list of members: before all others.
const FOUNDER_POSITION: Position = 1;

impl Store {
    /// What the account is in the organisation, if it belongs to it.
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

    /// The organisations that the account belongs to: its own first, then the others, the oldest membership first.
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

    /// One organisation that the account belongs to.
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

    /// Gives the organisation a name. Gives whether there is such an organisation.
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

    /// Those who belong to the organisation after a position, its founder first, with their positions.
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

    /// The one who belongs to the organisation with this account.
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

    /// The one who belongs to the organisation with this address.
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

    /// Gives a member another role, for somebody whose own role is `by`. What the member had invited others to is taken
    /// back.
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

    /// Takes a member out of the organisation, with the API tokens that they have for it and the invitations that they
    /// sent, for somebody whose own role is `by`.
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
        // What somebody could do until now must not go on in what they had invited others to be.
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

/// What the account is in the organisation, in this transaction.
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

/// Takes the account into the organisation, to which it does not belong yet.
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

/// What the organisation is called: as its account, unless it was given a name.
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
