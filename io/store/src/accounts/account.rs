//! Accounts.

use sallyport_model::{Account, AccountId, Email, SocketId};

use super::{
    invitations::{self, Invitation},
    organisations::take_in,
    setup,
    ssh_keys::{self, SshKey},
};
use crate::db::{
    SecretHash, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// A new account.
#[derive(Debug, Clone)]
pub struct NewAccount {
    /// The account.
    pub account: Account,
    /// The password as an argon2id PHC string.
    pub password_hash: String,
    /// The first ssh key.
    pub ssh_key: Option<SshKey>,
    /// The requirements for the account.
    pub admission: Admission,
}

/// The requirements for a new account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The requirement for the first account.
    pub setup: SetupRequirement,
    /// The requirement for every other account.
    pub entry: SignUpRequirement,
}

impl Admission {
    /// No requirements.
    pub const OPEN: Self = Self { setup: SetupRequirement::Free, entry: SignUpRequirement::Open };
}

/// The requirement for the first account of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupRequirement {
    /// None.
    Free,
    /// The setup token: the hash of the token in the request, if it has one.
    Token(Option<SecretHash>),
}

/// The requirement for every account but the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignUpRequirement {
    /// None.
    Open,
    /// Sign-up is closed.
    Closed,
    /// An invitation of the account's address, whose code has this hash. The invitation is used up, and the account
    /// joins the organisation.
    Invitation(SecretHash),
}

/// The result of deleting an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountDeletion {
    /// The account was deleted.
    Done {
        /// The deleted sockets.
        sockets: Vec<SocketId>,
    },
    /// There is no such account.
    NotFound,
    /// The account's organisation has other members.
    HasMembers {
        /// Number of the other members.
        others: u64,
    },
}

/// Bound on the sockets of all guests together.
pub const MAX_GUEST_SOCKETS: usize = 100;

/// The account that owns sockets without an account of their own. It cannot log in.
#[must_use]
pub fn guest_account() -> AccountId {
    AccountId::from_random(*b"sallyport-guests")
}

/// Addresses that differ only in case belong to one account, whatever RFC 5321 allows: people do not distinguish them.
pub(crate) fn email_key(email: &Email) -> String {
    email.as_str().to_lowercase()
}

impl Store {
    /// Creates an account. Returns the invitation that was used up, if any.
    ///
    /// # Errors
    /// [`StoreError::EmailTaken`], [`StoreError::NotFirst`], [`StoreError::SetupToken`], [`StoreError::NoInvitation`],
    /// or a failure of the database.
    pub async fn create_account(&self, new: NewAccount) -> Result<Option<Invitation>, StoreError> {
        let mut write = self.write().await?;
        let is_first = !setup::has_accounts(&mut write).await?;
        if is_first {
            if let SetupRequirement::Token(shown) = new.admission.setup {
                let is_right = match shown {
                    Some(shown) => setup::take(&mut write, shown).await?,
                    None => false,
                };
                if !is_right {
                    return Err(StoreError::SetupToken);
                }
            }
            setup::forget(&mut write).await?;
            sql::query("DELETE FROM installation_owner").execute(write.sql()).await?;
            sql::query("INSERT INTO installation_owner (account) VALUES ($1)")
                .bind(new.account.id.as_bytes().as_slice())
                .execute(write.sql())
                .await?;
        }
        let (email, now) = (&new.account.email, new.account.created_at);
        let invitation = match new.admission.entry {
            SignUpRequirement::Closed if !is_first => return Err(StoreError::NotFirst),
            SignUpRequirement::Invitation(hash) => {
                let taken = invitations::take(&mut write, email, hash, now).await?;
                Some(taken.ok_or(StoreError::NoInvitation)?)
            }
            _ => None,
        };
        let inserted = sql::query(
            "INSERT INTO accounts (id, name, email, email_key, password_hash, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(new.account.id.as_bytes().as_slice())
        .bind(&new.account.name)
        .bind(new.account.email.as_str())
        .bind(email_key(&new.account.email))
        .bind(&new.password_hash)
        .bind(new.account.created_at)
        .execute(write.sql())
        .await;
        match inserted {
            Ok(_) => {}
            Err(error) if StoreError::is_unique_violation(&error) => return Err(StoreError::EmailTaken),
            Err(error) => return Err(error.into()),
        }
        if let Some(key) = &new.ssh_key {
            ssh_keys::insert(&mut write, new.account.id, key).await?;
        }
        if let Some(invitation) = &invitation {
            take_in(&mut write, invitation.organisation, new.account.id, invitation.role, now).await?;
        }
        write.commit().await?;
        Ok(invitation)
    }

    /// Creates the guest account, unless it exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn create_guest_account(&self, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        // No address has an empty key and no password has this hash, so this account cannot log in.
        sql::query(
            "INSERT INTO accounts (id, name, email, email_key, password_hash, created_at)
             VALUES ($1, 'guests', 'guests@guests.invalid', '', '!', $2) ON CONFLICT DO NOTHING",
        )
        .bind(guest_account().as_bytes().as_slice())
        .bind(now)
        .execute(write.sql())
        .await?;
        write.commit().await
    }

    /// The account with this id.
    ///
    /// # Errors
    /// The database fails.
    pub async fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError> {
        let found = sql::query("SELECT id, name, email, created_at FROM accounts WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(account).transpose()
    }

    /// The account that logs in with this address, and its password hash.
    ///
    /// # Errors
    /// The database fails.
    pub async fn account_for_login(&self, email: &Email) -> Result<Option<(Account, String)>, StoreError> {
        let found = sql::query("SELECT id, name, email, created_at, password_hash FROM accounts WHERE email_key = $1")
            .bind(email_key(email))
            .fetch_optional(&self.reader)
            .await?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some((account(&found)?, found.try_get("password_hash")?)))
    }

    /// Deletes the account and everything it owns. While its organisation has other members, nothing is deleted.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_account(&self, id: AccountId) -> Result<AccountDeletion, StoreError> {
        let mut write = self.write().await?;
        let others: i64 = sql::query_scalar("SELECT count(*) FROM members WHERE organisation = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_one(write.sql())
            .await?;
        if others > 0 {
            return Ok(AccountDeletion::HasMembers { others: others.unsigned_abs() });
        }
        let rows = sql::query("SELECT id FROM sockets WHERE account = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_all(write.sql())
            .await?;
        let sockets =
            rows.iter().map(|r| row::bytes(r, "id").map(SocketId::from_bytes)).collect::<Result<Vec<_>, _>>()?;
        let deleted = sql::query("DELETE FROM accounts WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(if deleted.rows_affected() > 0 { AccountDeletion::Done { sockets } } else { AccountDeletion::NotFound })
    }

    /// Number of accounts, without the guest account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn count_accounts(&self) -> Result<u64, StoreError> {
        let count: i64 =
            sql::query_scalar("SELECT count(*) FROM accounts WHERE email_key <> ''").fetch_one(&self.reader).await?;
        Ok(count.unsigned_abs())
    }
}

pub(crate) fn account(found: &DbRow) -> Result<Account, StoreError> {
    Ok(Account {
        id: AccountId::from_bytes(row::bytes(found, "id")?),
        name: found.try_get("name")?,
        email: row::parsed(found, "email")?,
        created_at: found.try_get("created_at")?,
    })
}
