//! `sallyport account`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sallyport_api::{Account, CreateAccount, HandOver};
use sallyport_client::ClientError;
use serde_json::json;

use super::{display_name, email, ssh_key, utc};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
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
    /// Make another account the owner of the installation, who lets edges join: for the one that is its owner now
    HandOver(HandOverArgs),
}

/// Options of `account hand-over`.
#[derive(Debug, Args)]
pub(crate) struct HandOverArgs {
    /// The e-mail address of the next owner
    #[arg(value_name = "EMAIL")]
    email: String,
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
            let account = context.client_of_self(&context.target()?)?.account().await?;
            context.output.data(&account, show)
        }
        AccountCommand::HandOver(args) => {
            let email = email(&args.email)?;
            let client = context.client_of_self(&context.target()?)?;
            let handed = client.hand_over(&HandOver { email: email.clone() }).await;
            handed.map_err(|error| failure::about(error, &email))?;
            context.output.data(&json!({ "owner": email }), |_| format!("{email} owns the installation now"))
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
    let create = CreateAccount { name, email: email.clone(), password, ssh_key };
    let login = context.login_command(&email);
    let account = client.create_account(&create).await.map_err(|error| taken(error, &login))?;
    context.output.data(&account, show)?;
    context.output.hint(&format!("next: {login}"));
    Ok(())
}

/// Who has an account already needs no other one.
fn taken(error: ClientError, login: &str) -> anyhow::Error {
    match &error {
        ClientError::Problem(problem) if problem.code == "email-taken" => {
            Failure::new(Kind::Refused, problem.to_string()).next(format!("if it is yours, run `{login}`")).into()
        }
        _ => error.into(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_an_account_is_told_to_log_in() {
        let refused = |code: &str| {
            let json = format!(r#"{{"status":409,"detail":"taken","code":"{code}"}}"#);
            let error = ClientError::Problem(Box::new(serde_json::from_str(&json).unwrap()));
            crate::failure::describe(&taken(error, "sallyport login --email ann@example.com")).unwrap()
        };
        let next = refused("email-taken").next_step.unwrap();
        assert!(next.contains("`sallyport login --email ann@example.com`"), "{next}");
        assert_eq!(refused("other").next_step, None);
    }
}
