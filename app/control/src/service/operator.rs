//! What an operator with the data directory may do without the API: let an owner in again who is locked out.

use sallyport_api::Secret;
use sallyport_model::Email;
use sallyport_store::{NewReset, ResetMaker, Store};

use super::{RESET_PREFIX, RESET_SECONDS};
use crate::security::random;

/// A code that sets the password of an account.
#[derive(Debug)]
pub struct OperatorReset {
    /// The code, good once.
    pub code: Secret,
    /// When the code ends, in seconds since 1970.
    pub expires_at: i64,
}

/// Takes the password of the account with this address away, and its codes too if wished, and makes a code that sets
/// another one; its sessions end. `None` when there is no such account. Whatever serves the store may go on meanwhile.
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
