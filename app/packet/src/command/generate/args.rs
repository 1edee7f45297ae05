//! The arguments of `packet generate`, and the traffic that they describe.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu};
use sallyport_cli::{
    duration,
    failure::{Failure, Kind},
};
use sallyport_packet_model::generate::{AddressRange, PortRange, Rate, Sizes, Traffic, TrafficError, Transport};
use sallyport_xdp::generate::{Engine, MAX_SENDERS};

/// Examples of the help.
pub(crate) const EXAMPLES: &str = "Examples:
  sallyport packet generate --dev eth1 --to auto --dst 192.0.2.7 --rate 100k --duration 10s
  sallyport packet generate --dev eth1 --to 02:00:5e:10:00:01 --dst 192.0.2.0/24 --flows 10k --imix --receive-dev eth2
  sallyport packet generate --dev eth1 --to auto --dst 192.0.2.7 --receive-dev eth2 --find-rate --size 64,512,1518
  sallyport packet generate --dev eth1 --pcap capture.pcap --keep-times --speed 2
  sallyport packet generate --dev eth1 --to auto --dst 192.0.2.7 --cpu 0-3 --receive-dev eth0 --receive-netns behind";

/// The default source, and destinations (RFC 2544, appendix C, and RFC 5180).
const SOURCE_V4: &str = "198.18.0.1";
const SOURCE_V6: &str = "2001:2::1";
const DEST: &str = "198.19.0.1";
/// The longest run without another one.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// The arguments of `generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The device to send by; its addresses, its routes and its XDP program stay
    #[arg(long, value_name = "DEVICE")]
    pub(super) dev: String,
    /// The MAC of the next hop, or auto: the route of the first destination by this device
    #[arg(long, value_name = "MAC|auto", required_unless_present = "pcap")]
    pub(super) to: Option<To>,
    #[command(flatten)]
    pub(super) what: WhatArgs,
    #[command(flatten)]
    pub(super) when: WhenArgs,
    #[command(flatten)]
    pub(super) receive: ReceiveArgs,
}

/// What is sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is sent")]
pub(crate) struct WhatArgs {
    /// Sources: an address, a range A-B, or a prefix [default: 198.18.0.1 or 2001:2::1]
    #[arg(long, value_name = "ADDRESSES", conflicts_with = "pcap")]
    src: Option<AddressRange>,
    /// Destinations: an address, a range A-B, or a prefix [default: 198.19.0.1]
    #[arg(long, value_name = "ADDRESSES", conflicts_with = "pcap")]
    dst: Option<AddressRange>,
    /// Source ports: a port or a range A-B [default: 1024 and more, as flows need]
    #[arg(long, value_name = "PORTS", conflicts_with = "pcap")]
    sport: Option<PortRange>,
    /// Destination ports: a port or a range A-B [default: 9]
    #[arg(long, value_name = "PORTS", conflicts_with = "pcap")]
    dport: Option<PortRange>,
    /// UDP, or SYNs of TCP
    #[arg(long, value_enum, default_value = "udp", conflicts_with = "pcap")]
    proto: Proto,
    /// How many flows, one after the other [default: all of the ranges]
    #[arg(long, value_name = "NUMBER", value_parser = number, conflicts_with = "pcap")]
    flows: Option<u64>,
    /// The order of flows: one beside the other, or scattered, so that caches do not help
    #[arg(long, value_enum, default_value = "in-order", conflicts_with = "pcap")]
    order: Order,
    /// The VLAN of the frames
    #[arg(long, value_name = "ID", conflicts_with = "pcap")]
    vlan: Option<u16>,
    /// Sizes with the check sequence, as RFC 2544 counts them [default: 64, or the least]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["imix", "pcap"])]
    size: Option<Sizes>,
    /// The simple IMIX: of twelve frames, 7 have 64 bytes, 4 have 594, and 1 has 1518
    #[arg(long, conflicts_with = "pcap")]
    imix: bool,
    /// Frames of a file (pcap or pcapng), byte by byte; --to gives them other MACs
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
    /// Send the frames of the file at the times of their capture
    #[arg(long, requires = "pcap", conflicts_with_all = ["rate", "ramp"])]
    keep_times: bool,
    /// So many times as fast as they were captured
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed, requires = "keep_times")]
    speed: f64,
}

