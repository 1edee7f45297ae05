//! Which site an answer is of: the names of edges, and rules of the command line.

use clap::Args;
use sallyport_api::ImportCatchment;
use sallyport_catchment::{MAX_SITE_RULES, SiteNames, SiteRule};
use sallyport_client::{ApiClient, ClientError};

use crate::failure::Failure;

/// The edge of one machine, and its region.
const LONE_EDGE: (&str, &str) = ("edge", "local");

/// Rules about sites.
#[derive(Debug, Args)]
pub(super) struct SiteArgs {
    /// Answers that begin with TEXT are of REGION, and so are addresses in a network: fra=eu, 198.51.100.0/24=eu
    #[arg(long, value_name = "TEXT=REGION")]
    site_of: Vec<SiteRule>,
}

impl SiteArgs {
    /// The rules, and the names of all edges.
    pub(super) async fn names(self, client: &ApiClient) -> anyhow::Result<SiteNames> {
        if self.site_of.len() > MAX_SITE_RULES {
            return Err(Failure::usage(format!("--site-of can be given {MAX_SITE_RULES} times at most")).into());
        }
        let edges = match client.edges().await {
            Ok(edges) => edges,
            Err(ClientError::Problem(problem)) if problem.code == "one-machine" => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let mut edges: Vec<_> = edges.into_iter().map(|edge| (edge.name.to_string(), edge.region)).collect();
        if edges.is_empty() {
            edges.push((LONE_EDGE.0.to_owned(), LONE_EDGE.1.parse()?));
        }
        Ok(SiteNames::new(edges, self.site_of))
    }
}

/// Sends rows, addresses and networks in parts.
pub(super) async fn send_in_parts<T: Clone>(
    client: &ApiClient,
    items: &[T],
    put: impl Fn(Vec<T>, bool) -> ImportCatchment,
) -> anyhow::Result<()> {
    for (part, items) in items.chunks(sallyport_api::MAX_IMPORT_ITEMS).enumerate() {
        client.import_catchment(&put(items.to_vec(), part == 0)).await?;
    }
    Ok(())
}
