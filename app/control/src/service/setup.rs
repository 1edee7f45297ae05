//! The setup token. On a server that others can reach, the first account needs it.
//!
//! It is made where there is no account, and is the same for all controls over one store. The store keeps its hash, and
//! the token itself sealed, so that each control can say it; it is gone with the first account.

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
    /// Makes sure that there is a setup token while the first account needs one, and says it to the operator; takes it
    /// away when there is an account.
    pub(crate) async fn prepare_setup(&self) -> Result<(), ApiError> {
        let Some(path) = &self.config.setup_token_file else { return Ok(()) };
        let Some(token) = self.setup_token().await? else {
            forget(path);
            return Ok(());
        };
        if let Err(error) = write(path, token.expose()) {
            tracing::warn!(path = %path.display(), %error, "the setup token cannot be written");
        }
        // The one secret that stands in the log: it is worth nothing as soon as there is an account.
        tracing::warn!(
            setup_token = token.expose(),
            file = %path.display(),
            "there is no account yet: the first one takes this setup token (sallyport account create --setup-token TOKEN; on this \
             machine, the command finds it by itself)"
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
        // Sealed with a key that is gone: nobody can say it any more.
        Ok(self.store.replace_setup_token(&new).await?.map(|_| token))
    }

    /// There is an account: the file with the setup token goes.
    pub(crate) fn end_setup(&self) {
        if let Some(path) = &self.config.setup_token_file {
            forget(path);
        }
    }
}

/// Writes the token where its owner alone can read it: beside its place, and moved there.
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
            tracing::warn!(path = %path.display(), %error, "the setup token, which is worth nothing any more, cannot be removed");
        }
        _ => {}
    }
}
