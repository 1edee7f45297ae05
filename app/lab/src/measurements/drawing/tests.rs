//! Drawings and pages of a made report.

use super::*;
use crate::measurements::frame::{Article, Claim, Column, Machine, Place, Report, Row, Spread};

/// A report of one column, with a row for each figure, and one row that did not run.
fn report(figures: &[f64]) -> Report {
    let row = |variant: String, figures: Vec<Spread>, missing: Option<&str>| Row {
        variant,
        figures,
        is_disturbed: false,
        missing: missing.map(str::to_owned),
    };
    let spread = |figure: f64| Spread { low: figure / 2.0, median: figure, high: figure * 2.0 };
    let rows = figures
        .iter()
        .enumerate()
        .map(|(number, figure)| row(format!("variant {number}"), vec![spread(*figure)], None));
    let gone = row("gone".to_owned(), Vec::new(), Some("<tool> is not there"));
    let rows: Vec<_> = rows.chain([gone]).collect();
    let columns = vec![Column { name: "goodput", unit: "Mbit/s" }];
    let place = |variant| Place { variant, column: "goodput" };
    let claims = [
        Claim::at_least("one is more", place("variant 1"), place("variant 0"), 1.5),
        Claim::at_least("gone is more", place("gone"), place("variant 0"), 1.5),
    ];
    Report {
        name: "fake",
        article: Article { title: "A & B", said: "It said so." },
        machine: Machine { kernel: "6.18".to_owned(), ..Machine::default() },
        is_quick: true,
        rounds: 3,
        verdicts: claims.iter().map(|claim| claim.judge(&columns, &rows)).collect(),
        columns,
        rows,
        drawing: "<svg>drawn</svg>".to_owned(),
    }
}

#[test]
fn bars_are_as_long_as_their_figures_and_a_missing_one_says_why() {
    let svg = bars(&report(&[100.0, 200.0]), 0);
    // The highest run, 400, is at the right end: 490 pixels from the left.
    assert!(svg.contains("width=\"122.5\"") && svg.contains("width=\"245.0\""), "{svg}");
    assert!(svg.contains("200 (100 to 400)") && svg.contains("&lt;tool&gt; is not there"), "{svg}");
    assert!(!svg.contains("logarithmic"), "{svg}");
    assert!(bars(&report(&[1.0, 200.0]), 0).contains("logarithmic"), "hardly a pixel is left for the least bar");
    assert!(bars(&report(&[0.0]), 0).contains("width=\"0.0\""), "nothing but zeros");
}

#[test]
fn a_page_has_the_machine_the_drawing_the_table_and_the_verdicts() {
    let html = page(&[report(&[100.0, 200.0])]);
    for part in [
        "A &amp; B",
        "It said so.",
        "Linux 6.18",
        "A quick run",
        "<svg>drawn</svg>",
        "<td>variant 1</td><td>200 (100 to 400)</td>",
        "<td>gone</td><td>-</td><td class=\"note\">&lt;tool&gt; is not there</td>",
        "<li class=\"pass\">pass: one is more (ratio 2, expected at least 1.50)</li>",
        "<li class=\"not-judged\">not judged: gone is more</li>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}
