//! `sallyport trust`: the root certificate in the system's own store, and in those of browsers.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use sallyport_net::{Fingerprint, RootInfo, Trust};
use sallyport_trust::{BrowserChange, BrowserStores, InstallError, Person, RemoveError, StoreError};
use serde_json::json;

use crate::{
    context::Context,
    failure::{Failure, Kind, unreadable},
    machine::users,
};

/// The largest certificate file that is read, in bytes.
const MAX_PEM_BYTES: u64 = 64 * 1_024;

/// What can be done with the root certificate.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Put the root certificate of the local `sallyport up`, or of --ca, into the system's store and those of your
    /// browsers
    Install(BrowserArgs),
    /// Remove the root certificate from the stores
    #[command(alias = "uninstall")]
    Remove(RemoveArgs),
}

/// Whether browsers are meant too. Chromium and Firefox do not read the system's store.
#[derive(Debug, Args)]
pub(crate) struct BrowserArgs {
    /// Leave the stores of Chromium and Firefox as they are
    #[arg(long, conflicts_with = "only_browsers")]
    no_browsers: bool,
    /// Leave the system's store as it is; only root can change that
    #[arg(long)]
    only_browsers: bool,
}

/// Options of `trust remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The fingerprint of the root certificate, when its file is gone: sha256:...
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<Fingerprint>,
    #[command(flatten)]
    browsers: BrowserArgs,
}

/// Runs the command.
pub(crate) fn run(context: &Context, command: &TrustCommand) -> anyhow::Result<()> {
    match command {
        TrustCommand::Install(args) => install(context, args),
        TrustCommand::Remove(args) => remove(context, args),
    }
}

/// The browser stores of the calling user: with sudo, of the user who called it.
pub(crate) fn browser_stores() -> Option<BrowserStores> {
    let path =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin", "/bin", "/snap/bin"].map(PathBuf::from);
    let path: Vec<_> = path.into_iter().filter(|dir| dir.is_absolute()).chain(usual).collect();
    Some(BrowserStores::of(person()?, path))
}

