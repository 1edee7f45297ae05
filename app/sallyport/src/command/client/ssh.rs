//! `sallyport client ssh-keysign`, `sallyport client ssh` and `sallyport ssh-config`.

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt as _, fs::DirBuilderExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::CreateClientSshCertificate;
use sallyport_client::ApiClient;
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    cert::write_private,
    host::{Host, HostArgs},
    login::LoginEndpoint,
};
use crate::{
    command::ssh_key,
    context::{Context, credentials::CredentialsFile},
    failure::{Failure, Kind},
    output,
    view::utc,
};

/// The keys that ssh itself uses, best first.
const USUAL_KEYS: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

/// The authorities of hosts, in the configuration directory.
const KNOWN_HOSTS: &str = "known_hosts";
/// How many hosts are kept besides the last one.
const MAX_KNOWN_HOSTS: usize = 1_000;

/// Options of `client ssh-keysign`.
#[derive(Debug, Args)]
pub(crate) struct KeysignArgs {
    #[command(flatten)]
    host: HostArgs,
    /// The key; the certificate goes into a file beside it [default: ~/.ssh/id_ed25519, id_ecdsa or id_rsa]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Options of `client ssh`.
#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// Log in with a browser on another machine: prints a code to type there
    #[arg(long, env = "SALLYPORT_NO_BROWSER", value_parser = clap::builder::FalseyValueParser::new())]
    no_browser: bool,
    /// The key [default: one in the configuration directory, created when there is none]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The user on the host and the socket in front of it, then options for ssh, and the command to run there
    #[arg(required = true, trailing_var_arg = true, value_name = "[USER@]HOST")]
    destination: Vec<OsString>,
}

/// Options of `ssh-config`.
#[derive(Debug, Args)]
pub(crate) struct SshConfigArgs {
    /// The key [default: ~/.ssh/id_ed25519]
    #[arg(long, value_name = "FILE", default_value = "~/.ssh/id_ed25519")]
    key: String,
}

#[derive(Debug, Serialize)]
struct SignedKey {
    certificate: PathBuf,
    email: String,
    principals: Vec<String>,
    authority: String,
    #[serde(with = "time::serde::rfc3339")]
    valid_until: OffsetDateTime,
}

/// The file beside a key in which ssh looks for its certificate.
fn beside(key: &Path, suffix: &str) -> PathBuf {
    let mut name = key.as_os_str().to_owned().into_vec();
    name.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(name).into()
}

/// The private key; for a public one, the file beside it.
fn key_file(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        let is_public = given.extension().is_some_and(|extension| extension == "pub");
        return Ok(if is_public { given.with_extension("") } else { given });
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let keys = home.iter().flat_map(|home| USUAL_KEYS.map(|name| home.join(".ssh").join(name)));
    keys.into_iter().find(|key| beside(key, ".pub").is_file()).ok_or_else(|| {
        Failure::usage("there is no ssh key in ~/.ssh")
            .next("make a key with `ssh-keygen -t ed25519`, or name one with --key FILE")
    })
}

/// Gets the key signed, and writes the certificate beside it.
async fn sign(endpoint: &LoginEndpoint, key: &Path) -> anyhow::Result<SignedKey> {
    let public_key = ssh_key::read(Some(beside(key, ".pub")))?;
    let request = CreateClientSshCertificate { host: endpoint.host.name.clone(), public_key };
    let ask = |client: ApiClient| {
        let request = request.clone();
        async move { client.client_ssh_certificate(&request).await }
    };
    let signed = endpoint.ask(ask).await?;
    let certificate = beside(key, "-cert.pub");
    write_private(&certificate, &format!("{}\n", signed.certificate))?;
    know_host(&endpoint.host.name, &signed.authority)?;
    Ok(SignedKey {
        certificate,
        email: signed.email,
        principals: signed.principals,
        authority: signed.authority,
        valid_until: signed.valid_until,
    })
}

/// Records the authority of the host behind a socket, so that ssh does not ask about a fingerprint.
fn know_host(host: &str, authority: &str) -> anyhow::Result<()> {
    let file = CredentialsFile::of_user()?.dir().join(KNOWN_HOSTS);
    let known = fs::read_to_string(&file).unwrap_or_default();
    let begin = format!("@cert-authority {host},{host}.sallyport,{host}.mysocket-dummy ");
    let others = known.lines().filter(|line| !line.starts_with(&begin)).rev().take(MAX_KNOWN_HOSTS);
    let mut lines: Vec<&str> = others.collect();
    lines.reverse();
    let line = format!("{begin}{authority}");
    lines.push(&line);
    write_private(&file, &(lines.join("\n") + "\n"))
}

/// Gets a key signed.
pub(super) async fn keysign(context: &Context, args: KeysignArgs) -> anyhow::Result<()> {
    let key = key_file(args.key)?;
    let endpoint = LoginEndpoint::new(context, args.host)?;
    let signed = sign(&endpoint, &key).await?;
    context.output.data(&signed, |it| {
        output::pairs(&[
            ("certificate", it.certificate.display().to_string()),
            ("for", it.email.clone()),
            ("principals", it.principals.join(", ")),
            ("good until", utc(it.valid_until)),
        ])
    })
}

