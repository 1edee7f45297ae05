//! `sallyport anycast explain`: by which routes others see a prefix.

use std::fmt::Write as _;

use clap::Args;
use sallyport_api::AnycastRoutes;
use sallyport_client::ApiClient;

use crate::{context::Context, output};

/// Options of `anycast explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The prefix [default: all]
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: ExplainArgs) -> anyhow::Result<()> {
    let routes = client.anycast_routes(args.prefix.as_deref()).await?;
    for one in &routes.silent {
        output::note(&format!("{} did not respond ({}): its routes are missing", one.edge, output::safe(&one.why)));
    }
    context.output.data(&routes, text)
}

fn text(found: &AnycastRoutes) -> String {
    if found.routes.is_empty() {
        return "no router sends a route to a prefix of yours: that proves nothing, since most do not".to_owned();
    }
    let mut text = String::new();
    for route in &found.routes {
        let path: Vec<_> = route.path.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "{} at {} by {}: {}", route.prefix, route.edge, route.peer, path.join(" "));
    }
    text.trim_end().to_owned()
}
