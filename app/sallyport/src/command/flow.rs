//! `sallyport flow`: the connections that run now.

use clap::{Args, Subcommand};
use sallyport_api::Flow;
use serde_json::json;
use time::OffsetDateTime;

use crate::{context::Context, failure, output};

/// What can be done with flows.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// List the connections, flows of datagrams and WebSockets that run now, and who they are
    #[command(alias = "list")]
    Ls,
    /// Cut one
    Kill(KillArgs),
}

/// Options of `flow kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Its id, as `flow ls` shows it
    #[arg(value_name = "ID")]
    id: String,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: FlowCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        FlowCommand::Ls => {
            let mut flows = client.flows().await?;
            flows.sort_by_key(|flow| flow.began);
            context.output.list(&flows, "nothing runs now", |flows| list(flows, OffsetDateTime::now_utc()))
        }
        FlowCommand::Kill(KillArgs { id }) => {
            client.kill_flow(&id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "killed": id }), |_| format!("cut {id}"))?;
            context.output.hint("who it was may come again: end their login, or change who may come, to keep them out");
            Ok(())
        }
    }
}

fn list(flows: &[Flow], now: OffsetDateTime) -> String {
    output::table(
        ["ID", "WHO", "SOCKET", "TYPE", "FROM", "TUNNEL", "AGE", "BYTES"],
        flows.iter().map(|flow| {
            [
                flow.id.clone(),
                flow.identity.clone().unwrap_or_else(|| "-".to_owned()),
                flow.socket_name.clone(),
                flow.transport.clone(),
                flow.client.to_string(),
                flow.tunnel.map_or_else(|| "-".to_owned(), |tunnel| tunnel.to_string()),
                age((now - flow.began).whole_seconds()),
                flow.bytes.to_string(),
            ]
        }),
    )
}

fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!([age(-1), age(59), age(61), age(7_260)], ["0s", "59s", "1m01s", "2h01m"]);
    }
}
