//! One tunnel as `tunnel show` prints it, with its links.

use std::net::IpAddr;

use sallyport_api::{Tunnel, TunnelLink};

use super::socket::stats::ms;
use crate::{
    output::{self, Output},
    units,
    view::{
        columns::{self, Column},
        utc,
    },
};

/// The tunnel, and a table of its links.
pub(super) fn whole(output: &Output, tunnel: &Tunnel, status: &str, path: String) -> String {
    let none = || "-".to_owned();
    let edges: Vec<_> = tunnel.holders.iter().map(|holder| holder.edge.as_str()).collect();
    let pairs = output::pairs(&[
        ("tunnel", tunnel.id.to_string()),
        ("name", tunnel.name.as_ref().map_or_else(none, ToString::to_string)),
        ("socket", tunnel.socket_id.to_string()),
        ("status", status.to_owned()),
        ("host", tunnel.host.clone().unwrap_or_else(none)),
        ("path", path),
        ("weight", tunnel.weight.to_string()),
        ("edges", if edges.is_empty() { none() } else { edges.join(",") }),
        ("since", tunnel.since.map_or_else(none, utc)),
        ("connector", tunnel.connector_addr.map_or_else(none, |address| address.to_string())),
        ("program", tunnel.agent.clone().unwrap_or_else(none)),
    ]);
    if tunnel.links.is_empty() { pairs } else { format!("{pairs}\n\n{}", links(output, &tunnel.links)) }
}

fn links(output: &Output, links: &[TunnelLink]) -> String {
    let columns = [
        Column::Plain("LINK"),
        Column::cut_if(links.iter().any(|link| link.edge.is_some()), "EDGE"),
        Column::Plain("STATUS"),
        Column::Plain("RTT"),
        Column::Plain("LOSS"),
        Column::Plain("SENT"),
        Column::Plain("RECEIVED"),
        Column::Plain("PATH MTU"),
        Column::Wide("HEADERS"),
        Column::Wide("SOURCE"),
    ];
    columns::table(output, columns, links.iter().map(row))
}

fn row(link: &TunnelLink) -> [String; 10] {
    let words = [(link.metered, "metered"), (link.standby, "standby")];
    let words: String = words.iter().filter(|(is, _)| *is).map(|(_, word)| format!(" {word}")).collect();
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    [
        link.name.clone(),
        link.edge.as_ref().map(ToString::to_string).unwrap_or_default(),
        format!("{}{words}", link.status),
        link.round_trip_ms.map(ms).unwrap_or_default(),
        link.loss_permille.map(|loss| format!("{}.{} %", loss / 10, loss % 10)).unwrap_or_default(),
        units::bytes(link.bytes_sent),
        units::bytes(link.bytes_received),
        number(link.path_mtu_bytes),
        number(link.header_bytes),
        link.local.map(|local: IpAddr| local.to_string()).unwrap_or_default(),
    ]
}
