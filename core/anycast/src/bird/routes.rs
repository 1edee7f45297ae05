//! Rows of `show route all`, of BIRD 2 and 3.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Reply, ReplyError, ReplyLine};
use crate::model::Community;

/// The most routes that are read.
pub const MAX_ROUTES: usize = 10_000;
/// The longest path of autonomous systems that is read.
pub const MAX_PATH_LENGTH: usize = 256;
const MAX_COMMUNITIES: usize = 256;

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The prefix.
    pub net: IpNet,
    /// The protocol that it comes from.
    pub protocol: String,
    /// Whether BIRD prefers it to others of the prefix.
    pub is_best: bool,
    /// The numbers of the networks that passed it on, the nearest first. Members of a set follow each other.
    pub as_path: Vec<u32>,
    /// Whether the path is a plain sequence.
    pub is_sequence: bool,
    /// Its communities, standard and large ones.
    pub communities: Vec<Community>,
    /// Whether it is a route of this installation that is deprioritised.
    pub is_low: bool,
    /// Where packets go.
    pub next_hop: Option<IpAddr>,
}

/// Reads the rows.
///
/// # Errors
/// BIRD refused, or rows are not understood.
pub fn routes(reply: Reply) -> Result<Vec<Route>, ReplyError> {
    // 8001 is an empty table: the prefix that was asked for has no route.
    if reply.last().0 == 8001 {
        return Ok(Vec::new());
    }
    let reply = reply.into_success()?;
    let mut found: Vec<Route> = Vec::new();
    for line in &reply.lines {
        let last = found.last().map(|route| route.net);
        if let Some(route) = row(line, last) {
            if found.len() == MAX_ROUTES {
                return Err(ReplyError::TooManyRows(MAX_ROUTES, "routes"));
            }
            found.push(route?);
        } else if let Some(route) = found.last_mut() {
            attribute(route, line.text.trim())?;
        }
    }
    Ok(found)
}

fn not_understood(text: &str) -> ReplyError {
    ReplyError::Row(text.chars().take(64).collect())
}

/// Reads `NET KIND [PROTOCOL TIME ...] * (PREFERENCE) ...`. Further routes of the prefix have no net. None if the line
/// is no such row.
fn row(line: &ReplyLine, last: Option<IpNet>) -> Option<Result<Route, ReplyError>> {
    let text = line.text.as_str();
    if line.code != 1007 || text.starts_with('\t') || !text.contains('[') {
        return None;
    }
    let (head, rest) = text.split_once('[')?;
    let mut words = head.split_ascii_whitespace();
    let net = match last {
        Some(net) if text.starts_with(' ') => Ok(net),
        _ => words.next().and_then(|word| word.parse().ok()).ok_or_else(|| not_understood(text)),
    };
    let (inside, after) = rest.split_once(']').unwrap_or((rest, ""));
    let protocol = inside.split_ascii_whitespace().next().unwrap_or_default();
    Some(net.map(|net| Route {
        net,
        protocol: protocol.chars().take(64).collect(),
        is_best: after.split_ascii_whitespace().any(|word| word == "*"),
        as_path: Vec::new(),
        is_sequence: true,
        communities: Vec::new(),
        is_low: false,
        next_hop: None,
    }))
}

