//! `sallyport service-token`: for machines that come to sockets that ask who comes.

use std::time::Duration;

use clap::{Args, Subcommand};
use sallyport_api::{CreateServiceToken, CreatedServiceToken, ServiceToken};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_model::ServiceTokenId;
use serde_json::json;
use time::OffsetDateTime;

use super::{display_name, utc};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    output,
};

/// What can be done with service tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceTokenCommand {
    /// Make a service token; its secret is shown this once
    Create(CreateArgs),
    /// List the service tokens
    #[command(alias = "list")]
    Ls,
    /// End a service token, and cut off who came with it
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `service-token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What it is called; policies name it so
    #[arg(value_name = "NAME")]
    name: String,
    /// A socket that it is for, by name or id; several times for several; all sockets when absent
    #[arg(long = "socket", value_name = "SOCKET")]
    sockets: Vec<SocketRef>,
    /// In how many days it ends; it does not end when this is absent
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    expires_in_days: Option<u32>,
}

/// Options of `service-token rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The id of the token, or its name
    #[arg(id = "service_token", value_name = "TOKEN")]
    token: String,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: ServiceTokenCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        ServiceTokenCommand::Create(args) => {
            let expires_at = args
                .expires_in_days
                .map(|days| OffsetDateTime::now_utc() + Duration::from_secs(u64::from(days) * 24 * 60 * 60));
            let mut sockets = Vec::new();
            for socket in &args.sockets {
                sockets.push(client.socket(socket).await.map_err(|error| failure::about(error, socket))?.id);
            }
            let token = CreateServiceToken { name: display_name(&args.name)?, sockets, expires_at };
            let created = client.create_service_token(&token).await?;
            context.output.data(&created, show)?;
            context.output.hint(
                "keep the secret now: it is not shown again. A machine sends both in the fields Sallyport-Token-Id and \
                 Sallyport-Token-Secret, and a policy that names the token lets it in",
            );
            Ok(())
        }
        ServiceTokenCommand::Ls => {
            let empty = "no service tokens yet: `sallyport service-token create NAME` makes one";
            context.output.list(&client.service_tokens().await?, empty, list)
        }
        ServiceTokenCommand::Rm(args) => {
            let id = find(&client, &args.token).await?;
            client.delete_service_token(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "deleted": id }), |_| format!("deleted {id}"))
        }
    }
}

async fn find(client: &ApiClient, token: &str) -> anyhow::Result<ServiceTokenId> {
    if let Ok(id) = token.parse() {
        return Ok(id);
    }
    let tokens = client.service_tokens().await?;
    let found = tokens.iter().find(|known| known.name.as_str() == token);
    let found = found.ok_or_else(|| {
        Failure::new(Kind::Refused, format!("there is no service token {token:?}"))
            .next("see `sallyport service-token ls`")
    })?;
    Ok(found.id)
}

fn expires(token: &ServiceToken) -> String {
    token.expires_at.map_or_else(|| "never".to_owned(), utc)
}

fn sockets(token: &ServiceToken) -> String {
    if token.sockets.is_empty() {
        return "all".to_owned();
    }
    token.sockets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn show(created: &CreatedServiceToken) -> String {
    output::pairs(&[
        ("id", created.details.id.to_string()),
        ("secret", created.secret.expose().to_owned()),
        ("name", created.details.name.to_string()),
        ("sockets", sockets(&created.details)),
        ("expires", expires(&created.details)),
    ])
}

fn list(tokens: &[ServiceToken]) -> String {
    output::table(
        ["ID", "NAME", "SOCKETS", "CREATED", "EXPIRES"],
        tokens.iter().map(|token| {
            [token.id.to_string(), token.name.to_string(), sockets(token), utc(token.created_at), expires(token)]
        }),
    )
}
