//! The account of a request, its organisation, and its permissions.

use std::fmt::Display;

use axum::extract::FromRequestParts;
use http::{StatusCode, header, request::Parts};
use sallyport_api::{MAX_ORGANISATION_BYTES, ORGANISATION};
use sallyport_model::{Account, AccountId, Role, Scope, ScopeSet};
use sallyport_store::SessionId;

use crate::{
    audit::{self, Actor},
    problem::ApiError,
    security::{random, signed_token::TokenError},
    state::App,
};

/// How API tokens begin.
pub(crate) const API_TOKEN_PREFIX: &str = "spt_";

/// The account of a request, its organisation, and what the request may do there.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The account, to which passwords, API tokens and ssh keys belong.
    pub(crate) who: Account,
    /// The organisation of the request, to which everything else belongs.
    pub(crate) organisation: AccountId,
    /// The role of the account in the organisation.
    pub(crate) role: Role,
    /// The scopes that both the role and the token allow.
    pub(crate) scopes: ScopeSet,
    /// The end of the API token of the request, in seconds since 1970, if the token ends.
    pub(crate) ends_at: Option<i64>,
    /// Whether the request has an API token, which is good for one organisation.
    pub(crate) is_bound: bool,
    /// The session of the login; `None` for an API token.
    pub(crate) session: Option<SessionId>,
}

impl Caller {
    /// Refuses an account with a lesser role, whatever the token allows.
    pub(crate) fn require_role(&self, needed: Role) -> Result<(), ApiError> {
        if self.role < needed { Err(self.lacking_role(needed)) } else { Ok(()) }
    }

    /// Refuses when the role or the token lacks the scope.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.allows(scope) {
            return Ok(());
        }
        Err(self.lacking(scope, scope))
    }

    /// Refuses unless the role and the token have the scope, or the scope to hold tunnels. A connector makes its tunnel
    /// with the latter.
    pub(crate) fn require_or_connect(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.allows(scope) || self.scopes.allows(Scope::TunnelsConnect) {
            return Ok(());
        }
        Err(self.lacking(scope, format_args!("{scope} or {}", Scope::TunnelsConnect)))
    }

    /// Whether the request is for the account's own organisation.
    pub(crate) fn is_own(&self) -> bool {
        self.organisation == self.who.id
    }

    /// Refuses another organisation than the account's own, for things that belong to the account.
    pub(crate) fn require_own(&self) -> Result<(), ApiError> {
        if self.is_own() {
            return Ok(());
        }
        let detail = "this concerns your account and not the organisation: ask for your own organisation, with a login \
                      or a token of it";
        Err(ApiError::new(StatusCode::FORBIDDEN, "own-organisation-only", detail))
    }

    /// Refuses all but the owner of the installation, with all scopes.
    pub(crate) async fn require_installation_owner(&self, app: &App) -> Result<(), ApiError> {
        self.require_own()?;
        if app.store.first_account().await? != Some(self.who.id) {
            let detail = "this is for the account that owns this installation: the first that was made, or the one \
                          that the owner has named";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "not-owner", detail));
        }
        if !self.scopes.covers(&ScopeSet::all()) {
            let detail = "this token may not do that: log in, or use a token with all scopes (`--scope all`)";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "missing-scope", detail));
        }
        Ok(())
    }

    /// The session of the login. Refuses API tokens, which may not change passwords or codes whatever their scopes.
    pub(crate) fn require_login(&self) -> Result<SessionId, ApiError> {
        self.require_own()?;
        self.session.ok_or_else(|| {
            let detail = "this changes a login, and an API token is no login: log in with the password";
            ApiError::new(StatusCode::FORBIDDEN, "login-needed", detail)
        })
    }

    fn lacking(&self, scope: Scope, scopes: impl Display) -> ApiError {
        let needed = Role::needed_for(scope);
        if self.role < needed {
            return self.lacking_role(needed);
        }
        let detail = format!("this token may not do that: it needs the scope {scopes}");
        ApiError::new(StatusCode::FORBIDDEN, "missing-scope", detail)
    }

    fn lacking_role(&self, needed: Role) -> ApiError {
        let detail = format!("a {} of this organisation may not do that: it takes the role {needed}", self.role);
        ApiError::new(StatusCode::FORBIDDEN, "missing-role", detail)
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Some(token) = bearer_token(parts)? else {
            let detail = "log in first: send Authorization: Bearer with an access token or an API token";
            return Err(ApiError::unauthorized("not-logged-in", detail));
        };
        let asked_for = organisation_asked_for(parts)?;
        if token.starts_with(API_TOKEN_PREFIX) {
            by_api_token(app, token, asked_for).await
        } else {
            by_access_token(app, token, asked_for).await
        }
    }
}

