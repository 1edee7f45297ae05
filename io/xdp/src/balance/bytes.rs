//! The tables of a balancer as bytes of maps: packet/bpf/balance.h.

use std::net::IpAddr;

use sallyport_packet_model::{
    balance::{EdgeState, Egress, Encapsulation, Limits, POOL_SLOTS, Range, Rate, Settings, Tables, Target},
    layout::SLICES,
};

/// The most bytes of the state that commands keep in a map: `STATE_BYTES` without the length.
pub const MAX_STATE_BYTES: usize = (1 << 20) - 4;

/// The entries of a map: keys and values.
pub(super) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Four words, IPv4 in the first.
pub(super) fn words(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// `struct egress_key`, and `struct address_key` of an edge.
pub(super) fn address_key(address: IpAddr) -> Vec<u8> {
    [words(address).as_slice(), &u32::from(address.is_ipv6()).to_ne_bytes()].concat()
}

/// `struct balance_settings`.
pub(super) fn settings(settings: &Settings) -> Vec<u8> {
    let mut bytes = settings.seed.to_ne_bytes().to_vec();
    bytes.extend(settings.source.0.map_or([0; 4], |address| address.octets()));
    bytes.extend(settings.source.1.map_or([0; 16], |address| address.octets()));
    bytes.extend(settings.gue_port.to_be_bytes());
    bytes.push(u8::from(settings.encapsulation == Encapsulation::Gue));
    bytes.push(u8::from(settings.has_second_chance));
    bytes.push(u8::from(settings.takes_fragments));
    bytes.push(u8::from(settings.has_connections));
    bytes.extend([settings.quic_config, 0]);
    bytes
}

/// `struct rate`; zeros are no limit.
pub(super) fn rate(rate: Option<Rate>) -> [u8; 16] {
    let Rate { interval, ahead } = rate.unwrap_or(Rate { interval: 0, ahead: 0 });
    (u128::from(ahead) << 64 | u128::from(interval)).to_le_bytes()
}

/// `struct limit_settings`.
pub(super) fn limits(limits: &Limits) -> Vec<u8> {
    [rate(limits.packets), rate(limits.connections)].concat()
}

/// `struct balance_target`.
pub(super) fn target(target: &Target) -> Vec<u8> {
    let state = match target.state {
        EdgeState::Serving => 1,
        EdgeState::Draining => 2,
        EdgeState::Down => 3,
    };
    let mut bytes = words(target.address).to_vec();
    bytes.extend([if target.address.is_ipv4() { 4 } else { 6 }, state]);
    bytes.extend(target.generation.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// `struct virtual_key` and `struct virtual_ranges` of all services.
pub(super) fn virtuals(tables: &Tables) -> Entries {
    let entry = |(address, protocol): (IpAddr, u8), ranges: &[Range]| {
        let mut key = words(address).to_vec();
        key.extend([protocol, u8::from(address.is_ipv6()), 0, 0]);
        let mut value = (ranges.len() as u32).to_ne_bytes().to_vec();
        value.extend([0; 4]);
        for range in ranges {
            for number in [range.first, range.last, range.pool, u16::from(range.is_quic)] {
                value.extend(number.to_ne_bytes());
            }
        }
        value.resize(136, 0);
        (key, value)
    };
    tables.virtuals.iter().map(|(key, ranges)| entry(*key, ranges)).collect()
}

/// The cells of all slots: first those of the first table.
pub(super) fn cells(tables: &Tables, pools: usize) -> Vec<u32> {
    let cells = tables.pools.iter().flat_map(|pool| pool.iter().map(|slot| slot.cell()));
    cells.chain(std::iter::repeat(0)).take(pools * POOL_SLOTS).collect()
}

/// `struct egress_key` and `struct egress_owners` of all egress addresses.
pub(super) fn egress(tables: &Tables) -> Entries {
    let entry = |address: IpAddr, owners: &Egress| {
        let mut value = Vec::with_capacity(4 + 2 * SLICES);
        match owners {
            Egress::Site(number) => value.extend(u32::from(*number).to_ne_bytes()),
            Egress::Slices(slices) => {
                value.extend([0; 4]);
                // A cell is the number of the target.
                value.extend(slices.cells().iter().flat_map(|cell| (*cell as u16).to_ne_bytes()));
            }
        }
        value.resize(4 + 2 * SLICES, 0);
        (address_key(address), value)
    };
    tables.egress.iter().map(|(address, owners)| entry(*address, owners)).collect()
}

#[cfg(test)]
mod tests {
    use sallyport_packet_model::balance::{
        MAX_EGRESS, MAX_POOLS, MAX_RANGES, MAX_TARGETS, MAX_VIRTUALS, POOL_SLOTS, UDP_IDLE_SECONDS,
    };

    #[test]
    fn the_program_has_the_same_numbers() {
        let header = include_str!("../../../../packet/bpf/balance.h");
        let number = |name: &str| {
            let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            line.unwrap().parse::<usize>().unwrap()
        };
        assert_eq!(number("BALANCE_TARGETS"), MAX_TARGETS + 1);
        assert_eq!(number("BALANCE_POOLS"), MAX_POOLS);
        assert_eq!(number("BALANCE_SLOTS"), POOL_SLOTS);
        assert_eq!(number("BALANCE_VIRTUALS"), MAX_VIRTUALS);
        assert_eq!(number("BALANCE_RANGES"), MAX_RANGES);
        assert_eq!(number("BALANCE_EGRESS"), MAX_EGRESS);
        assert_eq!(number("BALANCE_UDP_SECONDS"), UDP_IDLE_SECONDS as usize);
    }
}
