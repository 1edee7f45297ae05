//! Access to accounts: changing and resetting the password, codes, and ending sessions.

use http::StatusCode;
use sallyport_api::Secret;
use sallyport_identity::{Purpose, TOTP_SECRET_BYTES, base32, otpauth_uri};
use sallyport_model::{Account, AccountId, Email, check_password};
use sallyport_store::{AccountAccess, NewReset, ResetMaker, SessionId};
use serde::{Deserialize, Serialize};

use super::second_factor::{CodeCheck, TotpState, recovery_codes};
use crate::{
    audit,
    mail::{Delivery, Message},
    metrics::{AccountChange, LoginOutcome},
    problem::ApiError,
    security::{attempts::Attempt, client::Client, random},
    state::App,
};

/// How long a reset code is valid, in seconds.
pub(crate) const RESET_SECONDS: i64 = 3_600;
/// The prefix of reset codes.
pub(crate) const RESET_PREFIX: &str = "spp_";
/// Longer reset codes are refused unread, in bytes.
const MAX_RESET_BYTES: usize = 64;
/// How long the setup of codes may take, in seconds.
const SETTING_UP_SECONDS: i64 = 600;

/// The organisation under which attempts with codes of accounts are counted. Persons of an organisation may have the
/// same addresses and are counted separately.
fn realm() -> AccountId {
    AccountId::from_random(*b"accounts-s-codes")
}

/// A sealed secret of codes during their setup.
#[derive(Serialize, Deserialize)]
struct TotpSetup {
    account: AccountId,
    secret: [u8; TOTP_SECRET_BYTES],
    at: i64,
}

/// The secret for an authenticator.
pub(crate) struct Enrolment {
    pub(crate) secret: String,
    pub(crate) uri: String,
    pub(crate) sealed: String,
    pub(crate) expires_at: i64,
}

/// A reset code, and the outcome of sending it.
pub(crate) struct CreatedReset {
    pub(crate) link: String,
    pub(crate) code: Secret,
    pub(crate) expires_at: i64,
    pub(crate) sent: Delivery,
}

/// The response to a reset code that is not valid, the same for every reason.
fn not_good() -> ApiError {
    let detail = "this code sets no password any more: it was used, is older than an hour, or a newer one has taken \
                  its place; ask for another one";
    ApiError::new(StatusCode::NOT_FOUND, "bad-code", detail)
}

fn wrong_password() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "wrong-password", "the current password is wrong")
}

fn wrong_code(status: StatusCode) -> ApiError {
    let detail = "the code is wrong, too old, or was used before: type the one that the authenticator shows now, or a \
                  recovery code";
    if status == StatusCode::UNAUTHORIZED {
        ApiError::unauthorized("wrong-code", detail)
    } else {
        ApiError::new(status, "wrong-code", detail)
    }
}

impl App {
    /// Requires a valid code if the account uses codes; the password was right. `status` is that of the refusal.
    pub(crate) async fn require_code(
        &self,
        client: Client,
        (account, access): (&Account, &AccountAccess),
        code: &str,
        status: StatusCode,
    ) -> Result<(), ApiError> {
        let attempt = self.begin_code(client, &account.email)?;
        let kept =
            TotpState { owner: account.id.into(), sealed: access.totp_secret.as_deref(), used_step: access.totp_step };
        match self.check_totp(kept, code).await? {
            CodeCheck::Wrong => {
                self.metrics.login(LoginOutcome::Failed);
                let why = match attempt.locks_for.or(attempt.waits_for) {
                    Some(wait) => {
                        format!(
                            "wrong code; too many were wrong, so attempts are refused for {} seconds",
                            wait.as_secs()
                        )
                    }
                    None => "wrong code".to_owned(),
                };
                self.audit_login(account.id, account.email.as_str(), "account", Some(&why));
                return Err(wrong_code(status));
            }
            CodeCheck::Recovery => {
                self.metrics.account_change(AccountChange::RecoveryCode);
                self.audit_account(account, "account.recovery-code", None);
            }
            CodeCheck::Totp => {}
        }
        self.attempts.record_success(attempt);
        Ok(())
    }

