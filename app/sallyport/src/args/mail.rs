//! Options for the hook that sends messages to owners of accounts.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use sallyport_control::MailHook;

use crate::failure::{Failure, Kind};

/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 65_536;

/// Messages to owners of accounts.
#[derive(Debug, Clone, Args)]
pub(crate) struct MailArgs {
    /// The hook that sends messages to owners of accounts: reset codes and invitations. It gets JSON by POST, signed as
    /// for local providers
    #[arg(long, value_name = "URL", env = "SALLYPORT_MAIL_HOOK", requires = "mail_hook_secret_file")]
    pub(crate) mail_hook: Option<String>,
    /// The file with the secret that signs requests to the hook; only its owner may read the file
    #[arg(long, value_name = "FILE", env = "SALLYPORT_MAIL_HOOK_SECRET_FILE")]
    pub(crate) mail_hook_secret_file: Option<PathBuf>,
    /// The authorities for the hook's certificate, in PEM, instead of the system's
    #[arg(long, value_name = "FILE", env = "SALLYPORT_MAIL_HOOK_CA")]
    pub(crate) mail_hook_ca: Option<PathBuf>,
}

impl MailArgs {
    /// The hook, if there is one.
    pub(crate) fn hook(&self) -> anyhow::Result<Option<MailHook>> {
        let (Some(url), Some(file)) = (&self.mail_hook, &self.mail_hook_secret_file) else { return Ok(None) };
        let secret = read(file, true)?.trim().to_owned();
        let ca_pem = self.mail_hook_ca.as_deref().map(|file| read(file, false)).transpose()?;
        let hook = MailHook::new(url, secret.into(), ca_pem);
        Ok(Some(hook.map_err(|why| {
            Failure::usage(format!("--mail-hook cannot be used: {why}"))
                .next("`openssl rand -hex 32` makes a secret; a hook is https://, or on this machine")
        })?))
    }
}

fn read(path: &Path, is_secret: bool) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.permissions().mode() & 0o777;
    if is_secret && mode & 0o077 != 0 {
        let message = format!("{} can be read by others (mode {mode:04o})", path.display());
        return Err(Failure::new(Kind::Failed, message).next(format!("run chmod 600 {}", path.display())).into());
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}
