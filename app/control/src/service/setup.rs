//! The setup token. On a server that others can reach, the first account needs it.
//!
//! The token exists while there is no account, and is the same for all controls over one store. The store has its hash
//! and the sealed token, so that each control can show it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use sallyport_api::Secret;
use sallyport_identity::Purpose;
use sallyport_store::StoredSetupToken;
use serde::{Deserialize, Serialize};

use crate::{problem::ApiError, security::random, state::App};

/// The file in the data directory with the setup token, as long as there is no account.
pub const SETUP_TOKEN_FILE: &str = "setup-token";
/// How setup tokens begin.
const SETUP_TOKEN_PREFIX: &str = "spu_";

/// A setup token in its sealed form.
#[derive(Serialize, Deserialize)]
struct SealedSetupToken {
    setup_token: String,
}

impl App {
    /// Makes the setup token if the first account needs one, and shows it to the operator; removes it if there is an
    /// account.
    pub(crate) async fn prepare_setup(&self) -> Result<(), ApiError> {
        let Some(path) = &self.config.setup_token_file else { return Ok(()) };
        let Some(token) = self.setup_token().await? else {
            forget(path);
            return Ok(());
        };
        if let Err(error) = write(path, token.expose()) {
            tracing::warn!(path = %path.display(), %error, "the setup token cannot be written");
        }
        // The only secret in the log: it is invalid as soon as there is an account.
        tracing::warn!(
            setup_token = token.expose(),
            file = %path.display(),
            "there is no account yet: the first one takes this setup token (sallyport account create --setup-token \
             TOKEN; on this machine, the command finds it by itself)"
        );
        Ok(())
    }

    async fn setup_token(&self) -> Result<Option<Secret>, ApiError> {
        let (token, hash) = random::secret(SETUP_TOKEN_PREFIX)?;
        let kept = SealedSetupToken { setup_token: token.expose().to_owned() };
        let sealed = self.sealer.seal(Purpose::StoredSecret, &kept, random::bytes()?);
        let sealed = sealed.ok_or_else(|| ApiError::internal("a setup token could not be sealed"))?;
        let new = StoredSetupToken { hash, sealed };
        let Some(stored) = self.store.keep_setup_token(&new).await? else { return Ok(None) };
        let opened: Option<SealedSetupToken> = self.sealer.open(Purpose::StoredSecret, &stored.sealed);
        if let Some(opened) = opened {
            return Ok(Some(opened.setup_token.into()));
        }
        // Sealed with a lost key, the old token cannot be shown any more.
        Ok(self.store.replace_setup_token(&new).await?.map(|_| token))
    }

    /// Removes the file with the setup token, because there is an account.
    pub(crate) fn end_setup(&self) {
        if let Some(path) = &self.config.setup_token_file {
            forget(path);
        }
    }
}

/// Writes the token with access for its owner alone: beside its place, then moved there.
fn write(path: &Path, token: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn forget(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "the file with the invalid setup token cannot be removed");
        }
        _ => {}
    }
}
