//! `sallyport login` and `sallyport logout`.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::{Login, Logout, Session};
use sallyport_client::{ApiClient, ClientError};
use sallyport_model::Email;
use sallyport_net::{Fingerprint, Trust};
use serde::Serialize;
use time::OffsetDateTime;

use super::{account::PASSWORD_ENV, email};
use crate::{
    args::password::{PasswordArgs, PasswordPrompt, ask_for_code},
    context::{
        Context, Target,
        credentials::{CredentialsFile, Profile},
    },
    failure::{Failure, Kind},
};

/// How long asking a server for its root certificate may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a code is asked for.
const MAX_CODE_TRIES: usize = 3;
/// The longest answer to a question, in bytes.
const MAX_ANSWER_BYTES: u64 = 1_024;

/// Options of `login`.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The e-mail address of the account
    #[arg(long)]
    email: String,
    #[command(flatten)]
    password: PasswordArgs,
    /// A code of the authenticator, or a recovery code, when the account requires one [default: a terminal asks]
    #[arg(long, value_name = "CODE", env = "SALLYPORT_CODE", hide_env_values = true)]
    code: Option<String>,
    /// The fingerprint of the API's root certificate, as `sallyport up` logs it: sha256:...
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "ca")]
    ca_fingerprint: Option<Fingerprint>,
}

#[derive(Serialize)]
struct LoggedIn {
    api: String,
    email: Email,
    #[serde(with = "time::serde::rfc3339")]
    until: OffsetDateTime,
}

/// Logs in, and stores the login.
pub(crate) async fn login(context: &Context, args: LoginArgs) -> anyhow::Result<()> {
    let email = email(&args.email)?;
    let file = CredentialsFile::of_user()?;
    let mut target = context.target()?;
    if let Some(pin) = args.ca_fingerprint {
        target.trust = Trust::Pinned(pin.to_string());
    }
    let client = reach(context, &mut target).await?;
    let password = args.password.read(PasswordPrompt { env: PASSWORD_ENV, prompt: "Password", twice: false })?;
    let code = args.code.filter(|code| !code.trim().is_empty()).map(|code| code.trim().into());
    let session = enter(&client, Login { email: email.clone(), password, code }).await?;
    let logged_in = LoggedIn { api: target.api.to_string(), email: email.clone(), until: session.refresh_expires_at };
    let mut profile = Profile { email: Some(email), session: Some(session), ..Profile::default() };
    profile.set_trust(&target.trust).context("cannot use the file of the root certificate")?;
    file.update(|contents| {
        contents.current = Some(logged_in.api.clone());
        if let Some(former) = contents.profiles.get_mut(&logged_in.api) {
            profile.clients = std::mem::take(&mut former.clients);
            // Another account belongs to other organisations.
            let is_same = former.email == profile.email;
            profile.organisation = former.organisation.take().filter(|_| is_same);
        }
        contents.profiles.insert(logged_in.api.clone(), profile);
    })?;
    context.output.data(&logged_in, |it| format!("logged in to {} as {}", it.api, it.email))
}

/// Logs in, and prompts for a code if one is needed.
async fn enter(client: &ApiClient, mut login: Login) -> anyhow::Result<Session> {
    let mut asked = 0;
    loop {
        let error = match client.login(&login).await {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let code = if let ClientError::Problem(problem) = &error { problem.code.as_str() } else { "" };
        let is_missing = code == "code-needed";
        let may_ask = io::stdin().is_terminal() && asked < MAX_CODE_TRIES;
        if may_ask && (is_missing || (code == "wrong-code" && asked > 0)) {
            if !is_missing {
                eprintln!("{error}");
            }
            asked += 1;
            login.code = Some(ask_for_code("Code")?);
            continue;
        }
        return match code {
            "code-needed" => Err(Failure::new(
                Kind::NotLoggedIn,
                "this account requires a code of its authenticator too",
            )
            .next("give it, or a recovery code, with --code or in SALLYPORT_CODE; for programs, make an API token")
            .into()),
            "wrong-code" => Err(Failure::new(Kind::NotLoggedIn, error.to_string()).into()),
            _ => Err(refused(error)),
        };
    }
}

/// Deletes the stored login, and ends the session.
pub(crate) async fn logout(context: &Context) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct LoggedOut {
        api: String,
        was_logged_in: bool,
    }
    let target = context.target()?;
    let file = CredentialsFile::of_user()?;
    let api = target.api.to_string();
    let mut session = None;
    file.update(|contents| {
        session = contents.profiles.get_mut(&api).and_then(|profile| profile.session.take());
        if contents.current.as_ref() == Some(&api) {
            contents.current = None;
        }
    })?;
    let was_logged_in = session.is_some();
    if let Some(session) = session {
        let ended = match context.anonymous_client(&target) {
            Ok(client) => {
                client.logout(&Logout { refresh_token: session.refresh_token }).await.map_err(anyhow::Error::new)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            context.output.hint(&format!("the login is forgotten here, but the API could not be reached: {error:#}"));
        }
    }
    context.output.data(&LoggedOut { api, was_logged_in }, |it| {
        if it.was_logged_in { format!("logged out of {}", it.api) } else { format!("not logged in to {}", it.api) }
    })
}

/// A client of an API with a trusted certificate; on a terminal the user may decide to trust it.
pub(super) async fn reach(context: &Context, target: &mut Target) -> anyhow::Result<ApiClient> {
    let client = context.anonymous_client(target)?;
    match client.info().await {
        Ok(_) => Ok(client),
        Err(error @ ClientError::Untrusted { .. })
            if target.trust == Trust::System && io::stdin().is_terminal() && io::stderr().is_terminal() =>
        {
            let fingerprint = ask_to_trust(target).await?.ok_or(error)?;
            target.trust = Trust::Pinned(fingerprint.to_string());
            let client = context.anonymous_client(target)?;
            client.info().await?;
            Ok(client)
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows the fingerprint of the API's root certificate, and asks whether it is right.
async fn ask_to_trust(target: &Target) -> anyhow::Result<Option<Fingerprint>> {
    let api = &target.api;
    let outbound = target.network.to(api.host(), api.port());
    let root = sallyport_net::fetch_root_by(&outbound, api.host(), api.port(), api.host(), FETCH_TIMEOUT)
        .await
        .map_err(|error| Failure::new(Kind::Unreachable, error.to_string()))?;
    let mut terminal = io::stderr().lock();
    write!(
        terminal,
        "The certificate of {api} was signed by an authority that this machine does not know:\n\n  {}\n  {}\n\n\
         Compare this fingerprint with the one that `sallyport up` logged there.\nTrust it from now on? [y/N] ",
        crate::output::safe(&root.subject),
        root.fingerprint,
    )
    .and_then(|()| terminal.flush())
    .context("cannot ask")?;
    let mut answer = String::new();
    io::Read::take(io::stdin().lock(), MAX_ANSWER_BYTES).read_line(&mut answer).context("cannot read the answer")?;
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Ok(yes.then_some(root.fingerprint))
}

/// Drops the advice to log in from the failure of a wrong password.
fn refused(error: ClientError) -> anyhow::Error {
    match &error {
        ClientError::Problem(problem) if problem.status == 401 => Failure::new(Kind::NotLoggedIn, problem.to_string())
            .next(
                "check the address and the password; `sallyport account forgot` sends a code for another one, and \
                 `sallyport account create` makes an account",
            )
            .into(),
        _ => error.into(),
    }
}
