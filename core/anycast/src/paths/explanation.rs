//! The explanation of where a place is led.

use std::{fmt, str::FromStr};

use ipnet::IpNet;
use sallyport_model::RegionName;
use serde::{Deserialize, Serialize};

use super::{
    AsNames, Decision, Heard, Known, Leak, Relations, Rule, Session, SiteFound, Source,
    advice::{advise, silence},
    decisions::decisions,
    leaks::leaks,
    relations::number_of,
};

/// The most routes that are looked at.
pub const MAX_HEARD: usize = 10_000;

/// What is known.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The own prefixes that are announced.
    pub prefixes: &'a [IpNet],
    /// Routes of them, as they were heard. Those beyond [`MAX_HEARD`] are not looked at.
    pub heard: &'a [Heard],
    /// The own sessions.
    pub sessions: &'a [Session],
    /// All sites.
    pub sites: &'a [RegionName],
    /// What networks are to each other.
    pub relations: &'a Relations,
    /// Names of networks.
    pub names: &'a AsNames,
}

/// From where one looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Viewpoint {
    /// A network near a site, which hears what was heard at that site.
    Site(RegionName),
    /// A neighbour, or a network whose routes were heard.
    Network(u32),
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// From where.
    pub viewpoint: Viewpoint,
    /// To which prefix.
    pub net: IpNet,
    /// Which site would be right. None: the site itself, if one looks from a site.
    pub wanted: Option<RegionName>,
}

/// A path that was heard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The path.
    pub as_path: Vec<u32>,
    /// Where it leads.
    pub site: SiteFound,
    /// Whether the observer is known to use it.
    pub is_chosen: bool,
}

/// Where a place is led, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The prefix.
    pub net: IpNet,
    /// From where one looks.
    pub viewpoint: Viewpoint,
    /// The paths that were heard there.
    pub candidates: Vec<Candidate>,
    /// Which of them is explained, if there is any.
    pub explained: Option<usize>,
    /// Whether it is known that this one is used.
    pub is_choice_known: bool,
    /// What each network on it decided.
    pub decisions: Vec<Decision>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// What helps.
    pub helps: Vec<String>,
    /// What cannot help.
    pub cannot: Vec<String>,
    /// What is not known, or is inferred.
    pub unknown: Vec<String>,
    /// Signs of leaks.
    pub leaks: Vec<Leak>,
}

impl Evidence<'_> {
    /// Whether this is an own network.
    pub(super) fn is_own(&self, number: u32) -> bool {
        self.sessions.iter().any(|session| session.local_as == number)
    }

    /// What the other network is to one. The roles of own sessions come before tables.
    pub(super) fn relation(&self, one: u32, other: u32) -> Option<Known> {
        let session = |own: u32, remote: u32| {
            let mut all = self.sessions.iter().filter(|session| session.local_as == own && session.remote_as == remote);
            all.find_map(Session::relation)
        };
        let by_session = session(one, other).or_else(|| session(other, one).map(super::Relation::reverse));
        if let Some(relation) = by_session {
            return Some(Known { relation, source: Source::Session });
        }
        self.relations.of(one, other).map(|relation| Known { relation, source: Source::Table })
    }
}

impl fmt::Display for Viewpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Site(site) => write!(f, "region:{site}"),
            Self::Network(number) => write!(f, "AS{number}"),
        }
    }
}

impl FromStr for Viewpoint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(site) = text.strip_prefix("region:") {
            return site.parse().map(Self::Site).map_err(|error| format!("{error}"));
        }
        let number = text.strip_prefix("AS").or_else(|| text.strip_prefix("as")).and_then(number_of);
        number.map(Self::Network).ok_or_else(|| {
            let text: String = text.chars().take(64).collect();
            format!("{text:?} is no place to look from: use region:NAME or AS and its number, such as AS64500")
        })
    }
}

