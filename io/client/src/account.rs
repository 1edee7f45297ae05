//! What lets the owner of an account in: the password, codes beside it, sessions.

use bytes::Bytes;
use http::Method;
use sallyport_api::{
    AccountReset, AccountSession, BeginTotp, BegunTotp, ChangePassword, ConfirmTotp, EndedAccountSessions,
    ForgotPassword, ProveTotp, RecoveryCodes, ResetAccount, SetPassword,
};
use uuid::Uuid;

use crate::{ApiClient, ClientError, client::Call};

impl ApiClient {
    /// Puts a password in the place of the one of now; the other sessions end.
    ///
    /// # Errors
    /// The password of now is another one, or the next one is weak. See [`ClientError`], as for every call below.
    pub async fn change_password(&self, change: &ChangePassword) -> Result<(), ClientError> {
        self.send(Method::POST, "/v1/account/password", change).await
    }

    /// Has a message sent to somebody who has forgotten a password, if there is such an account.
    ///
    /// # Errors
    /// The server sends no messages.
    pub async fn forgot_password(&self, forgot: &ForgotPassword) -> Result<(), ClientError> {
        self.open(Method::POST, "/v1/accounts/forgot", forgot).await
    }

    /// Takes an account's password away, and makes a code for another one.
    ///
    /// # Errors
    /// The account that asks does not own the installation, or there is no such account.
    pub async fn reset_account(&self, reset: &ResetAccount) -> Result<AccountReset, ClientError> {
        self.send(Method::POST, "/v1/accounts/reset", reset).await
    }

    /// Sets a password by the code of a reset.
    ///
    /// # Errors
    /// The code is not good, or the password is weak.
    pub async fn set_password(&self, set: &SetPassword) -> Result<(), ClientError> {
        self.open(Method::POST, "/v1/accounts/password", set).await
    }

    /// Begins to have codes of an authenticator asked for.
    ///
    /// # Errors
    /// The password of now is another one, or codes are asked for already.
    pub async fn begin_totp(&self, begin: &BeginTotp) -> Result<BegunTotp, ClientError> {
        self.send(Method::POST, "/v1/account/totp", begin).await
    }

    /// Has codes asked for from now on; gives recovery codes.
    ///
    /// # Errors
    /// The code is wrong.
    pub async fn confirm_totp(&self, confirm: &ConfirmTotp) -> Result<RecoveryCodes, ClientError> {
        self.send(Method::POST, "/v1/account/totp/confirm", confirm).await
    }

    /// Has no codes asked for any more.
    ///
    /// # Errors
    /// The password or the code is wrong, or none are asked for.
    pub async fn disable_totp(&self, proof: &ProveTotp) -> Result<(), ClientError> {
        self.send(Method::POST, "/v1/account/totp/disable", proof).await
    }

    /// Gets recovery codes in the place of the former.
    ///
    /// # Errors
    /// The password or the code is wrong, or none are asked for.
    pub async fn renew_recovery_codes(&self, proof: &ProveTotp) -> Result<RecoveryCodes, ClientError> {
        self.send(Method::POST, "/v1/account/totp/codes", proof).await
    }

    /// The sessions of the account.
    ///
    /// # Errors
    /// Nobody is logged in, or by an API token.
    pub async fn account_sessions(&self) -> Result<Vec<AccountSession>, ClientError> {
        self.list("/v1/account/sessions").await
    }

    /// Ends a session of the account.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn end_account_session(&self, id: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/account/sessions/{id}")).await
    }

    /// Ends all sessions of the account but the one that asks.
    ///
    /// # Errors
    /// Nobody is logged in, or by an API token.
    pub async fn end_other_account_sessions(&self) -> Result<EndedAccountSessions, ClientError> {
        let path = "/v1/account/sessions/end-others";
        self.call(Call { method: Method::POST, path, body: Bytes::new(), key: None }).await
    }
}
