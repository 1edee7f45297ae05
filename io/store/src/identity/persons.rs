//! Persons with passwords in this installation, of an organisation's provider of kind `local`.

use sallyport_model::{AccountId, PersonEmail, PersonId, ProviderId};

use crate::{
    accounts::second_factor,
    db::{
        Position, SecretHash, Store,
        error::StoreError,
        row::{self, DbConnection, DbRow},
        sql,
    },
};

/// Bound on the persons of an organisation.
pub const MAX_PERSONS_PER_ORGANISATION: usize = 10_000;
/// Bound on valid links of one person; the oldest are removed first.
pub const MAX_LINKS_PER_PERSON: usize = 3;

/// A statement that reads persons, with the number of recovery codes of each.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT *, (SELECT count(*) FROM person_recovery_codes WHERE person = persons.id) AS recovery_codes
             FROM persons ",
            $rest
        )
    };
}

/// A person of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPerson {
    /// Its id.
    pub id: PersonId,
    /// The organisation of the person.
    pub organisation: AccountId,
    /// The provider.
    pub provider: ProviderId,
    /// The address, valid as an identity once verified.
    pub email: PersonEmail,
    /// The name.
    pub name: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Whether there is a password.
    pub has_password: bool,
    /// When the address was verified, in seconds since 1970.
    pub verified_at: Option<i64>,
    /// Whether logins are disabled.
    pub disabled: bool,
    /// Whether one-time codes are required.
    pub has_totp: bool,
    /// Number of unused recovery codes.
    pub recovery_codes: u32,
    /// When the password or the codes were last changed, in seconds since 1970.
    pub changed_at: i64,
    /// Time of the last login, in seconds since 1970.
    pub last_login_at: Option<i64>,
    /// Time of creation, in seconds since 1970.
    pub created_at: i64,
}

impl LocalPerson {
    /// Whether the person may log in: enabled, with a password and a verified address.
    #[must_use]
    pub fn may_log_in(&self) -> bool {
        self.has_password && self.verified_at.is_some() && !self.disabled
    }
}

/// The stored credentials of a person.
#[derive(Clone, PartialEq, Eq)]
pub struct PersonSecrets {
    /// The password as an argon2id PHC string.
    pub password_hash: Option<String>,
    /// The secret of the codes, sealed by the caller.
    pub totp_secret: Option<String>,
    /// The step of the last code that was used.
    pub totp_step: i64,
}

/// A link with which a person sets a password.
#[derive(Debug, Clone, Copy)]
pub struct NewPersonLink {
    /// The person of the link.
    pub person: PersonId,
    /// SHA-256 of the link's secret.
    pub hash: SecretHash,
    /// Expiry in seconds since 1970.
    pub expires_at: i64,
}

