//! Networks of one family in order: the longest one that has an address is found in as many steps as it has bits.

/// What belongs to a network or a resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The place of its ranking.
    pub(super) ranking: u32,
    /// Its place among those with the same best region, as a part of 2^32: dials and shares cut there.
    pub(super) position: u32,
}

/// A network with its bits at the top.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network {
    pub(super) bits: u128,
    pub(super) len: u8,
    pub(super) leaf: Leaf,
    /// The place of the longest network around it.
    around: u32,
}

/// There is no network around.
const NONE: u32 = u32::MAX;

impl Network {
    pub(super) fn new(bits: u128, len: u8, leaf: Leaf) -> Self {
        Self { bits: bits & mask(len), len, leaf, around: NONE }
    }

    fn has(&self, bits: u128) -> bool {
        bits & mask(self.len) == self.bits
    }
}

/// The first `len` bits.
pub(super) fn mask(len: u8) -> u128 {
    match len {
        0 => 0,
        len => u128::MAX << (128 - u32::from(len.min(128))),
    }
}

/// What was found for a network of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// The longest measured network around it.
    pub(super) leaf: Option<Leaf>,
    /// For how many bits of the client's address the same is found.
    pub(super) scope: u8,
}

/// The networks of one family.
#[derive(Debug, Default)]
pub(super) struct Networks(Vec<Network>);

impl Networks {
    /// These networks. Of two with the same bits and length the first one counts.
    pub(super) fn new(mut networks: Vec<Network>) -> Self {
        networks.sort_by_key(|network| (network.bits, network.len));
        networks.dedup_by_key(|network| (network.bits, network.len));
        // Those around the present one, the longest last.
        let mut around: Vec<u32> = Vec::new();
        for at in 0..networks.len() {
            let bits = networks[at].bits;
            while around.last().is_some_and(|place| !networks[*place as usize].has(bits)) {
                around.pop();
            }
            networks[at].around = around.last().copied().unwrap_or(NONE);
            around.push(at as u32);
        }
        Self(networks)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Looks a network of clients up. Its bits after the length are zero. Scopes of answers do not overlap (RFC 7871
    /// section 7.2.1).
    pub(super) fn find(&self, bits: u128, len: u8) -> Match {
        let after = self.0.partition_point(|network| network.bits <= bits);
        let mut at = after.checked_sub(1);
        let found = loop {
            let Some(network) = at.and_then(|at| self.0.get(at)) else { break None };
            if network.len <= len && network.has(bits) {
                break Some(network);
            }
            at = Some(network.around).filter(|around| *around != NONE).map(|around| around as usize);
        };
        // The networks beside the found one have other answers: the scope leaves them out.
        let mut scope = found.map_or(0, |network| network.len);
        let beside = [after.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(after)];
        for network in beside.into_iter().flatten() {
            if network.len <= len && network.has(bits) {
                continue;
            }
            let common = (network.bits ^ bits).leading_zeros() as u8;
            scope = scope.max(common.saturating_add(1).min(network.len));
        }
        Match { leaf: found.map(|network| network.leaf), scope }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaf(number: usize) -> Leaf {
        Leaf { ranking: number as u32, position: 0 }
    }

    fn net(text: &str, number: usize) -> Network {
        let (address, len) = text.split_once('/').unwrap();
        let address: std::net::Ipv4Addr = address.parse().unwrap();
        Network::new(u128::from(u32::from(address)) << 96, len.parse().unwrap(), leaf(number))
    }

    #[test]
    fn the_longest_network_is_found_and_its_scope_leaves_others_out() {
        let networks = Networks::new(vec![
            net("10.0.0.0/8", 0),
            net("10.1.0.0/16", 1),
            net("10.1.2.0/24", 2),
            net("10.128.0.0/9", 3),
        ]);
        let find = |text: &str| {
            let asked = net(text, 0);
            let found = networks.find(asked.bits, asked.len);
            (found.leaf.map(|leaf| leaf.ranking), found.scope)
        };
        assert_eq!(find("10.1.2.0/24"), (Some(2), 24));
        assert_eq!(find("10.1.3.0/24"), (Some(1), 24), "beside 10.1.2.0/24");
        assert_eq!(find("10.1.200.0/24"), (Some(1), 17));
        assert_eq!(find("10.2.0.0/24"), (Some(0), 15));
        assert_eq!(find("10.64.0.0/24"), (Some(0), 10));
        assert_eq!(find("10.200.0.0/24"), (Some(3), 9));
        assert_eq!(find("11.0.0.0/24"), (None, 8), "nothing is known there, and much beside it");
        assert_eq!(find("200.0.0.0/24"), (None, 1));
        assert_eq!(find("10.1.0.0/16"), (Some(1), 23), "a short network: a part of it has another answer");
        assert_eq!(find("8.0.0.0/6"), (None, 7), "too short for what was measured");
        assert_eq!(Networks::default().find(1 << 127, 24), Match { leaf: None, scope: 0 });
    }

    /// The longest network around, by looking at all.
    fn slow(all: &[Network], bits: u128, len: u8) -> Option<u32> {
        let around = all.iter().filter(|network| network.len <= len && network.has(bits));
        around.max_by_key(|network| network.len).map(|network| network.leaf.ranking)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        #[test]
        fn lookups_find_what_looking_at_all_finds(
            all in prop::collection::btree_map((0_u32..64, 1_u8..=12), any::<()>(), 0..24),
            asked in (0_u32..64, 1_u8..=12),
            beside in prop::collection::vec(0_u32..4_096, 64),
        ) {
            // Few bits, so that networks are within and beside one another.
            let of = |bits: u32, len: u8| (u128::from(bits) << 122) & mask(len);
            let all: std::collections::BTreeMap<(u128, u8), usize> =
                all.into_keys().enumerate().map(|(number, (bits, len))| ((of(bits, len), len), number)).collect();
            let all: Vec<Network> =
                all.into_iter().map(|((bits, len), number)| Network::new(bits, len, leaf(number))).collect();
            let longest = all.iter().map(|network| network.len).max().unwrap_or(0);
            let networks = Networks::new(all.clone());
            let (bits, len) = (of(asked.0, asked.1), asked.1);
            let found = networks.find(bits, len);
            prop_assert_eq!(found.leaf.map(|leaf| leaf.ranking), slow(&all, bits, len));
            prop_assert!(found.scope <= longest, "{} of {longest}", found.scope);
            // Whoever has the same bits up to the scope finds the same, if the asked network is as short as that.
            for more in beside.into_iter().filter(|_| found.scope <= len) {
                let other = (bits & mask(found.scope)) | ((u128::from(more) << 116) & !mask(found.scope));
                prop_assert_eq!(slow(&all, other & mask(12), 12), slow(&all, bits, len), "{}", more);
            }
        }
    }
}
