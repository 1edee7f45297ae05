//! Persons with passwords at this installation: adding, changing and inviting them.

use sallyport_api::{CreatePerson, ResetPerson, Secret, UpdatePerson};
use sallyport_identity::{MAX_HEADER_GROUPS_BYTES, header_groups};
use sallyport_model::{
    AccountId, MAX_GROUP_BYTES, MAX_GROUPS, MAX_PERSON_NAME_BYTES, PersonId, ProviderKind, ProviderName, misleads,
};
use sallyport_oidc::HookCall;
use sallyport_store::{LocalPerson, MAX_PROVIDERS_PER_ORGANISATION, NewPersonLink, StoredProvider};
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// How long a link to set a password is valid, in seconds.
pub(crate) const LINK_SECONDS: i64 = 24 * 3_600;
/// The prefix of the secret in such a link.
pub(crate) const LINK_PREFIX: &str = "spl_";

/// The purpose of a link for a person, as the hook gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkPurpose {
    /// The person was added.
    Invitation,
    /// The person may have forgotten the password, or the owner wants a new one.
    PasswordReset,
}

impl LinkPurpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::Invitation => "invitation",
            Self::PasswordReset => "password-reset",
        }
    }
}

/// A link, and the outcome of sending it.
#[derive(Debug)]
pub(crate) struct CreatedLink {
    pub(crate) link: Secret,
    pub(crate) expires_at: i64,
    /// Whether a hook has accepted the message.
    pub(crate) sent: bool,
    /// Why the hook has not, if there is a hook.
    pub(crate) problem: Option<String>,
}

fn check_name(name: Option<String>) -> Result<Option<String>, ApiError> {
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    match &name {
        Some(name) if name.len() > MAX_PERSON_NAME_BYTES || name.chars().any(misleads) => Err(ApiError::field(
            "name",
            format!(
                "a name has at most {MAX_PERSON_NAME_BYTES} bytes in one line, without control characters, invisible \
                 characters or characters that change the direction of text"
            ),
        )),
        _ => Ok(name),
    }
}

