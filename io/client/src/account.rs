//! Credentials of an account: the password, one-time codes, sessions.

use bytes::Bytes;
use http::Method;
use sallyport_api::{
    AccountReset, AccountSession, BeginTotp, BegunTotp, ChangePassword, ConfirmTotp, EndedAccountSessions,
    ForgotPassword, ProveTotp, RecoveryCodes, ResetAccount, SetPassword,
};
use uuid::Uuid;

use crate::{ApiClient, ClientError, client::Call};

impl ApiClient {
    /// Changes the password; other sessions end.
    ///
    /// # Errors
    /// The current password is wrong, or the new one is weak. See [`ClientError`], as for every call below.
    pub async fn change_password(&self, change: &ChangePassword) -> Result<(), ClientError> {
        self.send(Method::POST, "/v1/account/password", change).await
    }

    /// Requests a message with a reset code, if the account exists.
    ///
    /// # Errors
    /// The server cannot send messages.
    pub async fn forgot_password(&self, forgot: &ForgotPassword) -> Result<(), ClientError> {
        self.open(Method::POST, "/v1/accounts/forgot", forgot).await
    }

    /// Removes an account's password, and creates a reset code.
    ///
    /// # Errors
    /// The caller does not own the installation, or the account does not exist.
    pub async fn reset_account(&self, reset: &ResetAccount) -> Result<AccountReset, ClientError> {
        self.send(Method::POST, "/v1/accounts/reset", reset).await
    }

    /// Sets a password with a reset code.
    ///
    /// # Errors
    /// The code is invalid, or the password is weak.
    pub async fn set_password(&self, set: &SetPassword) -> Result<(), ClientError> {
        self.open(Method::POST, "/v1/accounts/password", set).await
    }

    /// Starts to enable one-time codes.
    ///
    /// # Errors
    /// The current password is wrong, or codes are enabled already.
    pub async fn begin_totp(&self, begin: &BeginTotp) -> Result<BegunTotp, ClientError> {
        self.send(Method::POST, "/v1/account/totp", begin).await
    }

    /// Enables one-time codes; returns recovery codes.
    ///
    /// # Errors
    /// The code is wrong.
    pub async fn confirm_totp(&self, confirm: &ConfirmTotp) -> Result<RecoveryCodes, ClientError> {
        self.send(Method::POST, "/v1/account/totp/confirm", confirm).await
    }

    /// Disables one-time codes.
    ///
    /// # Errors
    /// The password or the code is wrong, or codes are not enabled.
    pub async fn disable_totp(&self, proof: &ProveTotp) -> Result<(), ClientError> {
        self.send(Method::POST, "/v1/account/totp/disable", proof).await
    }

    /// Replaces the recovery codes.
    ///
    /// # Errors
    /// The password or the code is wrong, or codes are not enabled.
    pub async fn renew_recovery_codes(&self, proof: &ProveTotp) -> Result<RecoveryCodes, ClientError> {
        self.send(Method::POST, "/v1/account/totp/codes", proof).await
    }

    /// The sessions of the account.
    ///
    /// # Errors
    /// There is no login, or only an API token.
    pub async fn account_sessions(&self) -> Result<Vec<AccountSession>, ClientError> {
        self.list("/v1/account/sessions").await
    }

    /// Ends a session of the account.
    ///
    /// # Errors
    /// There is no session with this id.
    pub async fn end_account_session(&self, id: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/account/sessions/{id}")).await
    }

    /// Ends all sessions of the account except the caller's.
    ///
    /// # Errors
    /// There is no login, or only an API token.
    pub async fn end_other_account_sessions(&self) -> Result<EndedAccountSessions, ClientError> {
        let path = "/v1/account/sessions/end-others";
        self.call(Call { method: Method::POST, path, body: Bytes::new(), key: None }).await
    }
}
