//! A frame of the generator, byte by byte, as `generate` of packet/bpf/generate.bpf.c writes it.

use std::net::IpAddr;

use super::{Traffic, Transport};
use crate::checksum::{full, transport};

/// What a frame bears behind its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The run.
    pub run: u32,
    /// The number of the frame: 48 bits.
    pub number: u64,
    /// When it was made.
    pub time: u64,
}

/// The bytes of a stamp.
pub const STAMP_BYTES: usize = 18;
const TTL: u8 = 64;

impl Stamp {
    /// `struct stamp`, in the order of the machine.
    fn bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..4].copy_from_slice(&self.run.to_ne_bytes());
        bytes[4..6].copy_from_slice(&((self.number >> 32) as u16).to_ne_bytes());
        bytes[6..10].copy_from_slice(&(self.number as u32).to_ne_bytes());
        bytes[10..].copy_from_slice(&self.time.to_ne_bytes());
        bytes
    }
}

/// Writes the frame of this flow into `frame`: `size` bytes without the check sequence, which has room for the headers
/// and the stamp. `macs` are from and to.
pub fn write_frame(
    traffic: &Traffic,
    macs: ([u8; 6], [u8; 6]),
    size: usize,
    flow: u32,
    stamp: Stamp,
    frame: &mut Vec<u8>,
) {
    let (source, dest, source_port, dest_port) = traffic.flow(flow);
    let is_tcp = traffic.transport == Transport::Tcp;
    frame.clear();
    frame.extend(macs.1);
    frame.extend(macs.0);
    frame.extend(traffic.vlan.map(|tag| (0x8100_u32 << 16 | u32::from(tag)).to_be_bytes()).into_iter().flatten());
    let ip = frame.len() + 2;
    let proto = if is_tcp { 6 } else { 17 };
    let above = match (source, dest) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((size.saturating_sub(ip) as u16).to_be_bytes());
            frame.extend((stamp.number as u16).to_ne_bytes());
            frame.extend([0x40, 0, TTL, proto, 0, 0]);
            frame.extend(source.octets());
            frame.extend(dest.octets());
            let check = full(&frame[ip..]);
            frame[ip + 10..ip + 12].copy_from_slice(&check.to_be_bytes());
            ip + 20
        }
        (source, dest) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((size.saturating_sub(ip + 40) as u16).to_be_bytes());
            frame.extend([proto, TTL]);
            for address in [source, dest] {
                match address {
                    IpAddr::V6(address) => frame.extend(address.octets()),
                    IpAddr::V4(address) => frame.extend(address.to_ipv6_mapped().octets()),
                }
            }
            ip + 40
        }
    };
    write_above(is_tcp, size.saturating_sub(above), (source_port, dest_port), stamp, frame);
    frame.resize(size.max(frame.len()), 0);
    let check = transport(source, dest, proto, &frame[above..]);
    let check = if !is_tcp && check == 0 { 0xffff } else { check };
    let place = above + if is_tcp { 16 } else { 6 };
    frame[place..place + 2].copy_from_slice(&check.to_be_bytes());
}

/// Writes the header above IP, with a sum of 0, and the stamp.
fn write_above(is_tcp: bool, length: usize, ports: (u16, u16), stamp: Stamp, frame: &mut Vec<u8>) {
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    if is_tcp {
        frame.extend((stamp.number as u32).to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, 0x02, 0xfa, 0xf0, 0, 0, 0, 0]);
    } else {
        frame.extend((length as u16).to_be_bytes());
        frame.extend([0, 0]);
    }
    frame.extend(stamp.bytes());
}

#[cfg(test)]
mod tests {
    use super::{
        super::{PortRange, Sizes},
        *,
    };
    use crate::checksum::{State, state};

    #[test]
    fn sums_and_lengths_are_right_for_every_kind_of_frame() {
        for (source, dest) in [("10.0.0.1", "192.0.2.0/24"), ("fd00::1", "fd00:1::/120")] {
            for (transport, proto, field) in [(Transport::Udp, 17, 6), (Transport::Tcp, 6, 16)] {
                for vlan in [None, Some(100)] {
                    let traffic = Traffic {
                        transport,
                        source: source.parse().unwrap(),
                        dest: dest.parse().unwrap(),
                        source_ports: PortRange::one(1_024),
                        dest_ports: PortRange::one(9),
                        flows: 256,
                        step: 1,
                        first_flow: 0,
                        vlan,
                        sizes: Sizes::of(&[104]).unwrap(),
                    };
                    let stamp = Stamp { run: 0x0102_0304, number: 0x0005_0006_0007, time: 99 };
                    let mut frame = Vec::new();
                    write_frame(&traffic, ([1; 6], [2; 6]), 100, 7, stamp, &mut frame);
                    let (from, to, ..) = traffic.flow(7);
                    let ip = if vlan.is_some() { 18 } else { 14 };
                    let above = ip + if from.is_ipv4() { 20 } else { 40 };
                    assert_eq!((frame.len(), &frame[..6], &frame[6..12]), (100, &[2; 6][..], &[1; 6][..]));
                    assert_eq!(state(from, to, proto, &frame[above..], field), State::Right);
                    assert!(from.is_ipv6() || full(&frame[ip..above]) == 0);
                    assert!(frame.windows(4).any(|bytes| bytes == 0x0102_0304_u32.to_ne_bytes()));
                }
            }
        }
    }
}