fn check_groups(mut groups: Vec<String>) -> Result<Vec<String>, ApiError> {
    let is_group = |group: &String| {
        (1..=MAX_GROUP_BYTES).contains(&group.len()) && !group.chars().any(misleads) && group.trim() == group
    };
    let fits_header = header_groups(&groups).is_some();
    if groups.len() > MAX_GROUPS || !groups.iter().all(is_group) || !fits_header {
        let reason = format!(
            "at most {MAX_GROUPS} groups of 1 to {MAX_GROUP_BYTES} bytes, without blanks around them, or what hides or \
             turns text; origins get all of them, so they may have at most {MAX_HEADER_GROUPS_BYTES} bytes together"
        );
        return Err(ApiError::field("groups", reason));
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

impl App {
    /// The organisation's provider of kind `local`.
    pub(crate) async fn local_provider(&self, organisation: AccountId) -> Result<Option<StoredProvider>, ApiError> {
        let limit = u32::try_from(MAX_PROVIDERS_PER_ORGANISATION).unwrap_or(u32::MAX);
        let all = self.store.providers(organisation, 0, limit).await?;
        Ok(all.into_iter().map(|(_, provider)| provider).find(|provider| provider.config.kind == ProviderKind::Local))
    }

    async fn provider_of(&self, person: &LocalPerson) -> Result<StoredProvider, ApiError> {
        let provider = self.local_provider(person.organisation).await?;
        provider.filter(|provider| provider.id == person.provider).ok_or_else(|| ApiError::not_found("person"))
    }

    /// Adds a person and sends a link to set a password.
    pub(crate) async fn create_person(
        &self,
        organisation: AccountId,
        create: CreatePerson,
    ) -> Result<(LocalPerson, CreatedLink), ApiError> {
        let now = self.clock.now();
        let (name, groups) = (check_name(create.name)?, check_groups(create.groups)?);
        let Some(provider) = self.local_provider(organisation).await? else {
            let detail = "persons belong to a provider of kind local, and there is none yet: add one first";
            return Err(ApiError::new(http::StatusCode::CONFLICT, "no-local-provider", detail));
        };
        self.limits.create(organisation, now.monotonic)?;
        let person = LocalPerson {
            id: PersonId::from_random(random::bytes()?),
            organisation,
            provider: provider.id,
            email: create.email,
            name,
            groups,
            has_password: false,
            verified_at: None,
            disabled: false,
            has_totp: false,
            recovery_codes: 0,
            changed_at: now.unix_seconds,
            last_login_at: None,
            created_at: now.unix_seconds,
        };
        self.store.create_person(&person).await?;
        audit::set_target(&person.email);
        tracing::info!(account = %organisation, person = %person.id, "person added");
        let link = self.send_link(&provider, &person, LinkPurpose::Invitation).await?;
        Ok((person, link))
    }

    /// Changes a person. If the person is disabled or has other groups, all logins of the person have ended when this
    /// returns.
    pub(crate) async fn update_person(
        &self,
        mut person: LocalPerson,
        update: UpdatePerson,
    ) -> Result<LocalPerson, ApiError> {
        let former = person.clone();
        if let Some(name) = update.name {
            person.name = check_name(name)?;
        }
        if let Some(groups) = update.groups {
            person.groups = check_groups(groups)?;
        }
        if let Some(disabled) = update.disabled {
            person.disabled = disabled;
            audit::set_action(if disabled { "person.disable" } else { "person.enable" });
        }
        if !self.store.update_person(&person).await? {
            return Err(ApiError::not_found("person"));
        }
        if person.disabled || person.groups != former.groups || person.name != former.name {
            self.end_logins_of(&person).await?;
        }
        if former.disabled && !person.disabled {
            self.attempts.unlock(person.organisation, person.email.as_str());
        }
        audit::set_target(&person.email);
        tracing::info!(account = %person.organisation, person = %person.id, "person changed");
        Ok(person)
    }

    /// Deletes a person, whose logins have ended when this returns.
    pub(crate) async fn delete_person(&self, person: &LocalPerson) -> Result<(), ApiError> {
        let provider = self.provider_of(person).await?;
        if !self.store.delete_person(person.organisation, person.id).await? {
            return Err(ApiError::not_found("person"));
        }
        self.end_login_sessions(person.organisation, Some(&person.email), Some(&provider.name)).await?;
        audit::set_target(&person.email);
        tracing::info!(account = %person.organisation, person = %person.id, "person deleted");
        Ok(())
    }

    /// Removes a person's password and sends a link to set a new one.
    pub(crate) async fn reset_person(
        &self,
        person: &LocalPerson,
        reset: ResetPerson,
    ) -> Result<(LocalPerson, CreatedLink), ApiError> {
        let provider = self.provider_of(person).await?;
        audit::set_target(&person.email);
        if reset.totp {
            audit::set_action("person.reset-totp");
        }
        if person.disabled {
            let detail = format!("{} is disabled: enable them first", person.email);
            return Err(ApiError::new(http::StatusCode::CONFLICT, "person-disabled", detail));
        }
        self.limits.create(person.organisation, self.clock.now().monotonic)?;
        self.store.reset_person(person.id, reset.totp, self.clock.now().unix_seconds).await?;
        self.end_logins_of(person).await?;
        self.attempts.unlock(person.organisation, person.email.as_str());
        tracing::info!(account = %person.organisation, person = %person.id, "a person's password was removed");
        let why = if person.verified_at.is_some() { LinkPurpose::PasswordReset } else { LinkPurpose::Invitation };
        let link = self.send_link(&provider, person, why).await?;
        let found = self.store.person(person.organisation, person.id).await?;
        let (person, _) = found.ok_or_else(|| ApiError::not_found("person"))?;
        Ok((person, link))
    }

    /// Ends the logins of a person, at edges too when this returns.
    pub(crate) async fn end_logins_of(&self, person: &LocalPerson) -> Result<usize, ApiError> {
        let name: Option<ProviderName> = self.local_provider(person.organisation).await?.map(|provider| provider.name);
        let Some(name) = name else { return Ok(0) };
        self.end_login_sessions(person.organisation, Some(&person.email), Some(&name)).await
    }

    /// Makes a link to set the person's password, and sends it through the provider's hook, if there is one.
    pub(crate) async fn send_link(
        &self,
        provider: &StoredProvider,
        person: &LocalPerson,
        why: LinkPurpose,
    ) -> Result<CreatedLink, ApiError> {
        let now = self.clock.now().unix_seconds;
        let expires_at = now + LINK_SECONDS;
        let (key, hash) = random::secret(LINK_PREFIX)?;
        self.store.create_person_link(NewPersonLink { person: person.id, hash, expires_at }).await?;
        let link = format!("{}/local/link?key={}", self.login_url(), key.expose());
        let mut made = CreatedLink { link: link.as_str().into(), expires_at, sent: false, problem: None };
        if provider.config.hook.is_none() {
            self.metrics.person_link("shown");
            return Ok(made);
        }
        let body = json!({
            "kind": why.as_str(),
            "email": person.email.as_str(),
            "name": person.name,
            "link": link,
            "expires_at": date(expires_at).format(&Rfc3339).map_err(ApiError::internal)?,
            "provider": provider.name.as_str(),
            "organisation": person.organisation,
        });
        match self.call_hook(provider, &body).await {
            Ok(()) => {
                made.sent = true;
                self.metrics.person_link("sent");
            }
            Err(problem) => {
                self.metrics.person_link("failed");
                tracing::warn!(account = %person.organisation, person = %person.id, problem, "a link was not sent");
                made.problem = Some(problem);
            }
        }
        Ok(made)
    }

    /// Whether people can log in with this provider of kind `local`, and a sentence about it.
    pub(super) async fn test_local(&self, provider: &StoredProvider) -> (bool, String) {
        if provider.config.hook.is_none() {
            let detail = "people log in at this installation itself; without a hook, links are shown to the one who \
                          adds them";
            return (true, detail.to_owned());
        }
        let body = json!({
            "kind": "test",
            "provider": provider.name.as_str(),
            "organisation": provider.organisation,
        });
        match self.call_hook(provider, &body).await {
            Ok(()) => (true, "people log in at this installation itself, and the hook has taken a message".to_owned()),
            Err(problem) => (false, problem),
        }
    }

    async fn call_hook(&self, provider: &StoredProvider, body: &serde_json::Value) -> Result<(), String> {
        let url = provider.config.hook.as_deref().unwrap_or_default();
        let secret = self
            .open_secret(provider)
            .ok_or_else(|| "the secret of the hook cannot be read any more: set it again".to_owned())?;
        let (ca_pem, at) = (provider.config.ca_pem.as_deref(), self.clock.now().unix_seconds);
        let call = HookCall { url, ca_pem, secret: &secret, body: &body.to_string(), at };
        self.providers.call_hook(call).await.map_err(|error| error.to_string())
    }
}