/// Explains where a place is led.
#[must_use]
pub fn explain(evidence: &Evidence, question: &Question) -> Explanation {
    let evidence = &Evidence { heard: &evidence.heard[..evidence.heard.len().min(MAX_HEARD)], ..*evidence };
    let candidates: Vec<Candidate> = candidates(evidence, question);
    let mut explanation = Explanation {
        net: question.net,
        viewpoint: question.viewpoint.clone(),
        explained: None,
        is_choice_known: false,
        decisions: Vec::new(),
        reasons: Vec::new(),
        helps: Vec::new(),
        cannot: Vec::new(),
        unknown: Vec::new(),
        leaks: leaks(evidence),
        candidates,
    };
    let wanted = question.wanted.clone().or_else(|| match &question.viewpoint {
        Viewpoint::Site(site) => Some(site.clone()),
        Viewpoint::Network(_) => None,
    });
    let place = place(evidence, &question.viewpoint);
    if let Some((index, how)) = subject(&explanation.candidates, wanted.as_ref()) {
        let candidate = &explanation.candidates[index];
        explanation.explained = Some(index);
        explanation.is_choice_known = how == Choice::Known || matches!(question.viewpoint, Viewpoint::Network(_));
        explanation.decisions = decisions(evidence, question.net, &candidate.as_path);
        let first = candidate.as_path.first().copied().unwrap_or_default();
        let by = evidence.names.label(first);
        explanation.reasons.push(match (how, explanation.is_choice_known) {
            (_, true) => format!("{place} uses the path by {by}, which {}.", leads(&candidate.site)),
            (Choice::Shortest, _) => {
                format!(
                    "{place} uses the path by {by} if it has no preference of its own: it is the shortest. It {}.",
                    leads(&candidate.site)
                )
            }
            _ => format!("{place} may use the path by {by}: others are not shorter. It {}.", leads(&candidate.site)),
        });
        if !explanation.is_choice_known {
            let sentence = "Which of its paths a network uses is its own preference, which is not seen from outside.";
            explanation.unknown.push(sentence.to_owned());
        }
        explanation.reasons.extend(explanation.decisions.iter().map(|decision| reason(evidence, decision)));
        let inferred = explanation.decisions.iter().filter_map(|decision| inferred(evidence, decision));
        explanation.unknown.extend(inferred);
        if let SiteFound::BySession(site) = &candidate.site {
            let sentence = format!("That the path leads to {site} is inferred: the route has no community of a site.");
            explanation.unknown.push(sentence);
        }
        let advice = advise(evidence, &explanation.decisions, candidate, wanted.as_ref());
        (explanation.helps, explanation.cannot) = advice;
    } else {
        explanation.reasons.push(format!("No route of {} was heard from {}.", question.net, question.viewpoint));
    }
    explanation.unknown.extend(silence(evidence, question));
    explanation
}

