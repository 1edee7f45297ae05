//! Codes of an authenticator beside a password (RFC 6238), and recovery codes: of persons and of accounts.

use sallyport_identity::{Purpose, TOTP_DIGITS, TOTP_SECRET_BYTES, base32, totp_step_of};
use sallyport_model::PersonId;
use sallyport_store::{CodeOwner, RECOVERY_CODES, SecretHash};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{problem::ApiError, security::random, state::App};

/// The random bytes of a recovery code: 80 bits, which cannot be guessed even from its hash.
const RECOVERY_BYTES: usize = 10;
/// The size of a written group, in characters.
const GROUP_CHARS: usize = 4;

/// A sealed TOTP secret with its owner: a secret that is moved to another row does not open.
#[derive(Serialize, Deserialize)]
struct SealedTotpSecret {
    /// The id of the person, or of the account.
    person: PersonId,
    totp: [u8; TOTP_SECRET_BYTES],
}

/// The stored state of an owner's codes.
#[derive(Clone, Copy)]
pub(crate) struct TotpState<'a> {
    pub(crate) owner: CodeOwner,
    /// The sealed secret; `None` without codes.
    pub(crate) sealed: Option<&'a str>,
    /// The time step of the last code that was used.
    pub(crate) used_step: i64,
}

/// The result of checking a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeCheck {
    /// A code of the authenticator.
    Totp,
    /// A recovery code.
    Recovery,
    /// Wrong, too old, or used before.
    Wrong,
}

/// The text in groups of four characters, joined by `between`.
pub(crate) fn in_groups(text: &str, between: &str) -> String {
    let groups: Vec<&str> =
        (0..text.len()).step_by(GROUP_CHARS).filter_map(|at| text.get(at..at + GROUP_CHARS)).collect();
    groups.join(between)
}

/// New recovery codes, with the hashes to store.
pub(crate) fn recovery_codes(owner: CodeOwner) -> Result<(Vec<String>, Vec<SecretHash>), ApiError> {
    let (mut shown, mut kept) = (Vec::with_capacity(RECOVERY_CODES), Vec::with_capacity(RECOVERY_CODES));
    for _ in 0..RECOVERY_CODES {
        let code = base32(&random::bytes::<RECOVERY_BYTES>()?).to_ascii_lowercase();
        kept.push(recovery_hash(owner, &code));
        shown.push(in_groups(&code, "-"));
    }
    Ok((shown, kept))
}

fn recovery_hash(owner: CodeOwner, code: &str) -> SecretHash {
    Sha256::new().chain_update(owner.as_bytes()).chain_update(code).finalize().into()
}

impl App {
    /// Checks a code, and uses it up.
    pub(crate) async fn check_totp(&self, kept: TotpState<'_>, typed: &str) -> Result<CodeCheck, ApiError> {
        let owner = kept.owner;
        let is_between = |c: &char| !c.is_whitespace() && *c != '-';
        let plain = typed.chars().filter(is_between).collect::<String>().to_ascii_lowercase();
        if plain.len() != TOTP_DIGITS as usize {
            let is_code = plain.len() == RECOVERY_BYTES * 8 / 5 && plain.is_ascii();
            let is_taken = is_code && self.store.take_recovery_code(owner, recovery_hash(owner, &plain)).await?;
            return Ok(if is_taken { CodeCheck::Recovery } else { CodeCheck::Wrong });
        }
        let Some(sealed) = kept.sealed else { return Ok(CodeCheck::Wrong) };
        let opened: Option<SealedTotpSecret> = self.sealer.open(Purpose::StoredSecret, sealed);
        let Some(opened) = opened.filter(|opened| opened.person.as_bytes() == owner.as_bytes()) else {
            tracing::error!(?owner, "the secret of codes cannot be decrypted");
            return Ok(CodeCheck::Wrong);
        };
        let now = self.clock.now().unix_seconds;
        let is_right = match totp_step_of(&opened.totp, &plain, kept.used_step, now) {
            Some(step) => self.store.take_totp_step(owner, step).await?,
            None => false,
        };
        Ok(if is_right { CodeCheck::Totp } else { CodeCheck::Wrong })
    }

    /// Turns codes on if the first one is right. Returns the recovery codes, to be shown once; `None` if the code is
    /// wrong, or codes are already on.
    pub(crate) async fn begin_totp(
        &self,
        owner: CodeOwner,
        secret: &[u8; TOTP_SECRET_BYTES],
        first: &str,
    ) -> Result<Option<Vec<String>>, ApiError> {
        let now = self.clock.now().unix_seconds;
        let Some(step) = totp_step_of(secret, first.trim(), 0, now) else { return Ok(None) };
        let kept = SealedTotpSecret { person: PersonId::from_bytes(*owner.as_bytes()), totp: *secret };
        let sealed = self.sealer.seal(Purpose::StoredSecret, &kept, random::bytes()?);
        let sealed = sealed.ok_or_else(|| ApiError::internal("a secret could not be sealed"))?;
        let (recovery, hashes) = recovery_codes(owner)?;
        Ok(self.store.begin_totp(owner, &sealed, step, &hashes, now).await?.then_some(recovery))
    }
}
