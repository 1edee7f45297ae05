//! `congestion`: what cubic, reno and BBR carry over delay and losses, with the kernel's buffers and with large ones.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use socket2::Protocol;

use super::transfer::{CHUNK_BYTES, Transfer};
use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
    links::{Link, Shape, Space},
};

/// The rate of the article's port.
const RATE_BITS: u64 = 2_500_000_000;
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 2);
/// Buffers that hold what a path of 140 ms has under way, as `tcp_rmem` and `tcp_wmem`.
const LARGE: [(&str, &str); 2] = [("ipv4/tcp_rmem", "4096 131072 33554432"), ("ipv4/tcp_wmem", "4096 16384 33554432")];
/// What the kernel sets on a machine with enough memory.
const DEFAULT: [(&str, &str); 2] = [("ipv4/tcp_rmem", "4096 131072 6291456"), ("ipv4/tcp_wmem", "4096 16384 4194304")];

/// One variant.
#[derive(Debug, Clone, Copy)]
struct Setting {
    round_trip_ms: u64,
    loss_percent: f64,
    congestion: &'static str,
    is_large: bool,
}

impl Setting {
    fn name(&self) -> String {
        let Self { round_trip_ms, loss_percent, congestion, is_large } = self;
        let buffers = if *is_large { "32 MiB" } else { "default" };
        format!("{round_trip_ms} ms, {loss_percent} % loss, {congestion}, {buffers}")
    }
}

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Congestion {
    link: Link,
    sender: Arc<Space>,
    receiver: Arc<Space>,
    settings: Vec<Setting>,
    rounds: u32,
    time: Duration,
    runs: u64,
}

impl Congestion {
    /// Makes the path.
    pub(in crate::measurements) fn new(scale: Scale) -> Result<Self, RunError> {
        let (losses, controls, buffers, rounds, seconds): (&[f64], &[&str], &[bool], _, _) = match scale {
            Scale::Full => (&[0.0, 1.5, 3.0], &["cubic", "reno", "bbr"], &[false, true], 3, 8),
            Scale::Quick => (&[0.0, 1.5], &["cubic", "bbr"], &[false], 1, 6),
        };
        let mut settings = Vec::new();
        for is_large in buffers {
            for round_trip_ms in [0, 140] {
                for loss_percent in losses {
                    settings.extend(controls.iter().map(|congestion| Setting {
                        round_trip_ms,
                        loss_percent: *loss_percent,
                        congestion,
                        is_large: *is_large,
                    }));
                }
            }
        }
        let (sender, receiver) = (Arc::new(Space::new()?), Arc::new(Space::new()?));
        let shape = Shape { rate_bits: RATE_BITS, delay: Duration::ZERO, loss_percent: 0.0 };
        let link = Link::new("path", [(&sender, "10.71.0.1/24"), (&receiver, "10.71.0.2/24")], shape)?;
        Ok(Self { link, sender, receiver, settings, rounds, time: Duration::from_secs(seconds), runs: 0 })
    }
}

/// What a variant of this name carries.
const fn goodput(variant: &'static str) -> Place {
    Place { variant, column: "goodput" }
}

const CLAIMS: [Claim; 5] = [
    Claim::within(
        "on a path without delay and losses, BBR and cubic carry about the same",
        goodput("0 ms, 0 % loss, bbr, default"),
        goodput("0 ms, 0 % loss, cubic, default"),
        (0.4, 2.5),
    ),
    Claim::at_least(
        "with 140 ms and 1.5 % loss, BBR carries many times what cubic does",
        goodput("140 ms, 1.5 % loss, bbr, default"),
        goodput("140 ms, 1.5 % loss, cubic, default"),
        8.0,
    ),
    Claim::at_least(
        "with large buffers BBR gains more from that than cubic does",
        goodput("140 ms, 1.5 % loss, bbr, 32 MiB"),
        goodput("140 ms, 1.5 % loss, cubic, 32 MiB"),
        20.0,
    ),
    Claim::at_least(
        "losses cost cubic nearly everything over 140 ms",
        goodput("140 ms, 0 % loss, cubic, default"),
        goodput("140 ms, 1.5 % loss, cubic, default"),
        8.0,
    ),
    Claim::within(
        "reno does no better than cubic over 140 ms and 1.5 % loss",
        goodput("140 ms, 1.5 % loss, reno, default"),
        goodput("140 ms, 1.5 % loss, cubic, default"),
        (0.1, 1.5),
    ),
];

impl Measurement for Congestion {
    fn design(&self) -> Design {
        let variants: Vec<String> = self.settings.iter().map(Setting::name).collect();
        let is_there = |place: Place| variants.iter().any(|variant| variant == place.variant);
        let claims = CLAIMS.into_iter().filter(|claim| is_there(claim.figure) && is_there(claim.by)).collect();
        let columns = vec![Column { name: "goodput", unit: "Mbit/s" }];
        Design { columns, variants, claims, rounds: self.rounds }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let Setting { round_trip_ms, loss_percent, congestion, is_large } = self.settings[variant];
        // All variants of a round lose the same segments of a sequence.
        let round = self.runs / self.settings.len() as u64;
        self.runs += 1;
        let delay = Duration::from_millis(round_trip_ms) / 2;
        self.link.set_shape(Shape { rate_bits: RATE_BITS, delay, loss_percent }, round);
        for space in [&self.sender, &self.receiver] {
            space.set(if is_large { &LARGE } else { &DEFAULT })?;
        }
        let transfer =
            Transfer { to: RECEIVER, protocol: Protocol::TCP, congestion, time: self.time, message: CHUNK_BYTES };
        Ok(vec![transfer.run(&self.sender, &self.receiver)?])
    }
}