/// The token of the `Authorization` header (RFC 6750 section 2.1).
fn bearer_token(parts: &Parts) -> Result<Option<&str>, ApiError> {
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let token = value.to_str().ok().and_then(|value| value.split_once(' ')).and_then(|(scheme, token)| {
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    });
    match (token, values.next()) {
        (Some(token), None) => Ok(Some(token)),
        _ => Err(ApiError::unauthorized("bad-token", "send one Authorization header of the form: Bearer TOKEN")),
    }
}

/// The organisation that the request names: an id or a name.
fn organisation_asked_for(parts: &Parts) -> Result<Option<&str>, ApiError> {
    let mut values = parts.headers.get_all(ORGANISATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let given = std::str::from_utf8(value.as_bytes()).ok().map(str::trim);
    let given = given.filter(|given| (1..=MAX_ORGANISATION_BYTES).contains(&given.len()));
    match (given, values.next()) {
        (Some(given), None) => Ok(Some(given)),
        _ => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "bad-organisation",
            "send one Sallyport-Organisation with the id or the name of an organisation, in UTF-8",
        )),
    }
}

async fn by_api_token(app: &App, token: &str, asked_for: Option<&str>) -> Result<Caller, ApiError> {
    let unknown = || ApiError::unauthorized("bad-token", "this API token is not known: it may have been deleted");
    let Some((token, account)) = app.store.token_by_hash(random::hash(token)).await? else {
        audit::report_bad_token("an unknown API token", None);
        return Err(unknown());
    };
    let organisation = token.organisation;
    let actor = Actor { organisation, account: account.id, name: format!("token:{}", token.name) };
    if token.expires_at.is_some_and(|end| end <= app.clock.now().unix_seconds) {
        audit::report_bad_token("an API token that has expired", Some(actor));
        return Err(ApiError::unauthorized("expired-token", "this API token has expired: create a new one"));
    }
    let Some(membership) = app.store.membership(organisation, account.id).await? else { return Err(unknown()) };
    if let Some(asked_for) = asked_for
        && asked_for.parse() != Ok(organisation)
        && asked_for != membership.name
    {
        let detail = "this API token is for another organisation than the one in Sallyport-Organisation: leave that \
                      out, or show a token for that organisation";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "wrong-organisation", detail));
    }
    audit::set_actor(actor);
    let (role, ends_at) = (membership.role, token.expires_at);
    let scopes = token.scopes.common_with(&role.scopes());
    Ok(Caller { who: account, organisation, role, scopes, ends_at, is_bound: true, session: None })
}

async fn by_access_token(app: &App, token: &str, asked_for: Option<&str>) -> Result<Caller, ApiError> {
    let bearer = app.tokens.verify(token, app.clock.now().unix_seconds).map_err(|error| match error {
        TokenError::Expired => {
            ApiError::unauthorized("expired-token", "the access token has expired: refresh it or log in again")
        }
        TokenError::Invalid => {
            audit::report_bad_token("an access token that is none", None);
            ApiError::unauthorized("bad-token", "the access token is not valid: log in again")
        }
    })?;
    let account = app.store.session_account(bearer.session).await?.filter(|account| account.id == bearer.account);
    let Some(account) = account else {
        let actor = Actor { organisation: bearer.account, account: bearer.account, name: "login".to_owned() };
        audit::report_bad_token("an access token of a login that has ended", Some(actor));
        return Err(ApiError::unauthorized("logged-out", "this session has ended: log in again"));
    };
    let (organisation, role) = match asked_for {
        None => (account.id, Role::Owner),
        Some(asked_for) => find_organisation(app, &account, asked_for).await?,
    };
    audit::set_actor(Actor { organisation, account: account.id, name: account.email.as_str().to_owned() });
    let (scopes, session) = (role.scopes(), Some(bearer.session));
    Ok(Caller { who: account, organisation, role, scopes, ends_at: None, is_bound: false, session })
}

/// The organisation of this id or name that the account belongs to. Others look like organisations that do not exist.
async fn find_organisation(app: &App, account: &Account, id_or_name: &str) -> Result<(AccountId, Role), ApiError> {
    let missing = || {
        let detail = format!("you belong to no organisation of this id or name: {id_or_name}");
        ApiError::new(StatusCode::NOT_FOUND, "no-such-organisation", detail)
    };
    if let Ok(id) = id_or_name.parse() {
        let role = app.store.role(id, account.id).await?.ok_or_else(missing)?;
        return Ok((id, role));
    }
    let mut named = app.store.memberships(account.id).await?.into_iter().filter(|one| one.name == id_or_name);
    match (named.next(), named.next()) {
        (None, _) => Err(missing()),
        (Some(found), None) => Ok((found.organisation, found.role)),
        (Some(_), Some(_)) => {
            let detail = "you belong to several organisations of this name: name it by its id";
            Err(ApiError::new(StatusCode::CONFLICT, "ambiguous-organisation", detail))
        }
    }
}
