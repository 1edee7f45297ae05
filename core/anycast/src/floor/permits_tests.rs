use super::*;

fn prefix() -> IpNet {
    "198.51.100.0/24".parse().unwrap()
}

fn edge(name: &str) -> EdgeName {
    name.parse().unwrap()
}

fn announcer(region: &str, capacity: u64) -> Announcer {
    Announcer { region: Some(region.parse().unwrap()), capacity }
}

fn live(names: &[&str]) -> BTreeSet<EdgeName> {
    names.iter().map(|name| edge(name)).collect()
}

const TWO_SITES: Demand = Demand { min_sites: 2, requests: 0 };

/// a1 and a2 at the site a, b1 at b, c1 at c.
fn four() -> Permits {
    let all = live(&["a1", "a2", "b1", "c1"]);
    let sites = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")];
    sites.iter().fold(Permits::new(prefix()), |permits, (name, site)| {
        permits.announce(&edge(name), announcer(site, 100), &all).unwrap()
    })
}

fn granted(verdict: Verdict) -> Permits {
    match verdict {
        Verdict::Granted(permits) => permits,
        Verdict::Refused(sentence) => panic!("refused: {sentence}"),
    }
}

fn refused(verdict: Verdict) -> String {
    match verdict {
        Verdict::Granted(_) => panic!("granted"),
        Verdict::Refused(sentence) => sentence,
    }
}

#[test]
fn the_last_sites_stay() {
    let all = live(&["a1", "a2", "b1", "c1"]);
    let permits = granted(four().withdraw(&edge("c1"), Withdrawal::ByPermit, &all, TWO_SITES));
    let sentence = refused(permits.withdraw(&edge("b1"), Withdrawal::ByPermit, &all, TWO_SITES));
    assert_eq!(sentence, "198.51.100.0/24 would be announced by 1 site of at least 2 sites");
    // One of two edges of a site may go, the other one not.
    let permits = granted(permits.withdraw(&edge("a1"), Withdrawal::ByPermit, &all, TWO_SITES));
    refused(permits.withdraw(&edge("a2"), Withdrawal::ByPermit, &all, TWO_SITES));
    // A broken edge goes in any case, and one whose first answer was lost has its permit.
    let permits = granted(permits.withdraw(&edge("a2"), Withdrawal::Local, &all, TWO_SITES));
    assert_eq!(granted(permits.withdraw(&edge("a2"), Withdrawal::ByPermit, &all, TWO_SITES)), permits);
}

#[test]
fn edges_that_are_gone_and_edges_without_capacity_do_not_count() {
    let some = live(&["a1", "b1"]);
    refused(four().withdraw(&edge("b1"), Withdrawal::ByPermit, &some, TWO_SITES));
    let all = live(&["a1", "a2", "b1", "c1"]);
    let demand = |requests| Demand { min_sites: 1, requests };
    granted(four().withdraw(&edge("b1"), Withdrawal::ByPermit, &all, demand(300)));
    let sentence = refused(four().withdraw(&edge("b1"), Withdrawal::ByPermit, &all, demand(301)));
    assert_eq!(sentence, "the edges left for 198.51.100.0/24 carry 300 requests a second, and there are 301");
    // Nobody knows what one of them carries.
    let permits = four().announce(&edge("c1"), announcer("c", 0), &all).unwrap();
    granted(permits.withdraw(&edge("b1"), Withdrawal::ByPermit, &all, demand(301)));
}

