//! Shares of the clients in a resource that all clients of a session use.
//!
//! A client may take more while its share is below a multiple of what is left (mostly [`MAX_OF_LEFT`]). With a multiple
//! of three, a greedy client leaves a quarter to the others, and the next one leaves a quarter of that again. The
//! number of clients need not be known.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

/// The greatest share of one client, as a multiple of what is left.
pub const MAX_OF_LEFT: u64 = 3;

/// A client for the purpose of shares: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(IpAddr);

impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Self {
        Self(match address.ip().to_canonical() {
            IpAddr::V6(six) => {
                let [a, b, c, d, ..] = six.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            four => four,
        })
    }
}

/// The shares of all clients.
#[derive(Debug, Default)]
pub struct Shares {
    /// Clients with a share. Mostly they are few, and a tree is cheaper than a collision-resistant hash.
    held: BTreeMap<Client, u64>,
    total: u64,
}

impl Shares {
    /// The sum of all shares.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How much more this client may take out of a total of `of`.
    #[must_use]
    pub fn room(&self, client: Client, of: u64) -> u64 {
        self.room_of(client, of, MAX_OF_LEFT)
    }

    /// Like [`Self::room`], with a share of `times` what is left after taking.
    #[must_use]
    pub fn room_of(&self, client: Client, of: u64, times: u64) -> u64 {
        let left = of.saturating_sub(self.total);
        let held = self.held.get(&client).copied().unwrap_or(0);
        left.saturating_mul(times).saturating_sub(held).div_ceil(times + 1)
    }

    /// Adds to the client's share.
    pub fn take(&mut self, client: Client, amount: u64) {
        *self.held.entry(client).or_default() += amount;
        self.total += amount;
    }

    /// Subtracts from the client's share.
    pub fn give_back(&mut self, client: Client, amount: u64) {
        let Some(held) = self.held.get_mut(&client) else { return };
        let amount = amount.min(*held);
        *held -= amount;
        self.total -= amount;
        if *held == 0 {
            self.held.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Client {
        format!("{address}:1").parse::<SocketAddr>().unwrap().into()
    }

    fn takes_all(shares: &mut Shares, client: Client, of: u64) -> u64 {
        let mut taken = 0;
        while shares.room(client, of) > 0 {
            shares.take(client, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_greedy_client_leaves_a_share_to_later_clients() {
        let mut shares = Shares::default();
        let (one, two, three) = (client("192.0.2.1"), client("192.0.2.2"), client("192.0.2.3"));
        assert_eq!(takes_all(&mut shares, one, 512), 384);
        assert_eq!(takes_all(&mut shares, two, 512), 96);
        assert_eq!(takes_all(&mut shares, three, 512), 24);
        assert_eq!(shares.total(), 504);
        // Returned amounts are available to all clients.
        shares.give_back(one, 1_000);
        assert_eq!(shares.total(), 120);
        assert!(takes_all(&mut shares, two, 512) > 100);
        for client in [two, three] {
            shares.give_back(client, 512);
        }
        assert_eq!((shares.total(), shares.held.len()), (0, 0));
    }

    #[test]
    fn what_one_takes_at_once_is_no_more_than_its_share() {
        let mut shares = Shares::default();
        let (one, two) = (client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(shares.room(one, 512), 384);
        assert_eq!(shares.room_of(one, 512, 7), 448);
        shares.take(one, 384);
        assert_eq!((shares.room(one, 512), shares.room(two, 512)), (0, 96));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(client("[2001:db8::1]"), client("[2001:db8::ffff:2]"));
        assert_ne!(client("[2001:db8::1]"), client("[2001:db8:0:1::1]"));
        assert_eq!(client("[::ffff:192.0.2.1]"), client("192.0.2.1"));
    }
}
