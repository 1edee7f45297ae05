use super::*;

fn options(scenario: Scenario, seed: u64) -> SteeringOptions {
    SteeringOptions {
        scenario,
        seed,
        arrivals: Arrivals::Random,
        impairments: Impairments::default(),
        has_baselines: false,
    }
}

fn figures<'a>(report: &'a SteeringReport, policy: &str) -> &'a PolicyReport {
    report.policies.iter().find(|row| row.policy == policy).unwrap()
}

/// What may go wrong, by number.
fn impairments(number: u64) -> Impairments {
    let seconds = Duration::from_secs;
    let none = Impairments::default();
    match number % 8 {
        0 => Impairments { delay: seconds(3), ..none },
        1 => Impairments { loss_percent: 20, ..none },
        2 => Impairments { has_reorder: true, ..none },
        3 => Impairments { has_skew: true, ..none },
        4 => Impairments { has_failover: true, ..none },
        5 => Impairments { loss_percent: 50, delay: seconds(1), ..none },
        _ => none,
    }
}

#[test]
fn two_hundred_seeds_over_all_scenarios_meet_the_targets() {
    let run = |seed: u64| {
        let scenario = Scenario::ALL[usize::try_from(seed).unwrap() % Scenario::ALL.len()];
        let arrivals = if seed % 4 == 3 { Arrivals::Even } else { Arrivals::Random };
        let asked = SteeringOptions { impairments: impairments(seed / 9), arrivals, ..options(scenario, seed) };
        let misses = simulate(&asked).misses;
        (!misses.is_empty()).then(|| format!("{scenario} seed {seed} {:?}: {misses:?}", asked.impairments))
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let missed: Vec<String> = std::thread::scope(|scope| {
        let part = |first: u64| move || (first..200).step_by(threads as usize).filter_map(run).collect::<Vec<_>>();
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(part(first))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn a_seed_is_a_simulation_and_another_one_is_another() {
    let asked = SteeringOptions {
        impairments: Impairments { loss_percent: 20, has_reorder: true, ..Impairments::default() },
        ..options(Scenario::Article, 5)
    };
    let report = simulate(&asked);
    assert_eq!(simulate(&asked), report);
    assert_eq!(draw(&simulate(&asked)), draw(&report));
    assert_ne!(simulate(&SteeringOptions { seed: 6, ..asked }).policies, report.policies);
}

#[test]
fn other_ways_of_steering_fail_where_ours_does_not() {
    let asked = |scenario, seed| SteeringOptions { has_baselines: true, ..options(scenario, seed) };
    let flash = simulate(&asked(Scenario::Flash, 1));
    assert_eq!(flash.misses, Vec::<String>::new());
    assert!(figures(&flash, "weights").reversals >= 2, "weights that follow latency swing");
    for policy in ["nearest", "weights", "damped", "gradient"] {
        assert!(figures(&flash, policy).overload_seconds > 20, "{:?}", figures(&flash, policy));
    }
    assert!(figures(&flash, OURS).refused < figures(&flash, "damped").refused / 10);
    let slow = simulate(&asked(Scenario::SlowOrigin, 1));
    assert!(figures(&slow, "weights").settled_s.is_none() && slow.misses.is_empty(), "{slow:?}");
}

#[test]
fn a_drawing_has_every_policy_and_says_what_it_shows() {
    let report = simulate(&SteeringOptions { has_baselines: true, ..options(Scenario::Article, 3) });
    let svg = draw(&report);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("article, seed 3"));
    for policy in &report.policies {
        assert!(svg.contains(policy.policy), "{}", policy.policy);
    }
    assert!(svg.contains("origin 2") && svg.contains("latency, ms") && svg.len() < 60_000, "{}", svg.len());
}

#[test]
fn an_unknown_scenario_is_told_the_known_ones() {
    let error = "flush".parse::<Scenario>().unwrap_err().to_string();
    assert!(error.starts_with("no scenario is called \"flush\"; there are article, flash,"), "{error}");
    for scenario in Scenario::ALL {
        assert_eq!(scenario.name().parse(), Ok(scenario));
    }
}
