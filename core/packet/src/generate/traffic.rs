//! What a generator sends, and whether it can be.

use std::net::IpAddr;

use super::{AddressRange, CHECK_SEQUENCE, PortRange, Sizes};

/// The largest frame with its check sequence that the generator makes: what fits into a page of the kernel.
pub const MAX_FRAME: u16 = 3_400;
/// The most flows.
const MAX_FLOWS: u64 = 1 << 31;
/// The source ports that flows spread over by themselves.
const FREE_PORTS: PortRange = PortRange { first: 1_024, span: 64_512 };
/// What a frame bears behind its headers: run, number and time.
const STAMP: u16 = 18;

/// The protocol above IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Datagrams.
    #[default]
    Udp,
    /// A SYN of TCP.
    Tcp,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// The protocol above IP.
    pub transport: Transport,
    /// Sources.
    pub source: AddressRange,
    /// Destinations.
    pub dest: AddressRange,
    /// Source ports.
    pub source_ports: PortRange,
    /// Destination ports.
    pub dest_ports: PortRange,
    /// The number of flows.
    pub flows: u32,
    /// How far two flows that follow one another are apart: 1, or a scattered order.
    pub step: u32,
    /// The number of the first flow: another sender has those before.
    pub first_flow: u32,
    /// The VLAN.
    pub vlan: Option<u16>,
    /// The sizes.
    pub sizes: Sizes,
}

/// Why it cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// Two families.
    #[error("the sources and the destinations are of two families of IP")]
    Families,
    /// Too many flows.
    #[error("{wanted} flows are more than the ranges have ({most}): widen --src, --dst, --sport or --dport")]
    Flows {
        /// Those that were wanted.
        wanted: u64,
        /// Those that there are.
        most: u64,
    },
    /// No flows.
    #[error("0 flows send nothing")]
    NoFlows,
    /// The VLAN.
    #[error("VLAN {0} is not from 1 to 4094")]
    Vlan(u16),
    /// The size.
    #[error("a frame of {size} bytes is out of bounds: {least} to {most} bytes with the check sequence")]
    Size {
        /// The size.
        size: u16,
        /// The least: headers, stamp and check sequence.
        least: u16,
        /// The most that the device sends.
        most: u16,
    },
}

impl Traffic {
    /// The smallest frame with its check sequence: that of Ethernet, or what headers and stamp need.
    #[must_use]
    pub fn least_size(transport: Transport, is_v6: bool, is_tagged: bool) -> u16 {
        let above = if transport == Transport::Tcp { 20 } else { 8 };
        let headers = 14 + if is_tagged { 4 } else { 0 } + if is_v6 { 40 } else { 20 } + above;
        (headers + STAMP + CHECK_SEQUENCE).max(64)
    }

    /// The largest frame that a device of this MTU sends.
    #[must_use]
    pub fn most_size(mtu: u32, is_tagged: bool) -> u16 {
        let most = mtu.saturating_add(14 + u32::from(CHECK_SEQUENCE) + if is_tagged { 4 } else { 0 });
        u16::try_from(most).unwrap_or(u16::MAX).min(MAX_FRAME)
    }

    /// Chooses the number of flows: all of the ranges, or as many as wanted. Source ports that nobody named spread.
    ///
    /// # Errors
    /// The ranges have fewer.
    pub fn with_flows(
        mut self,
        wanted: Option<u64>,
        names_ports: bool,
        is_scattered: bool,
    ) -> Result<Self, TrafficError> {
        let others = u64::from(self.source.span) * u64::from(self.dest.span);
        let others = others.saturating_mul(u64::from(self.dest_ports.span));
        let flows = wanted.unwrap_or_else(|| others.saturating_mul(self.source_ports.span.into()).min(MAX_FLOWS));
        if flows == 0 {
            return Err(TrafficError::NoFlows);
        }
        if !names_ports && flows > others {
            let span = flows.div_ceil(others).min(FREE_PORTS.span.into()) as u32;
            self.source_ports = PortRange { span, ..FREE_PORTS };
        }
        let most = others.saturating_mul(self.source_ports.span.into()).min(MAX_FLOWS);
        if flows > most {
            return Err(TrafficError::Flows { wanted: flows, most });
        }
        self.flows = flows as u32;
        self.step = if is_scattered { scattered(self.flows) } else { 1 };
        Ok(self)
    }

