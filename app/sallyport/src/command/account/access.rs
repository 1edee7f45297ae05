//! `sallyport account password`, `forgot`, `reset`, `totp` and `session`: access to the account.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use sallyport_api::{
    AccountReset, AccountSession, BeginTotp, ChangePassword, ConfirmTotp, ForgotPassword, ProveTotp, RecoveryCodes,
    ResetAccount, Secret, SetPassword,
};
use sallyport_client::{ApiClient, ClientError};
use sallyport_store::{DATABASE_FILE, DataDirLock, LockError, Store};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::PASSWORD_ENV;
use crate::{
    args::password::{PasswordArgs, PasswordPrompt, ask_for_code, two_lines},
    command::{data::data_dir, email},
    context::Context,
    failure::{self, Failure, Kind},
    installation::database::DatabaseArgs,
    output,
    view::utc,
};

/// The environment variable of the next password.
const NEW_PASSWORD_ENV: &str = "SALLYPORT_NEW_PASSWORD";
/// How often a code may be typed wrong.
const MAX_CODE_TRIES: usize = 3;

/// Options of `account password`.
#[derive(Debug, Args)]
pub(crate) struct PasswordChangeArgs {
    /// The reset code, instead of the current password
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Read the current and the new password from the standard input, one a line; with --code, only the new one
    #[arg(long)]
    password_stdin: bool,
}

/// Options of `account forgot`.
#[derive(Debug, Args)]
pub(crate) struct ForgotArgs {
    /// The e-mail address of the account
    #[arg(long)]
    email: String,
}

/// Options of `account reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// The e-mail address of the account
    #[arg(value_name = "EMAIL")]
    email: String,
    /// Turn one-time codes off too, when the phone and the recovery codes are lost
    #[arg(long)]
    totp: bool,
    /// Reset in this data directory, on the server, without logging in; `up` may run meanwhile
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// What can be done with codes.
#[derive(Debug, Subcommand)]
pub(crate) enum TotpCommand {
    /// Require a code of an authenticator besides the password; shows a QR code to scan, and recovery codes
    Enable(CurrentPassword),
    /// Require no codes any more
    Disable(ProofArgs),
    /// Get new recovery codes, which replace the former ones
    Codes(ProofArgs),
}

/// The current password.
#[derive(Debug, Args)]
pub(crate) struct CurrentPassword {
    #[command(flatten)]
    password: PasswordArgs,
}

/// The current password, and a code.
#[derive(Debug, Args)]
pub(crate) struct ProofArgs {
    #[command(flatten)]
    password: PasswordArgs,
    /// A code of the authenticator, or a recovery code [default: a terminal asks]
    #[arg(long, value_name = "CODE", env = "SALLYPORT_CODE", hide_env_values = true)]
    code: Option<String>,
}

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions: since when, from where, by which program
    #[command(alias = "list")]
    Ls,
    /// End a session, or all but this one, at once
    End(EndArgs),
}

/// Options of `account session end`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct EndArgs {
    /// The session, as `account session ls` shows it
    #[arg(value_name = "ID")]
    id: Option<Uuid>,
    /// All sessions except the one of this command
    #[arg(long)]
    others: bool,
}

const CURRENT: PasswordPrompt<'static> = PasswordPrompt { env: PASSWORD_ENV, prompt: "Current password", twice: false };
const NEXT: PasswordPrompt<'static> = PasswordPrompt { env: NEW_PASSWORD_ENV, prompt: "New password", twice: true };

/// Prompts for a password, unless an option gives one.
fn read_password(ask: PasswordPrompt<'_>, password_stdin: bool) -> anyhow::Result<Secret> {
    PasswordArgs { password: None, password_stdin }.read(ask)
}

/// Changes the password.
pub(crate) async fn password(context: &Context, args: PasswordChangeArgs) -> anyhow::Result<()> {
    let target = context.target()?;
    if let Some(code) = args.code {
        let client = context.anonymous_client(&target)?;
        let new_password = read_password(NEXT, args.password_stdin)?;
        client.set_password(&SetPassword { code: code.trim().into(), new_password }).await?;
        context
            .output
            .data(&json!({ "changed": true }), |_| "the password is set; all sessions have ended".to_owned())?;
        context.output.hint("next: sallyport login --email EMAIL");
        return Ok(());
    }
    let client = context.client_of_self(&target)?;
    let (current_password, new_password) =
        if args.password_stdin { two_lines()? } else { (read_password(CURRENT, false)?, read_password(NEXT, false)?) };
    client.change_password(&ChangePassword { current_password, new_password }).await?;
    context.output.data(&json!({ "changed": true }), |_| {
        "the password is another one now; your other sessions have ended, API tokens and ssh keys stay".to_owned()
    })
}