/// The key of this program, for people without a key of their own here.
fn own_key(dir: &Path) -> anyhow::Result<PathBuf> {
    let key = dir.join("ssh_key");
    if key.is_file() && beside(&key, ".pub").is_file() {
        return Ok(key);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    drop(fs::remove_file(&key));
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "sallyport", "-f"]).arg(&key).status();
    match made {
        Ok(status) if status.success() => Ok(key),
        Ok(status) => Err(anyhow::anyhow!("ssh-keygen made no key ({status})")),
        Err(error) => Err(Failure::new(Kind::Failed, format!("cannot run ssh-keygen: {error}"))
            .next("install the OpenSSH client")
            .into()),
    }
}

/// Runs ssh in place of this program.
pub(super) async fn run(context: &Context, args: SshArgs) -> anyhow::Result<()> {
    let (destination, arguments) = args.destination.split_first().context("which host?")?;
    let destination = destination.to_str().unwrap_or_default();
    let (user, host) = match destination.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, destination),
    };
    // ssh would read it as an option.
    if user.is_some_and(|user| user.is_empty() || user.starts_with('-')) {
        return Err(Failure::usage(format!("{destination:?} is no user and host such as ann@HOST")).into());
    }
    let host: Host = host.parse().map_err(Failure::usage)?;
    let dir = CredentialsFile::of_user()?.dir().to_owned();
    let key = match args.key {
        Some(key) => key_file(Some(key))?,
        None => own_key(&dir)?,
    };
    let endpoint = LoginEndpoint::new(context, HostArgs { host: host.clone(), no_browser: args.no_browser })?;
    let signed = sign(&endpoint, &key).await?;
    let known_hosts = dir.join(KNOWN_HOSTS);
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let port = host.port.map_or_else(String::new, |port| format!(":{port}"));
    let mut proxy = format!("{} --api {} ", quoted(&program), endpoint.target.api);
    if let sallyport_net::Trust::Ca(ca) = &endpoint.target.trust {
        proxy.push_str(&format!("--ca {} ", quoted(&std::path::absolute(ca)?)));
    }
    proxy.push_str(&format!("client tls --host '%h{port}'"));
    let mut ssh = Command::new("ssh");
    for option in [
        format!("ProxyCommand={proxy}"),
        format!("IdentityFile={}", quoted(&key)),
        format!("CertificateFile={}", quoted(&signed.certificate)),
        "IdentitiesOnly=yes".to_owned(),
        format!("UserKnownHostsFile=~/.ssh/known_hosts {}", quoted(&known_hosts)),
    ] {
        ssh.arg("-o").arg(option);
    }
    if let Some(user) = user {
        ssh.arg("-l").arg(user);
    }
    // ssh reads options after the host too; the host itself was checked.
    let error = ssh.arg(&host.name).args(arguments).exec();
    Err(Failure::new(Kind::Failed, format!("cannot run ssh: {error}")).next("install the OpenSSH client").into())
}

/// The path, quoted for ssh_config(5) and for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:,".contains(&byte));
    if is_plain { text } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// Prints the lines for `~/.ssh/config`.
pub(crate) fn ssh_config(args: &SshConfigArgs) -> anyhow::Result<()> {
    let program = std::env::current_exe().map_or_else(|_| "sallyport".to_owned(), |path| quoted(&path));
    let key = &args.key;
    if key.chars().any(char::is_control) || key.contains('"') {
        return Err(Failure::usage("a key with such a name cannot stand in a configuration of ssh").into());
    }
    let known_hosts = quoted(&CredentialsFile::of_user()?.dir().join(KNOWN_HOSTS));
    output::line(&format!(
        "# Hosts behind Sallyport: ssh USER@NAME.sallyport, where NAME is the socket's name with its domain.\n\
         # Belongs into ~/.ssh/config; `sallyport ssh-config >> ~/.ssh/config` puts it there.\n\
         Match host *.sallyport,*.mysocket-dummy exec \"{program} client ssh-keysign --host '%h' --key {key}\"\n    \
         IdentityFile {key}\n    \
         CertificateFile {key}-cert.pub\n\
         Host *.sallyport *.mysocket-dummy\n    \
         UserKnownHostsFile ~/.ssh/known_hosts {known_hosts}\n    \
         ProxyCommand {program} client tls --host '%h'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_stand_beside_their_keys() {
        assert_eq!(beside(Path::new("/k/id"), "-cert.pub"), Path::new("/k/id-cert.pub"));
        assert_eq!(key_file(Some("/k/id.pub".into())).unwrap(), Path::new("/k/id"));
        assert_eq!(key_file(Some("/k/id".into())).unwrap(), Path::new("/k/id"));
        assert_eq!(quoted(Path::new("/a b/\"c\"")), "\"/a b/\\\"c\\\"\"");
    }
}
