//! `sallyport account`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sallyport_api::{Account, CreateAccount};

use super::{display_name, email, ssh_key, utc};
use crate::{
    context::Context,
    failure::Failure,
    output,
    password::{Ask, PasswordArgs},
};

/// The environment variable of the account's password.
pub(crate) const PASSWORD_ENV: &str = "SALLYPORT_PASSWORD";

/// What can be done with accounts.
#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// Make an account; the password is asked for, or comes with SALLYPORT_PASSWORD
    Create(CreateArgs),
    /// Show the account that is logged in
    Show,
}

/// Options of `account create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Your name
    #[arg(long)]
    name: String,
    /// Your e-mail address, to log in with
    #[arg(long)]
    email: String,
    /// The file with a public ssh key that may log in, - for the standard input
    #[arg(long, alias = "sshkey", value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    #[command(flatten)]
    password: PasswordArgs,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: AccountCommand) -> anyhow::Result<()> {
    match command {
        AccountCommand::Create(args) => create(context, args).await,
        AccountCommand::Show => {
            let account = context.client(&context.target()?)?.account().await?;
            context.output.data(&account, show)
        }
    }
}

async fn create(context: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let (name, email) = (display_name(&args.name)?, email(&args.email)?);
    let client = context.client_of_nobody(&context.target()?)?;
    if args.password.password_stdin && args.ssh_key.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage("the standard input cannot be both the password and the ssh key")
            .next("name the file of the public key")
            .into());
    }
    let ssh_key = args.ssh_key.map(|file| ssh_key::read(Some(file))).transpose()?;
    let password = args.password.read(Ask { env: PASSWORD_ENV, prompt: "New password", twice: true })?;
    let account = client.create_account(&CreateAccount { name, email, password, ssh_key }).await?;
    context.output.data(&account, show)?;
    context.output.hint(&format!("next: sallyport login --email {}", account.email));
    Ok(())
}

fn show(account: &Account) -> String {
    output::pairs(&[
        ("account", account.id.to_string()),
        ("name", account.name.clone()),
        ("e-mail", account.email.to_string()),
        ("ssh user", account.ssh_user.clone()),
        ("created", utc(account.created_at)),
    ])
}
