//! Making and deleting accounts, and whether a login is right.

use http::StatusCode;
use sallyport_api::{CreateAccount, Secret};
use sallyport_model::{Account, AccountId, Email, check_password};
use sallyport_store::{Deletion, NewAccount, SessionId, StoreError};

use crate::{
    App, SignUp,
    audit_trail::{self, Actor},
    limits::Client,
    metrics::LoginOutcome,
    problem::ApiError,
    random,
};

/// How refresh tokens begin.
pub(crate) const REFRESH_TOKEN_PREFIX: &str = "spr_";
/// How long a refresh token lives.
pub(crate) const REFRESH_SECONDS: i64 = 30 * 86_400;

impl App {
    /// Makes an account.
    pub(crate) async fn create_account(&self, client: Client, create: CreateAccount) -> Result<Account, ApiError> {
        let CreateAccount { name, email, password, ssh_key } = create;
        check_password(password.expose(), &email).map_err(|error| ApiError::field("password", error))?;
        let now = self.clock.now();
        let ssh_key = match ssh_key {
            Some(text) => Some(self.new_ssh_key("ssh_key", &text, None)?),
            None => None,
        };
        self.limits.create_account(client, now.monotonic)?;
        let only_as_first = self.config.sign_up == SignUp::Closed;
        // Nobody has a password hashed for nothing; the store looks again, since others may make one meanwhile, here or elsewhere.
        if only_as_first && self.store.count_accounts().await? > 0 {
            return Err(StoreError::NotFirst.into());
        }
        let password_hash = self.passwords.hash(password).await?;
        let account = Account {
            id: AccountId::from_random(random::bytes()?),
            name: name.into(),
            email,
            created_at: now.unix_seconds,
        };
        let has_key = ssh_key.is_some();
        let new = NewAccount { account: account.clone(), password_hash, ssh_key, only_as_first };
        self.store.create_account(new).await?;
        if has_key {
            self.publish_ssh_keys(account.id).await?;
        }
        self.metrics.accounts.inc();
        audit_trail::acts(Actor::own(&account));
        audit_trail::target(account.id);
        tracing::info!(account = %account.id, "account created");
        Ok(account)
    }

    /// Deletes an account with all it has; when this returns, edges know it.
    pub(crate) async fn delete_account(&self, account: AccountId) -> Result<(), ApiError> {
        self.check_that_it_is_not_needed(account).await?;
        let gone = match self.store.delete_account(account).await? {
            Deletion::Done { sockets } => sockets,
            Deletion::NotFound => return Err(ApiError::not_found("account")),
            Deletion::HasMembers { others } => {
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
        self.metrics.accounts.dec();
        audit_trail::target(account);
        tracing::info!(%account, sockets = gone.len(), "account deleted");
        Ok(())
    }

    /// The account that logs in with this address and password.
    pub(crate) async fn check_login(
        &self,
        client: Client,
        email: &Email,
        password: Secret,
    ) -> Result<Account, ApiError> {
        let now = self.clock.now();
        self.limits.login(client, email, now.monotonic).inspect_err(|_| self.metrics.login(LoginOutcome::Limited))?;
        let (account, hash) = self.store.account_for_login(email).await?.unzip();
        let right = self.passwords.verify(password, hash).await?;
        let (Some(account), true) = (account.clone(), right) else {
            self.metrics.login(LoginOutcome::Failed);
            // An address that nobody has belongs to no organisation that could be told.
            if let Some(account) = account {
                self.audit_login(account.id, email.as_str(), "account", Some("wrong password"));
            }
            return Err(ApiError::unauthorized("wrong-login", "the e-mail address or the password is wrong"));
        };
        self.limits.login_was_right(client, email, now.monotonic);
        self.audit_login(account.id, account.email.as_str(), "account", None);
        Ok(account)
    }

    /// Begins a login session; gives it with its refresh token.
    pub(crate) async fn begin_session(&self, account: AccountId) -> Result<(SessionId, Secret), ApiError> {
        let session: SessionId = random::bytes()?;
        let (refresh, hash) = random::secret(REFRESH_TOKEN_PREFIX)?;
        let now = self.clock.now().unix_seconds;
        self.store.begin_session(session, account, hash, now, now + REFRESH_SECONDS).await?;
        self.metrics.login(LoginOutcome::Ok);
        Ok((session, refresh))
    }
}