    fn begin_code(&self, client: Client, email: &Email) -> Result<Attempt, ApiError> {
        let now = self.clock.now().monotonic;
        self.attempts.begin(realm(), email.as_str(), client, now).map_err(|wait| {
            self.metrics.login(LoginOutcome::Limited);
            ApiError::limited(wait)
        })
    }

    /// Requires the current password: a session alone is not enough, because a browser may be left open.
    async fn require_password(
        &self,
        client: Client,
        account: &Account,
        current: Secret,
    ) -> Result<AccountAccess, ApiError> {
        let now = self.clock.now().monotonic;
        self.limits.login(client, &account.email, now).inspect_err(|_| self.metrics.login(LoginOutcome::Limited))?;
        let found = self.store.account_access(&account.email).await?.filter(|(found, _)| found.id == account.id);
        let Some((_, access)) = found else { return Err(ApiError::unauthorized("logged-out", "this account is gone")) };
        if !self.passwords.verify(current, access.password_hash.clone()).await? {
            self.metrics.login(LoginOutcome::Failed);
            self.audit_login(account.id, account.email.as_str(), "account", Some("wrong current password"));
            return Err(wrong_password());
        }
        self.limits.record_right_login(client, &account.email, now);
        Ok(access)
    }

    /// Changes the password; the other sessions end.
    pub(crate) async fn change_password(
        &self,
        client: Client,
        account: &Account,
        session: SessionId,
        (current, new): (Secret, Secret),
    ) -> Result<(), ApiError> {
        check_password(new.expose(), &account.email).map_err(|error| ApiError::field("new_password", error))?;
        let access = self.require_password(client, account, current).await?;
        let hash = self.passwords.hash(new).await?;
        if !self.store.change_account_password(account.id, access.revision, &hash, Some(session)).await? {
            let detail = "the password or the codes were changed meanwhile: log in again";
            return Err(ApiError::new(StatusCode::CONFLICT, "changed-meanwhile", detail));
        }
        audit::set_target(&account.email);
        self.metrics.account_change(AccountChange::Password);
        tracing::info!(account = %account.id, "an account has another password");
        Ok(())
    }

    /// Removes the password of an account and makes a reset code, for the owner of the installation.
    pub(crate) async fn reset_account(&self, email: &Email, with_totp: bool) -> Result<CreatedReset, ApiError> {
        let found = self.store.account_access(email).await?;
        let (account, _) = found.ok_or_else(|| ApiError::not_found("account"))?;
        audit::set_target(&account.email);
        audit::add_organisation(account.id);
        if with_totp {
            audit::set_action("account.reset-totp");
        }
        self.store.reset_account(account.id, with_totp, self.clock.now().unix_seconds).await?;
        self.attempts.unlock(realm(), account.email.as_str());
        self.metrics.account_change(AccountChange::Reset);
        tracing::info!(account = %account.id, "the password of an account was removed");
        self.make_reset(&account, ResetMaker::Owner).await
    }

    /// Makes a reset code, and sends it if there is a hook.
    async fn make_reset(&self, account: &Account, made_by: ResetMaker) -> Result<CreatedReset, ApiError> {
        let expires_at = self.clock.now().unix_seconds + RESET_SECONDS;
        let (code, hash) = random::secret(RESET_PREFIX)?;
        self.store.create_account_reset(NewReset { account: account.id, hash, made_by, expires_at }).await?;
        let link = format!("{}/reset?key={}", self.login_url(), code.expose());
        let command = format!("sallyport account password --api {} --code {}", self.api_url(), code.expose());
        let message = Message {
            kind: "account-password-reset",
            email: &account.email,
            name: Some(&account.name),
            link: Some(&link),
            code: code.expose(),
            command: &command,
            expires_at,
            organisation: account.id,
            organisation_name: &account.name,
        };
        let sent = self.send_mail(message).await?;
        Ok(CreatedReset { link, code, expires_at, sent })
    }

