//! `steer`: nine edges and four origins, and demand that nearly doubles at three of the edges, by our planner and by
//! other ways of steering. Time is virtual.

use crate::{
    measurements::{
        Scale,
        frame::{Claim, Column, Design, Measurement, Place, RunError},
    },
    simulate::{Arrivals, Impairments, OURS, PolicyReport, Scenario, SteeringOptions, SteeringReport, draw, simulate},
};

/// Each way of steering with the name of its policy.
const VARIANTS: [(&str, &str); 6] = [
    ("sallyport", OURS),
    ("all to the nearest", "nearest"),
    ("weights, undamped", "weights"),
    ("weights, 2 % at a time", "damped"),
    ("gradient", "gradient"),
    ("optimum, with perfect knowledge", "optimum"),
];

/// The measurement. Other load does not change it, since its time is virtual.
#[derive(Debug)]
pub(in crate::measurements) struct Steer {
    scenario: Scenario,
    seeds: u64,
    /// One for each seed, made by the first run. Each has all policies.
    reports: Vec<SteeringReport>,
}

impl Steer {
    /// Chooses the number of seeds, whose figures are averaged.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let seeds = if scale == Scale::Full { 5 } else { 1 };
        Self { scenario: Scenario::Flash, seeds, reports: Vec::new() }
    }

    /// What a policy did, for each seed.
    fn simulated(&mut self, policy: &str) -> Vec<&PolicyReport> {
        let scenario = self.scenario;
        let options = |seed| SteeringOptions {
            scenario,
            seed,
            arrivals: Arrivals::Random,
            impairments: Impairments::default(),
            has_baselines: true,
        };
        if self.reports.is_empty() {
            self.reports = (1..=self.seeds).map(|seed| simulate(&options(seed))).collect();
        }
        let policies = self.reports.iter().flat_map(|report| &report.policies);
        policies.filter(|report| report.policy == policy).collect()
    }
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

impl Measurement for Steer {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        let ours = |sentence, column, by, bounds| {
            Claim::within(sentence, place("sallyport", column), place(by, column), bounds)
        };
        let weights = "weights, undamped";
        Design {
            columns: vec![
                column("latency", "ms"),
                column("highest load", "%"),
                column("overload", "s"),
                column("reversals", ""),
                column("settled", "s"),
            ],
            variants: VARIANTS.map(|(name, _)| name.to_owned()).to_vec(),
            claims: vec![
                ours("undamped weights swing, and ours does not", "reversals", weights, (0.0, 0.0)),
                ours("undamped weights overload origins, and ours does not", "overload", weights, (0.0, 0.0)),
                ours("ours settles sooner", "settled", weights, (0.0, 0.5)),
                ours("ours answers sooner", "latency", weights, (0.0, 0.9)),
                ours("small steps overload for long", "overload", "weights, 2 % at a time", (0.0, 0.1)),
            ],
            rounds: 1,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (name, policy) = VARIANTS[variant];
        let reports = self.simulated(policy);
        if reports.is_empty() {
            return Err(RunError::Unfit(format!("{name} was not simulated")));
        }
        let mean = |figure: &dyn Fn(&PolicyReport) -> f64| {
            reports.iter().map(|report| figure(report)).sum::<f64>() / reports.len() as f64
        };
        let mut figures = vec![
            mean(&|report| report.mean_ms),
            mean(&|report| report.peak_percent),
            mean(&|report| report.overload_seconds.into()),
            mean(&|report| report.reversals.into()),
        ];
        // One that does not settle with each seed has no time.
        if reports.iter().all(|report| report.settled_s.is_some()) {
            figures.push(mean(&|report| report.settled_s.map_or(0.0, |seconds| seconds as f64)));
        }
        Ok(figures)
    }

    fn drawing(&self) -> Option<String> {
        self.reports.first().map(draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_has_figures_of_its_policy() {
        // The scenario that takes the least time.
        let mut steer = Steer { scenario: Scenario::Article, seeds: 1, reports: Vec::new() };
        let columns = steer.design().columns.len();
        for (variant, (name, policy)) in VARIANTS.into_iter().enumerate() {
            let figures = steer.run(variant).unwrap();
            assert!(figures.len() >= columns - 1, "{name}: {figures:?}");
            assert_eq!(figures[0], steer.simulated(policy)[0].mean_ms, "{name}");
        }
        assert!(steer.run(0).unwrap() != steer.run(1).unwrap(), "ours is not the nearest way");
        assert!(steer.drawing().unwrap().starts_with("<svg "));
    }
}
