use super::*;
use crate::{
    bird::site_number,
    model::{Community, PeerRole},
    paths::{LeakKind, Relation},
};

const OWN: u32 = 64500;

fn region(name: &str) -> RegionName {
    name.parse().unwrap()
}

fn session(site: &str, remote_as: u32, role: PeerRole) -> Session {
    Session {
        site: region(site),
        peer: format!("as{remote_as}"),
        remote_as,
        local_as: OWN,
        role: Some(role),
        is_no_export: false,
    }
}

fn net() -> IpNet {
    "198.51.100.0/24".parse().unwrap()
}

/// A route that was heard in London, from this site.
fn heard(path: &[u32], from: Option<&str>) -> Heard {
    let communities = from.map(|site| Community::Large(OWN, 1, site_number(site))).into_iter().collect();
    Heard { site: region("london"), net: net(), as_path: path.to_vec(), communities, is_chosen: false }
}

struct World {
    heard: Vec<Heard>,
    sessions: Vec<Session>,
    relations: Relations,
    names: AsNames,
}

impl World {
    /// London announces to AS1299, and New York to AS209, a customer of AS3356.
    fn mystery() -> Self {
        let mut first = heard(&[3356, 209, OWN], Some("new-york"));
        first.is_chosen = true;
        let heard = vec![heard(&[2914, 1299, OWN], Some("london")), heard(&[3257, 1299, OWN], Some("london")), first];
        Self {
            heard,
            sessions: vec![session("london", 1299, PeerRole::Provider), session("new-york", 209, PeerRole::Provider)],
            relations: Relations::parse("3356|209|-1\n3356|1299|0\n2914|1299|0\n3257|1299|0\n").unwrap(),
            names: AsNames::parse("AS3356 Lumen\nAS209 CenturyLink\nAS1299 Arelion\n").unwrap(),
        }
    }

    fn explain(&self, viewpoint: &str) -> Explanation {
        let sites = [region("london"), region("new-york")];
        let evidence = Evidence {
            prefixes: &[net()],
            heard: &self.heard,
            sessions: &self.sessions,
            sites: &sites,
            relations: &self.relations,
            names: &self.names,
        };
        explain(&evidence, &Question { viewpoint: viewpoint.parse().unwrap(), net: net(), wanted: None })
    }
}

#[track_caller]
fn assert_says(sentences: &[String], words: &[&str]) {
    let found = sentences.iter().any(|sentence| words.iter().all(|word| sentence.contains(word)));
    assert!(found, "no sentence with {words:?} in {sentences:#?}");
}

#[test]
fn the_london_mystery_is_explained() {
    let found = World::mystery().explain("region:london");
    println!("{found}");
    assert_eq!(found.candidates.len(), 3);
    assert_eq!((found.explained, found.is_choice_known), (Some(0), true));
    assert_eq!(found.candidates[0].site, SiteFound::ByCommunity(region("new-york")));
    assert_says(&found.reasons, &["A network near london uses the path by AS3356 (Lumen), which leads to new-york"]);
    let decision = &found.decisions[0];
    assert_eq!((decision.network, decision.via, decision.rule), (3356, 209, Rule::LocalPreference));
    assert_eq!(decision.known, Some(Known { relation: Relation::Customer, source: Source::Table }));
    let other = &decision.alternatives[0];
    assert_eq!((other.via, other.known.relation, other.length), (1299, Relation::Peer, 2));
    assert_says(
        &found.reasons,
        &[
            "AS3356 (Lumen) prefers the route of its customer AS209 (CenturyLink) to that of its peer AS1299 (Arelion)",
            "local preference",
        ],
    );
    assert_says(
        &found.helps,
        &["no-export on the session with AS209 (CenturyLink) in new-york", "AS3356 (Lumen) included"],
    );
    assert_says(
        &found.helps,
        &["a community on the session with AS209 (CenturyLink) in new-york", "keeps the route from AS3356 (Lumen)"],
    );
    assert_says(&found.helps, &["announcing to AS209 (CenturyLink) in london, too"]);
    assert_says(&found.cannot, &["Prepending on the session with AS209 (CenturyLink) in new-york cannot help"]);
    assert_says(&found.unknown, &["Silence proves nothing"]);
    assert_says(&found.unknown, &["neighbours in london send nothing back: AS1299 (Arelion)"]);
    assert!(!found.unknown.iter().any(|sentence| sentence.contains("inferred")), "{:?}", found.unknown);
    assert!(found.leaks.is_empty(), "{:?}", found.leaks);
    let text = found.to_string();
    assert!(text.contains("* 3356 209 64500 leads to new-york\n  2914 1299 64500 leads to london\n"), "{text}");
}

