//! Lists of prefixes and routers, the status, and the preview.

use std::fmt::Write as _;

use sallyport_api::{
    AnycastEdge, AnycastOrderKind, AnycastPeer, AnycastPrefix, AnycastPreview, AnycastStatus, SilentEdge,
};
use sallyport_client::ApiClient;

use crate::{
    context::Context,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

fn print_missing(silent: &[SilentEdge]) {
    for one in silent {
        output::note(&format!("{} did not respond ({}): it is missing here", one.edge, output::safe(&one.why)));
    }
}

fn or_all(names: &[String]) -> String {
    if names.is_empty() { "all".to_owned() } else { names.join(",") }
}

/// Lists the prefixes.
pub(super) async fn prefixes(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let all = client.anycast_prefixes().await?;
    all.iter().flat_map(|one| &one.notes).for_each(|note| output::note(&output::safe(note)));
    let empty = "no prefixes: `sallyport anycast prefix add PREFIX` has edges announce one";
    context.output.list(&all, empty, |all| prefix_table(&context.output, all))
}

fn prefix_table(output: &Output, all: &[AnycastPrefix]) -> String {
    columns::table(
        output,
        [
            Column::Plain("PREFIX"),
            Column::Cut("ADDRESSES"),
            Column::Cut("REGIONS"),
            Column::Plain("MIN SITES"),
            Column::Wide("COMMUNITIES"),
            Column::Wide("CREATED"),
            Column::Wide("ID"),
        ],
        all.iter().map(|one| {
            [
                one.prefix.clone(),
                one.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                or_all(&one.regions),
                one.min_sites.to_string(),
                one.communities.join(","),
                utc(one.created_at),
                one.id.to_string(),
            ]
        }),
    )
}

/// Lists the routers.
pub(super) async fn peers(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let all = client.anycast_peers().await?;
    all.iter().flat_map(|one| &one.notes).for_each(|note| output::note(&output::safe(note)));
    let empty = "no routers: `sallyport anycast peer add NAME --address ADDR --as NUMBER --local-as NUMBER` adds one";
    context.output.list(&all, empty, |all| peer_table(&context.output, all))
}

fn peer_table(output: &Output, all: &[AnycastPeer]) -> String {
    columns::table(
        output,
        [
            Column::Cut("NAME"),
            Column::Cut("AT"),
            Column::Plain("ADDRESS"),
            Column::Plain("AS"),
            Column::Plain("LOCAL AS"),
            Column::Plain("ROLE"),
            Column::Plain("MD5"),
            Column::Plain("BFD"),
            Column::Wide("HOPS"),
            Column::Wide("MAX PREFIXES"),
            Column::Wide("PREPEND"),
            Column::Wide("NO EXPORT"),
            Column::Wide("COMMUNITIES"),
            Column::Wide("DRAIN COMMUNITIES"),
            Column::Wide("ID"),
        ],
        all.iter().map(|one| {
            let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
            [
                one.name.clone(),
                one.place.clone(),
                one.address.to_string(),
                one.remote_as.to_string(),
                one.local_as.to_string(),
                one.role.clone().unwrap_or_else(|| "-".to_owned()),
                yes(one.has_password),
                one.bfd.map_or_else(|| "-".to_owned(), |bfd| format!("{}ms", bfd.interval_ms)),
                one.hops.to_string(),
                one.max_prefixes.to_string(),
                one.prepend.to_string(),
                yes(one.no_export),
                one.communities.join(","),
                one.drain_communities.join(","),
                one.id.to_string(),
            ]
        }),
    )
}

/// Shows how prefixes stand.
pub(super) async fn status(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let status = client.anycast_status().await?;
    print_missing(&status.silent);
    status.notes.iter().for_each(|note| output::note(&output::safe(note)));
    context.output.data(&status, |status| status_text(&context.output, status))
}

fn status_text(output: &Output, status: &AnycastStatus) -> String {
    let mut text = String::new();
    for order in &status.orders {
        let verb = match order.kind {
            AnycastOrderKind::Drain => "drain",
            AnycastOrderKind::Maintain => "maintain",
        };
        let _ = writeln!(text, "order: {verb} {} since {}", order.place, utc(order.created_at));
    }
    if status.edges.is_empty() {
        text.push_str("no edge announces prefixes");
        return text;
    }
    let rows: Vec<_> = status.edges.iter().flat_map(prefix_rows).collect();
    if !rows.is_empty() {
        let heads = [
            Column::Cut("EDGE"),
            Column::Plain("PREFIX"),
            Column::Plain("STATE"),
            Column::Cut("SENT TO"),
            Column::Cut("WHY"),
            Column::Wide("ADDRESSES"),
            Column::Wide("SINCE"),
        ];
        text.push_str(columns::table(output, heads, rows).trim_end());
        text.push_str("\n\n");
    }
    let sessions = status.edges.iter().flat_map(|edge| {
        edge.peers.iter().map(|peer| {
            let up = if peer.is_up { "up" } else { "down" };
            [edge.edge.clone(), peer.name.clone(), up.to_owned(), output::safe(&peer.state).into_owned()]
        })
    });
    let sessions: Vec<_> = sessions.collect();
    if !sessions.is_empty() {
        let heads = [Column::Cut("EDGE"), Column::Cut("ROUTER"), Column::Plain("SESSION"), Column::Cut("STATE")];
        text.push_str(columns::table(output, heads, sessions).trim_end());
        text.push('\n');
    }
    for edge in &status.edges {
        for problem in &edge.problems {
            let _ = writeln!(text, "{}: {}", edge.edge, output::safe(problem));
        }
    }
    text.trim_end().to_owned()
}

fn prefix_rows(edge: &AnycastEdge) -> Vec<[String; 7]> {
    let rows = edge.prefixes.iter().map(|one| {
        let sent_to = if one.sent_to.is_empty() { "-".to_owned() } else { one.sent_to.join(",") };
        [
            edge.edge.clone(),
            one.prefix.clone(),
            one.state.as_str().to_owned(),
            sent_to,
            output::safe(&one.why).into_owned(),
            one.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            utc(one.since),
        ]
    });
    rows.collect()
}

/// Shows what edges would change.
pub(super) async fn preview(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let preview = client.preview_anycast().await?;
    print_missing(&preview.silent);
    context.output.data(&preview, preview_text)
}

fn preview_text(preview: &AnycastPreview) -> String {
    if preview.edges.is_empty() {
        return "no edge speaks with BIRD: start it with --bird SOCKET".to_owned();
    }
    let mut text = String::new();
    for edge in &preview.edges {
        let file = edge.file.as_deref().unwrap_or_default();
        let _ = match &edge.problem {
            Some(problem) => writeln!(text, "{}: {}", edge.edge, output::safe(problem)),
            None if edge.diff.is_empty() => writeln!(text, "{}: nothing changes in {}", edge.edge, output::safe(file)),
            None => {
                let lines: String = edge.diff.lines().map(|line| output::safe(line) + "\n").collect();
                write!(text, "{}: {}\n{lines}", edge.edge, output::safe(file))
            }
        };
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Color, Format};

    #[test]
    fn the_status_names_states_reasons_and_problems() {
        let status: AnycastStatus = serde_json::from_value(json!({
            "orders": [],
            "edges": [{
                "edge": "eu-1", "region": "eu", "bird": "2.0.12", "problems": ["BIRD does not answer"],
                "prefixes": [{
                    "prefix": "198.51.100.0/24", "state": "announced", "why": "the edge serves",
                    "since": "2026-01-01T00:00:00Z", "addresses": ["198.51.100.1"], "sent_to": ["transit-a"]
                }],
                "peers": [{"name": "transit-a", "is_up": true, "state": "Established"}]
            }]
        }))
        .unwrap();
        let text = status_text(&Output::new(Format::Table, Color::Never), &status);
        for part in ["EDGE", "198.51.100.0/24", "announced", "transit-a", "the edge serves", "BIRD does not answer"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
