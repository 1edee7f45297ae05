//! The frame with a measurement that measures nothing.

use super::*;

/// Two variants with given figures, and one whose tool is missing.
#[derive(Default)]
struct Fake {
    ran: Vec<&'static str>,
}

const VARIANTS: [&str; 3] = ["slow", "gone", "fast"];

const FAST: Place = Place { variant: "fast", column: "rate" };
const SLOW: Place = Place { variant: "slow", column: "rate" };
const GONE: Place = Place { variant: "gone", column: "rate" };

impl Measurement for Fake {
    fn design(&self) -> Design {
        Design {
            columns: vec![Column { name: "rate", unit: "Mbit/s" }, Column { name: "losses", unit: "" }],
            variants: VARIANTS.map(str::to_owned).to_vec(),
            claims: vec![
                Claim::at_least("fast is ten times as fast", FAST, SLOW, 10.0),
                Claim::within("fast is about as fast", FAST, SLOW, (0.5, 2.0)),
                Claim::at_least("gone is there", GONE, SLOW, 1.0),
                Claim::at_least("nothing is lost", SLOW, Place { variant: "slow", column: "losses" }, 1.0),
            ],
            rounds: 3,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        self.ran.push(VARIANTS[variant]);
        let run = self.ran.len() as f64;
        match VARIANTS[variant] {
            "slow" => Ok(vec![10.0 + run, 0.0]),
            "fast" => Ok(vec![200.0, run]),
            _ => Err(RunError::Missing { what: "the tool".into(), how: "install it" }),
        }
    }
}

fn quiet() -> Load {
    Load::default()
}

#[test]
fn variants_run_in_turn_and_a_missing_one_is_tried_once() {
    let (mut fake, mut told) = (Fake::default(), Vec::new());
    let (rows, _) = measure(&mut fake, 3, &mut quiet, &mut |words| told.push(words.to_owned()));
    assert_eq!(fake.ran, ["slow", "gone", "fast", "slow", "fast", "slow", "fast"]);
    assert_eq!((told.len(), told[3].as_str()), (7, "round 2 of 3: slow"));
    let [slow, gone, fast] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(slow.figures[0], Spread { low: 11.0, median: 14.0, high: 16.0 });
    assert_eq!(fast.figures[1], Spread { low: 3.0, median: 5.0, high: 7.0 });
    assert_eq!((gone.note(), gone.figures.len()), ("the tool is not there: install it", 0));
    assert_eq!((slow.note(), fast.note()), ("", ""));
}

#[test]
fn claims_are_judged_by_ratios_of_medians() {
    let (_, verdicts) = measure(&mut Fake::default(), 3, &mut quiet, &mut |_| {});
    let outcomes: Vec<_> = verdicts.iter().map(|verdict| verdict.outcome).collect();
    assert_eq!(outcomes, [Outcome::Pass, Outcome::Fail, Outcome::NotJudged, Outcome::NotJudged]);
    assert_eq!((verdicts[0].ratio, verdicts[0].at_most), (Some(200.0 / 14.0), None));
    assert_eq!((verdicts[2].ratio, verdicts[3].ratio), (None, None), "no figure, and a division by zero");
}

#[test]
fn a_disturbed_run_is_repeated_once_and_marked_if_that_was_disturbed_too() {
    // Each run reads the load before and after. Others are busy during the first run alone, then during two.
    for (busy_runs, note, runs) in [(1, "", 8), (2, "disturbed", 8)] {
        let (mut fake, mut reads, mut load) = (Fake::default(), 0, Load::default());
        let mut read = || {
            let is_after = reads % 2 == 1;
            load.at_us += 1_000;
            load.others_us += if is_after && reads / 2 < busy_runs { 251 } else { 250 };
            reads += 1;
            load
        };
        let (rows, _) = measure(&mut fake, 3, &mut read, &mut |_| {});
        assert_eq!((rows[0].note(), fake.ran.len()), (note, runs), "{busy_runs}");
        assert_eq!(rows[2].note(), "");
        assert_eq!(rows[0].figures[0].low, 12.0, "the repeated run counts");
    }
}
