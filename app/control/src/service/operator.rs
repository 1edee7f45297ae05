//! What an operator with the data directory can do without the API: reset an account.

use sallyport_api::Secret;
use sallyport_model::Email;
use sallyport_store::{NewReset, ResetMaker, Store};

use super::{RESET_PREFIX, RESET_SECONDS};
use crate::security::random;

/// A code that sets the password of an account.
#[derive(Debug)]
pub struct OperatorReset {
    /// The code, which can be used once.
    pub code: Secret,
    /// When the code ends, in seconds since 1970.
    pub expires_at: i64,
}

/// Removes the password of the account with this address, on request also its codes, ends its sessions, and makes a
/// reset code. `None` if the account does not exist. A server may use the store meanwhile.
///
/// # Errors
/// The store fails.
pub async fn reset_account(
    store: &Store,
    email: &Email,
    with_totp: bool,
    now: i64,
) -> anyhow::Result<Option<OperatorReset>> {
    let Some((account, _)) = store.account_access(email).await? else { return Ok(None) };
    store.reset_account(account.id, with_totp, now).await?;
    let (code, hash) =
        random::secret(RESET_PREFIX).map_err(|_| anyhow::anyhow!("the system gave no random numbers"))?;
    let expires_at = now + RESET_SECONDS;
    store
        .create_account_reset(NewReset { account: account.id, hash, made_by: ResetMaker::Operator, expires_at })
        .await?;
    Ok(Some(OperatorReset { code, expires_at }))
}
