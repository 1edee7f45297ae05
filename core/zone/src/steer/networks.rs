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