fn attribute(route: &mut Route, text: &str) -> Result<(), ReplyError> {
    if let Some(rest) = text.strip_prefix("via ") {
        route.next_hop = rest.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        return Ok(());
    }
    let Some((key, value)) = text.split_once(':') else { return Ok(()) };
    let value = value.trim();
    match key {
        "BGP.as_path" | "bgp_path" => read_path(route, value),
        "BGP.community" | "bgp_community" | "BGP.large_community" | "bgp_large_community" => {
            read_communities(route, value)
        }
        "sp_low" => {
            route.is_low = true;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn read_path(route: &mut Route, text: &str) -> Result<(), ReplyError> {
    let is_mark = |letter: char| "{}()[]".contains(letter);
    route.is_sequence = !text.contains(is_mark);
    for word in
        text.split(|letter: char| letter.is_ascii_whitespace() || is_mark(letter)).filter(|word| !word.is_empty())
    {
        if route.as_path.len() == MAX_PATH_LENGTH {
            return Err(ReplyError::TooManyRows(MAX_PATH_LENGTH, "networks in a path"));
        }
        route.as_path.push(word.parse().map_err(|_| not_understood(text))?);
    }
    Ok(())
}

/// Reads `(1,2) (3,4)` and `(1, 2, 3)`.
fn read_communities(route: &mut Route, text: &str) -> Result<(), ReplyError> {
    for part in text.split(')').map(str::trim).filter(|part| !part.is_empty()) {
        if route.communities.len() == MAX_COMMUNITIES {
            return Err(ReplyError::TooManyRows(MAX_COMMUNITIES, "communities of a route"));
        }
        let numbers = part.strip_prefix('(').ok_or_else(|| not_understood(text))?;
        let numbers: Vec<&str> = numbers.split(',').map(str::trim).collect();
        route.communities.push(numbers.join(":").parse().map_err(|_| not_understood(text))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bird::ReplyReader;

    fn read(text: &str) -> Result<Vec<Route>, ReplyError> {
        let mut reader = ReplyReader::default();
        reader.feed(text.as_bytes()).unwrap();
        routes(reader.take().unwrap())
    }

    const TEXT: &str = "1007-Table sp_anycast4:\n \
        198.51.100.0/24      blackhole [sp_static4 07:29:19.065] * (200)\n1008-\tType: static univ\n\
        1012-\tBGP.community: (65535,0)\n \tBGP.large_community: (64500, 9, 9) (4294967295, 1, 2)\n\
        1007-                     unicast [sp_peer_x 07:29:23.330 from 10.0.0.9] (10) [AS64501i]\n \tvia 10.0.0.2 on h1v0\n\
        1008-\tType: BGP univ\n1012-\tBGP.origin: IGP\n \tBGP.as_path: 64501 {64502 64503} 64500\n0000\n";

    #[test]
    fn routes_are_read() {
        let found = read(TEXT).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].is_best && !found[1].is_best);
        assert_eq!(found[0].net, found[1].net);
        assert_eq!(found[0].protocol, "sp_static4");
        let communities: Vec<String> = found[0].communities.iter().map(ToString::to_string).collect();
        assert_eq!(communities, ["65535:0", "64500:9:9", "4294967295:1:2"]);
        assert_eq!(found[1].as_path, [64501, 64502, 64503, 64500]);
        assert!(!found[1].is_sequence && found[0].is_sequence);
        assert_eq!(found[1].next_hop, Some("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn routes_of_bird_3_are_read() {
        let text = "1007-Table sp_anycast6:\n 2001:db8::/32        unicast [sp_peer_x 10:00:00.000] * (10) [AS64501i]\n\
            \x20\tvia fd00::2 on h1v0\n1008-\tpreference: 10\n \tsource: BGP\n \tbgp_path: 64501 64500\n\
            \x20\tbgp_community: (64501,3)\n0000\n";
        let found = read(text).unwrap();
        assert_eq!(found[0].as_path, [64501, 64500]);
        assert_eq!(found[0].communities, [Community::Standard(64501, 3)]);
    }

    #[test]
    fn nothing_and_nonsense_are_told_apart() {
        assert_eq!(read("8001 Network not found\n").unwrap(), []);
        assert_eq!(read("1007-Table x:\n0000\n").unwrap(), []);
        for bad in [
            "1007-x unicast [a b]\n0000\n",
            "1007-10.0.0.0/8 u [a b]\n \tBGP.as_path: x\n0000\n",
            "1007-10.0.0.0/8 u [a b]\n \tBGP.community: 1,2\n0000\n",
        ] {
            assert!(matches!(read(bad), Err(ReplyError::Row(_))), "{bad}");
        }
        let path = "7 ".repeat(MAX_PATH_LENGTH + 1);
        assert!(read(&format!("1007-10.0.0.0/8 u [a b]\n \tBGP.as_path: {path}\n0000\n")).is_err());
        let many = "1007-10.0.0.0/8 u [a b]\n".repeat(MAX_ROUTES + 1) + "0000\n";
        assert_eq!(read(&many).unwrap_err(), ReplyError::TooManyRows(MAX_ROUTES, "routes"));
    }
}