impl Store {
    /// Adds a person.
    ///
    /// # Errors
    /// [`StoreError::PersonTaken`], [`StoreError::Limit`], [`StoreError::Gone`] if the provider does not exist, or a
    /// failure of the database.
    pub async fn create_person(&self, person: &LocalPerson) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let organisation = person.organisation.as_bytes().as_slice();
        let (count, what) =
            ("SELECT count(*) FROM persons WHERE organisation = $1", "persons for one organisation: delete some first");
        write.require_room(count, organisation, MAX_PERSONS_PER_ORGANISATION, what).await?;
        let inserted = sql::query(
            "INSERT INTO persons (id, organisation, provider, position, email, name, member_of, changed_at, created_at)
             SELECT $1, $2, id, (SELECT coalesce(max(position), 0) + 1 FROM persons WHERE organisation = $2),
                 $4, $5, $6, $7, $7
             FROM providers WHERE id = $3 AND organisation = $2",
        )
        .bind(person.id.as_bytes().as_slice())
        .bind(organisation)
        .bind(person.provider.as_bytes().as_slice())
        .bind(person.email.as_str())
        .bind(person.name.as_deref())
        .bind(row::json(&person.groups)?)
        .bind(person.created_at)
        .execute(write.sql())
        .await
        .map_err(|error| {
            if StoreError::is_unique_violation(&error) { StoreError::PersonTaken } else { error.into() }
        })?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.commit().await
    }

    /// Number of persons of the organisation.
    ///
    /// # Errors
    /// The database fails.
    pub async fn count_persons(&self, organisation: AccountId) -> Result<u64, StoreError> {
        let count: i64 = sql::query_scalar("SELECT count(*) FROM persons WHERE organisation = $1")
            .bind(organisation.as_bytes().as_slice())
            .fetch_one(&self.reader)
            .await?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The organisation's persons after a position, in the order of creation, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn persons(
        &self,
        organisation: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, LocalPerson)>, StoreError> {
        let rows = sql::query(select!("WHERE organisation = $1 AND position > $2 ORDER BY position LIMIT $3"))
            .bind(organisation.as_bytes().as_slice())
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(&self.reader)
            .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, person(found)?))).collect()
    }

    /// The organisation's person with this id.
    ///
    /// # Errors
    /// The database fails.
    pub async fn person(
        &self,
        organisation: AccountId,
        id: PersonId,
    ) -> Result<Option<(LocalPerson, PersonSecrets)>, StoreError> {
        let found = sql::query(select!("WHERE organisation = $1 AND id = $2"))
            .bind(organisation.as_bytes().as_slice())
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(with_secrets).transpose()
    }

    /// The organisation's person with this address.
    ///
    /// # Errors
    /// The database fails.
    pub async fn person_by_email(
        &self,
        organisation: AccountId,
        email: &PersonEmail,
    ) -> Result<Option<(LocalPerson, PersonSecrets)>, StoreError> {
        let found = sql::query(select!("WHERE organisation = $1 AND email = $2"))
            .bind(organisation.as_bytes().as_slice())
            .bind(email.as_str())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(with_secrets).transpose()
    }

    /// Changes name, groups and state; disabling ends the person's links. Returns whether the person exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn update_person(&self, person: &LocalPerson) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        if person.disabled {
            sql::query(
                "DELETE FROM person_links WHERE person IN (
                     SELECT id FROM persons WHERE organisation = $1 AND id = $2 AND disabled = 0)",
            )
            .bind(person.organisation.as_bytes().as_slice())
            .bind(person.id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        }
        let updated = sql::query(
            "UPDATE persons SET name = $3, member_of = $4, disabled = $5 WHERE organisation = $1 AND id = $2",
        )
        .bind(person.organisation.as_bytes().as_slice())
        .bind(person.id.as_bytes().as_slice())
        .bind(person.name.as_deref())
        .bind(row::json(&person.groups)?)
        .bind(i64::from(person.disabled))
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(updated.rows_affected() > 0)
    }

    /// Deletes a person. Returns whether the person existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_person(&self, organisation: AccountId, id: PersonId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM persons WHERE organisation = $1 AND id = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// Stores a link; if there are too many, the oldest of the person are removed.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the person does not exist, or a failure of the database.
    pub async fn create_person_link(&self, link: NewPersonLink) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let inserted = sql::query(
            "INSERT INTO person_links (hash, person, expires_at) SELECT $1, id, $3 FROM persons WHERE id = $2",
        )
        .bind(link.hash.as_slice())
        .bind(link.person.as_bytes().as_slice())
        .bind(link.expires_at)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        sql::query(
            "DELETE FROM person_links WHERE person = $1 AND hash NOT IN (
                 SELECT hash FROM person_links WHERE person = $1 ORDER BY expires_at DESC, hash LIMIT $2)
                 AND hash <> $3",
        )
        .bind(link.person.as_bytes().as_slice())
        .bind(MAX_LINKS_PER_PERSON as i64)
        .bind(link.hash.as_slice())
        .execute(write.sql())
        .await?;
        write.commit().await
    }

    /// The person of a valid link. The link stays valid.
    ///
    /// # Errors
    /// The database fails.
    pub async fn person_of_link(&self, hash: SecretHash, now: i64) -> Result<Option<LocalPerson>, StoreError> {
        let found = sql::query(select!(
            "WHERE disabled = 0 AND id = (SELECT person FROM person_links WHERE hash = $1 AND expires_at > $2)"
        ))
        .bind(hash.as_slice())
        .bind(now)
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(person).transpose()
    }

    /// Uses a link once: sets the password, verifies the address, and ends all links of the person. Returns whether the
    /// link was valid.
    ///
    /// # Errors
    /// The database fails.
    pub async fn use_person_link(&self, hash: SecretHash, now: i64, password_hash: &str) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let used = sql::query("DELETE FROM person_links WHERE hash = $1 AND expires_at > $2 RETURNING person")
            .bind(hash.as_slice())
            .bind(now)
            .fetch_optional(write.sql())
            .await?;
        let Some(used) = used else { return Ok(false) };
        let id: [u8; 16] = row::bytes(&used, "person")?;
        let updated = sql::query(
            "UPDATE persons SET password_hash = $2, verified_at = coalesce(verified_at, $3), changed_at = $3
             WHERE id = $1 AND disabled = 0",
        )
        .bind(id.as_slice())
        .bind(password_hash)
        .bind(now)
        .execute(write.sql())
        .await?;
        if updated.rows_affected() == 0 {
            return Ok(false);
        }
        end_links(write.sql(), PersonId::from_bytes(id)).await?;
        write.commit().await?;
        Ok(true)
    }

    /// Replaces the password with this hash; links of the person end. Returns whether the hash was still current.
    ///
    /// # Errors
    /// The database fails.
    pub async fn change_person_password(
        &self,
        id: PersonId,
        former: &str,
        password_hash: &str,
        now: i64,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let updated =
            sql::query("UPDATE persons SET password_hash = $3, changed_at = $4 WHERE id = $1 AND password_hash = $2")
                .bind(id.as_bytes().as_slice())
                .bind(former)
                .bind(password_hash)
                .bind(now)
                .execute(write.sql())
                .await?;
        if updated.rows_affected() == 0 {
            return Ok(false);
        }
        end_links(write.sql(), id).await?;
        write.commit().await?;
        Ok(true)
    }

    /// Removes a person's password, and if requested the one-time codes: the person needs a new link to log in.
    ///
    /// # Errors
    /// The database fails.
    pub async fn reset_person(&self, id: PersonId, with_totp: bool, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE persons SET password_hash = NULL, changed_at = $2 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(now)
            .execute(write.sql())
            .await?;
        end_links(write.sql(), id).await?;
        if with_totp {
            second_factor::set_totp(write.sql(), id.into(), None, 0, now).await?;
        }
        write.commit().await
    }

    /// Records a login of the person.
    ///
    /// # Errors
    /// The database fails.
    pub async fn record_person_login(&self, id: PersonId, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE persons SET last_login_at = $2 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(now)
            .execute(write.sql())
            .await?;
        write.commit().await
    }
}

