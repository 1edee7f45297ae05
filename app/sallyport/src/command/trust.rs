//! `sallyport trust`: the root certificate in the system's own store.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use sallyport_net::{Fingerprint, RootInfo, Trust};
use sallyport_trust::{InstallError, RemoveError, StoreError};
use serde_json::json;

use crate::{
    context::Context,
    failure::{Failure, unreadable},
};

/// The largest certificate file that is read, in bytes.
const MAX_PEM_BYTES: u64 = 64 * 1_024;

/// What can be done with trust.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Put the root certificate of the local `sallyport up`, or of --ca, into the system's store
    Install,
    /// Take it out again
    Remove(RemoveArgs),
}

/// Options of `trust remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The fingerprint of the root certificate, when its file is gone: sha256:...
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<Fingerprint>,
}

/// Does it.
pub(crate) fn run(context: &Context, command: &TrustCommand) -> anyhow::Result<()> {
    match command {
        TrustCommand::Install => install(context),
        TrustCommand::Remove(args) => remove(context, args),
    }
}

fn install(context: &Context) -> anyhow::Result<()> {
    let ca = root_file(context)?;
    let installed = sallyport_trust::install(&ca).map_err(|error| match error {
        InstallError::Store(error) => as_root(error, &format!("install --ca {}", ca.display())),
        other => other.into(),
    })?;
    let data = json!({
        "fingerprint": installed.fingerprint.to_string(),
        "subject": installed.subject,
        "domain": installed.domain,
        "file": installed.file,
        "was_there": installed.was_there,
    });
    context.output.data(&data, |_| {
        let verb = if installed.was_there { "already trusts" } else { "now trusts" };
        let bound = installed.domain.as_ref().map(|domain| format!(", for {domain} only")).unwrap_or_default();
        format!("this machine {verb} {} ({}{bound})", installed.subject, installed.fingerprint)
    })?;
    if installed.domain.is_none() {
        context.output.hint(&unbound(&installed.fingerprint.to_string()));
    }
    context.output.hint(sallyport_trust::BROWSER_HINT);
    Ok(())
}

/// What to know of a root without name constraints (RFC 5280 section 4.2.1.10).
fn unbound(fingerprint: &str) -> String {
    format!(
        "careful: this root is bound to no domain, so whoever has its key can speak for every site on this machine; \
         unless you want that, run `sallyport trust remove --fingerprint {fingerprint}`"
    )
}

fn remove(context: &Context, args: &RemoveArgs) -> anyhow::Result<()> {
    let fingerprint = match args.fingerprint {
        Some(fingerprint) => fingerprint,
        None => fingerprint_of(&root_file(context)?)?,
    };
    let removed = sallyport_trust::remove(&fingerprint.to_string()).map_err(|error| match error {
        RemoveError::Store(error) => as_root(error, &format!("remove --fingerprint {fingerprint}")),
        other @ RemoveError::Fingerprint(_) => other.into(),
    })?;
    let data = json!({ "fingerprint": removed.fingerprint.to_string(), "file": removed.file });
    context.output.data(&data, |_| match &removed.file {
        Some(_) => format!("this machine no longer trusts {fingerprint}"),
        None => format!("this machine did not trust {fingerprint}"),
    })
}

/// The file of the root certificate that is meant.
fn root_file(context: &Context) -> anyhow::Result<PathBuf> {
    let which = || {
        Failure::usage("which root certificate? No `sallyport up` of yours runs on this machine")
            .next("name the file with --ca FILE")
    };
    let path = match &context.ca {
        Some(ca) => ca.clone(),
        None => match context.target() {
            Ok(target) => match target.trust {
                Trust::Ca(path) => path,
                Trust::System | Trust::Pinned(_) => return Err(which().into()),
            },
            Err(_) => return Err(which().into()),
        },
    };
    std::path::absolute(&path).with_context(|| format!("cannot use {}", path.display()))
}

fn fingerprint_of(ca: &Path) -> anyhow::Result<Fingerprint> {
    use std::io::Read as _;
    let mut pem = String::new();
    let read = std::fs::File::open(ca).and_then(|file| file.take(MAX_PEM_BYTES).read_to_string(&mut pem));
    read.map_err(|error| unreadable(ca, &error))?;
    let root = RootInfo::from_pem(&pem).with_context(|| format!("{} is not a root certificate", ca.display()))?;
    Ok(root.fingerprint)
}

/// Only root may change the store, and root does not know the directories of the user: the next step names everything.
fn as_root(error: StoreError, what: &str) -> anyhow::Error {
    let StoreError::NotRoot(_) = error else { return error.into() };
    let program = std::env::current_exe().map_or_else(|_| "sallyport".to_owned(), |path| path.display().to_string());
    Failure::new(crate::failure::Kind::Failed, "only root may change the certificate store of this machine")
        .next(format!("run: sudo {program} trust {what}"))
        .into()
}