/// Requests a message with a reset code.
pub(crate) async fn forgot(context: &Context, args: ForgotArgs) -> anyhow::Result<()> {
    let email = email(&args.email)?;
    let client = context.anonymous_client(&context.target()?)?;
    client.forgot_password(&ForgotPassword { email: email.clone() }).await?;
    context.output.data(&json!({ "email": email }), |_| {
        format!(
            "if there is an account with {email}, the server sends a message to it; the code in the message is valid \
             for an hour"
        )
    })
}

/// Resets the password of an account.
pub(crate) async fn reset(context: &Context, args: ResetArgs) -> anyhow::Result<()> {
    let address = email(&args.email)?;
    let made = match args.data {
        Some(dir) => reset_in(context, &dir, &args.database, (address, args.totp)).await?,
        None => {
            let client = context.client_of_self(&context.target()?)?;
            let made = client.reset_account(&ResetAccount { email: address.clone(), totp: args.totp }).await;
            made.map_err(|error| locked_out(error, &address))?
        }
    };
    context.output.data(&made, shown_reset)?;
    if let Some(problem) = &made.problem {
        context.output.hint(&format!("no message was sent: {problem}"));
    }
    if let Some(code) = &made.code {
        context.output.hint(&format!(
            "give {} the link, or this command; one of them works once: sallyport account password --code {}",
            made.email,
            code.expose()
        ));
    }
    Ok(())
}

/// Adds advice to the failure for an owner who cannot log in.
fn locked_out(error: ClientError, email: &sallyport_model::Email) -> anyhow::Error {
    match &error {
        ClientError::NotLoggedIn { .. } => Failure::new(Kind::NotLoggedIn, error.to_string())
            .next("log in, or run this on the server with --data DIR, as the user that runs it")
            .into(),
        _ => failure::about(error, email),
    }
}

/// Resets in the data directory, without a login.
async fn reset_in(
    context: &Context,
    dir: &Path,
    database: &DatabaseArgs,
    (email, totp): (sallyport_model::Email, bool),
) -> anyhow::Result<AccountReset> {
    let store = open_beside(dir, database).await?;
    let made = sallyport_control::reset_account(&store, &email, totp, OffsetDateTime::now_utc().unix_timestamp()).await;
    store.close().await;
    let missing = || {
        Failure::new(Kind::NotFound, format!("there is no account {email} in {}", dir.display()))
            .next("name the data directory of the server, and --database where it has one")
    };
    let made = made?.ok_or_else(missing)?;
    // The link is an extra for a known API; the code is enough.
    let link = context.target().ok().and_then(|target| {
        let host = target.api.host().strip_prefix("api.")?.to_owned();
        let port = if target.api.port() == 443 { String::new() } else { format!(":{}", target.api.port()) };
        Some(format!("https://login.{host}{port}/reset?key={}", made.code.expose()))
    });
    Ok(AccountReset {
        email,
        sent: false,
        problem: None,
        link: link.map(Into::into),
        code: Some(made.code),
        expires_at: OffsetDateTime::from_unix_timestamp(made.expires_at)?,
    })
}

/// Opens the store of a server that may be running.
async fn open_beside(dir: &Path, database: &DatabaseArgs) -> anyhow::Result<Store> {
    if let Some(address) = database.address()? {
        return Ok(Store::open_postgres(&address).await?);
    }
    let data = data_dir(Some(dir.to_owned()))?;
    if !data.join(DATABASE_FILE).exists() {
        let message = format!("there is no database in {}", data.display());
        return Err(Failure::new(Kind::NotFound, message)
            .next("name the data directory of the server with --data, or its database with --database")
            .into());
    }
    match DataDirLock::take(&data) {
        Ok(_lock) => Ok(Store::open(&data).await?),
        // The server runs, so its tables are not migrated.
        Err(LockError::InUse { .. }) if Store::is_of_this_version(&data).await? => Ok(Store::open(&data).await?),
        Err(LockError::InUse { .. }) => {
            let message = format!("the server of {} runs another version than this program", data.display());
            Err(Failure::new(Kind::Refused, message).next("use the program that runs there, or stop it first").into())
        }
        Err(error) => Err(error.into()),
    }
}

