//! Rules of the kernel's packet filter, set by the program `nft`.

use std::{io, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

/// The longest script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 4 * 1024 * 1024;
/// How long `nft` may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of what `nft` says is kept, in bytes.
const MAX_MESSAGE_BYTES: usize = 400;

/// Why rules were not set.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// There is no `nft`.
    #[error("the program nft is not there: install the package nftables")]
    Missing,
    /// It does not run.
    #[error("nft does not run: {0}")]
    Run(#[source] io::Error),
    /// It takes too long.
    #[error("nft has not ended within {} s", PATIENCE.as_secs())]
    TooSlow,
    /// It refuses the script.
    #[error("nft refuses the rules: {0}")]
    Refused(String),
    /// The script is too long.
    #[error("{0} bytes of rules are more than {MAX_SCRIPT_BYTES}")]
    TooLong(usize),
}

/// Has `nft` run this script: all of it or nothing.
///
/// # Errors
/// `nft` is not there, or refuses the script: the former rules stay.
pub async fn apply(script: &str) -> Result<(), NftError> {
    run(script, &["-f", "-"]).await
}

/// Has `nft` and the kernel judge this script, and changes nothing.
///
/// # Errors
/// `nft` is not there, or refuses the script.
pub async fn check(script: &str) -> Result<(), NftError> {
    run(script, &["--check", "-f", "-"]).await
}

/// Has `nft` read this script from its standard input.
async fn run(script: &str, args: &[&str]) -> Result<(), NftError> {
    if script.len() > MAX_SCRIPT_BYTES {
        return Err(NftError::TooLong(script.len()));
    }
    let mut command = Command::new("nft");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NftError::Missing,
        _ => NftError::Run(error),
    })?;
    let stdin = child.stdin.take();
    let run = async {
        if let Some(mut stdin) = stdin {
            // A program that refuses the beginning does not read the rest.
            let _ = stdin.write_all(script.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(PATIENCE, run).await.map_err(|_| NftError::TooSlow)?.map_err(NftError::Run)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(MAX_MESSAGE_BYTES)]);
    Err(NftError::Refused(said.lines().next().unwrap_or_default().to_owned()))
}