fn candidates(evidence: &Evidence, question: &Question) -> Vec<Candidate> {
    let is_there = |heard: &&Heard| {
        heard.net == question.net
            && match &question.viewpoint {
                Viewpoint::Site(site) => heard.site == *site,
                Viewpoint::Network(number) => heard.as_path.contains(number),
            }
    };
    let mut found: Vec<Candidate> = Vec::new();
    for heard in evidence.heard.iter().filter(is_there) {
        let as_path = match &question.viewpoint {
            Viewpoint::Site(_) => heard.as_path.clone(),
            // What this network hears is what comes after it.
            Viewpoint::Network(number) => {
                let at = heard.as_path.iter().position(|other| other == number).unwrap_or(0);
                heard.as_path[at..].to_vec()
            }
        };
        let site = SiteFound::of(heard, evidence.sessions, evidence.sites);
        let candidate = Candidate { as_path, site, is_chosen: heard.is_chosen };
        if !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found.sort_by_key(|one| (!one.is_chosen, one.as_path.len()));
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Known,
    Shortest,
    Perhaps,
}

/// Which path to explain: the one that is used, else the only shortest one, else one that leads astray.
fn subject(candidates: &[Candidate], wanted: Option<&RegionName>) -> Option<(usize, Choice)> {
    let first = candidates.first()?;
    if first.is_chosen {
        return Some((0, Choice::Known));
    }
    let is_astray = |one: &Candidate| one.site.site().is_some_and(|site| wanted.is_some_and(|wanted| wanted != site));
    match candidates.get(1) {
        Some(second) if second.as_path.len() == first.as_path.len() => {
            let as_short = candidates.iter().take_while(|one| one.as_path.len() == first.as_path.len());
            Some((as_short.into_iter().position(is_astray).unwrap_or(0), Choice::Perhaps))
        }
        _ => Some((0, Choice::Shortest)),
    }
}

fn place(evidence: &Evidence, viewpoint: &Viewpoint) -> String {
    match viewpoint {
        Viewpoint::Site(site) => format!("A network near {site}"),
        Viewpoint::Network(number) => evidence.names.label(*number),
    }
}

fn leads(site: &SiteFound) -> String {
    match site {
        SiteFound::ByCommunity(site) | SiteFound::BySession(site) => format!("leads to {site}"),
        SiteFound::OneOf(sites) => {
            let sites: Vec<&str> = sites.iter().map(RegionName::as_str).collect();
            format!("leads to one of {}", sites.join(", "))
        }
        SiteFound::UnknownNumber(number) => format!("leads to a site with the number {number}, which is none of now"),
        SiteFound::Unknown => "leads to a site that nothing names".to_owned(),
    }
}

/// The sentence of a decision.
fn reason(evidence: &Evidence, decision: &Decision) -> String {
    let label = |number| evidence.names.label(number);
    let (network, via) = (label(decision.network), label(decision.via));
    let mine = decision.known.map_or_else(String::new, |known| format!("its {} ", known.relation));
    if evidence.is_own(decision.via) {
        return format!("{network} has the route from us.");
    }
    let Some(best) = decision.alternatives.first() else {
        return format!("{network} has the route from {mine}{via}; no other route of it is known.");
    };
    let other = format!("its {} {}", best.known.relation, label(best.via));
    match decision.rule {
        Rule::LocalPreference => format!(
            "{network} prefers the route of {mine}{via} to that of {other}: local preference comes before the length \
             of paths, and networks prefer what their customers announce."
        ),
        Rule::Length => format!(
            "{network} prefers the route of {mine}{via} to that of {other}: its path has {} networks, the other one {}.",
            decision.length, best.length
        ),
        Rule::TieBreak => format!(
            "{network} has equal routes of {mine}{via} and of {other}, and decides by what is not seen from outside, \
             such as the way to its own border or the age of the route."
        ),
        Rule::OnlyRoute | Rule::Policy => format!(
            "{network} has the route from {mine}{via} although it can have that of {other}: by a policy of its own, or \
             what is known of these networks is wrong."
        ),
    }
}

fn inferred(evidence: &Evidence, decision: &Decision) -> Option<String> {
    let known = decision.known.filter(|known| known.source == Source::Inferred)?;
    let network = evidence.names.label(decision.network);
    Some(format!(
        "That {} is a {} of {network} is inferred from what {network} does; no table and no session says so.",
        evidence.names.label(decision.via),
        known.relation,
    ))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} as {} hears it:", self.net, self.viewpoint)?;
        for (index, candidate) in self.candidates.iter().enumerate() {
            let mark = if self.explained == Some(index) { '*' } else { ' ' };
            let path: Vec<String> = candidate.as_path.iter().map(ToString::to_string).collect();
            writeln!(f, "{mark} {} {}", path.join(" "), leads(&candidate.site))?;
        }
        for sentence in &self.reasons {
            writeln!(f, "{sentence}")?;
        }
        for (title, sentences) in
            [("What helps", &self.helps), ("What cannot help", &self.cannot), ("What is not known", &self.unknown)]
        {
            if !sentences.is_empty() {
                writeln!(f, "{title}:")?;
            }
            for sentence in sentences {
                writeln!(f, "- {sentence}")?;
            }
        }
        if !self.leaks.is_empty() {
            writeln!(f, "What looks like a leak:")?;
        }
        self.leaks.iter().try_for_each(|leak| writeln!(f, "- {leak}."))
    }
}

#[cfg(test)]
#[path = "explanation_tests.rs"]
mod tests;
