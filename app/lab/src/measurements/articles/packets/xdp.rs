//! `xdp`: what a packet costs in the kernel's forwarding, and in our routers in XDP: with the kernel's routes, and with
//! tables of its own. One flow and many, without and with many routes.

use super::{
    bed::{Bed, Flows, Running},
    forward::{columns, figures},
};
use crate::measurements::{
    Scale,
    frame::{Claim, Design, Measurement, Place, RunError},
};

/// Who forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Router {
    Kernel,
    /// In XDP, with the kernel's routes.
    Xdp,
    /// In XDP, with tables of its own.
    Tables,
}

const MANY: Flows = Flows::Of(10_000);
const ROUTED: Flows = Flows::Routed(100_000);
const VARIANTS: [(&str, Router, Flows); 9] = [
    ("kernel, 1 flow", Router::Kernel, Flows::Of(1)),
    ("XDP, 1 flow", Router::Xdp, Flows::Of(1)),
    ("XDP with own tables, 1 flow", Router::Tables, Flows::Of(1)),
    ("kernel, 10,000 flows", Router::Kernel, MANY),
    ("XDP, 10,000 flows", Router::Xdp, MANY),
    ("XDP with own tables, 10,000 flows", Router::Tables, MANY),
    ("kernel, 100,000 routes", Router::Kernel, ROUTED),
    ("XDP, 100,000 routes", Router::Xdp, ROUTED),
    ("XDP with own tables, 100,000 routes", Router::Tables, ROUTED),
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Xdp {
    variants: Vec<(&'static str, Router, Flows)>,
    frames: u32,
    rounds: u32,
}

impl Xdp {
    /// Chooses the variants and the number of frames. A quick run has few routes.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (frames, rounds) = match scale {
            Scale::Full => (500_000, 3),
            Scale::Quick => (50_000, 1),
        };
        let is_in = |(.., flows): &(&str, Router, Flows)| scale == Scale::Full || *flows == MANY;
        Self { variants: VARIANTS.into_iter().filter(is_in).collect(), frames, rounds }
    }

    fn measured(&self, bed: &Bed, router: Router, flows: Flows) -> Result<Vec<f64>, RunError> {
        let cost = bed.cost(flows, self.frames)?;
        if router != Router::Kernel && bed.forwarded()? < f64::from(self.frames) {
            return Err(RunError::Unfit("the frames did not go by XDP".to_owned()));
        }
        Ok(figures(cost))
    }
}

const fn cost(variant: &'static str) -> Place {
    Place { variant, column: "cost" }
}

impl Measurement for Xdp {
    fn design(&self) -> Design {
        let costs = |sentence, figure, by| Claim::at_least(sentence, cost(figure), cost(by), 1.5);
        Design {
            columns: columns(),
            variants: self.variants.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            claims: vec![
                costs("the kernel costs more than XDP", "kernel, 10,000 flows", "XDP, 10,000 flows"),
                costs(
                    "the kernel costs more than own tables",
                    "kernel, 10,000 flows",
                    "XDP with own tables, 10,000 flows",
                ),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, router, flows) = self.variants[variant];
        let bed = Bed::new()?;
        bed.set_routes(flows)?;
        match router {
            Router::Kernel => self.measured(&bed, router, flows),
            Router::Xdp => {
                bed.command(&["router", "up", "--dev", "d0,d1"])?;
                self.measured(&bed, router, flows)
            }
            // The router ends with the thread that starts it, which therefore measures, too.
            Router::Tables => bed.router.within(|| {
                let _router = Running::start(&["router", "run", "--dev", "d0,d1", "--lookup", "fib"])?;
                bed.wait_for(flows)?;
                self.measured(&bed, router, flows)
            }),
        }
    }
}