#[test]
fn a_neighbour_that_ignores_no_export_is_named() {
    let mut world = World::mystery();
    world.sessions[1].is_no_export = true;
    let found = world.explain("region:london");
    assert_says(&found.cannot, &["no-export is on the session with AS209 (CenturyLink) in new-york already"]);
}

#[test]
fn prepending_changes_nothing_of_it() {
    let mut world = World::mystery();
    world.heard[2].as_path = vec![3356, 209, OWN, OWN, OWN, OWN];
    let found = world.explain("region:london");
    assert_eq!((found.decisions[0].rule, found.decisions[0].length), (Rule::LocalPreference, 5));
    assert_says(&found.cannot, &["Prepending", "cannot help"]);
}

#[test]
fn what_no_table_says_is_inferred_and_said_to_be() {
    let mut world = World::mystery();
    world.relations = Relations::parse("3356|1299|0\n").unwrap();
    let found = world.explain("region:london");
    assert_eq!(found.decisions[0].known, Some(Known { relation: Relation::Customer, source: Source::Inferred }));
    assert_says(&found.unknown, &["That AS209 (CenturyLink) is a customer of AS3356 (Lumen) is inferred"]);
    // Without any relation nothing is claimed.
    world.relations = Relations::default();
    let found = world.explain("region:london");
    assert_eq!((found.decisions[0].known, found.decisions[0].rule), (None, Rule::OnlyRoute));
    assert!(found.cannot.is_empty());
}

#[test]
fn among_equals_length_decides_and_prepending_helps() {
    let mut world = World::mystery();
    // AS209 is a peer, too, and the other path is prepended.
    world.relations = Relations::parse("3356|209|0\n3356|1299|0\n").unwrap();
    world.heard[0].as_path = vec![2914, 1299, OWN, OWN, OWN];
    let found = world.explain("region:london");
    assert_eq!(found.decisions[0].rule, Rule::Length);
    assert_says(&found.helps, &["prepending 3 times on the session with AS209 (CenturyLink) in new-york"]);
    assert!(found.cannot.is_empty());
}

#[test]
fn routes_of_providers_do_not_go_to_peers() {
    let mut world = World::mystery();
    // AS1299 has the route from its provider AS174, so AS3356 does not hear it from AS1299.
    world.heard[0].as_path = vec![2914, 1299, 174, OWN];
    world.heard.remove(1);
    world.sessions[0] = session("london", 174, PeerRole::Provider);
    world.relations = Relations::parse("3356|209|-1\n3356|1299|0\n174|1299|-1\n").unwrap();
    let found = world.explain("region:london");
    assert_eq!((found.decisions[0].network, found.decisions[0].rule), (3356, Rule::OnlyRoute));
    // A customer of AS1299 would hear it.
    world.relations = Relations::parse("3356|209|-1\n1299|3356|-1\n174|1299|-1\n").unwrap();
    assert_eq!(world.explain("region:london").decisions[0].rule, Rule::LocalPreference);
}

#[test]
fn a_network_is_looked_at_from_itself() {
    let found = World::mystery().explain("AS3356");
    assert_eq!(found.candidates.len(), 1);
    assert!(found.is_choice_known);
    assert_says(&found.reasons, &["AS3356 (Lumen) uses the path by"]);
    let found = World::mystery().explain("AS7018");
    assert_eq!((found.explained, found.candidates.len()), (None, 0));
    assert_says(&found.reasons, &["No route of 198.51.100.0/24 was heard from AS7018"]);
    for bad in ["", "3356", "AS", "AS-1", "region:", "region:a b", "AS99999999999"] {
        assert!(bad.parse::<Viewpoint>().is_err(), "{bad}");
    }
    assert_eq!("AS3356".parse::<Viewpoint>().unwrap().to_string(), "AS3356");
}

