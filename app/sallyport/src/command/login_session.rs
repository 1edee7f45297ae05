//! `sallyport login-session`: persons who have logged in to sockets.

use clap::{Args, Subcommand};
use sallyport_api::{EndLoginSessions, LoginSession};
use sallyport_model::{LoginSessionId, PersonEmail, ProviderName};
use serde_json::json;

use super::utc;
use crate::{
    context::Context,
    failure::{self, Failure},
    output,
};

/// What can be done with logins of persons.
#[derive(Debug, Subcommand)]
pub(crate) enum LoginSessionCommand {
    /// List who is logged in at your sockets
    #[command(alias = "list")]
    Ls,
    /// End logins: what is open is cut, and the next request needs a new login
    #[command(alias = "rm")]
    End(EndArgs),
}

/// Options of `login-session end`.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct EndArgs {
    /// One login, by its id, as `login-session ls` shows it
    #[arg(value_name = "ID", conflicts_with_all = ["email", "provider", "all"])]
    id: Option<LoginSessionId>,
    /// All of this e-mail address
    #[arg(long, value_name = "EMAIL")]
    email: Option<PersonEmail>,
    /// All for which this provider vouches
    #[arg(long, value_name = "NAME")]
    provider: Option<ProviderName>,
    /// All there are
    #[arg(long, conflicts_with_all = ["email", "provider"])]
    all: bool,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: LoginSessionCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        LoginSessionCommand::Ls => context.output.list(&client.login_sessions().await?, "nobody is logged in", list),
        LoginSessionCommand::End(EndArgs { id: Some(id), .. }) => {
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

fn list(sessions: &[LoginSession]) -> String {
    output::table(
        ["ID", "E-MAIL", "PROVIDER", "LOGGED IN", "ENDS"],
        sessions.iter().map(|session| {
            [
                session.id.to_string(),
                session.email.to_string(),
                session.provider.to_string(),
                utc(session.authenticated_at),
                utc(session.expires_at),
            ]
        }),
    )
}
