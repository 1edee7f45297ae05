//! `generate`: what the generator sends to a device that counts and drops: one flow, many flows, a mix of sizes, and by
//! AF_XDP.

use super::bed::Bed;
use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
};

const ONE: &str = "1 flow, 64 bytes";
const MANY: &str = "10,000 flows, 64 bytes";
const MIX: &str = "10,000 flows, IMIX";
const LARGE: &str = "10,000 flows, 1,518 bytes";
const AF_XDP: &str = "10,000 flows, 64 bytes, by AF_XDP";
/// The variants with their options.
const VARIANTS: [(&str, &[&str]); 5] = [
    (ONE, &["--flows", "1", "--size", "64"]),
    (MANY, &["--flows", "10k", "--size", "64"]),
    (MIX, &["--flows", "10k", "--imix"]),
    (LARGE, &["--flows", "10k", "--size", "1518"]),
    (AF_XDP, &["--flows", "10k", "--size", "64", "--engine", "xsk"]),
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Generate {
    frames: u32,
    rounds: u32,
}

impl Generate {
    /// Chooses the number of frames.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (frames, rounds) = match scale {
            Scale::Full => (1_000_000, 3),
            Scale::Quick => (50_000, 1),
        };
        Self { frames, rounds }
    }
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

impl Measurement for Generate {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        Design {
            columns: vec![
                column("rate", "kpps"),
                column("on the wire", "Mbit/s"),
                column("cost", "ns a frame"),
                column("arrived", ""),
                column("sent", ""),
            ],
            variants: VARIANTS.map(|(name, _)| name.to_owned()).to_vec(),
            claims: vec![
                Claim::within("all frames of one flow arrive", place(ONE, "arrived"), place(ONE, "sent"), (1.0, 1.0)),
                Claim::within("all frames of many arrive", place(MANY, "arrived"), place(MANY, "sent"), (1.0, 1.0)),
                Claim::within("many flows cost as much as one", place(MANY, "cost"), place(ONE, "cost"), (0.5, 2.0)),
                Claim::at_least(
                    "a mix of sizes carries more bits than small frames",
                    place(MIX, "on the wire"),
                    place(MANY, "on the wire"),
                    2.0,
                ),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let frames = f64::from(self.frames);
        let sent = Bed::new()?.to_sink(VARIANTS[variant].1, self.frames)?;
        Ok(vec![sent.per_second / 1e3, sent.wire_bits / 1e6, sent.cpu_ns / frames, sent.arrived, frames])
    }
}
