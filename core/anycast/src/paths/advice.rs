//! What helps, what cannot, and what is not known.

use sallyport_model::RegionName;

use super::{Candidate, Decision, Evidence, Question, Rule, Viewpoint, decisions::hops, sites::entry};

/// The sentences of what helps and of what cannot.
type Advice = (Vec<String>, Vec<String>);

/// What to do so that the place is led to the wanted site.
pub(super) fn advise(
    evidence: &Evidence,
    decisions: &[Decision],
    candidate: &Candidate,
    wanted: Option<&RegionName>,
) -> Advice {
    let (mut helps, mut cannot) = (Vec::new(), Vec::new());
    let Some((site, wanted)) = candidate.site.site().zip(wanted).filter(|(site, wanted)| site != wanted) else {
        return (helps, cannot);
    };
    let Some(entry) = entry(&candidate.as_path) else { return (helps, cannot) };
    let label = |number| evidence.names.label(number);
    let entry_name = label(entry);
    let session = format!("the session with {entry_name} in {site}");
    // Networks after the entry decide between its route and others; the entry itself decides between own sessions.
    let decisive = decisions.iter().find(|one| one.network != entry && matches!(one.rule, Rule::LocalPreference));
    let by_length = decisions.iter().find(|one| matches!(one.rule, Rule::Length | Rule::TieBreak));
    let is_passed_on = hops(&candidate.as_path).len() > 2;
    if is_passed_on {
        let mut at_entry = evidence.sessions.iter().filter(|one| one.remote_as == entry && one.site == *site);
        if at_entry.any(|one| one.is_no_export) {
            cannot
                .push(format!("no-export is on {session} already, and {entry_name} passes the route on all the same."));
        }
        let included = decisive.map_or_else(String::new, |one| format!(", {} included", label(one.network)));
        helps.push(format!("no-export on {session}: {entry_name} then sends the route to no other network{included}."));
        if let Some(decision) = decisive {
            let (network, via) = (label(decision.network), label(decision.via));
            helps.push(format!(
                "a community on {session} by which {entry_name} keeps the route from {network}, if it has one: its \
                 other neighbours still get to {site}."
            ));
            if !has_session(evidence, decision.network, wanted) {
                helps.push(format!(
                    "a session with {network} in {wanted}: its path is shorter than that of {via}, and equally preferred \
                     if we are a customer of {network}, too."
                ));
            }
        }
    }
    if has_session(evidence, entry, wanted) {
        helps.push(format!(
            "{entry_name} is a neighbour in {wanted} already: ask it to hand packets from there over in {wanted}, or \
             for a community by which it prefers that session in that region."
        ));
    } else {
        let whose =
            decisive.map_or_else(|| "its route".to_owned(), |one| format!("what {} prefers", label(one.network)));
        helps.push(format!(
            "announcing to {entry_name} in {wanted}, too: {whose} then leads to {wanted} as well, as far as {entry_name} \
             hands packets over near to where they come from."
        ));
    }
    match (decisive, by_length) {
        (Some(decision), _) => {
            let network = label(decision.network);
            cannot.push(format!(
                "Prepending on {session} cannot help: {network} compares local preference before the length of paths, \
                 and its {} {} stays preferred with any length. Only a network that hears other paths beside that of \
                 {network}, and prefers none of its neighbours, would move.",
                decision.known.map_or_else(String::new, |known| known.relation.to_string()),
                label(decision.via),
            ));
        }
        (None, Some(decision)) => {
            let more = decision.alternatives.first().map_or(0, |best| best.length - decision.length) + 1;
            helps.push(format!(
                "prepending {more} times on {session}: {} then has another path that is shorter.",
                label(decision.network)
            ));
        }
        (None, None) => {}
    }
    (helps, cannot)
}

fn has_session(evidence: &Evidence, remote_as: u32, site: &RegionName) -> bool {
    evidence.sessions.iter().any(|session| session.remote_as == remote_as && session.site == *site)
}

/// What is not seen.
pub(super) fn silence(evidence: &Evidence, question: &Question) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Viewpoint::Site(site) = &question.viewpoint {
        let is_heard = |remote_as: u32| {
            let mut heard = evidence.heard.iter().filter(|heard| heard.net == question.net && heard.site == *site);
            heard.any(|heard| heard.as_path.first() == Some(&remote_as))
        };
        let mut silent: Vec<u32> = evidence
            .sessions
            .iter()
            .filter(|session| session.site == *site && !is_heard(session.remote_as))
            .map(|session| session.remote_as)
            .collect();
        silent.sort_unstable();
        silent.dedup();
        if !silent.is_empty() {
            let names: Vec<String> = silent.iter().take(16).map(|number| evidence.names.label(*number)).collect();
            sentences.push(format!("These neighbours in {site} send nothing back: {}.", names.join(", ")));
        }
    }
    sentences.push(
        "What a neighbour does not send back cannot be seen: it may use another path, or send nothing to where it has \
         a route from. Silence proves nothing."
            .to_owned(),
    );
    sentences
}