fn person() -> Option<Person> {
    if rustix::process::geteuid().is_root() {
        let caller = ["SUDO_UID", "PKEXEC_UID", "DOAS_USER"].iter().find_map(|name| std::env::var(name).ok());
        if let Some(account) = caller.as_deref().and_then(users::of) {
            // Root's own browsers need no other user.
            let ids = Some((account.user, account.group)).filter(|(user, _)| *user != 0);
            return Some(Person { home: account.home, ids });
        }
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?;
    Some(Person { home, ids: None })
}

/// The browser stores to change. If they cannot be changed, the command fails before any change.
fn wanted_browsers(context: &Context, args: &BrowserArgs) -> anyhow::Result<Option<BrowserStores>> {
    let stores = if args.no_browsers { None } else { browser_stores() };
    match stores.as_ref().map(BrowserStores::check) {
        Some(Err(missing)) if args.only_browsers => {
            let next = format!("on Debian and Ubuntu: sudo apt-get install {}", sallyport_trust::CERTUTIL_PACKAGE);
            Err(Failure::new(Kind::Failed, missing.to_string()).next(next).into())
        }
        Some(Err(missing)) => {
            context.output.hint(&format!("note: {missing}, and run this again for them"));
            Ok(None)
        }
        Some(Ok(())) => Ok(stores),
        None => Ok(None),
    }
}

fn install(context: &Context, args: &BrowserArgs) -> anyhow::Result<()> {
    let ca = root_file(context)?;
    let stores = wanted_browsers(context, args)?;
    let mut data = json!({});
    if !args.only_browsers {
        let installed = sallyport_trust::install(&ca).map_err(|error| match error {
            InstallError::Store(error) => as_root(error, &format!("install --ca {}", ca.display())),
            other => other.into(),
        })?;
        data = json!({
            "fingerprint": installed.fingerprint.to_string(),
            "subject": installed.subject,
            "domain": installed.domain,
            "file": installed.file,
            "was_there": installed.was_there,
        });
    }
    let root = read_root(&ca)?;
    let changes = stores.map(|stores| stores.install(&root)).transpose()?.unwrap_or_default();
    data["fingerprint"] = root.fingerprint.to_string().into();
    data["browsers"] = serde_json::to_value(&changes)?;
    context.output.data(&data, |data| {
        let bound = root.domain.as_ref().map(|domain| format!(", for {domain} only")).unwrap_or_default();
        let root = format!("{} ({}{bound})", root.subject, root.fingerprint);
        let verb = |was_there| if was_there { "already trusts" } else { "now trusts" };
        let mut lines: Vec<_> = data["was_there"]
            .as_bool()
            .map(|was_there| format!("this machine {} {root}", verb(was_there)))
            .into_iter()
            .collect();
        lines.extend(done(&changes).map(|change| {
            let BrowserChange { store, changed, .. } = change;
            format!("{} {} it, in {}", store.browser.name(), verb(!changed), store.dir.display())
        }));
        if changes.is_empty() && args.only_browsers {
            lines.push("no browser with a certificate store was found: start it once, then run this again".to_owned());
        }
        lines.join("\n")
    })?;
    if root.domain.is_none() {
        context.output.hint(&unbound(&root.fingerprint.to_string()));
    }
    if done(&changes).any(|change| change.changed) {
        context.output.hint("browsers that run take it at their next start");
    }
    refused_browsers(&changes)
}

/// The successful changes.
fn done(changes: &[BrowserChange]) -> impl Iterator<Item = &BrowserChange> {
    changes.iter().filter(|change| change.error.is_none())
}

/// The first store that could not be changed.
fn refused_browsers(changes: &[BrowserChange]) -> anyhow::Result<()> {
    let Some((change, error)) = changes.iter().find_map(|change| Some((change, change.error.as_ref()?))) else {
        return Ok(());
    };
    let (browser, dir) = (change.store.browser.name(), change.store.dir.display());
    let message = format!("the certificates of {browser} in {dir} cannot be changed: {error}");
    Err(Failure::new(Kind::Failed, message).next("do it there by hand: Settings, Certificates, Authorities").into())
}

/// A warning about a root without name constraints (RFC 5280 section 4.2.1.10).
fn unbound(fingerprint: &str) -> String {
    format!(
        "careful: this root is bound to no domain, so a holder of its key can impersonate every site on this machine; \
         unless you want that, run `sallyport trust remove --fingerprint {fingerprint}`"
    )
}

fn remove(context: &Context, args: &RemoveArgs) -> anyhow::Result<()> {
    let fingerprint = match args.fingerprint {
        Some(fingerprint) => fingerprint,
        None => read_root(&root_file(context)?)?.fingerprint,
    };
    let stores = wanted_browsers(context, &args.browsers)?;
    let mut data = json!({ "fingerprint": fingerprint.to_string() });
    if !args.browsers.only_browsers {
        let removed = sallyport_trust::remove(&fingerprint.to_string()).map_err(|error| match error {
            RemoveError::Store(error) => as_root(error, &format!("remove --fingerprint {fingerprint}")),
            other @ RemoveError::Fingerprint(_) => other.into(),
        })?;
        data["file"] = serde_json::to_value(&removed.file)?;
    }
    let changes = stores.map(|stores| stores.remove(fingerprint)).transpose()?.unwrap_or_default();
    data["browsers"] = serde_json::to_value(&changes)?;
    context.output.data(&data, |data| {
        let verb = |was_there| if was_there { "no longer trusts" } else { "did not trust" };
        let mut lines: Vec<_> = data
            .get("file")
            .map(|file| format!("this machine {} {fingerprint}", verb(!file.is_null())))
            .into_iter()
            .collect();
        let changed = done(&changes).filter(|change| change.changed || args.browsers.only_browsers);
        lines.extend(changed.map(|change| {
            let BrowserChange { store, changed, .. } = change;
            format!("{} {} it, in {}", store.browser.name(), verb(*changed), store.dir.display())
        }));
        lines.join("\n")
    })?;
    refused_browsers(&changes)
}

/// The file of the root certificate.
fn root_file(context: &Context) -> anyhow::Result<PathBuf> {
    let which = || {
        Failure::usage("which root certificate? No `sallyport up` of yours runs on this machine")
            .next("name the file with --ca FILE")
    };
    let path = match &context.ca {
        Some(ca) => ca.clone(),
        None => match context.target() {
            Ok(target) => match target.trust {
                Trust::Ca(path) | Trust::CaAndSystem(path) => path,
                Trust::System | Trust::Pinned(_) => return Err(which().into()),
            },
            Err(_) => return Err(which().into()),
        },
    };
    std::path::absolute(&path).with_context(|| format!("cannot use {}", path.display()))
}

pub(super) fn read_root(ca: &Path) -> anyhow::Result<RootInfo> {
    use std::io::Read as _;
    let mut pem = String::new();
    let read = std::fs::File::open(ca).and_then(|file| file.take(MAX_PEM_BYTES).read_to_string(&mut pem));
    read.map_err(|error| unreadable(ca, &error))?;
    RootInfo::from_pem(&pem).with_context(|| format!("{} is not a root certificate", ca.display()))
}

/// Adds advice with all options, because only root may change the store, and root's directories differ.
fn as_root(error: StoreError, what: &str) -> anyhow::Error {
    let StoreError::NotRoot(_) = error else { return error.into() };
    let program = std::env::current_exe().map_or_else(|_| "sallyport".to_owned(), |path| path.display().to_string());
    Failure::new(Kind::Failed, "only root may change the certificate store of this machine")
        .next(format!("run: sudo {program} trust {what}; or add --only-browsers, which needs no root"))
        .into()
}
