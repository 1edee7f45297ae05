//! Each rule filed under the endpoints of its narrower side, so that a packet meets few rules.

use std::collections::HashMap;

use super::{Action, Endpoint, MAX_RULES_OF_PACKET, PolicyError, Rule, Side, Way};

/// Where the rules of a policy are filed. A rule stands in one place for each endpoint of one of its sides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filing {
    /// Places of rules, by action, side and place of the endpoint there.
    of_endpoints: HashMap<(Action, Way, usize), Vec<usize>>,
    /// Places of rules of which no side is endpoints alone, by action.
    common: HashMap<Action, Vec<usize>>,
}

impl Filing {
    /// Files all rules.
    pub(super) fn of(endpoints: &[Endpoint], rules: &[Rule]) -> Result<Self, PolicyError> {
        let mut filing = Self::default();
        for (place, rule) in rules.iter().enumerate() {
            let way = match (endpoints_alone(&rule.from), endpoints_alone(&rule.to)) {
                (Some(from), Some(to)) if from.len() < to.len() => Some((Way::From, from)),
                (_, Some(to)) => Some((Way::To, to)),
                (Some(from), None) => Some((Way::From, from)),
                (None, None) => None,
            };
            let Some((way, filed)) = way else {
                let common = filing.common.entry(rule.action).or_default();
                add(common, place, || "that name no endpoint or group alone on one side".to_owned())?;
                continue;
            };
            for endpoint in filed {
                let filed = filing.of_endpoints.entry((rule.action, way, *endpoint)).or_default();
                add(filed, place, || format!("{} {}", way.as_str(), endpoints[*endpoint].name))?;
            }
        }
        Ok(filing)
    }

    /// The rules filed under this endpoint.
    pub(crate) fn of_endpoint(&self, action: Action, way: Way, endpoint: usize) -> &[usize] {
        self.of_endpoints.get(&(action, way, endpoint)).map_or(&[], Vec::as_slice)
    }

    /// The rules filed under no endpoint.
    pub(crate) fn common(&self, action: Action) -> &[usize] {
        self.common.get(&action).map_or(&[], Vec::as_slice)
    }

    /// The rules that a packet between these two is compared with, in their order.
    pub(super) fn of_packet(
        &self,
        action: Action,
        source: Option<usize>,
        destination: Option<usize>,
    ) -> impl Iterator<Item = usize> {
        let sides = [(Way::From, source), (Way::To, destination)];
        let of = move |(way, endpoint): (Way, Option<usize>)| {
            endpoint.map_or(&[][..], |endpoint| self.of_endpoint(action, way, endpoint))
        };
        sides.into_iter().flat_map(of).chain(self.common(action)).copied()
    }
}

fn endpoints_alone(side: &Side) -> Option<&std::collections::BTreeSet<usize>> {
    match side {
        Side::Some { endpoints, networks } if networks.is_empty() => Some(endpoints),
        _ => None,
    }
}

fn add(places: &mut Vec<usize>, place: usize, of: impl Fn() -> String) -> Result<(), PolicyError> {
    if places.len() == MAX_RULES_OF_PACKET {
        return Err(PolicyError::ManyRules(of()));
    }
    places.push(place);
    Ok(())
}
