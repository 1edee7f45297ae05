//! `sallyport token`: for programs that cannot type a password.

use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateToken, CreatedToken, Token};
use sallyport_model::{Scope, ScopeSet, TokenId, UnknownScope};
use serde_json::json;
use time::OffsetDateTime;

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

/// What can be done with API tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make an API token for the organisation; it is shown only once
    Create(CreateArgs),
    /// List your API tokens for the organisation
    #[command(alias = "list")]
    Ls,
    /// End an API token
    #[command(alias = "rm")]
    Delete(DeleteLine),
}

/// Options of `token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name of the token
    #[arg(long)]
    name: String,
    /// The scopes: account:read, account:write, sockets:read, sockets:write, tunnels:connect, identity:read,
    /// identity:write, audit:read, organisation:read, organisation:write; several with commas, or all
    #[arg(
        long = "scope",
        alias = "scopes",
        value_name = "SCOPE",
        value_delimiter = ',',
        required = true,
        value_parser = scopes_of
    )]
    scopes: Vec<ScopeSet>,
    /// The lifetime of the token in days [default: no end]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    expires_in_days: Option<u32>,
}

/// A token on the command line.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct DeleteArgs {
    /// The token: its name or its id, as `token ls` shows them
    #[arg(id = "api_token", value_name = "TOKEN", add = ArgValueCompleter::new(candidates::tokens))]
    token: Option<String>,
    /// The same, as an option
    #[arg(long, value_name = "TOKEN")]
    token_id: Option<String>,
    /// The same, by its name
    #[arg(long)]
    name: Option<String>,
}

/// Options of `token delete` with its question.
#[derive(Debug, Args)]
pub(crate) struct DeleteLine {
    #[command(flatten)]
    which: DeleteArgs,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: TokenCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        TokenCommand::Create(args) => {
            let expires_at = args
                .expires_in_days
                .map(|days| OffsetDateTime::now_utc() + Duration::from_secs(u64::from(days) * 24 * 60 * 60));
            let scopes: Vec<Scope> = args.scopes.iter().flat_map(ScopeSet::iter).collect();
            let token = CreateToken { name: display_name(&args.name)?, scopes: scopes.into(), expires_at };
            let created = client.create_token(&token).await?;
            context.output.data(&created, show)?;
            context.output.hint("keep it now: it is not shown again; programs take it from SALLYPORT_TOKEN");
            Ok(())
        }
        TokenCommand::Ls => {
            let empty = "no API tokens yet: `sallyport token create --name NAME --scope sockets:read` makes one";
            context.output.list(&client.tokens().await?, empty, |tokens| list(&context.output, tokens))
        }
        TokenCommand::Delete(args) => {
            let DeleteArgs { token, token_id, name } = args.which;
            let text = token.or(token_id).or(name).ok_or_else(|| Failure::usage("which token?"))?;
            let (id, name) = match text.parse::<TokenId>() {
                Ok(id) => (id, text),
                Err(_) => {
                    let pick = Pick {
                        what: "API token",
                        list: "sallyport token ls",
                        id: &|token: &Token| token.id.uuid(),
                        names: &|token| vec![token.name.to_string()],
                    };
                    let found = pick.find(client.tokens().await?, &text)?;
                    (found.id, found.name.to_string())
                }
            };
            args.yes.confirm(&format!("End the API token {name}? Programs that use it are locked out."))?;
            client.delete_token(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "deleted": id }), |_| output::safe(&format!("deleted {name}")).into_owned())
        }
    }
}

/// A scope of the command line; `all` is every one.
fn scopes_of(text: &str) -> Result<ScopeSet, UnknownScope> {
    if text == "all" { Ok(ScopeSet::all()) } else { Ok(vec![text.parse()?].into()) }
}

fn scopes(token: &Token) -> String {
    token.scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",")
}

fn expires(token: &Token) -> String {
    token.expires_at.map_or_else(|| "never".to_owned(), utc)
}

fn show(created: &CreatedToken) -> String {
    output::pairs(&[
        ("token", created.token.expose().to_owned()),
        ("id", created.details.id.to_string()),
        ("name", created.details.name.to_string()),
        ("organisation", created.details.organisation.to_string()),
        ("scopes", scopes(&created.details)),
        ("expires", expires(&created.details)),
    ])
}

fn list(output: &Output, tokens: &[Token]) -> String {
    columns::table(
        output,
        [
            Column::Cut("NAME"),
            Column::Cut("SCOPES"),
            Column::Wide("CREATED"),
            Column::Plain("EXPIRES"),
            Column::Id("ID"),
        ],
        tokens.iter().map(|token| {
            let ends = token.expires_at.map_or_else(|| "never".to_owned(), columns::minute);
            [token.name.to_string(), scopes(token), utc(token.created_at), ends, token.id.to_string()]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_one_or_all() {
        assert_eq!(scopes_of("audit:read"), Ok(vec![Scope::AuditRead].into()));
        assert_eq!(scopes_of("all"), Ok(ScopeSet::all()));
        assert!(scopes_of("alle").unwrap_err().to_string().starts_with("\"alle\" is not a scope: use account:read, "));
    }
}
