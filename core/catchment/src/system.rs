//! Networks together, by the autonomous system that announces them.

use std::{collections::HashMap, time::Duration};

use crate::ClientNetwork;

/// The networks of one autonomous system together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSystem<C> {
    /// The number of the system; `None` for networks whose system is not known.
    pub number: Option<u32>,
    /// The country, if all networks are in one.
    pub country: Option<C>,
    /// How many networks there are.
    pub networks: usize,
    /// How many connections came from there.
    pub connections: u64,
    /// The shortest round trip.
    pub round_trip: Option<Duration>,
    /// The time of the last connection.
    pub last_seen: Duration,
}

/// Sums networks by system, each given with its system and its country. Systems with the most connections come first.
#[must_use]
pub fn by_system<C: Clone + PartialEq>(
    networks: impl IntoIterator<Item = (ClientNetwork, Option<u32>, Option<C>)>,
) -> Vec<ClientSystem<C>> {
    let mut systems: HashMap<Option<u32>, ClientSystem<C>> = HashMap::new();
    for (network, number, country) in networks {
        let system = systems.entry(number).or_insert_with(|| ClientSystem {
            number,
            country: country.clone(),
            networks: 0,
            connections: 0,
            round_trip: None,
            last_seen: network.last_seen,
        });
        if system.country != country {
            system.country = None;
        }
        system.networks += 1;
        system.connections = system.connections.saturating_add(network.connections);
        system.round_trip = [system.round_trip, network.round_trip].into_iter().flatten().min();
        system.last_seen = system.last_seen.max(network.last_seen);
    }
    let mut systems: Vec<_> = systems.into_values().collect();
    systems.sort_unstable_by_key(|system| (std::cmp::Reverse(system.connections), system.number));
    systems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix;

    fn network(prefix: &str, connections: u64, ms: Option<u64>, seconds: u64) -> ClientNetwork {
        let prefix = Prefix::of(prefix.parse().unwrap());
        let round_trip = ms.map(Duration::from_millis);
        ClientNetwork { prefix, connections, round_trip, last_seen: Duration::from_secs(seconds) }
    }

    #[test]
    fn networks_of_a_system_are_summed() {
        let networks = [
            (network("192.0.2.0", 3, Some(30), 5), Some(64_500), Some("CH")),
            (network("198.51.100.0", 4, Some(20), 9), Some(64_500), Some("CH")),
            (network("203.0.113.0", 9, None, 1), Some(64_501), Some("SE")),
            (network("2001:db8::", 1, Some(5), 2), Some(64_501), Some("NO")),
            (network("10.0.0.0", u64::MAX, None, 3), None, None),
            (network("10.0.1.0", 1, None, 4), None, Some("CH")),
        ];
        let systems = by_system(networks);
        let shown = |system: &ClientSystem<&str>| {
            let ms = system.round_trip.map(|time| time.as_millis());
            (system.number, system.country.unwrap_or("-").to_owned(), system.networks, system.connections, ms)
        };
        assert_eq!(
            systems.iter().map(shown).collect::<Vec<_>>(),
            [
                (None, "-".to_owned(), 2, u64::MAX, None),
                (Some(64_501), "-".to_owned(), 2, 10, Some(5)),
                (Some(64_500), "CH".to_owned(), 2, 7, Some(20)),
            ]
        );
        assert_eq!(systems[2].last_seen, Duration::from_secs(9));
        assert!(by_system::<()>([]).is_empty());
    }
}
