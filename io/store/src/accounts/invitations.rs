//! Invitations into organisations.
//!
//! An invitation is for an e-mail address. No person is added to an organisation without consent, and an invitation
//! does not reveal whether the address has an account.

use sallyport_model::{Account, AccountId, Email, InvitationId, Role};

use super::{
    account::email_key,
    organisations::{organisation_name, role_in, take_in},
};
use crate::db::{
    Position, SecretHash, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// Bound on open invitations of one organisation.
pub const MAX_INVITATIONS_PER_ORGANISATION: usize = 100;

/// An invitation, without its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Its id.
    pub id: InvitationId,
    /// The organisation that invites.
    pub organisation: AccountId,
    /// The invited e-mail address.
    pub email: Email,
    /// The role that the invitation gives.
    pub role: Role,
    /// The account that invites.
    pub invited_by: AccountId,
    /// Time of creation, in seconds since 1970.
    pub created_at: i64,
    /// Time of expiry, in seconds since 1970.
    pub expires_at: i64,
}

/// An invitation, as the invited account sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenInvitation {
    /// The invitation.
    pub invitation: Invitation,
    /// The name of the organisation.
    pub organisation_name: String,
}

/// The result of inviting an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InviteOutcome {
    /// The invitation was created, and replaces a former one for the address.
    Done,
    /// An account with this address belongs to the organisation.
    IsMember,
    /// The inviting account has left the organisation, or may not grant this role or that of the former invitation.
    NotAllowed,
}

/// The result of withdrawing an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithdrawOutcome {
    /// The invitation was withdrawn.
    Done(Invitation),
    /// There is no such invitation.
    NotFound,
    /// The account may not grant the role of the invitation.
    NotAllowed,
}

impl Store {
    /// Invites an address; replaces a former invitation of it.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database.
    pub async fn invite(&self, new: &Invitation, hash: SecretHash) -> Result<InviteOutcome, StoreError> {
        let mut write = self.write().await?;
        let role = role_in(&mut write, new.organisation, new.invited_by).await?;
        if !role.is_some_and(|role| role.may_give(new.role)) {
            return Ok(InviteOutcome::NotAllowed);
        }
        let key = email_key(&new.email);
        let is_member: i64 = sql::query_scalar(
            "SELECT count(*) FROM accounts a WHERE a.email_key = $2 AND (a.id = $1 OR EXISTS (
                 SELECT 1 FROM members m WHERE m.organisation = $1 AND m.account = a.id))",
        )
        .bind(new.organisation.as_bytes().as_slice())
        .bind(&key)
        .fetch_one(write.sql())
        .await?;
        if is_member > 0 {
            return Ok(InviteOutcome::IsMember);
        }
        let formers =
            sql::query("SELECT role FROM invitations WHERE organisation = $1 AND email_key = $2 AND expires_at > $3")
                .bind(new.organisation.as_bytes().as_slice())
                .bind(&key)
                .bind(new.created_at)
                .fetch_all(write.sql())
                .await?;
        for former in &formers {
            let former: Role = row::parsed(former, "role")?;
            if !role.is_some_and(|role| role.may_give(former)) {
                return Ok(InviteOutcome::NotAllowed);
            }
        }
        sql::query("DELETE FROM invitations WHERE organisation = $1 AND (email_key = $2 OR expires_at <= $3)")
            .bind(new.organisation.as_bytes().as_slice())
            .bind(&key)
            .bind(new.created_at)
            .execute(write.sql())
            .await?;
        let (count, what) = (
            "SELECT count(*) FROM invitations WHERE organisation = $1",
            "open invitations of one organisation: withdraw some first",
        );
        write.require_room(count, new.organisation.as_bytes(), MAX_INVITATIONS_PER_ORGANISATION, what).await?;
        insert(&mut write, new, &key, hash).await?;
        write.commit().await?;
        Ok(InviteOutcome::Done)
    }

    /// The organisation's open invitations after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn invitations(
        &self,
        organisation: AccountId,
        now: i64,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Invitation)>, StoreError> {
        let rows = sql::query(
            "SELECT position, id, organisation, email, role, invited_by, created_at, expires_at FROM invitations
             WHERE organisation = $1 AND expires_at > $2 AND position > $3 ORDER BY position LIMIT $4",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(now)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, invitation(found)?))).collect()
    }

    /// Withdraws an invitation of the organisation, on behalf of a member with this role.
    ///
    /// # Errors
    /// The database fails.
    pub async fn withdraw_invitation(
        &self,
        organisation: AccountId,
        id: InvitationId,
        by: Role,
    ) -> Result<WithdrawOutcome, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query(
            "DELETE FROM invitations WHERE id = $1 AND organisation = $2
             RETURNING id, organisation, email, role, invited_by, created_at, expires_at",
        )
        .bind(id.as_bytes().as_slice())
        .bind(organisation.as_bytes().as_slice())
        .fetch_optional(write.sql())
        .await?;
        let Some(found) = found.as_ref().map(invitation).transpose()? else { return Ok(WithdrawOutcome::NotFound) };
        if !by.may_give(found.role) {
            return Ok(WithdrawOutcome::NotAllowed);
        }
        write.commit().await?;
        Ok(WithdrawOutcome::Done(found))
    }

    /// The open invitations of an address, sorted by expiry, at most `limit`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn invitations_of(&self, email: &Email, now: i64, limit: u32) -> Result<Vec<OpenInvitation>, StoreError> {
        let rows = sql::query(
            "SELECT i.id, i.organisation, i.email, i.role, i.invited_by, i.created_at, i.expires_at, o.name,
             o.organisation_name FROM invitations i JOIN accounts o ON o.id = i.organisation
             WHERE i.email_key = $1 AND i.expires_at > $2 ORDER BY i.expires_at, i.id LIMIT $3",
        )
        .bind(email_key(email))
        .bind(now)
        .bind(i64::from(limit))
        .fetch_all(&self.reader)
        .await?;
        let invited =
            |found| Ok(OpenInvitation { invitation: invitation(found)?, organisation_name: organisation_name(found)? });
        rows.iter().map(invited).collect()
    }

    /// Adds the account to the organisation that has invited its address with the code of this hash. Returns the
    /// invitation, which is used up; `None` if there is no open one.
    ///
    /// # Errors
    /// [`StoreError::Limit`] if the organisation or the account has reached its limit, or a failure of the database;
    /// the invitation stays open then.
    pub async fn accept_invitation(
        &self,
        account: &Account,
        hash: SecretHash,
        now: i64,
    ) -> Result<Option<Invitation>, StoreError> {
        let mut write = self.write().await?;
        let Some(found) = take(&mut write, &account.email, hash, now).await? else { return Ok(None) };
        // A member that joined by another invitation in the meantime keeps its role.
        if role_in(&mut write, found.organisation, account.id).await?.is_none() {
            take_in(&mut write, found.organisation, account.id, found.role, now).await?;
        }
        write.commit().await?;
        Ok(Some(found))
    }

    /// Whether an open invitation of this address has a code with this hash. The invitation stays open.
    ///
    /// # Errors
    /// The database fails.
    pub async fn is_invited(&self, email: &Email, hash: SecretHash, now: i64) -> Result<bool, StoreError> {
        let count: i64 = sql::query_scalar(
            "SELECT count(*) FROM invitations WHERE hash = $1 AND email_key = $2 AND expires_at > $3",
        )
        .bind(hash.as_slice())
        .bind(email_key(email))
        .bind(now)
        .fetch_one(&self.reader)
        .await?;
        Ok(count > 0)
    }

    /// Declines an invitation of this address. Returns the invitation, if there was one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn decline_invitation(&self, email: &Email, id: InvitationId) -> Result<Option<Invitation>, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query(
            "DELETE FROM invitations WHERE id = $1 AND email_key = $2
             RETURNING id, organisation, email, role, invited_by, created_at, expires_at",
        )
        .bind(id.as_bytes().as_slice())
        .bind(email_key(email))
        .fetch_optional(write.sql())
        .await?;
        let found = found.as_ref().map(invitation).transpose()?;
        write.commit().await?;
        Ok(found)
    }
}

