//! `sallyport edge clients`: where the clients of edges come from.

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{ClientGroup, ClientQuery, ClientsBy};
use sallyport_client::ApiClient;
use time::OffsetDateTime;

use super::ways::print_missing;
use crate::{
    command::{flow, socket::stats::ms},
    context::{Context, candidates},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// How clients are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GroupBy {
    Prefix,
    As,
}

/// Options of `edge clients`.
#[derive(Debug, Args)]
pub(crate) struct ClientsArgs {
    /// The name of one edge, or its id; on one machine, `edge` [default: all edges]
    #[arg(value_name = "EDGE")]
    #[arg(add = ArgValueCompleter::new(candidates::edges))]
    edge: Option<String>,
    /// Put clients together by network (/24 in IPv4, /48 in IPv6), or by autonomous system
    #[arg(long, value_enum, value_name = "prefix|as", default_value = "prefix", hide_possible_values = true)]
    by: GroupBy,
    /// The most lines of each edge
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: ClientsArgs) -> anyhow::Result<()> {
    let by = match args.by {
        GroupBy::Prefix => ClientsBy::Prefix,
        GroupBy::As => ClientsBy::As,
    };
    let query = ClientQuery { edge: args.edge, by: Some(by), limit: Some(args.limit) };
    let page = client.edge_clients(&query).await?;
    print_missing(&page.silent, "its clients are missing here");
    for edge in &page.cut {
        output::note(&output::safe(&format!("{edge} has more: --limit shows up to 1000")));
    }
    let empty = "no clients yet: connections count when they end";
    context.output.list(&page.items, empty, |groups| table(&context.output, groups, by, OffsetDateTime::now_utc()))
}

fn table(output: &Output, groups: &[ClientGroup], by: ClientsBy, now: OffsetDateTime) -> String {
    let none = || "-".to_owned();
    let system = |group: &ClientGroup| group.system.map_or_else(none, |number| format!("AS{number}"));
    let (first, second) = match by {
        ClientsBy::Prefix => (Column::Plain("PREFIX"), Column::Wide("AS")),
        ClientsBy::As => (Column::Plain("AS"), Column::Wide("NETWORKS")),
    };
    columns::table(
        output,
        [
            first,
            Column::Plain("COUNTRY"),
            Column::Cut("EDGE"),
            Column::Plain("MIN RTT"),
            Column::Plain("CONNECTIONS"),
            Column::Plain("LAST SEEN"),
            second,
            Column::Wide("AT"),
        ],
        groups.iter().map(|group| {
            let (first, second) = match by {
                ClientsBy::Prefix => (group.prefix.clone().unwrap_or_else(none), system(group)),
                ClientsBy::As => (system(group), group.networks.to_string()),
            };
            [
                first,
                group.country.clone().unwrap_or_else(none),
                group.edge.clone(),
                group.min_ms.map_or_else(none, ms),
                group.connections.to_string(),
                flow::age((now - group.last_seen).whole_seconds()),
                second,
                utc(group.last_seen),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Color, Format};

    #[test]
    fn a_usual_line_fits_eighty_columns() {
        let group = |more: serde_json::Value| {
            let mut group = json!({
                "country": "CH", "edge": "eu-central-9", "networks": 7, "connections": 1_000_000, "min_ms": 12.4,
                "last_seen": "2026-01-01T00:00:00Z"
            });
            group.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<ClientGroup>(group).unwrap()
        };
        let output = Output::new(Format::Table, Color::Never);
        let now = OffsetDateTime::from_unix_timestamp(1_767_225_600 + 90).unwrap();
        let by_prefix = table(&output, &[group(json!({"prefix": "2001:db8:ffff::/48"}))], ClientsBy::Prefix, now);
        let by_system = table(&output, &[group(json!({"as": 4_294_967_294_u32}))], ClientsBy::As, now);
        for (table, first) in [(by_prefix, "2001:db8:ffff::/48"), (by_system, "AS4294967294")] {
            let lines: Vec<_> = table.lines().collect();
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
            let cells: Vec<_> = lines[1].split_whitespace().collect();
            assert_eq!(cells[..5], [first, "CH", "eu-central-9", "12ms", "1000000"], "{table}");
        }
    }
}