#[test]
fn documents_are_read_back_and_others_are_refused() {
    let permits = four();
    assert_eq!(Permits::from_bytes(prefix(), &permits.to_bytes().unwrap()).unwrap(), permits);
    let error = |bytes: &[u8]| Permits::from_bytes(prefix(), bytes).unwrap_err().to_string();
    assert!(error(b"{").contains("cannot be read"));
    assert!(error(br#"{"form":2,"new":1}"#).contains("update it"));
    assert!(error(br#"{"form":1,"prefix":"10.0.0.0/8"}"#).contains("not of 198.51.100.0/24"));
    assert!(error(br#"{"form":1,"prefix":"198.51.100.0/24","announcers":{"a b":{}}}"#).contains("cannot be read"));
    assert!(error(&vec![b' '; MAX_PERMITS_BYTES + 1]).contains("more than"));
    assert_eq!(key(prefix()), "v4-c6336400-24");
    assert_eq!(key("2001:db8::/32".parse().unwrap()), "v6-20010db8000000000000000000000000-32");
}

#[test]
fn a_full_document_drops_edges_that_are_gone() {
    let mut permits = Permits::new(prefix());
    for number in 0..MAX_ANNOUNCERS {
        permits = permits.announce(&edge(&format!("e{number}")), announcer("a", 1), &live(&[])).unwrap();
    }
    assert!(permits.to_bytes().is_ok());
    let next = permits.announce(&edge("new"), announcer("a", 1), &live(&["e1"])).unwrap();
    assert_eq!(next.announcers().keys().map(EdgeName::as_str).collect::<Vec<_>>(), ["e1", "new"]);
}

/// A bus with one document: it writes only over the revision that was read, and loses answers.
#[derive(Default)]
struct Bus {
    bytes: Vec<u8>,
    revision: u64,
}

impl Bus {
    fn put(&mut self, over: u64, bytes: Vec<u8>) -> bool {
        let is_current = over == self.revision;
        if is_current {
            (self.bytes, self.revision) = (bytes, over + 1);
        }
        is_current
    }
}

/// An edge in a schedule: what it read, and whether it stopped announcing.
struct Actor {
    name: EdgeName,
    read: Option<(Permits, u64)>,
    tries: u32,
    has_stopped: bool,
}

/// A sequence of numbers that a seed gives.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Runs one schedule of edges that all want to stop at once, and returns which of them go on.
fn run(seed: u64, names: &[(&str, &str)], min_sites: u16) -> Vec<String> {
    let mut next = numbers(seed);
    let all: BTreeSet<EdgeName> = names.iter().map(|(name, _)| edge(name)).collect();
    let first = names.iter().fold(Permits::new(prefix()), |permits, (name, site)| {
        permits.announce(&edge(name), announcer(site, 1), &all).unwrap()
    });
    let mut bus = Bus { bytes: first.to_bytes().unwrap(), revision: 1 };
    let mut actors: Vec<Actor> =
        all.iter().map(|name| Actor { name: name.clone(), read: None, tries: 0, has_stopped: false }).collect();
    let demand = Demand { min_sites, requests: 0 };
    let max_steps = 200;
    for _ in 0..max_steps {
        let index = next(actors.len() as u64) as usize;
        let actor = &mut actors[index];
        if actor.has_stopped || actor.tries > 12 {
            continue;
        }
        let Some((permits, revision)) = actor.read.take() else {
            let permits = Permits::from_bytes(prefix(), &bus.bytes).unwrap();
            // A read may be lost, too.
            actor.read = (next(8) > 0).then_some((permits, bus.revision));
            continue;
        };
        actor.tries += 1;
        match permits.withdraw(&actor.name, Withdrawal::ByPermit, &all, demand) {
            Verdict::Refused(_) => {}
            Verdict::Granted(granted) => {
                let is_written = bus.put(revision, granted.to_bytes().unwrap());
                // An answer that is lost is no permit: the edge reads again.
                actor.has_stopped = is_written && next(3) > 0;
            }
        }
        if !actor.has_stopped {
            continue;
        }
        let sites: BTreeSet<&str> = names
            .iter()
            .filter(|(name, _)| actors.iter().any(|actor| actor.name.as_str() == *name && !actor.has_stopped))
            .map(|(_, site)| *site)
            .collect();
        assert!(sites.len() >= usize::from(min_sites), "seed {seed}: {sites:?}");
    }
    actors.into_iter().filter(|actor| !actor.has_stopped).map(|actor| actor.name.to_string()).collect()
}

#[test]
fn the_floor_holds_in_a_thousand_schedules() {
    let two = [("a1", "a"), ("b1", "b")];
    let many = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"), ("d1", "d")];
    let mut outcomes = BTreeSet::new();
    for seed in 1..=1000 {
        // The last two sites at once: one of them goes on.
        let left = run(seed, &two, 1);
        assert_eq!(left.len(), 1, "seed {seed}: {left:?}");
        outcomes.insert(left);
        // For a cause that all have, all of the last two sites stay.
        assert_eq!(run(seed, &two, 2).len(), 2);
        let left = run(seed, &many, 2);
        assert!(left.len() >= 2 && left.len() < many.len(), "seed {seed}: {left:?}");
    }
    assert_eq!(outcomes.len(), 2, "schedules differ");
}