/// Removes and returns the open invitation of this address whose code has this hash.
pub(crate) async fn take(
    write: &mut Write,
    email: &Email,
    hash: SecretHash,
    now: i64,
) -> Result<Option<Invitation>, StoreError> {
    let found = sql::query(
        "DELETE FROM invitations WHERE hash = $1 AND email_key = $2 AND expires_at > $3
         RETURNING id, organisation, email, role, invited_by, created_at, expires_at",
    )
    .bind(hash.as_slice())
    .bind(email_key(email))
    .bind(now)
    .fetch_optional(write.sql())
    .await?;
    found.as_ref().map(invitation).transpose()
}

async fn insert(write: &mut Write, new: &Invitation, key: &str, hash: SecretHash) -> Result<(), StoreError> {
    sql::query(
        "INSERT INTO invitations
             (id, organisation, position, email, email_key, role, hash, invited_by, created_at, expires_at)
         VALUES ($1, $2, (SELECT coalesce(max(position), 0) + 1 FROM invitations WHERE organisation = $2),
             $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(new.id.as_bytes().as_slice())
    .bind(new.organisation.as_bytes().as_slice())
    .bind(new.email.as_str())
    .bind(key)
    .bind(new.role.as_str())
    .bind(hash.as_slice())
    .bind(new.invited_by.as_bytes().as_slice())
    .bind(new.created_at)
    .bind(new.expires_at)
    .execute(write.sql())
    .await?;
    Ok(())
}

fn invitation(found: &DbRow) -> Result<Invitation, StoreError> {
    Ok(Invitation {
        id: InvitationId::from_bytes(row::bytes(found, "id")?),
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        email: row::parsed(found, "email")?,
        role: row::parsed(found, "role")?,
        invited_by: AccountId::from_bytes(row::bytes(found, "invited_by")?),
        created_at: found.try_get("created_at")?,
        expires_at: found.try_get("expires_at")?,
    })
}
