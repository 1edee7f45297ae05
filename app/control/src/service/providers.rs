//! Identity providers: making, changing and testing them.

use http::StatusCode;
use sallyport_api::{CreateProvider, ProviderFound, Secret, UpdateProvider};
use sallyport_identity::Purpose;
use sallyport_model::{
    AccountId, MAX_CLIENT_SECRET_BYTES, MIN_HOOK_SECRET_BYTES, PersonEmail, ProviderConfig, ProviderConfigError,
    ProviderId, ProviderKind, ProviderName, SocketRoute, SocketSettings,
};
use sallyport_oidc::ProviderMetadata;
use sallyport_store::{MAX_PROVIDERS_PER_ORGANISATION, StoredProvider};
use serde::{Deserialize, Serialize};

use super::policies::some_of;
use crate::{problem::ApiError, security::random, state::App};

/// A sealed client secret with its provider: a secret that is moved to another row does not open.
#[derive(Serialize, Deserialize)]
struct SealedSecret {
    provider: ProviderId,
    secret: String,
}

impl From<ProviderConfigError> for ApiError {
    fn from(error: ProviderConfigError) -> Self {
        Self::field(error.field, error.reason)
    }
}

impl App {
    /// The login host, `https://login.<domain>`, with the port if it is not 443.
    pub(crate) fn login_url(&self) -> String {
        let (domain, port) = (&self.config.domain, self.config.public_port);
        if port == 443 { format!("https://login.{domain}") } else { format!("https://login.{domain}:{port}") }
    }

    /// The address to which a provider returns browsers. Each provider has its own, so that answers of providers cannot
    /// be mixed up (RFC 9700 section 4.4.2).
    pub(crate) fn redirect_uri(&self, organisation: AccountId, name: &ProviderName) -> String {
        format!("{}/callback/{}/{name}", self.login_url(), organisation.uuid().simple())
    }

    /// The address at which a provider reports ended logins.
    pub(crate) fn backchannel_logout_uri(&self, organisation: AccountId, name: &ProviderName) -> String {
        format!("{}/backchannel-logout/{}/{name}", self.login_url(), organisation.uuid().simple())
    }

    /// The address to which a provider returns browsers after a logout.
    pub(crate) fn post_logout_redirect_uri(&self) -> String {
        format!("{}/logged-out", self.login_url())
    }

    /// Opens the sealed client secret.
    pub(crate) fn open_secret(&self, provider: &StoredProvider) -> Option<String> {
        let kept: SealedSecret = self.sealer.open(Purpose::StoredSecret, &provider.secret)?;
        (kept.provider == provider.id).then_some(kept.secret)
    }

