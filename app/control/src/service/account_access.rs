//! What lets the owner of an account in: changing and resetting the password, codes beside it, and the sessions that
//! follow.

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

/// How long a code to set a password is good, in seconds.
pub(crate) const RESET_SECONDS: i64 = 3_600;
/// How such a code begins.
pub(crate) const RESET_PREFIX: &str = "spp_";
/// The longest such code that is looked at, in bytes.
const MAX_RESET_BYTES: usize = 64;
/// How long codes of an authenticator may take to be set up, in seconds.
const SETTING_UP_SECONDS: i64 = 600;

/// For whom tries of codes of accounts are counted: persons of an organisation may have the same addresses, and are
/// others.
fn realm() -> AccountId {
    AccountId::from_random(*b"accounts-s-codes")
}

/// Codes that are being set up, sealed.
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

/// A code that sets a password, and what became of it.
pub(crate) struct CreatedReset {
    pub(crate) link: String,
    pub(crate) code: Secret,
    pub(crate) expires_at: i64,
    pub(crate) sent: Delivery,
}

/// The answer to a code that is not good, whyever.
fn not_good() -> ApiError {
    let detail = "this code sets no password any more: it was used, is older than an hour, or a newer one has taken its place; \
                  ask for another one";
    ApiError::new(StatusCode::NOT_FOUND, "bad-code", detail)
}

fn wrong_password() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "wrong-password", "the current password is wrong")
}

fn wrong_code(status: StatusCode) -> ApiError {
    let detail = "the code is wrong, too old, or was used before: type the one that the authenticator shows now, or a recovery \
                  code";
    if status == StatusCode::UNAUTHORIZED {
        ApiError::unauthorized("wrong-code", detail)
    } else {
        ApiError::new(status, "wrong-code", detail)
    }
}

impl App {
    /// Whether a code of the account is right, of somebody whose password was; `status` is how a wrong one is told.
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
                        format!("wrong code; too many were wrong, so none is looked at for {} seconds", wait.as_secs())
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

    /// What lets the owner in, when this is the password of now: a session that is left alone is not enough.
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

    /// Puts a password in the place of the one of now; the other sessions end.
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

    /// Takes the password of an account away, and makes a code for another one, as the owner of the installation.
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
        tracing::info!(account = %account.id, "the password of an account was taken away");
        self.make_reset(&account, ResetMaker::Owner).await
    }

    /// Makes a code that sets a password, and sends it where there is a hook.
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

    /// Somebody has forgotten a password: who has this address gets a message. All that depends on the address happens
    /// when the answer is on its way.
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
            tracing::info!(account = %account.id, "too many messages were asked for: one was not sent");
            return Ok(());
        }
        self.metrics.account_change(AccountChange::Forgotten);
        self.audit_account(&account, "account.forgot-password", None);
        self.make_reset(&account, ResetMaker::Myself).await.map(drop)
    }

    /// Whose password this code sets.
    pub(crate) async fn account_of_reset(&self, code: &str) -> Result<Account, ApiError> {
        if !code.starts_with(RESET_PREFIX) || code.len() > MAX_RESET_BYTES {
            return Err(not_good());
        }
        let found = self.store.account_of_reset(random::hash(code), self.clock.now().unix_seconds).await?;
        found.ok_or_else(not_good)
    }

    /// Sets a password by a code, which is used up; all sessions end.
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
        // Who has the code has the address, or was given it: they are known from there.
        self.limits.record_right_login(client, &account.email, now.monotonic);
        self.audit_account(&account, "account.set-password", Some(why));
        self.metrics.account_change(AccountChange::PasswordByCode);
        tracing::info!(account = %account.id, "an account has another password, {why}");
        Ok(account)
    }

    /// Begins to have codes asked for; nothing is changed before the first one is right.
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

    /// Has codes asked for from now on, when this is the first; the other sessions end, since they began without one.
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
        tracing::info!(account = %account.id, "an account has codes asked for from now on");
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

    /// Has no codes asked for any more.
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
        tracing::info!(account = %account.id, "an account has no codes asked for any more");
        Ok(())
    }

    /// Makes recovery codes in the place of the former.
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
