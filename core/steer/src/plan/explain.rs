//! A plan in words.

use std::collections::BTreeMap;

use sallyport_model::OriginRef;

use super::{
    topology::Place,
    view::{EdgeView, OriginView, PlaceView, PlanView, ShareView},
};
use crate::{Amount, PER_UNIT};

/// From which part of its capacity an origin counts as full, in percent.
const FULL_PERCENT: Amount = 97;
/// How much longer the way to an origin has to be than to the nearest one to be worth a sentence, in microseconds.
const MIN_FARTHER_US: u64 = 3_000;
/// The least part of an edge's demand that is worth a sentence, in percent.
const MIN_PERCENT: Amount = 1;

/// The plan as sentences: what each origin is at, where the traffic of each edge goes, and why. `name` gives the names
/// of origins.
#[must_use]
pub fn explain(plan: &PlanView, name: &dyn Fn(OriginRef) -> String) -> Vec<String> {
    let mut words = Vec::new();
    let label = Labels::new(plan, name);
    for origin in &plan.origins {
        words.extend(origin_words(origin, &label));
    }
    words.extend(place_words(plan));
    for edge in &plan.edges {
        words.extend(edge_words(plan, edge, &label));
    }
    if words.is_empty() {
        words.push("no traffic yet: every origin has all of its capacity left".to_owned());
    }
    words
}

/// What origins are called: by their region, if they are alone in it.
struct Labels(BTreeMap<OriginRef, String>);

impl Labels {
    fn new(plan: &PlanView, name: &dyn Fn(OriginRef) -> String) -> Self {
        let alone = |origin: &OriginView| {
            let region = origin.region.as_ref()?;
            let there = plan.origins.iter().filter(|other| other.region.as_ref() == Some(region));
            (there.count() == 1).then(|| region.to_string())
        };
        let label = |origin: &OriginView| (origin.origin, alone(origin).unwrap_or_else(|| name(origin.origin)));
        Self(plan.origins.iter().map(label).collect())
    }

    fn of(&self, origin: OriginRef) -> &str {
        self.0.get(&origin).map_or("an origin", String::as_str)
    }
}

fn origin_words(origin: &OriginView, label: &Labels) -> Option<String> {
    let name = label.of(origin.origin);
    let at = origin.planned.max(origin.load.min(origin.capacity.unwrap_or(Amount::MAX)));
    let own = if origin.is_learned { origin.capacity } else { origin.own_capacity };
    let learned = if origin.is_learned { ", as learned" } else { "" };
    let shared = origin.shared.as_ref().map(|shared| format!(", shared as {shared}")).unwrap_or_default();
    match (own, origin.max_connections) {
        (Some(capacity), _) => Some(format!("{name} is at {} of {} rps{learned}{shared}", units(at), units(capacity))),
        (None, Some(most)) => Some(format!("{name} is at {} of {most} connections{shared}", origin.open)),
        (None, None) if origin.is_learned => {
            Some(format!("{name} is at {} rps, and was never seen to be full", units(at)))
        }
        (None, None) => None,
    }
}

/// The limits of several origins together: each once.
fn place_words(plan: &PlanView) -> Vec<String> {
    let mut places: Vec<&PlaceView> = Vec::new();
    for place in plan.origins.iter().flat_map(|origin| &origin.within) {
        if places.iter().all(|known| known.place != place.place) {
            places.push(place);
        }
    }
    let words = |place: &PlaceView| {
        let is_within = |origin: &&OriginView| origin.within.iter().any(|other| other.place == place.place);
        let own = plan.origins.iter().filter(is_within).map(|origin| origin.planned).fold(0, Amount::saturating_add);
        let others = place.planned.saturating_sub(own);
        let others =
            if others >= PER_UNIT { format!(", {} of them for other sockets", units(others)) } else { String::new() };
        let name = match &place.place {
            Place::Origin(_) => return None,
            Place::Region(_, region) => format!("the region {region}"),
            Place::Shared(_, name) => format!("the shared capacity {name}"),
        };
        Some(format!("{name} is at {} of {} rps{others}", units(place.planned), units(place.capacity)))
    };
    places.into_iter().filter_map(words).collect()
}

