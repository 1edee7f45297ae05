//! `sallyport ssh-key`: keys with which stock ssh clients log in.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateSshKey, SshKey};
use sallyport_client::ApiClient;
use serde_json::json;

use super::display_name;
use crate::{
    command::options::{confirm::YesArg, pick::Pick},
    context::{Context, candidates},
    failure::{self, Failure},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// The longest file that is read, in bytes: the API's longest key.
const MAX_FILE_BYTES: u64 = 16_384;
/// The keys that ssh itself uses, best first.
const USUAL_KEYS: [&str; 3] = ["id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"];

/// Advice if there is no key.
const MAKE_KEY: &str = "make a key with `ssh-keygen -t ed25519`, or name the file of a public key";

/// What can be done with ssh keys.
#[derive(Debug, Subcommand)]
pub(crate) enum SshKeyCommand {
    /// Let ssh clients with a key log in: `ssh -R` then serves your sockets
    Add(AddArgs),
    /// List the ssh keys
    #[command(alias = "list")]
    Ls,
    /// Remove an ssh key
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `ssh-key add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The file with the public key, - for the standard input [default: ~/.ssh/id_ed25519.pub, id_ecdsa.pub or
    /// id_rsa.pub]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The name of the key [default: the comment in the key]
    #[arg(long)]
    name: Option<String>,
}

/// Options of `ssh-key rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The key: its id, fingerprint or name, as `ssh-key ls` shows them
    #[arg(value_name = "KEY", add = ArgValueCompleter::new(candidates::ssh_keys))]
    key: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: SshKeyCommand) -> anyhow::Result<()> {
    let client = context.client_of_self(&context.target()?)?;
    match command {
        SshKeyCommand::Add(args) => {
            let name = args.name.as_deref().map(display_name).transpose()?;
            let key = CreateSshKey { name, public_key: read(args.file)? };
            let key = client.create_ssh_key(&key).await?;
            context.output.data(&key, show)?;
            if let Some(note) = &key.note {
                context.output.hint(&format!("note: {note}"));
            }
            context.output.hint(&format!("ssh clients with it log in as {}", client.account().await?.ssh_user));
            context.output.hint("next: `sallyport socket show SOCKET` has the ssh command that serves it");
            Ok(())
        }
        SshKeyCommand::Ls => {
            let empty = "no ssh keys yet: `sallyport ssh-key add` lets a stock ssh client serve your sockets";
            let keys = client.ssh_keys().await?;
            context.output.list(&keys, empty, |keys| list(&context.output, keys))?;
            if let Some(note) = keys.iter().find_map(|key| key.note.as_ref()) {
                context.output.hint(&format!("note on RSA keys: {note}"));
            }
            if !keys.is_empty() {
                context
                    .output
                    .hint(&format!("ssh clients with one of them log in as {}", client.account().await?.ssh_user));
            }
            Ok(())
        }
        SshKeyCommand::Rm(args) => {
            let key = find(&client, &args.key).await?;
            let question = format!("Remove the ssh key {}? Clients with that key no longer log in.", key.name);
            args.yes.confirm(&question)?;
            client.delete_ssh_key(key.id).await.map_err(|error| failure::about(error, &args.key))?;
            let gone = json!({ "deleted": key.id });
            context.output.data(&gone, |_| format!("removed {} ({})", key.name, key.fingerprint))
        }
    }
}

/// The key with this id, fingerprint or name.
async fn find(client: &ApiClient, text: &str) -> anyhow::Result<SshKey> {
    let pick = Pick {
        what: "ssh key",
        list: "sallyport ssh-key ls",
        id: &|key: &SshKey| key.id,
        names: &|key| vec![key.name.clone(), key.fingerprint.clone()],
    };
    Ok(pick.find(client.ssh_keys().await?, text)?)
}

/// Reads a public key. A private one is refused and never sent.
///
/// # Errors
/// The file cannot be read, is too long, or has a private key.
pub(crate) fn read(file: Option<PathBuf>) -> anyhow::Result<String> {
    let file = match file {
        Some(file) => file,
        None => usual_key()?,
    };
    let mut text = String::new();
    let from = if file == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err(Failure::usage("the standard input is a terminal")
                .next("name the file of the public key")
                .into());
        }
        io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_string(&mut text).context("cannot read the public key")?;
        "the standard input".to_owned()
    } else {
        let opened = match File::open(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::usage(format!("there is no file {}", file.display())).next(MAKE_KEY).into());
            }
            opened => opened.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let read = opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
        read.with_context(|| format!("cannot read {}", file.display()))?;
        file.display().to_string()
    };
    check(&text, &from)?;
    Ok(text.trim().to_owned())
}

fn check(text: &str, from: &str) -> Result<(), Failure> {
    if text.contains("PRIVATE KEY") {
        return Err(Failure::usage(format!("{from} is a private key: it was not sent anywhere, and never should be"))
            .next("give the public key, which is in the file of the same name that ends in .pub"));
    }
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::usage(format!("{from} is longer than {MAX_FILE_BYTES} bytes: that is no public key")));
    }
    Ok(())
}

fn usual_key() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let keys = home.iter().flat_map(|home| USUAL_KEYS.map(|name| home.join(".ssh").join(name)));
    keys.into_iter()
        .find(|key| key.is_file())
        .ok_or_else(|| Failure::usage("there is no ssh key in ~/.ssh").next(MAKE_KEY))
}

fn show(key: &SshKey) -> String {
    output::pairs(&[
        ("ssh key", key.id.to_string()),
        ("name", key.name.clone()),
        ("fingerprint", key.fingerprint.clone()),
        ("added", utc(key.created_at)),
    ])
}

fn list(output: &Output, keys: &[SshKey]) -> String {
    columns::table(
        output,
        [Column::Cut("NAME"), Column::Plain("FINGERPRINT"), Column::Wide("ADDED"), Column::Id("ID")],
        keys.iter().map(|key| [key.name.clone(), key.fingerprint.clone(), utc(key.created_at), key.id.to_string()]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_is_never_sent() {
        let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
        let refused = check(private, "id_ed25519").unwrap_err();
        assert!(refused.message.contains("not sent anywhere") && refused.next_step.unwrap().contains(".pub"));
        assert!(check(&"x".repeat(20_000), "x").is_err());
        assert!(check("ssh-ed25519 AAAA me", "x").is_ok());
    }

    #[test]
    fn the_key_is_read_from_a_file_without_its_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("k.pub");
        std::fs::write(&file, "ssh-ed25519 AAAA me\n").unwrap();
        assert_eq!(read(Some(file)).unwrap(), "ssh-ed25519 AAAA me");
        let missing = read(Some(dir.path().join("none"))).unwrap_err();
        let missing = failure::describe(&missing).unwrap();
        assert!(missing.message.starts_with("there is no file /") && missing.message.ends_with("/none"), "{missing}");
        assert_eq!(missing.next_step.as_deref(), Some(MAKE_KEY));
    }
}