/// How fast, and how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "How fast, and how long")]
pub(crate) struct WhenArgs {
    /// Frames a second, or bits a second on the wire: 250, 100k, 1.5Mpps, 10Gbps [default: as fast as can be]
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<Rate>,
    /// Rise from a twentieth to the whole rate in this time
    #[arg(
        long, value_name = "TIME", value_parser = duration::parse_positive, requires = "rate",
        conflicts_with = "find_rate"
    )]
    pub(super) ramp: Option<Duration>,
    /// How long [default: 10s; with --pcap: once through the file]
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive, conflicts_with = "find_rate")]
    duration: Option<Duration>,
    /// How many frames
    #[arg(long, value_name = "NUMBER", value_parser = number, conflicts_with = "find_rate")]
    count: Option<u64>,
    /// The processors that send, such as 0,2-3 [default: the one that the command is on]
    #[arg(long, value_name = "LIST", visible_alias = "cpus")]
    pub(super) cpu: Option<Processors>,
    /// How many processors send: the first ones that the command may use
    #[arg(long, value_name = "NUMBER", conflicts_with = "cpu")]
    pub(super) threads: Option<usize>,
    /// How frames come to the driver
    #[arg(long, value_enum, default_value = "live")]
    pub(super) engine: EngineName,
    /// How often progress is told
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive, default_value = "1s")]
    pub(super) interval: Duration,
}

/// What arrives.
#[derive(Debug, Args)]
#[command(next_help_heading = "What arrives")]
pub(crate) struct ReceiveArgs {
    /// The device that the frames arrive at: counts loss, reordering and latency
    #[arg(long, value_name = "DEVICE")]
    pub(super) receive_dev: Option<String>,
    /// The network namespace of that device: a name of `ip netns`, or a path such as /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH", requires = "receive_dev")]
    pub(super) receive_netns: Option<String>,
    /// Find the highest rate without loss, for each size or for the mix (RFC 2544); --rate is where it starts
    #[arg(long, requires = "receive_dev", conflicts_with = "pcap")]
    pub(super) find_rate: bool,
    /// How long a trial of --find-rate sends
    #[arg(
        long, value_name = "TIME", value_parser = duration::parse_positive, default_value = "5s",
        requires = "find_rate"
    )]
    pub(super) trial: Duration,
    /// How near --find-rate gets, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = precision, requires = "find_rate")]
    pub(super) precision: f64,
    /// The loss that --find-rate bears, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = share, requires = "find_rate")]
    pub(super) loss: f64,
}

/// The next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// This card.
    Mac([u8; 6]),
    /// As the routes say.
    Auto,
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let wrong = || format!("expected a MAC such as 02:00:5e:10:00:01, or auto, not `{text}`");
        let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = |part: &str| is_byte(part).then(|| u8::from_str_radix(part, 16).ok()).flatten();
        let bytes: Vec<_> = text.split(':').map(byte).collect::<Option<_>>().ok_or_else(wrong)?;
        bytes.try_into().map(Self::Mac).map_err(|_| wrong())
    }
}

/// How frames come to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// The kernel makes them, in pages of its own
    Live,
    /// This process makes them, and the kernel sends them: AF_XDP
    Xsk,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Live => Self::Live,
            EngineName::Xsk => Self::Xsk,
        }
    }
}

/// Processors, each named once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Processors(pub(super) Vec<usize>);

impl FromStr for Processors {
    type Err = String;

    /// Reads `0,2-3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected processors such as 0 or 0,2-3, not `{text}`");
        let mut found = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let read = |text: &str| text.parse::<u16>().map(usize::from).map_err(|_| wrong());
            let (first, last) = (read(first)?, read(last)?);
            if first > last {
                return Err(wrong());
            }
            for processor in first..=last {
                if found.contains(&processor) {
                    return Err(format!("`{text}` names processor {processor} twice"));
                }
                if found.len() == MAX_SENDERS {
                    return Err(format!("at most {MAX_SENDERS} processors send"));
                }
                found.push(processor);
            }
        }
        Ok(Self(found))
    }
}

/// The protocol above IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proto {
    /// Datagrams
    Udp,
    /// SYNs
    Tcp,
}

/// The order of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// One beside the other
    InOrder,
    /// Far from one another
    Scattered,
}

/// A number with a unit: 10k, 2M.
fn number(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1_000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let number = number.ok_or("expected a number such as 500, 10k or 2M")?;
    if number == 0 { Err("0 sends nothing".to_owned()) } else { Ok(number) }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..100.0).contains(share));
    share.ok_or_else(|| "expected a percentage from 0 to less than 100".to_owned())
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (0.001..=1_000.0).contains(speed));
    speed.ok_or_else(|| "expected a factor from 0.001 to 1000".to_owned())
}

fn precision(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.01..=50.0).contains(share));
    share.ok_or_else(|| "expected a percentage from 0.01 to 50".to_owned())
}

