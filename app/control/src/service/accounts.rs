//! Making and deleting accounts, and checking logins.

use http::StatusCode;
use sallyport_api::{CreateAccount, Secret};
use sallyport_model::{Account, AccountId, Email, check_password};
use sallyport_store::{
    AccountDeletion, Admission, NewAccount, NewSession, SessionClient, SessionId, SetupRequirement, SignUpRequirement,
    StoreError,
};

use crate::{
    audit::{self, Actor},
    config::SignUp,
    metrics::{AccountChange, LoginOutcome},
    problem::ApiError,
    security::{client::Client, random},
    state::App,
};

/// How refresh tokens begin.
pub(crate) const REFRESH_TOKEN_PREFIX: &str = "spr_";
/// How long a refresh token lives.
pub(crate) const REFRESH_SECONDS: i64 = 30 * 86_400;

/// A kind of login sessions: how their secrets begin, and how long they last without a renewal, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionKind {
    pub(crate) prefix: &'static str,
    pub(crate) seconds: i64,
}

impl SessionKind {
    /// Sessions that clients renew by refresh tokens.
    pub(crate) const REFRESHED: Self = Self { prefix: REFRESH_TOKEN_PREFIX, seconds: REFRESH_SECONDS };
}

impl App {
    /// Makes an account.
    pub(crate) async fn create_account(&self, client: Client, create: CreateAccount) -> Result<Account, ApiError> {
        let CreateAccount { name, email, password, ssh_key, invitation, setup_token } = create;
        check_password(password.expose(), &email).map_err(|error| ApiError::field("password", error))?;
        let now = self.clock.now();
        let ssh_key = match ssh_key {
            Some(text) => Some(self.new_ssh_key("ssh_key", &text, None)?),
            None => None,
        };
        self.limits.create_account(client, now.monotonic)?;
        let admission = self.admission(invitation.as_ref(), setup_token.as_ref());
        // Checked before the password is hashed, which is expensive. The store checks again, because other accounts may
        // be made meanwhile.
        let is_first = self.store.count_accounts().await? == 0;
        self.check_admission(&admission, is_first, &email, now.unix_seconds).await?;
        let password_hash = self.passwords.hash(password).await?;
        let account = Account {
            id: AccountId::from_random(random::bytes()?),
            name: name.into(),
            email,
            created_at: now.unix_seconds,
        };
        let has_key = ssh_key.is_some();
        let new = NewAccount { account: account.clone(), password_hash, ssh_key, admission };
        let invitation = self.store.create_account(new).await?;
        if has_key {
            self.publish_ssh_keys(account.id).await?;
        }
        self.metrics.accounts.inc();
        audit::set_actor(Actor::own(&account));
        audit::set_target(account.id);
        if let Some(invitation) = &invitation {
            audit::set_action("account.create-by-invitation");
            audit::add_organisation(invitation.organisation);
            audit::set_target(format_args!("{} as {}", account.email, invitation.role));
            self.metrics.account_change(AccountChange::Invitation);
        }
        if is_first && self.config.setup_token_file.is_some() {
            audit::set_action("installation.setup");
            self.metrics.account_change(AccountChange::Setup);
            self.end_setup();
        }
        tracing::info!(account = %account.id, is_first, "account created");
        Ok(account)
    }

    /// By what an account may be made.
    fn admission(&self, invitation: Option<&Secret>, setup_token: Option<&Secret>) -> Admission {
        let setup = match &self.config.setup_token_file {
            Some(_) => SetupRequirement::Token(setup_token.map(|token| random::hash(token.expose().trim()))),
            None => SetupRequirement::Free,
        };
        let entry = match (invitation, self.config.sign_up) {
            (Some(code), _) => SignUpRequirement::Invitation(random::hash(code.expose().trim())),
            (None, SignUp::Open) => SignUpRequirement::Open,
            (None, SignUp::Closed) => SignUpRequirement::Closed,
        };
        Admission { setup, entry }
    }