fn edge_words(plan: &PlanView, edge: &EdgeView, label: &Labels) -> Vec<String> {
    let mut words = Vec::new();
    let name = &edge.name;
    if !edge.is_heard {
        let locked = edge.shares.iter().map(|share| share.locked).fold(0, Amount::saturating_add);
        if locked > 0 {
            words.push(format!(
                "{name} is not heard: {} rps stay reserved for it until it is certainly gone, or removed by `edge rm`",
                units(locked)
            ));
        }
        return words;
    }
    let percent = |rate: Amount| rate * 100 / edge.demand.max(1);
    let is_elsewhere = |origin: OriginRef| {
        let found = plan.origins.iter().find(|one| one.origin == origin);
        found.and_then(|one| one.region.as_ref()).is_some_and(|region| *region != edge.region)
    };
    let distance = |share: &&ShareView| (is_elsewhere(share.origin), share.rtt_us.unwrap_or(u64::MAX));
    let nearest = edge.shares.iter().min_by_key(distance).map(|share| share.origin);
    let least = edge.shares.iter().filter_map(|share| share.rtt_us).min().unwrap_or_default();
    for share in edge.shares.iter().filter(|share| Some(share.origin) != nearest) {
        let is_far = is_elsewhere(share.origin) || share.rtt_us.is_none_or(|rtt| rtt >= least + MIN_FARTHER_US);
        let part = percent(share.planned.min(edge.demand));
        if part < MIN_PERCENT || !is_far {
            continue;
        }
        let away = share.rtt_us.map(|us| format!(", {} ms away", us.div_ceil(1_000))).unwrap_or_default();
        let why = nearest.map(|near| why(plan, near, label)).unwrap_or_default();
        words.push(format!("{part} % of {name} goes to {}{away}{why}", label.of(share.origin)));
    }
    if percent(edge.shed) >= MIN_PERCENT {
        let all = plan.origins.iter().all(is_full);
        let why = if all { ": every origin is full" } else { "" };
        words.push(format!("{name} refuses {} rps{why}", units(edge.shed)));
    }
    words
}

/// Why traffic does not go to the nearest origin: what is full, and what that is.
fn why(plan: &PlanView, nearest: OriginRef, label: &Labels) -> String {
    let Some(origin) = plan.origins.iter().find(|origin| origin.origin == nearest) else { return String::new() };
    if is_full_itself(origin) {
        return format!(", because {} is full", label.of(origin.origin));
    }
    let Some(full) = origin.within.iter().find(|place| is_full_place(place)) else { return String::new() };
    let name = match &full.place {
        Place::Origin(leaf) => label.of(leaf.origin).to_owned(),
        Place::Region(_, region) => format!("the region {region}"),
        Place::Shared(_, name) => format!("the shared capacity {name}"),
    };
    format!(", because {name} is at {} of {} rps", units(full.planned), units(full.capacity))
}

fn is_full(origin: &OriginView) -> bool {
    is_full_itself(origin) || origin.within.iter().any(is_full_place)
}

fn is_full_itself(origin: &OriginView) -> bool {
    let by_rate = origin.own_capacity.is_some_and(|capacity| origin.planned * 100 >= capacity * FULL_PERCENT);
    by_rate || origin.max_connections.is_some_and(|most| origin.open >= most)
}

fn is_full_place(place: &PlaceView) -> bool {
    place.planned * 100 >= place.capacity * FULL_PERCENT
}

/// A rate with at most one decimal.
fn units(rate: Amount) -> String {
    let tenths = rate.saturating_add(PER_UNIT / 20) / (PER_UNIT / 10);
    if tenths >= 100 || tenths.is_multiple_of(10) {
        ((tenths + 5) / 10).to_string()
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}
