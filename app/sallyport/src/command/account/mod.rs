//! `sallyport account`.
//!
//! May use what `command` may use.

pub(crate) mod access;

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use sallyport_api::{Account, CreateAccount, HandOver, Secret};
use sallyport_client::ClientError;
use sallyport_control::SETUP_TOKEN_FILE;
use sallyport_net::{Fingerprint, Trust};
use serde_json::json;

use self::access::{ForgotArgs, PasswordChangeArgs, ResetArgs, SessionCommand, TotpCommand};
use super::{display_name, email, login::reach, ssh_key};
use crate::{
    args::password::{PasswordArgs, PasswordPrompt},
    context::Context,
    failure::{self, Failure, Kind},
    output,
    view::utc,
};

/// The environment variable of the account's password.
pub(crate) const PASSWORD_ENV: &str = "SALLYPORT_PASSWORD";
/// The longest setup token that is read, in bytes.
const MAX_TOKEN_BYTES: u64 = 256;

/// What can be done with accounts.
#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// Make an account, with a password from the terminal or from SALLYPORT_PASSWORD
    Create(CreateArgs),
    /// Show the account that is logged in
    Show,
    /// Set another password; the other sessions end. With --code, after a reset
    #[command(alias = "passwd")]
    Password(PasswordChangeArgs),
    /// Request a message with a reset code, where the server sends messages
    Forgot(ForgotArgs),
    /// Remove an account's password, and make a reset code; needs the owner of the installation, or the data directory
    /// (--data)
    Reset(ResetArgs),
    /// Codes of an authenticator beside the password
    #[command(subcommand)]
    Totp(TotpCommand),
    /// The sessions of your account
    #[command(subcommand)]
    Session(SessionCommand),
    /// Make another account the owner of the installation; only the present owner can do this
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
    /// The file with a public ssh key to add to the account, - for the standard input
    #[arg(long, alias = "sshkey", value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    /// The code of an invitation of this address, as `member add` shows it
    #[arg(long, value_name = "CODE")]
    invitation: Option<String>,
    /// The setup token, for the first account of a server that others can reach. The server's log has it, and the file
    /// setup-token in its data directory, which this command reads by itself
    #[arg(long, value_name = "TOKEN", env = "SALLYPORT_SETUP_TOKEN", hide_env_values = true)]
    setup_token: Option<String>,
    /// The fingerprint of the API's root certificate, as `sallyport up` logs it: sha256:...
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "ca")]
    ca_fingerprint: Option<Fingerprint>,
    #[command(flatten)]
    password: PasswordArgs,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: AccountCommand) -> anyhow::Result<()> {
    match command {
        AccountCommand::Create(args) => create(context, args).await,
        AccountCommand::Show => {
            let account = context.client_of_self(&context.target()?)?.account().await?;
            context.output.data(&account, show)
        }
        AccountCommand::Password(args) => access::password(context, args).await,
        AccountCommand::Forgot(args) => access::forgot(context, args).await,
        AccountCommand::Reset(args) => access::reset(context, args).await,
        AccountCommand::Totp(command) => access::totp(context, command).await,
        AccountCommand::Session(command) => access::session(context, command).await,
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
    let mut target = context.target()?;
    if let Some(pin) = &args.ca_fingerprint {
        target.trust = Trust::Pinned(pin.to_string());
    }
    if args.password.password_stdin && args.ssh_key.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage("the standard input cannot be both the password and the ssh key")
            .next("name the file of the public key")
            .into());
    }
    let ssh_key = args.ssh_key.map(|file| ssh_key::read(Some(file))).transpose()?;
    let client = if args.invitation.is_some() {
        reach(context, &mut target).await?
    } else {
        context.anonymous_client(&target)?
    };
    let password = args.password.read(PasswordPrompt { env: PASSWORD_ENV, prompt: "New password", twice: true })?;
    let setup_token = args.setup_token.filter(|token| !token.trim().is_empty()).map(|token| token.trim().into());
    let gave_token = setup_token.is_some();
    let create = CreateAccount {
        name,
        email: email.clone(),
        password,
        ssh_key,
        invitation: args.invitation.map(|code| code.trim().into()),
        setup_token: setup_token.or_else(|| setup_token_beside(&target.trust)),
    };
    let login = match &args.ca_fingerprint {
        Some(pin) => format!("{} --ca-fingerprint {pin}", context.login_command(&email)),
        None => context.login_command(&email),
    };
    let account = client.create_account(&create).await.map_err(|error| not_made(error, &login, gave_token))?;
    context.output.data(&account, show)?;
    context.output.hint(&format!("next: {login}"));
    Ok(())
}

/// The setup token in the data directory of the trusted root certificate. The server proves with that root, or with a
/// certificate of a public authority for its name, that the token is its own, before the token is sent.
fn setup_token_beside(trust: &Trust) -> Option<Secret> {
    let (Trust::Ca(root) | Trust::CaAndSystem(root)) = trust else { return None };
    let mut text = String::new();
    File::open(root.with_file_name(SETUP_TOKEN_FILE)).ok()?.take(MAX_TOKEN_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim()).filter(|token| !token.is_empty()).map(Secret::from)
}

/// Adds advice to the failure: an existing account can log in, and the first account is made by the operator.
fn not_made(error: ClientError, login: &str, gave_token: bool) -> anyhow::Error {
    match &error {
        ClientError::Problem(problem) if problem.code == "email-taken" => {
            Failure::new(Kind::Refused, problem.to_string()).next(format!("if it is yours, run `{login}`")).into()
        }
        ClientError::Problem(problem) if problem.code == "setup-token-needed" => {
            let says = if gave_token {
                "that is not the setup token of this server"
            } else {
                "the first account of this server takes its setup token"
            };
            let next = "run this on the server, as the user that runs it, or give the token with --setup-token: it is \
                        in the server's log and in the file setup-token of its data directory";
            Failure::new(Kind::NotAllowed, says).next(next).into()
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
        ("codes", codes(account)),
        ("created", utc(account.created_at)),
    ])
}

fn codes(account: &Account) -> String {
    match (account.totp, account.recovery_codes) {
        (false, _) => "not required".to_owned(),
        (true, left) => format!("required; {left} recovery codes are left"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_account_gets_the_advice_to_log_in() {
        let refused = |code: &str| {
            let json = format!(r#"{{"status":409,"detail":"taken","code":"{code}"}}"#);
            let error = ClientError::Problem(Box::new(serde_json::from_str(&json).unwrap()));
            crate::failure::describe(&not_made(error, "sallyport login --email ann@example.com", false)).unwrap()
        };
        let next = refused("email-taken").next_step.unwrap();
        assert!(next.contains("`sallyport login --email ann@example.com`"), "{next}");
        assert_eq!(refused("other").next_step, None);
    }
}