impl WhatArgs {
    /// The traffic for a device of this MTU.
    pub(super) fn traffic(&self, mtu: u32) -> Result<Traffic, Failure> {
        let fixed = |text: &str| text.parse::<AddressRange>().map_err(Failure::usage);
        let dest = self.dst.map_or_else(|| fixed(DEST), Ok)?;
        let source = if dest.first.is_ipv6() { SOURCE_V6 } else { SOURCE_V4 };
        let source = self.src.map_or_else(|| fixed(source), Ok)?;
        let transport = match self.proto {
            Proto::Udp => Transport::Udp,
            Proto::Tcp => Transport::Tcp,
        };
        let least = Traffic::least_size(transport, dest.first.is_ipv6(), self.vlan.is_some());
        let sizes = match &self.size {
            Some(sizes) => Some(sizes.clone()),
            None if self.imix => Some(Sizes::imix(least)),
            None => Sizes::of(&[least]),
        };
        let traffic = Traffic {
            transport,
            source,
            dest,
            source_ports: self.sport.unwrap_or(PortRange::one(1_024)),
            dest_ports: self.dport.unwrap_or(PortRange::one(9)),
            flows: 1,
            step: 1,
            first_flow: 0,
            vlan: self.vlan,
            sizes: sizes.ok_or_else(|| Failure::usage("no size is named"))?,
        };
        let wrong = |error: TrafficError| Failure::usage(error.to_string());
        traffic.check(mtu).map_err(wrong)?;
        traffic.with_flows(self.flows, self.sport.is_some(), self.order == Order::Scattered).map_err(wrong)
    }

    /// How many times as fast as in the file; `None` where its times do not count.
    pub(super) fn speed(&self) -> Option<f64> {
        self.keep_times.then_some(self.speed)
    }

    /// Whether all sizes belong together.
    pub(super) fn is_mix(&self) -> bool {
        self.imix
    }
}

impl WhenArgs {
    /// The processors that send.
    pub(super) fn processors(&self) -> Result<Vec<usize>, Failure> {
        match (&self.cpu, self.threads) {
            (Some(Processors(found)), _) => Ok(found.clone()),
            (None, None) => Ok(vec![sched_getcpu()]),
            (None, Some(wanted)) => {
                let may = sched_getaffinity(None).map_err(|error| Failure::new(Kind::Failed, error.to_string()))?;
                let found = (0..CpuSet::MAX_CPU).filter(|processor| may.is_set(*processor)).take(MAX_SENDERS);
                let mut found: Vec<_> = found.collect();
                if !(1..=found.len()).contains(&wanted) {
                    let most = found.len();
                    return Err(Failure::usage(format!("{wanted} threads are not from 1 to {most}, one a processor")));
                }
                found.truncate(wanted);
                Ok(found)
            }
        }
    }

    /// The most frames and the longest time, where the file has these frames.
    pub(super) fn end(&self, recorded: Option<usize>) -> (Option<u64>, Option<Duration>) {
        match (self.count, self.duration, recorded) {
            (None, None, Some(frames)) => (Some(frames as u64), None),
            (None, None, None) => (None, Some(DEFAULT_DURATION)),
            (count, duration, _) => (count, duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        assert_eq!("02:00:5e:10:00:ff".parse(), Ok(To::Mac([2, 0, 0x5e, 0x10, 0, 0xff])));
        assert_eq!("auto".parse(), Ok(To::Auto));
        for bad in ["", "02:00", "02:00:5e:10:00:fg", "2:0:5e:10:0:ff", "02:00:5e:10:00:ff:00", "+2:00:5e:10:00:ff"] {
            assert!(bad.parse::<To>().is_err(), "{bad}");
        }
        assert_eq!((number("10k"), number("7")), (Ok(10_000), Ok(7)));
        assert!(number("0").is_err() && number("18446744073709551615k").is_err() && number("k").is_err());
        let read = |text: &str| text.parse::<Processors>().map(|Processors(found)| found);
        assert_eq!((read("3"), read("0,2-4")), (Ok(vec![3]), Ok(vec![0, 2, 3, 4])));
        assert_eq!(read("0,0").unwrap_err(), "`0,0` names processor 0 twice");
        assert_eq!(read("0-64").unwrap_err(), "at most 64 processors send");
        for bad in ["", "a", "0,", "2-1", "-1", "70000"] {
            assert!(read(bad).unwrap_err().starts_with("expected processors"), "{bad}");
        }
        assert!(speed("0").is_err() && speed("NaN").is_err() && speed("1001").is_err() && speed("0.5") == Ok(0.5));
        assert!(share("100").is_err() && share("NaN").is_err() && precision("0").is_err());
    }
}
