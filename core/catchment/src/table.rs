//! The table of networks.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::Duration,
};

use sallyport_ping::WindowedMin;

use crate::Prefix;

/// The most networks. Another one takes the place of the one that was not seen for the longest.
pub const MAX_PREFIXES: usize = 4_096;
/// Over which time a round trip counts as the shortest.
pub const ROUND_TRIP_WINDOW: Duration = Duration::from_secs(600);
/// The longest round trip that is believed. A longer one, and one of no time, is ignored.
pub const MAX_CLIENT_ROUND_TRIP: Duration = Duration::from_secs(10);

/// The networks of clients. Times are measured from any fixed moment.
#[derive(Debug, Default)]
pub struct Catchment {
    networks: HashMap<Prefix, Entry>,
    /// The networks in the order in which they were last seen.
    by_turn: BTreeMap<u64, Prefix>,
    /// The number of the last connection.
    turn: u64,
}

#[derive(Debug)]
struct Entry {
    connections: u64,
    /// In microseconds.
    round_trip: WindowedMin,
    last_seen: Duration,
    turn: u64,
}

/// A network, as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientNetwork {
    /// The network.
    pub prefix: Prefix,
    /// How many connections came from there.
    pub connections: u64,
    /// The shortest round trip of the last [`ROUND_TRIP_WINDOW`]; `None` without one.
    pub round_trip: Option<Duration>,
    /// The time of the last connection.
    pub last_seen: Duration,
}

impl Catchment {
    /// Records a connection of this client. Returns whether its round trip is believed; otherwise nothing is recorded.
    pub fn record(&mut self, client: IpAddr, round_trip: Duration, now: Duration) -> bool {
        if round_trip.is_zero() || round_trip > MAX_CLIENT_ROUND_TRIP {
            return false;
        }
        let prefix = Prefix::of(client);
        self.turn += 1;
        let turn = self.turn;
        if !self.networks.contains_key(&prefix)
            && self.networks.len() >= MAX_PREFIXES
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.networks.remove(&oldest);
        }
        let entry = self.networks.entry(prefix).or_insert_with(|| Entry {
            connections: 0,
            round_trip: WindowedMin::new(ROUND_TRIP_WINDOW),
            last_seen: now,
            turn,
        });
        self.by_turn.remove(&entry.turn);
        self.by_turn.insert(turn, prefix);
        entry.turn = turn;
        entry.connections = entry.connections.saturating_add(1);
        entry.last_seen = entry.last_seen.max(now);
        entry.round_trip.record(u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX).max(1), now);
        true
    }

    /// How many networks are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.networks.len()
    }

    /// Whether no network is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// All networks, those with the most connections first.
    #[must_use]
    pub fn list(&self, now: Duration) -> Vec<ClientNetwork> {
        let listed = self.networks.iter().map(|(prefix, entry)| ClientNetwork {
            prefix: *prefix,
            connections: entry.connections,
            round_trip: entry.round_trip.get(now).map(Duration::from_micros),
            last_seen: entry.last_seen,
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable_by_key(|network| (std::cmp::Reverse(network.connections), network.prefix));
        listed
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// An address in the network with this number.
    fn numbered(network: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(network).unwrap() << 8 | 7).into()
    }

    #[test]
    fn connections_of_a_network_count_together() {
        let mut clients = Catchment::default();
        assert!(clients.is_empty());
        assert!(clients.record(ip("192.0.2.1"), ms(30), at(1)));
        assert!(clients.record(ip("::ffff:192.0.2.250"), ms(20), at(2)));
        assert!(clients.record(ip("2001:db8:1:2::1"), ms(80), at(3)));
        let listed = clients.list(at(3));
        let shown = |network: &ClientNetwork| {
            (network.prefix.to_string(), network.connections, network.round_trip, network.last_seen)
        };
        assert_eq!(
            listed.iter().map(shown).collect::<Vec<_>>(),
            [
                ("192.0.2.0/24".to_owned(), 2, Some(ms(20)), at(2)),
                ("2001:db8:1::/48".to_owned(), 1, Some(ms(80)), at(3)),
            ]
        );
        // A short round trip is forgotten, the network is not.
        clients.record(ip("192.0.2.9"), ms(50), at(700));
        let listed = clients.list(at(700));
        assert_eq!((listed[0].round_trip, listed[0].connections), (Some(ms(50)), 3));
        assert_eq!(clients.list(at(5_000))[0].round_trip, None);
    }

    #[test]
    fn absurd_round_trips_are_ignored() {
        let mut clients = Catchment::default();
        for absurd in [Duration::ZERO, MAX_CLIENT_ROUND_TRIP + Duration::from_nanos(1), Duration::MAX] {
            assert!(!clients.record(ip("192.0.2.1"), absurd, at(1)));
        }
        assert!(clients.is_empty());
        assert!(clients.record(ip("192.0.2.1"), MAX_CLIENT_ROUND_TRIP, at(1)));
        assert!(clients.record(ip("192.0.2.1"), Duration::from_nanos(1), at(1)));
        assert_eq!(clients.list(at(1))[0].round_trip, Some(Duration::from_micros(1)));
    }

    #[test]
    fn a_clock_that_goes_back_changes_nothing() {
        let mut clients = Catchment::default();
        clients.record(ip("192.0.2.1"), ms(30), at(100));
        clients.record(ip("192.0.2.1"), ms(40), at(5));
        let listed = clients.list(at(100));
        assert_eq!((listed[0].connections, listed[0].round_trip, listed[0].last_seen), (2, Some(ms(30)), at(100)));
    }

    #[test]
    fn the_network_that_was_not_seen_for_the_longest_makes_room() {
        let mut clients = Catchment::default();
        for network in 0..MAX_PREFIXES {
            clients.record(numbered(network), ms(5), at(network as u64));
        }
        clients.record(numbered(0), ms(5), at(9_000));
        clients.record(numbered(MAX_PREFIXES), ms(5), at(9_001));
        let known = |clients: &Catchment, network| {
            clients.list(at(9_001)).iter().any(|one| one.prefix == Prefix::of(numbered(network)))
        };
        assert_eq!(clients.len(), MAX_PREFIXES);
        assert!(known(&clients, 0) && known(&clients, 2) && known(&clients, MAX_PREFIXES) && !known(&clients, 1));
        for network in 0..50_000 {
            clients.record(numbered(network), ms(5), at(9_002));
        }
        assert_eq!((clients.len(), clients.by_turn.len()), (MAX_PREFIXES, MAX_PREFIXES));
    }
}
