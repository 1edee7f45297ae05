//! Signs of leaks (RFC 7908) and of others who announce own prefixes.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Evidence, Heard, Relation, decisions::hops};

/// What looks wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeakKind {
    /// From a provider to a provider: the path goes down and then up again (RFC 7908, type 1).
    Hairpin,
    /// From a peer to a peer (type 2).
    PeerToPeer,
    /// From a provider to a peer (type 3).
    ProviderToPeer,
    /// From a peer to a provider (type 4).
    PeerToProvider,
    /// Another network is the origin.
    Origin,
    /// The prefix is a part of an own one that is not announced as such.
    MoreSpecific,
}

/// A sign of a leak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// What looks wrong.
    pub kind: LeakKind,
    /// The prefix.
    pub net: IpNet,
    /// The network that did it.
    pub by: u32,
    /// The path.
    pub as_path: Vec<u32>,
    /// The sentence.
    pub sentence: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// The signs in all routes that were heard. Relations that are not known show nothing.
#[must_use]
pub fn leaks(evidence: &Evidence) -> Vec<Leak> {
    let mut found: Vec<Leak> = Vec::new();
    for heard in evidence.heard {
        for leak in of_route(evidence, heard) {
            let is_new = |other: &Leak| (other.kind, other.net, other.by) != (leak.kind, leak.net, leak.by);
            if found.iter().all(is_new) {
                found.push(leak);
            }
        }
    }
    found
}

fn of_route(evidence: &Evidence, heard: &Heard) -> Vec<Leak> {
    let mut found = Vec::new();
    let label = |number| evidence.names.label(number);
    let leak = |kind, by, sentence| Leak { kind, net: heard.net, by, as_path: heard.as_path.clone(), sentence };
    let path = hops(&heard.as_path);
    let Some(origin) = path.last().copied() else { return found };
    if !evidence.is_own(origin) {
        found.push(leak(LeakKind::Origin, origin, format!("{} announces {}, which is ours", label(origin), heard.net)));
    }
    if !evidence.prefixes.contains(&heard.net)
        && let Some(own) = evidence.prefixes.iter().find(|own| own.contains(&heard.net))
    {
        let sentence = format!("{} announces {}, a part of {own} that we do not announce", label(origin), heard.net);
        found.push(leak(LeakKind::MoreSpecific, origin, sentence));
    }
    // Each network on the way had the route from the one after it, and passed it to the one before it.
    for step in path.windows(3) {
        let [to, by, from] = [step[0], step[1], step[2]];
        let (Some(had), Some(gave)) = (evidence.relation(by, from), evidence.relation(by, to)) else { continue };
        let kind = match (had.relation, gave.relation) {
            (Relation::Customer, _) | (_, Relation::Customer) => continue,
            (Relation::Provider, Relation::Provider) => LeakKind::Hairpin,
            (Relation::Peer, Relation::Peer) => LeakKind::PeerToPeer,
            (Relation::Provider, Relation::Peer) => LeakKind::ProviderToPeer,
            (Relation::Peer, Relation::Provider) => LeakKind::PeerToProvider,
        };
        let sentence = format!(
            "{} leaks {}: it has the route from its {} {}, and passes it to its {} {}",
            label(by),
            heard.net,
            had.relation,
            label(from),
            gave.relation,
            label(to),
        );
        found.push(leak(kind, by, sentence));
    }
    found
}
