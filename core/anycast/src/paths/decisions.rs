//! What each network on a path preferred, and why.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Evidence, Known, Relation, Source};

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// No other route of the network is known.
    OnlyRoute,
    /// Local preference: routes of customers before those of peers, and those before routes of providers.
    LocalPreference,
    /// The shorter path.
    Length,
    /// Something that is not seen from outside, such as the age of routes.
    TieBreak,
    /// A policy of the network: the route is worse by all that is known.
    Policy,
}

/// Another route that a network has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    /// The network from which it has the route.
    pub via: u32,
    /// What that is to it.
    pub known: Known,
    /// The length of the path.
    pub length: usize,
}

/// The decision of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The network.
    pub network: u32,
    /// The network whose route it prefers.
    pub via: u32,
    /// What that is to it, if anything is known.
    pub known: Option<Known>,
    /// The length of the path.
    pub length: usize,
    /// What else it can have.
    pub alternatives: Vec<Alternative>,
    /// What decided.
    pub rule: Rule,
}

/// The networks of a path, each once.
pub(super) fn hops(path: &[u32]) -> Vec<u32> {
    let mut hops = path.to_vec();
    hops.dedup();
    hops
}

/// For each network that was seen on a path to the prefix: the rest of that path.
fn tails(evidence: &Evidence, net: IpNet) -> BTreeMap<u32, Vec<u32>> {
    let mut tails: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for heard in evidence.heard.iter().filter(|heard| heard.net == net) {
        for (index, number) in heard.as_path.iter().enumerate() {
            // The last place of a network that is prepended.
            if heard.as_path.get(index + 1).is_some_and(|next| next != number) {
                tails.entry(*number).or_insert_with(|| heard.as_path[index + 1..].to_vec());
            }
        }
    }
    tails
}

/// The decisions along a path, the observer's neighbour first.
pub(super) fn decisions(evidence: &Evidence, net: IpNet, path: &[u32]) -> Vec<Decision> {
    let tails = tails(evidence, net);
    let hops = hops(path);
    let mut found = Vec::new();
    for (index, pair) in hops.windows(2).enumerate() {
        let [network, via] = [pair[0], pair[1]];
        let start = path.iter().rposition(|number| *number == network).map_or(0, |at| at + 1);
        let length = path.len() - start;
        let mut alternatives = alternatives(evidence, &tails, network, via);
        alternatives.sort_by_key(|one| (std::cmp::Reverse(one.known.relation.preference()), one.length, one.via));
        let passed_to = index.checked_sub(1).map(|before| hops[before]);
        let known =
            evidence.relation(network, via).or_else(|| infer(evidence, network, passed_to, length, &alternatives));
        let rule = rule(known, length, &alternatives);
        found.push(Decision { network, via, known, length, alternatives, rule });
    }
    found
}

/// What others would send to a network, if networks send as usual.
fn alternatives(evidence: &Evidence, tails: &BTreeMap<u32, Vec<u32>>, network: u32, via: u32) -> Vec<Alternative> {
    let mut found = Vec::new();
    for (other, tail) in tails {
        if *other == network || *other == via || tail.contains(&network) {
            continue;
        }
        let (Some(known), Some(next)) = (evidence.relation(network, *other), tail.first()) else { continue };
        // Only routes of customers go to peers and providers.
        let is_sent = known.relation == Relation::Provider
            || evidence.relation(*other, *next).is_some_and(|next| next.relation == Relation::Customer);
        if is_sent {
            found.push(Alternative { via: *other, known, length: 1 + tail.len() });
        }
    }
    // A session of its own with us.
    let direct = evidence.sessions.iter().find(|session| session.remote_as == network && session.local_as != via);
    if let Some(session) = direct.filter(|_| !evidence.is_own(via))
        && let Some(relation) = session.relation()
    {
        let known = Known { relation: relation.reverse(), source: Source::Session };
        found.push(Alternative { via: session.local_as, known, length: 1 });
    }
    found
}

/// What the preferred network must be, if networks choose and send as usual.
fn infer(
    evidence: &Evidence,
    network: u32,
    passed_to: Option<u32>,
    length: usize,
    alternatives: &[Alternative],
) -> Option<Known> {
    let inferred = |relation| Some(Known { relation, source: Source::Inferred });
    // It passed the route to a peer or provider, as one does with routes of customers alone.
    let is_upwards = |to| evidence.relation(network, to).is_some_and(|to| to.relation != Relation::Customer);
    if passed_to.is_some_and(is_upwards) {
        return inferred(Relation::Customer);
    }
    // It left a route that is not longer.
    let best = alternatives.first()?;
    match best.known.relation {
        Relation::Peer if best.length <= length => inferred(Relation::Customer),
        _ => None,
    }
}

fn rule(known: Option<Known>, length: usize, alternatives: &[Alternative]) -> Rule {
    let Some(best) = alternatives.first() else { return Rule::OnlyRoute };
    let Some(known) = known else { return Rule::Policy };
    let (mine, other) = (known.relation.preference(), best.known.relation.preference());
    match (mine.cmp(&other), length.cmp(&best.length)) {
        (std::cmp::Ordering::Greater, _) => Rule::LocalPreference,
        (std::cmp::Ordering::Less, _) => Rule::Policy,
        (_, std::cmp::Ordering::Less) => Rule::Length,
        (_, std::cmp::Ordering::Equal) => Rule::TieBreak,
        (_, std::cmp::Ordering::Greater) => Rule::Policy,
    }
}