    /// Checks everything that does not hang on the machine; `mtu` is that of the device.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn check(&self, mtu: u32) -> Result<(), TrafficError> {
        let is_v6 = self.dest.first.is_ipv6();
        if self.source.first.is_ipv6() != is_v6 {
            return Err(TrafficError::Families);
        }
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=4094).contains(vlan)) {
            return Err(TrafficError::Vlan(vlan));
        }
        let least = Self::least_size(self.transport, is_v6, self.vlan.is_some());
        let most = Self::most_size(mtu, self.vlan.is_some());
        let wrong = self.sizes.sizes().iter().find(|size| !(least..=most).contains(*size));
        wrong.map_or(Ok(()), |size| Err(TrafficError::Size { size: *size, least, most }))
    }

    /// The part of the flows that one of several senders has. Senders share what is too little for all of them.
    #[must_use]
    pub fn part(&self, sender: usize, senders: usize) -> Self {
        let (sender, senders) = (sender as u64, senders.max(1) as u64);
        if u64::from(self.flows) < senders {
            return self.clone();
        }
        let before = |sender: u64| (u64::from(self.flows) * sender / senders) as u32;
        let flows = before(sender + 1) - before(sender);
        let step = if self.step == 1 { 1 } else { scattered(flows) };
        Self { flows, step, first_flow: self.first_flow + before(sender), ..self.clone() }
    }

    /// The addresses and ports of a flow. `next_flow` of packet/bpf/generate.bpf.c is the same.
    #[must_use]
    pub fn flow(&self, number: u32) -> (IpAddr, IpAddr, u16, u16) {
        let mut number = number.wrapping_add(self.first_flow);
        let mut digit = |span: u32| {
            let found = number % span.max(1);
            number /= span.max(1);
            found
        };
        let dest = self.dest.at(digit(self.dest.span));
        let source = self.source.at(digit(self.source.span));
        let source_port = self.source_ports.first.wrapping_add(digit(self.source_ports.span) as u16);
        let dest_port = self.dest_ports.first.wrapping_add(digit(self.dest_ports.span) as u16);
        (source, dest, source_port, dest_port)
    }
}

/// A step that visits every flow once before it comes back: near the golden section, and without a common divisor.
fn scattered(flows: u32) -> u32 {
    let start = (f64::from(flows) * 0.618_034) as u32;
    let divisor = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (start.max(1)..=flows).find(|step| divisor(*step, flows) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn traffic(source: &str, dest: &str) -> Traffic {
        Traffic {
            transport: Transport::Udp,
            source: source.parse().unwrap(),
            dest: dest.parse().unwrap(),
            source_ports: PortRange::one(1_024),
            dest_ports: PortRange::one(9),
            flows: 1,
            step: 1,
            first_flow: 0,
            vlan: None,
            sizes: Sizes::of(&[64]).unwrap(),
        }
    }

    #[test]
    fn flows_fill_the_ranges_and_no_two_are_alike() {
        let all = traffic("10.0.0.1-10.0.0.3", "192.0.2.0/30").with_flows(None, false, true).unwrap();
        assert_eq!(all.flows, 12);
        let seen: HashSet<_> = (0..all.flows).map(|number| all.flow(number)).collect();
        assert_eq!(seen.len(), 12);
        let mut number = 0;
        let mut visited = HashSet::new();
        for _ in 0..all.flows {
            visited.insert(number);
            number = (number + all.step) % all.flows;
        }
        assert_eq!((visited.len(), number), (12, 0), "a scattered order visits all");
        let many = traffic("10.0.0.1", "192.0.2.0/24").with_flows(Some(10_000), false, false).unwrap();
        assert_eq!((many.source_ports.span, many.step), (40, 1), "source ports spread by themselves");
        let few = traffic("10.0.0.1", "192.0.2.1").with_flows(Some(100_000), false, false).unwrap_err();
        assert!(few.to_string().starts_with("100000 flows are more than the ranges have (64512)"), "{few}");
        let named = traffic("10.0.0.1", "192.0.2.1").with_flows(Some(2), true, false).unwrap_err();
        assert_eq!(named, TrafficError::Flows { wanted: 2, most: 1 });
        assert_eq!(traffic("10.0.0.1", "192.0.2.1").with_flows(Some(0), true, false), Err(TrafficError::NoFlows));
    }

    #[test]
    fn senders_have_all_flows_and_none_twice() {
        for is_scattered in [false, true] {
            let all = traffic("10.0.0.1-10.0.0.3", "192.0.2.0/28").with_flows(None, false, is_scattered).unwrap();
            let parts: Vec<_> = (0..5).map(|sender| all.part(sender, 5)).collect();
            let seen: HashSet<_> = parts.iter().flat_map(|part| (0..part.flows).map(|n| part.flow(n))).collect();
            assert_eq!((seen.len(), parts.iter().map(|part| part.flows).sum::<u32>()), (48, 48));
        }
        let one = traffic("10.0.0.1", "192.0.2.1").with_flows(None, false, false).unwrap();
        assert_eq!(one.part(1, 2), one, "one flow is sent by both");
    }

    #[test]
    fn what_does_not_fit_has_a_sentence() {
        let sized = |size: u16, vlan: Option<u16>| Traffic {
            sizes: Sizes::of(&[64, size]).unwrap(),
            vlan,
            ..traffic("10.0.0.1", "192.0.2.1")
        };
        assert_eq!(sized(1_518, None).check(1_500), Ok(()));
        assert_eq!(
            sized(1_519, None).check(1_500).unwrap_err().to_string(),
            "a frame of 1519 bytes is out of bounds: 64 to 1518 bytes with the check sequence"
        );
        assert_eq!(sized(100, Some(7)).check(1_500), Err(TrafficError::Size { size: 64, least: 68, most: 1_522 }));
        assert_eq!(sized(100, Some(4_095)).check(1_500), Err(TrafficError::Vlan(4_095)));
        assert_eq!(
            sized(9_000, None).check(9_000),
            Err(TrafficError::Size { size: 9_000, least: 64, most: MAX_FRAME })
        );
        assert_eq!(traffic("10.0.0.1", "fd00::1").check(1_500), Err(TrafficError::Families));
        assert_eq!(Traffic::least_size(Transport::Tcp, true, true), 100);
    }
}