    fn seal_secret(&self, provider: ProviderId, secret: Option<&Secret>) -> Result<String, ApiError> {
        let secret = secret.map(Secret::expose).unwrap_or_default();
        if secret.len() > MAX_CLIENT_SECRET_BYTES || !secret.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            let reason = format!("a secret has at most {MAX_CLIENT_SECRET_BYTES} characters of ASCII, in one line");
            return Err(ApiError::field("client_secret", reason));
        }
        let kept = SealedSecret { provider, secret: secret.to_owned() };
        self.sealer
            .seal(Purpose::StoredSecret, &kept, random::bytes()?)
            .ok_or_else(|| ApiError::internal("a secret could not be sealed"))
    }

    /// Adds a provider.
    pub(crate) async fn create_provider(
        &self,
        organisation: AccountId,
        create: CreateProvider,
    ) -> Result<StoredProvider, ApiError> {
        let now = self.clock.now();
        let config = ProviderConfig {
            kind: create.kind,
            issuer: create.issuer,
            tenant: create.tenant,
            client_id: create.client_id,
            scopes: create.scopes,
            groups_claim: create.groups_claim,
            trust_email: create.trust_email,
            ca_pem: create.ca_pem,
            hook: create.hook,
            require_totp: create.require_totp,
            check_minutes: create.check_minutes,
        };
        config.check()?;
        check_secret(&config, create.client_secret.as_ref())?;
        self.limits.create(organisation, now.monotonic)?;
        let id = ProviderId::from_random(random::bytes()?);
        let secret = self.seal_secret(id, create.client_secret.as_ref())?;
        let provider =
            StoredProvider { id, organisation, name: create.name, config, secret, created_at: now.unix_seconds };
        self.store.create_provider(&provider).await?;
        tracing::info!(
            account = %organisation, provider = %provider.name, kind = %provider.config.kind,
            "provider added"
        );
        Ok(provider)
    }

    /// Whether one of these sockets needs a login of persons while the organisation has no provider.
    pub(crate) async fn lacks_provider(
        &self,
        organisation: AccountId,
        mut asks: impl Iterator<Item = &SocketSettings> + Send,
    ) -> Result<bool, ApiError> {
        Ok(asks.any(|settings| settings.identity.is_some())
            && self.store.providers(organisation, 0, 1).await?.is_empty())
    }

    /// Refuses names of providers that the organisation does not have, unless a socket has them already.
    pub(crate) async fn need_providers(
        &self,
        organisation: AccountId,
        wanted: &[ProviderName],
        known: &[ProviderName],
    ) -> Result<(), ApiError> {
        for (at, name) in wanted.iter().enumerate().filter(|(_, name)| !known.contains(name)) {
            if self.store.provider(organisation, name).await?.is_some() {
                continue;
            }
            let all = self.store.providers(organisation, 0, MAX_PROVIDERS_PER_ORGANISATION as u32).await?;
            let names: Vec<_> = all.iter().map(|(_, provider)| provider.name.as_str()).collect();
            let there = match names.as_slice() {
                [] => "there are none yet".to_owned(),
                names => format!("there is {}", names.join(", ")),
            };
            let detail = format!("there is no identity provider {name}: {there}");
            return Err(ApiError::field(&format!("identity.providers[{at}]"), detail));
        }
        Ok(())
    }

    /// Changes a provider.
    pub(crate) async fn update_provider(
        &self,
        mut provider: StoredProvider,
        update: UpdateProvider,
    ) -> Result<StoredProvider, ApiError> {
        let former = provider.config.clone();
        let config = &mut provider.config;
        if let Some(issuer) = update.issuer {
            config.issuer = issuer;
        }
        if let Some(tenant) = update.tenant {
            config.tenant = Some(tenant);
        }
        if let Some(client_id) = update.client_id {
            config.client_id = client_id;
        }
        if let Some(scopes) = update.scopes {
            config.scopes = scopes;
        }
        if let Some(claim) = update.groups_claim {
            config.groups_claim = claim;
        }
        if let Some(trust_email) = update.trust_email {
            config.trust_email = trust_email;
        }
        if let Some(ca_pem) = update.ca_pem {
            config.ca_pem = ca_pem;
        }
        if let Some(hook) = update.hook {
            config.hook = hook;
        }
        if let Some(require_totp) = update.require_totp {
            config.require_totp = require_totp;
        }
        if let Some(minutes) = update.check_minutes {
            config.check_minutes = minutes;
        }
        config.check()?;
        let kept = self.open_secret(&provider).filter(|kept| !kept.is_empty()).map(Secret::from);
        let secret = match &update.client_secret {
            Some(secret) => {
                check_secret(&provider.config, Some(secret))?;
                Some(self.seal_secret(provider.id, Some(secret))?)
            }
            None if provider.config.kind == ProviderKind::Local => {
                check_secret(&provider.config, kept.as_ref().filter(|_| provider.config.hook.is_some()))?;
                None
            }
            None => None,
        };
        if !self.store.update_provider(provider.id, &provider.config, secret.as_deref()).await? {
            return Err(ApiError::not_found("provider"));
        }
        if let Some(secret) = secret {
            provider.secret = secret;
        }
        let who = |config: &ProviderConfig| (config.issuer.clone(), config.tenant.clone(), config.client_id.clone());
        let wants_codes = provider.config.require_totp && !former.require_totp;
        let has_other_groups = former.groups_claim != provider.config.groups_claim;
        // A change of issuer, tenant, client or trusted addresses voids the identities of earlier logins. A login
        // without a code, or with groups of the former claim, does not meet the new settings.
        let is_other = who(&former) != who(&provider.config) || former.trust_email != provider.config.trust_email;
        if is_other || wants_codes || has_other_groups {
            self.end_login_sessions(provider.organisation, None, Some(&provider.name)).await?;
        }
        tracing::info!(account = %provider.organisation, provider = %provider.name, "provider changed");
        Ok(provider)
    }

    /// Deletes a provider. Its logins have ended when this returns.
    ///
    /// # Errors
    /// Unless forced: persons would be deleted too, or no login would be possible at some socket.
    pub(crate) async fn delete_provider(&self, provider: &StoredProvider, force: bool) -> Result<(), ApiError> {
        let others = self.store.providers(provider.organisation, 0, MAX_PROVIDERS_PER_ORGANISATION as u32).await?;
        let is_last = others.iter().all(|(_, other)| other.id == provider.id);
        let uses =
            |route: &SocketRoute| {
                route.settings.identity.as_ref().is_some_and(|asks| {
                    asks.providers.contains(&provider.name) || (is_last && asks.providers.is_empty())
                })
            };
        let routes = self.store.routes_of(provider.organisation).await?;
        let mut sockets: Vec<_> =
            routes.iter().filter(|route| uses(route)).map(|route| self.dns_name(&route.name)).collect();
        let persons = match provider.config.kind {
            ProviderKind::Local => self.store.count_persons(provider.organisation).await?,
            _ => 0,
        };
        let mut why = Vec::new();
        if persons > 0 {
            let them = if persons == 1 { "1 person".to_owned() } else { format!("{persons} persons") };
            why.push(format!("{them} would be removed with it"));
        }
        if !sockets.is_empty() {
            sockets.sort();
            let (name, sockets) = (&provider.name, some_of(&sockets));
            why.push(format!("people log in through {name} at {sockets}: give these another provider first"));
        }
        if !force && !why.is_empty() {
            let code = if persons > 0 { "provider-has-persons" } else { "provider-in-use" };
            let detail = format!("{}; with force it is done all the same", why.join(", and "));
            return Err(ApiError::new(StatusCode::CONFLICT, code, detail));
        }
        if !self.store.delete_provider(provider.organisation, provider.id).await? {
            return Err(ApiError::not_found("provider"));
        }
        self.end_login_sessions(provider.organisation, None, Some(&provider.name)).await?;
        tracing::info!(account = %provider.organisation, provider = %provider.name, "provider deleted");
        Ok(())
    }

    /// Tests a provider.
    pub(crate) async fn test_provider(&self, provider: &StoredProvider) -> ProviderFound {
        let config = &provider.config;
        if config.kind == ProviderKind::Local {
            let (works, detail) = self.test_local(provider).await;
            return ProviderFound { works, detail, authorization_endpoint: None, keys: None };
        }
        match self.providers.test(config).await {
            Ok(found) => ProviderFound {
                works: true,
                detail: if found.issuer.is_empty() {
                    format!("{} has no discovery document: the first login shows whether it works", config.kind)
                } else {
                    format!(
                        "{} responds and has {} keys to sign with{}",
                        found.issuer,
                        found.keys,
                        can_end(&found, config)
                    )
                },
                authorization_endpoint: Some(found.authorization_endpoint),
                keys: (!found.issuer.is_empty()).then(|| u32::try_from(found.keys).unwrap_or(u32::MAX)),
            },
            Err(error) => {
                ProviderFound { works: false, detail: error.to_string(), authorization_endpoint: None, keys: None }
            }
        }
    }

    /// Ends logins of an organisation, at edges too when this returns. Returns how many ended.
    pub(crate) async fn end_login_sessions(
        &self,
        organisation: AccountId,
        email: Option<&PersonEmail>,
        provider: Option<&ProviderName>,
    ) -> Result<usize, ApiError> {
        let stored = self.store.end_person_sessions(organisation, None, email, provider).await?;
        self.identities.end_these(&stored);
        let ended = self.identities.end_sessions(|session| {
            session.organisation == organisation
                && email.is_none_or(|email| session.person.email == *email)
                && provider.is_none_or(|provider| session.person.provider == *provider)
        });
        Ok(stored.len().max(ended))
    }
}