    async fn check_admission(
        &self,
        admission: &Admission,
        is_first: bool,
        email: &Email,
        now: i64,
    ) -> Result<(), ApiError> {
        match (is_first, &admission.setup, &admission.entry) {
            (true, SetupRequirement::Token(None), _) => Err(StoreError::SetupToken.into()),
            (true, SetupRequirement::Token(Some(shown)), _) if !self.store.is_setup_token(*shown).await? => {
                Err(StoreError::SetupToken.into())
            }
            (_, _, SignUpRequirement::Invitation(hash)) if !self.store.is_invited(email, *hash, now).await? => {
                Err(StoreError::NoInvitation.into())
            }
            (false, _, SignUpRequirement::Closed) => Err(StoreError::NotFirst.into()),
            _ => Ok(()),
        }
    }

    /// Deletes an account with everything in it; edges know it when this returns.
    pub(crate) async fn delete_account(&self, account: AccountId) -> Result<(), ApiError> {
        self.check_that_it_is_not_needed(account).await?;
        let names = self.names_of(account).await?;
        let gone = match self.store.delete_account(account).await? {
            AccountDeletion::Done { sockets } => sockets,
            AccountDeletion::NotFound => return Err(ApiError::not_found("account")),
            AccountDeletion::HasMembers { others } => {
                let detail = format!(
                    "others belong to this account's organisation, which would go with it ({others}): remove them first"
                );
                return Err(ApiError::new(StatusCode::CONFLICT, "has-members", detail));
            }
        };
        self.unpublish(&gone).await;
        self.identities.end_sessions(|session| session.organisation == account);
        self.publish_ssh_keys(account).await?;
        self.identities.end_tokens(|token| token.organisation == account);
        self.unpublish_names(names).await?;
        self.unpublish_networks(account).await;
        self.metrics.accounts.dec();
        // The last account is gone: the next one needs a setup token again.
        self.prepare_setup().await?;
        audit::set_target(account);
        tracing::info!(%account, sockets = gone.len(), "account deleted");
        Ok(())
    }

    /// The account of this address, password and, if the account uses codes, code; with the revision of its access.
    pub(crate) async fn check_login(
        &self,
        client: Client,
        email: &Email,
        password: Secret,
        code: Option<&Secret>,
    ) -> Result<(Account, i64), ApiError> {
        let now = self.clock.now();
        self.limits.login(client, email, now.monotonic).inspect_err(|_| self.metrics.login(LoginOutcome::Limited))?;
        let found = self.store.account_access(email).await?;
        let hash = found.as_ref().and_then(|(_, access)| access.password_hash.clone());
        let right = self.passwords.verify(password, hash).await?;
        let (Some((account, access)), true) = (&found, right) else {
            self.metrics.login(LoginOutcome::Failed);
            // Without an account, no organisation can record the attempt.
            if let Some((account, _)) = found {
                self.audit_login(account.id, email.as_str(), "account", Some("wrong password"));
            }
            return Err(ApiError::unauthorized("wrong-login", "the e-mail address or the password is wrong"));
        };
        if access.totp_secret.is_some() {
            let Some(code) = code else {
                // The password is right, so the client will send the request again with a code.
                self.limits.record_right_login(client, email, now.monotonic);
                self.metrics.login(LoginOutcome::CodeNeeded);
                let detail =
                    "this account requires a code of its authenticator too: send it, or a recovery code, as `code`";
                return Err(ApiError::unauthorized("code-needed", detail));
            };
            self.require_code(client, (account, access), code.expose(), StatusCode::UNAUTHORIZED).await?;
        }
        self.limits.record_right_login(client, email, now.monotonic);
        self.audit_login(account.id, account.email.as_str(), "account", None);
        Ok((account.clone(), access.revision))
    }

    /// Begins a login session. Returns it with its secret.
    pub(crate) async fn begin_session(
        &self,
        kind: SessionKind,
        (account, revision): (AccountId, i64),
        from: SessionClient,
    ) -> Result<(SessionId, Secret), ApiError> {
        let session: SessionId = random::bytes()?;
        let (secret, refresh) = random::secret(kind.prefix)?;
        let now = self.clock.now().unix_seconds;
        let expires_at = now + kind.seconds;
        let new = NewSession { id: session, account, revision, refresh, now, expires_at, client: from };
        match self.store.begin_session(&new).await {
            Ok(()) => {}
            Err(StoreError::Gone) => {
                let detail =
                    "another session changed the password or the codes of this account meanwhile: log in again";
                return Err(ApiError::unauthorized("wrong-login", detail));
            }
            Err(error) => return Err(error.into()),
        }
        self.metrics.login(LoginOutcome::Ok);
        Ok((session, secret))
    }
}