    /// Sends a reset code to the owner of this address, if there is an account. Work that depends on the address begins
    /// after the response, so that its time reveals nothing.
    pub(crate) fn forgot_password(&self, client: Client, email: Email) -> Result<(), ApiError> {
        if self.mail.is_none() {
            let detail =
                "this server sends no messages: ask its operator, who makes a code with `sallyport account reset`";
            return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "no-mail-hook", detail));
        }
        self.limits.take_message_request(client, self.clock.now().monotonic)?;
        let Ok(turn) = self.hook_turns.clone().try_acquire_owned() else {
            tracing::warn!("too many messages are under way: one was not sent");
            return Ok(());
        };
        let app = self.clone();
        tokio::spawn(audit::carry(audit::current_trail(), async move {
            if let Err(error) = app.send_forgotten_message(&email).await {
                tracing::warn!(error = error.inner().unwrap_or(error.sentence()), "a code for a password was not sent");
            }
            drop(turn);
        }));
        Ok(())
    }

    async fn send_forgotten_message(&self, email: &Email) -> Result<(), ApiError> {
        let Some((account, _)) = self.store.account_access(email).await? else { return Ok(()) };
        if !self.limits.message_to_account(account.email.as_str(), self.clock.now().monotonic) {
            tracing::info!(account = %account.id, "too many messages were requested: one was not sent");
            return Ok(());
        }
        self.metrics.account_change(AccountChange::Forgotten);
        self.audit_account(&account, "account.forgot-password", None);
        self.make_reset(&account, ResetMaker::Myself).await.map(drop)
    }

    /// The account of this reset code.
    pub(crate) async fn account_of_reset(&self, code: &str) -> Result<Account, ApiError> {
        if !code.starts_with(RESET_PREFIX) || code.len() > MAX_RESET_BYTES {
            return Err(not_good());
        }
        let found = self.store.account_of_reset(random::hash(code), self.clock.now().unix_seconds).await?;
        found.ok_or_else(not_good)
    }

    /// Sets a password by a reset code, which is used up; all sessions end.
    pub(crate) async fn set_password(&self, client: Client, code: &str, new: Secret) -> Result<Account, ApiError> {
        let account = self.account_of_reset(code).await?;
        check_password(new.expose(), &account.email).map_err(|error| ApiError::field("new_password", error))?;
        let hash = self.passwords.hash(new).await?;
        let now = self.clock.now();
        let used = self.store.use_account_reset(random::hash(code), now.unix_seconds, &hash).await?;
        let why = match used.ok_or_else(not_good)? {
            ResetMaker::Myself => "by a code that was sent to the address",
            ResetMaker::Owner => "by a code that the owner of the installation had made",
            ResetMaker::Operator => "by a code that was made with the data directory of the server",
        };
        // The holder of the code has received it at the address, so this client counts as known.
        self.limits.record_right_login(client, &account.email, now.monotonic);
        self.audit_account(&account, "account.set-password", Some(why));
        self.metrics.account_change(AccountChange::PasswordByCode);
        tracing::info!(account = %account.id, "an account has another password, {why}");
        Ok(account)
    }

    /// Begins the setup of codes, which takes effect with the first right code.
    pub(crate) async fn enrol_account(
        &self,
        client: Client,
        account: &Account,
        current: Secret,
    ) -> Result<Enrolment, ApiError> {
        let access = self.require_password(client, account, current).await?;
        if access.totp_secret.is_some() {
            return Err(totp_is_on());
        }
        let (secret, at) = (random::bytes()?, self.clock.now().unix_seconds);
        let form = TotpSetup { account: account.id, secret, at };
        let sealed = self.sealer.seal(Purpose::Form, &form, random::bytes()?);
        let sealed = sealed.ok_or_else(|| ApiError::internal("a secret could not be sealed"))?;
        Ok(Enrolment {
            secret: base32(&secret),
            uri: otpauth_uri(&secret, &self.config.domain, account.email.as_str()),
            sealed,
            expires_at: at + SETTING_UP_SECONDS,
        })
    }

    /// Turns codes on if this first one is right; the other sessions end, because they began without a code.
    pub(crate) async fn confirm_totp(
        &self,
        client: Client,
        account: &Account,
        session: SessionId,
        (enrolment, code): (&str, &str),
    ) -> Result<Vec<String>, ApiError> {
        let now = self.clock.now().unix_seconds;
        let form: Option<TotpSetup> = self.sealer.open(Purpose::Form, enrolment);
        let form = form.filter(|form| form.account == account.id && now <= form.at + SETTING_UP_SECONDS);
        let form = form.ok_or_else(|| {
            ApiError::field("enrolment", "it is none of this account, or older than ten minutes: begin again")
        })?;
        let attempt = self.begin_code(client, &account.email)?;
        let Some(codes) = self.begin_totp(account.id.into(), &form.secret, code).await? else {
            let access = self.store.account_access(&account.email).await?;
            if access.is_some_and(|(_, access)| access.totp_secret.is_some()) {
                return Err(totp_is_on());
            }
            let detail = "this is not the current code: is the clock of the authenticator right?";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "wrong-code", detail));
        };
        self.attempts.record_success(attempt);
        self.store.end_account_sessions(account.id, Some(session)).await?;
        audit::set_target(&account.email);
        self.metrics.account_change(AccountChange::TotpOn);
        tracing::info!(account = %account.id, "codes of an account were turned on");
        Ok(codes)
    }

    async fn prove(&self, client: Client, account: &Account, (current, code): (Secret, &str)) -> Result<(), ApiError> {
        let access = self.require_password(client, account, current).await?;
        if access.totp_secret.is_none() {
            let detail = "the account uses no codes: see `sallyport account totp enable`";
            return Err(ApiError::new(StatusCode::CONFLICT, "totp-off", detail));
        }
        self.require_code(client, (account, &access), code, StatusCode::FORBIDDEN).await
    }

    /// Turns codes off.
    pub(crate) async fn disable_totp(
        &self,
        client: Client,
        account: &Account,
        proof: (Secret, &str),
    ) -> Result<(), ApiError> {
        self.prove(client, account, proof).await?;
        self.store.end_totp(account.id, self.clock.now().unix_seconds).await?;
        audit::set_target(&account.email);
        self.metrics.account_change(AccountChange::TotpOff);
        tracing::info!(account = %account.id, "codes of an account were turned off");
        Ok(())
    }

    /// Replaces the recovery codes.
    pub(crate) async fn renew_recovery_codes(
        &self,
        client: Client,
        account: &Account,
        proof: (Secret, &str),
    ) -> Result<Vec<String>, ApiError> {
        self.prove(client, account, proof).await?;
        let (shown, hashes) = recovery_codes(account.id.into())?;
        self.store.replace_recovery_codes(account.id, &hashes).await?;
        audit::set_target(&account.email);
        self.metrics.account_change(AccountChange::RecoveryCodes);
        Ok(shown)
    }

    /// Ends a session of an account, at once.
    pub(crate) async fn end_session_of(&self, account: &Account, session: SessionId) -> Result<(), ApiError> {
        if !self.store.end_account_session(account.id, session).await? {
            return Err(ApiError::not_found("session"));
        }
        self.metrics.account_sessions_ended(1);
        Ok(())
    }

    /// Ends all sessions of an account but one, at once.
    pub(crate) async fn end_other_sessions(&self, account: &Account, but: SessionId) -> Result<u64, ApiError> {
        let ended = self.store.end_account_sessions(account.id, Some(but)).await?;
        self.metrics.account_sessions_ended(ended);
        Ok(ended)
    }
}

fn totp_is_on() -> ApiError {
    let detail =
        "the account uses codes already: for another authenticator, run `sallyport account totp disable` first";
    ApiError::new(StatusCode::CONFLICT, "totp-on", detail)
}
