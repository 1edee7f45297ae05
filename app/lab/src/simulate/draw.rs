//! A drawing of a simulation, as SVG: a column for each policy; load, share and latency over time below each other.

use std::fmt::Write as _;

use super::{Series, SteeringReport};

/// Sizes of a panel, and the space around it, in pixels.
const WIDTH: f64 = 190.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 46.0;
const TOP: f64 = 64.0;
const GAP: (f64, f64) = (14.0, 34.0);
/// The most points of a line; of longer series means are drawn.
const MAX_POINTS: usize = 75;
/// The greatest load that is drawn, in percent.
const MAX_LOAD: f64 = 250.0;
const COLOURS: [&str; 8] = ["#2563a8", "#d1622b", "#3a8f5c", "#8a5fb5", "#b5476a", "#7a6a3f", "#3f8f9a", "#666666"];

/// What a row of panels shows.
struct Row<'a> {
    label: &'static str,
    lines: &'a [Vec<f64>],
    top: f64,
    mark: Option<f64>,
}

/// The drawing of a report, with its scenario and seed.
#[must_use]
pub fn draw(report: &SteeringReport) -> String {
    let columns = report.series.len() as f64;
    let (width, height) = (LEFT + columns * (WIDTH + GAP.0), TOP + 3.0 * (HEIGHT + GAP.1) + 8.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#333\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, (LEFT, 18.0), "start", &format!("{}, seed {}", report.scenario, report.seed), 15);
    legend(&mut svg, report.origins);
    let top_load = highest(report, |series| series.loads.iter().flatten()).clamp(110.0, MAX_LOAD);
    let top_latency = highest(report, |series| series.latency_ms.iter()).max(10.0);
    for (column, series) in report.series.iter().enumerate() {
        let left = LEFT + column as f64 * (WIDTH + GAP.0);
        text(&mut svg, (left + WIDTH / 2.0, TOP - 8.0), "middle", series.policy, 12);
        let latency = [series.latency_ms.clone()];
        let rows = [
            Row { label: "load, % of capacity", lines: &series.loads, top: top_load, mark: Some(100.0) },
            Row { label: "share, % of requests", lines: &series.shares, top: 100.0, mark: None },
            Row { label: "latency, ms", lines: &latency, top: top_latency, mark: None },
        ];
        for (row, Row { label, lines, top, mark }) in rows.into_iter().enumerate() {
            let corner = (left, TOP + row as f64 * (HEIGHT + GAP.1));
            panel(&mut svg, corner, lines, top, mark);
            if column == 0 {
                axis(&mut svg, corner, label, top);
            }
            text(
                &mut svg,
                (left + WIDTH, corner.1 + HEIGHT + 13.0),
                "end",
                &format!("{} s", series.latency_ms.len()),
                9,
            );
        }
    }
    svg += "</svg>\n";
    svg
}

fn highest<'a, I: Iterator<Item = &'a f64>>(report: &'a SteeringReport, of: impl Fn(&'a Series) -> I) -> f64 {
    report.series.iter().flat_map(of).copied().fold(0.0, f64::max)
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str, size: u32) {
    let _ =
        writeln!(svg, "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{words}</text>");
}

fn legend(svg: &mut String, origins: usize) {
    for origin in 0..origins {
        let x = LEFT + origin as f64 * 74.0;
        let colour = COLOURS[origin % COLOURS.len()];
        let _ = writeln!(svg, "<path d=\"M{x:.0} 32h14\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        text(svg, (x + 18.0, 36.0), "start", &format!("origin {}", origin + 1), 11);
    }
}

/// The name and the ends of the vertical axis.
fn axis(svg: &mut String, (left, top): (f64, f64), label: &str, highest: f64) {
    text(svg, (left, top - 3.0 + HEIGHT + 16.0), "start", label, 10);
    text(svg, (left - 4.0, top + 9.0), "end", &format!("{highest:.0}"), 9);
    text(svg, (left - 4.0, top + HEIGHT), "end", "0", 9);
}

/// A frame with lines from 0 to the highest value, and a dashed line at the mark.
fn panel(svg: &mut String, (left, top): (f64, f64), lines: &[Vec<f64>], highest: f64, mark: Option<f64>) {
    let height = |value: f64| top + HEIGHT * (1.0 - (value / highest).clamp(0.0, 1.0));
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.0}\" y=\"{top:.0}\" width=\"{WIDTH:.0}\" height=\"{HEIGHT:.0}\" fill=\"none\" \
         stroke=\"#ccc\"/>"
    );
    if let Some(mark) = mark {
        let y = height(mark);
        let _ = writeln!(svg, "<path d=\"M{left:.0} {y:.1}h{WIDTH:.0}\" stroke=\"#999\" stroke-dasharray=\"3\"/>");
    }
    for (number, line) in lines.iter().enumerate() {
        let points = means(line);
        let step = WIDTH / (points.len().max(2) - 1) as f64;
        let mut path = String::new();
        for (at, value) in points.iter().enumerate() {
            let (x, y) = (left + at as f64 * step, height(*value));
            let _ = write!(path, "{}{x:.0} {y:.0}", if at == 0 { "M" } else { "L" });
        }
        let colour = COLOURS[number % COLOURS.len()];
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>");
    }
}

/// At most [`MAX_POINTS`] means of the values.
fn means(values: &[f64]) -> Vec<f64> {
    let parts = values.chunks(values.len().div_ceil(MAX_POINTS).max(1));
    parts.map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}