fn shown_reset(made: &AccountReset) -> String {
    let mut rows = vec![("e-mail", made.email.to_string())];
    match (&made.code, made.sent) {
        (_, true) => rows.push(("link", "sent".to_owned())),
        (Some(code), _) => rows.push(("code", code.expose().to_owned())),
        _ => {}
    }
    rows.extend(made.link.as_ref().map(|link| ("link", link.expose().to_owned())));
    rows.push(("expires", utc(made.expires_at)));
    output::pairs(&rows)
}

/// Turns codes on and off.
pub(crate) async fn totp(context: &Context, command: TotpCommand) -> anyhow::Result<()> {
    let client = context.client_of_self(&context.target()?)?;
    match command {
        TotpCommand::Enable(args) => enable(context, &client, args).await,
        TotpCommand::Disable(args) => {
            client.disable_totp(&proof(args)?).await?;
            context.output.data(&json!({ "totp": false }), |_| "logins need no codes any more".to_owned())
        }
        TotpCommand::Codes(args) => {
            let codes = client.renew_recovery_codes(&proof(args)?).await?;
            context.output.data(&codes, shown_codes)?;
            context.output.hint(
                "each replaces a code of the authenticator once; the former recovery codes are not valid any more",
            );
            Ok(())
        }
    }
}

async fn enable(context: &Context, client: &ApiClient, args: CurrentPassword) -> anyhow::Result<()> {
    let current_password = args.password.read(CURRENT)?;
    let begun = client.begin_totp(&BeginTotp { current_password }).await?;
    // On the standard error, because the output is the recovery codes. Terminals are mostly dark, so the light modules
    // are drawn.
    let picture = QrCode::with_error_correction_level(begun.uri.expose(), EcLevel::L);
    let picture = picture
        .map(|code| code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build())
        .unwrap_or_default();
    eprintln!(
        "{picture}\nScan this with an authenticator, or type the secret: {}\n{}",
        begun.secret.expose(),
        begun.uri.expose()
    );
    let mut tried = 1;
    let codes = loop {
        let code = ask_for_code("The code that it shows")?;
        let confirm = ConfirmTotp { enrolment: begun.enrolment.clone(), code };
        match client.confirm_totp(&confirm).await {
            Err(ClientError::Problem(problem)) if problem.code == "wrong-code" && tried < MAX_CODE_TRIES => {
                tried += 1;
                eprintln!("{problem}");
            }
            done => break done?,
        }
    };
    context.output.data(&codes, shown_codes)?;
    context.output.hint(
        "logins need a code from now on, and your other sessions have ended; keep these recovery codes where you find \
         them without your phone: each replaces a code of the authenticator once, and they are shown only now",
    );
    Ok(())
}

fn proof(args: ProofArgs) -> anyhow::Result<ProveTotp> {
    let current_password = args.password.read(CURRENT)?;
    let code = match args.code.filter(|code| !code.trim().is_empty()) {
        Some(code) => code.trim().into(),
        None => ask_for_code("Code")?,
    };
    Ok(ProveTotp { current_password, code })
}

fn shown_codes(codes: &RecoveryCodes) -> String {
    codes.recovery_codes.iter().map(Secret::expose).collect::<Vec<_>>().join("\n")
}

/// Lists and ends sessions.
pub(crate) async fn session(context: &Context, command: SessionCommand) -> anyhow::Result<()> {
    let client = context.client_of_self(&context.target()?)?;
    match command {
        SessionCommand::Ls => context.output.list(&client.account_sessions().await?, "no sessions", list),
        SessionCommand::End(EndArgs { id: Some(id), .. }) => {
            client.end_account_session(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "ended": id }), |_| format!("ended {id}"))
        }
        SessionCommand::End(_) => {
            let ended = client.end_other_account_sessions().await?;
            context.output.data(&ended, |ended| match ended.ended {
                1 => "1 other session has ended".to_owned(),
                count => format!("{count} other sessions have ended"),
            })
        }
    }
}

fn list(sessions: &[AccountSession]) -> String {
    output::table(
        ["LAST USED", "FROM", "PROGRAM", "SINCE", "ID"],
        sessions.iter().map(|session| {
            let from = session.address.clone().unwrap_or_default();
            [
                if session.current {
                    "now, here".to_owned()
                } else {
                    session.last_used_at.map(utc).unwrap_or_default()
                },
                from,
                session.client.clone().unwrap_or_default(),
                utc(session.created_at),
                session.id.to_string(),
            ]
        }),
    )
}
