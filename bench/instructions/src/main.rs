//! What `cargo xtask instructions` counts of core/: small pieces of work, done many times.
//!
//! usage: `sallyport-instructions` (says the names) or `sallyport-instructions NAME` (does it, and says how many times)
//!
//! Under callgrind only what runs inside [`counted`] counts. Each case does the same in every run: the same bytes, no
//! clock, no randomness.

#![allow(clippy::unwrap_used, reason = "what fails here fails the count")]

mod http_cases;
mod steer_cases;
mod wire_cases;

use std::{
    io::{Write as _, stdout},
    process::ExitCode,
};

/// How often a case is done before it is counted, so that what is made once has been made.
const WARM_UP_ROUNDS: u32 = 32;

/// A piece of work.
struct Case {
    name: &'static str,
    /// How many times it is done while it is counted.
    rounds: u32,
    /// Makes what it needs, and gives one round of it.
    prepare: fn() -> Box<dyn FnMut()>,
}

fn main() -> ExitCode {
    let cases = || wire_cases::CASES.iter().chain(http_cases::CASES).chain(steer_cases::CASES);
    let Some(name) = std::env::args().nth(1) else {
        return say(&cases().map(|case| format!("{}\n", case.name)).collect::<String>());
    };
    let Some(case) = cases().find(|case| case.name == name) else {
        eprintln!("there is no case {name}");
        return ExitCode::from(2);
    };
    let mut round = (case.prepare)();
    for _ in 0..WARM_UP_ROUNDS {
        round();
    }
    counted(case.rounds, &mut *round);
    say(&format!("rounds {}\n", case.rounds))
}

fn say(text: &str) -> ExitCode {
    stdout().write_all(text.as_bytes()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// What runs in here is counted: callgrind is told the name of this function.
#[inline(never)]
fn counted(rounds: u32, round: &mut dyn FnMut()) {
    for _ in 0..rounds {
        round();
    }
}