#[test]
fn sites_are_found_by_community_or_by_session() {
    let mut world = World::mystery();
    world.heard[2].communities.clear();
    let found = world.explain("region:london");
    assert_eq!(found.candidates[0].site, SiteFound::BySession(region("new-york")));
    assert_says(&found.unknown, &["leads to new-york is inferred"]);
    // AS209 is a neighbour in both: nothing says which.
    world.sessions.push(session("london", 209, PeerRole::Provider));
    let found = world.explain("region:london");
    assert_eq!(found.candidates[0].site, SiteFound::OneOf(vec![region("london"), region("new-york")]));
    assert!(found.helps.is_empty());
    world.heard[2].communities = vec![Community::Large(OWN, 1, 7)];
    assert_eq!(world.explain("region:london").candidates[0].site, SiteFound::UnknownNumber(7));
    // A stranger's community says nothing.
    world.heard[2].communities = vec![Community::Large(3356, 1, site_number("london"))];
    assert!(matches!(world.explain("region:london").candidates[0].site, SiteFound::OneOf(_)));
}

#[test]
fn an_unknown_choice_is_no_claim() {
    let mut world = World::mystery();
    world.heard[2].is_chosen = false;
    let found = world.explain("region:london");
    assert!(!found.is_choice_known);
    assert_says(&found.reasons, &["may use the path by AS3356 (Lumen)", "leads to new-york"]);
    assert_says(&found.unknown, &["its own preference"]);
    world.heard[2].as_path = vec![3356, OWN];
    assert_says(&world.explain("region:london").reasons, &["if it has no preference of its own: it is the shortest"]);
}

#[test]
fn leaks_are_seen_where_relations_are_known() {
    let kinds = |path: &[u32], net: &str, relations: &str| -> Vec<(LeakKind, u32)> {
        let mut world = World::mystery();
        world.relations = Relations::parse(relations).unwrap();
        world.heard = vec![Heard { net: net.parse().unwrap(), ..heard(path, None) }];
        world.explain("region:london").leaks.iter().map(|leak| (leak.kind, leak.by)).collect()
    };
    let own = "198.51.100.0/24";
    // 7 has it from its provider 209, and passes it to its provider 3356: down, and up again.
    assert_eq!(kinds(&[3356, 7, 209, OWN], own, "209|7|-1\n3356|7|-1"), [(LeakKind::Hairpin, 7)]);
    assert_eq!(kinds(&[8, 7, 209, OWN], own, "209|7|0\n8|7|0"), [(LeakKind::PeerToPeer, 7)]);
    assert_eq!(kinds(&[8, 7, 209, OWN], own, "209|7|-1\n8|7|0"), [(LeakKind::ProviderToPeer, 7)]);
    assert_eq!(kinds(&[8, 7, 209, OWN], own, "209|7|0\n8|7|-1"), [(LeakKind::PeerToProvider, 7)]);
    // Usual paths, and paths of which too little is known.
    assert_eq!(kinds(&[8, 7, 209, OWN], own, "7|209|-1\n7|8|0"), []);
    assert_eq!(kinds(&[8, 7, 209, OWN], own, "209|7|-1\n7|8|-1"), []);
    assert_eq!(kinds(&[8, 7, 209, OWN], own, "209|7|-1"), []);
    assert_eq!(kinds(&[3356, 666], own, ""), [(LeakKind::Origin, 666)]);
    assert_eq!(kinds(&[3356, 209, OWN], "198.51.100.128/25", ""), [(LeakKind::MoreSpecific, OWN)]);
    assert_eq!(kinds(&[3356, 666], "198.51.100.0/25", "").len(), 2);
}
