//! `sallyport login-session`: persons who have logged in to sockets.

use clap::{Args, Subcommand};
use sallyport_api::{EndLoginSessions, LoginSession};
use sallyport_client::ApiClient;
use sallyport_model::{LoginSessionId, PersonEmail, ProviderName};
use serde_json::json;

use crate::{
    command::options::pick::Pick,
    context::Context,
    failure::{self, Failure},
    output::Output,
    view::columns::{self, Column},
};

/// What can be done with logins of persons.
#[derive(Debug, Subcommand)]
pub(crate) enum LoginSessionCommand {
    /// List the logins at your sockets
    #[command(alias = "list")]
    Ls,
    /// End logins and their open connections; the next request needs a new login
    #[command(alias = "rm")]
    End(EndArgs),
}

/// Options of `login-session end`.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct EndArgs {
    /// One login, by its id, as `login-session ls` shows it
    #[arg(value_name = "ID", conflicts_with_all = ["email", "provider", "all"])]
    id: Option<String>,
    /// All logins of this e-mail address
    #[arg(long, value_name = "EMAIL")]
    email: Option<PersonEmail>,
    /// All logins through this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<ProviderName>,
    /// All logins
    #[arg(long, conflicts_with_all = ["email", "provider"])]
    all: bool,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: LoginSessionCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        LoginSessionCommand::Ls => {
            let sessions = client.login_sessions().await?;
            context.output.list(&sessions, "nobody is logged in", |sessions| list(&context.output, sessions))
        }
        LoginSessionCommand::End(EndArgs { id: Some(text), .. }) => {
            let id = find(&client, &text).await?;
            client.end_login_session(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "ended": 1 }), |_| format!("ended {id}"))
        }
        LoginSessionCommand::End(EndArgs { email, provider, all, .. }) => {
            if email.is_none() && provider.is_none() && !all {
                return Err(Failure::usage("which logins?").into());
            }
            let ended = client.end_login_sessions(&EndLoginSessions { email, provider, all }).await?;
            context.output.data(&ended, |ended| match ended.ended {
                1 => "ended 1 login".to_owned(),
                ended => format!("ended {ended} logins"),
            })
        }
    }
}

/// The login with this id, or the one whose id begins with it.
async fn find(client: &ApiClient, text: &str) -> anyhow::Result<LoginSessionId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let pick = Pick {
        what: "login",
        list: "sallyport login-session ls",
        id: &|session: &LoginSession| session.id.uuid(),
        names: &|_| Vec::new(),
    };
    Ok(pick.find(client.login_sessions().await?, text)?.id)
}

fn list(output: &Output, sessions: &[LoginSession]) -> String {
    columns::table(
        output,
        [
            Column::Cut("E-MAIL"),
            Column::Cut("PROVIDER"),
            Column::Plain("LOGGED IN"),
            Column::Plain("ENDS"),
            Column::Id("ID"),
        ],
        sessions.iter().map(|session| {
            [
                session.email.to_string(),
                session.provider.to_string(),
                columns::minute(session.authenticated_at),
                columns::minute(session.expires_at),
                session.id.to_string(),
            ]
        }),
    )
}