/// How logins end here after their end at the provider, in words.
fn can_end(found: &ProviderMetadata, config: &ProviderConfig) -> String {
    let tells = if found.sends_logout_tokens { "reports logouts" } else { "does not declare that it reports logouts" };
    let asked = match config.check_seconds() {
        None => "logins are not checked there".to_owned(),
        Some(seconds) => {
            let way = if found.introspects { "refresh tokens, or introspection" } else { "refresh tokens" };
            format!("logins are checked there every {} minutes by {way}, where it gives any", seconds / 60)
        }
    };
    let hint = match found.has_offline_access && !config.scopes.iter().any(|scope| scope == "offline_access") {
        true if config.check_seconds().is_some() => " (it may want the scope offline_access for that)",
        _ => "",
    };
    format!("; it {tells}; {asked}{hint}")
}

/// Checks that the client secret fits the kind of provider. GitHub, Google, Facebook and Microsoft always issue one; a
/// hook signs its messages with one.
fn check_secret(config: &ProviderConfig, secret: Option<&Secret>) -> Result<(), ApiError> {
    let length = secret.map_or(0, |secret| secret.expose().len());
    match (config.kind, &config.hook) {
        (ProviderKind::Local, Some(_)) if length < MIN_HOOK_SECRET_BYTES => {
            let reason = format!(
                "a secret of at least {MIN_HOOK_SECRET_BYTES} characters is needed, with which messages are \
                                  signed: `openssl rand -hex 32` makes one"
            );
            Err(ApiError::field("client_secret", reason))
        }
        (ProviderKind::Local, None) if length > 0 => {
            Err(ApiError::field("client_secret", "it is for a hook, and there is none: leave it out"))
        }
        (ProviderKind::Oidc, _) if secret.is_some() && length == 0 => {
            Err(ApiError::field("client_secret", "it is empty: leave it out where the provider gave none"))
        }
        (ProviderKind::Oidc | ProviderKind::Local, _) => Ok(()),
        _ if length > 0 => Ok(()),
        _ => Err(ApiError::field("client_secret", "the client secret that the provider gave is needed")),
    }
}