async fn end_links(sql: &mut DbConnection, id: PersonId) -> Result<(), StoreError> {
    sql::query("DELETE FROM person_links WHERE person = $1").bind(id.as_bytes().as_slice()).execute(sql).await?;
    Ok(())
}

fn with_secrets(found: &DbRow) -> Result<(LocalPerson, PersonSecrets), StoreError> {
    let secrets = PersonSecrets {
        password_hash: found.try_get("password_hash")?,
        totp_secret: found.try_get("totp_secret")?,
        totp_step: found.try_get("totp_step")?,
    };
    Ok((person(found)?, secrets))
}

fn person(found: &DbRow) -> Result<LocalPerson, StoreError> {
    let recovery_codes: i64 = found.try_get("recovery_codes")?;
    let disabled: i64 = found.try_get("disabled")?;
    Ok(LocalPerson {
        id: PersonId::from_bytes(row::bytes(found, "id")?),
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        provider: ProviderId::from_bytes(row::bytes(found, "provider")?),
        email: row::parsed(found, "email")?,
        name: found.try_get("name")?,
        groups: row::from_json(found, "member_of")?,
        has_password: found.try_get::<Option<String>>("password_hash")?.is_some(),
        verified_at: found.try_get("verified_at")?,
        disabled: disabled != 0,
        has_totp: found.try_get::<Option<String>>("totp_secret")?.is_some(),
        recovery_codes: u32::try_from(recovery_codes).unwrap_or(u32::MAX),
        changed_at: found.try_get("changed_at")?,
        last_login_at: found.try_get("last_login_at")?,
        created_at: found.try_get("created_at")?,
    })
}
