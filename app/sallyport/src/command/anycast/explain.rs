//! `sallyport anycast explain`: by which routes others see a prefix, and why clients land where they do.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use ipnet::IpNet;
use sallyport_anycast::paths::{
    AsNames, Evidence, Explanation, Heard, Question, Relations, Session, Viewpoint, explain,
};
use sallyport_api::AnycastRoutes;
use sallyport_client::ApiClient;
use sallyport_model::RegionName;
use serde_json::json;

use crate::{context::Context, failure::Failure, output};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Options of `anycast explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The prefix [default: all]
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// From where one looks: region:NAME for what is heard at a site, or the number of a network such as AS64500
    /// [default: each site]
    #[arg(long, value_name = "PLACE")]
    from: Option<Viewpoint>,
    /// The region in which the clients should land [default: the one from which one looks]
    #[arg(id = "wanted_region", long = "wanted", value_name = "REGION")]
    wanted: Option<RegionName>,
    /// A file that says which network is whose customer or peer: the serial-1 files of CAIDA
    #[arg(long, value_name = "FILE")]
    relations: Option<PathBuf>,
    /// A file with names of networks: lines with a number and a name
    #[arg(id = "network_names", long = "names", value_name = "FILE")]
    names: Option<PathBuf>,
}

fn read(file: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", file.display());
    let (opened, mut text) = (fs::File::open(file).with_context(cannot)?, String::new());
    opened.take(MAX_FILE_BYTES).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}

/// The name of a site as the explanation takes it. The edge of one machine is its own site.
fn site(region: Option<&str>, edge: &str) -> Option<RegionName> {
    region.unwrap_or(edge).parse().ok()
}

/// What the edges know.
struct Found {
    heard: Vec<Heard>,
    sessions: Vec<Session>,
    sites: Vec<RegionName>,
}

impl From<&AnycastRoutes> for Found {
    fn from(routes: &AnycastRoutes) -> Self {
        let heard = routes.routes.iter().filter_map(|route| {
            Some(Heard {
                site: site(route.region.as_deref(), &route.edge)?,
                net: route.prefix.parse().ok()?,
                as_path: route.path.clone(),
                communities: route.communities.iter().filter_map(|text| text.parse().ok()).collect(),
                is_chosen: false,
            })
        });
        let sessions = routes.sessions.iter().filter_map(|session| {
            Some(Session {
                site: session.site.parse().ok()?,
                peer: session.peer.clone(),
                remote_as: session.remote_as,
                local_as: session.local_as,
                role: session.role.as_deref().and_then(|role| role.parse().ok()),
                is_no_export: session.no_export,
            })
        });
        Self {
            heard: heard.collect(),
            sessions: sessions.collect(),
            sites: routes.sites.iter().filter_map(|site| site.parse().ok()).collect(),
        }
    }
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: ExplainArgs) -> anyhow::Result<()> {
    let relations = match &args.relations {
        Some(file) => Relations::parse(&read(file)?)
            .map_err(|error| Failure::usage(format!("{} cannot be used: {error}", file.display())))?,
        None => Relations::default(),
    };
    let names = match &args.names {
        Some(file) => AsNames::parse(&read(file)?)
            .map_err(|error| Failure::usage(format!("{} cannot be used: {error}", file.display())))?,
        None => AsNames::default(),
    };
    let routes = client.anycast_routes(args.prefix.as_deref()).await?;
    for one in &routes.silent {
        output::note(&format!("{} did not respond ({}): its routes are missing", one.edge, output::safe(&one.why)));
    }
    let mut prefixes: Vec<IpNet> =
        client.anycast_prefixes().await?.iter().filter_map(|one| one.prefix.parse().ok()).collect();
    if let Some(wanted) = args.prefix.as_deref().and_then(|text| text.parse().ok()) {
        prefixes.retain(|net: &IpNet| *net == wanted);
    }
    let found = Found::from(&routes);
    let evidence = Evidence {
        prefixes: &prefixes,
        heard: &found.heard,
        sessions: &found.sessions,
        sites: &found.sites,
        relations: &relations,
        names: &names,
    };
    let explanations = explained(&evidence, &args);
    let shown = json!({ "routes": routes.routes, "explanations": explanations });
    context.output.data(&shown, |_| text(&explanations))
}

/// An explanation for each prefix and place.
fn explained(evidence: &Evidence<'_>, args: &ExplainArgs) -> Vec<Explanation> {
    let places: Vec<Viewpoint> = match &args.from {
        Some(from) => vec![from.clone()],
        None => evidence.sites.iter().cloned().map(Viewpoint::Site).collect(),
    };
    let questions = evidence.prefixes.iter().flat_map(|net| places.iter().map(move |place| (net, place)));
    let question = |(net, place): (&IpNet, &Viewpoint)| Question {
        viewpoint: place.clone(),
        net: *net,
        wanted: args.wanted.clone(),
    };
    questions.map(|one| explain(evidence, &question(one))).collect()
}

fn text(explanations: &[Explanation]) -> String {
    if explanations.is_empty() {
        return "there is no prefix: `sallyport anycast prefix add PREFIX`".to_owned();
    }
    let shown = explanations.iter().map(|one| {
        let lines: Vec<_> = one.to_string().lines().map(|line| output::safe(line).into_owned()).collect();
        lines.join("\n")
    });
    shown.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_edges_were_sent_explains_why_london_lands_in_new_york() {
        let site = |name: &str| sallyport_anycast::bird::site_number(name);
        let route = |path: &[u32], number: u32| {
            json!({
                "edge": "london-1", "region": "london", "peer": "transit-a", "prefix": "198.51.100.0/24", "path": path,
                "communities": [format!("64500:1:{number}")]
            })
        };
        let session = |site: &str, peer: &str, remote: u32| json!({"site": site, "peer": peer, "remote_as": remote, "local_as": 64_500, "role": "provider"});
        let routes: AnycastRoutes = serde_json::from_value(json!({
            "routes": [
                route(&[3356, 209, 64_500], site("new-york")), route(&[2914, 1299, 64_500], site("london")),
            ],
            "sites": ["london", "new-york"],
            "sessions": [session("london", "arelion", 1299), session("new-york", "centurylink", 209)],
        }))
        .unwrap();
        let found = Found::from(&routes);
        let prefixes = ["198.51.100.0/24".parse().unwrap()];
        let relations = Relations::parse("3356|209|-1\n3356|1299|0\n2914|1299|0\n").unwrap();
        let names = AsNames::parse("3356 Lumen\n209 CenturyLink\n1299 Arelion\n2914 NTT\n").unwrap();
        let evidence = Evidence {
            prefixes: &prefixes,
            heard: &found.heard,
            sessions: &found.sessions,
            sites: &found.sites,
            relations: &relations,
            names: &names,
        };
        let from = Some("region:london".parse().unwrap());
        let args = ExplainArgs { prefix: None, from, wanted: None, relations: None, names: None };
        let shown = text(&explained(&evidence, &args));
        println!("{shown}");
        for part in ["* 3356 209 64500 leads to new-york", "What cannot help:", "What helps:", "AS209 (CenturyLink)"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
