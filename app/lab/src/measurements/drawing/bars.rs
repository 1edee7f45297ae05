//! A drawing of a report as bars (SVG): the medians of one column, with a thin line from the lowest to the highest run.

use std::fmt::Write as _;

use super::escaped;
use crate::measurements::frame::{Column, Report, Row, Spread};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 64.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;
/// From this ratio of the highest to the lowest figure on, the axis has a power of ten for each step.
const MANY_TIMES: f64 = 50.0;

/// The axis of a drawing.
struct Axis {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Axis {
    fn of(spreads: &[Spread]) -> Self {
        let high = spreads.iter().map(|spread| spread.high).fold(0.0, f64::max);
        let above_zero = spreads.iter().map(|spread| spread.low).filter(|low| *low > 0.0);
        let low = above_zero.fold(high, f64::min);
        match high > low * MANY_TIMES {
            true => {
                let (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
                Self { low, high, is_logarithmic: true }
            }
            false => Self { low: 0.0, high: if high > 0.0 { high } else { 1.0 }, is_logarithmic: false },
        }
    }

    /// Where a figure stands, in pixels.
    fn x_of(&self, figure: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (figure.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => figure / self.high,
        };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// Draws a column of a report, counted from 0.
#[must_use]
pub fn bars(report: &Report, column: usize) -> String {
    let Some(Column { name, unit }) = report.columns.get(column) else { return String::new() };
    let spreads: Vec<Spread> = report.rows.iter().filter_map(|row| row.figures.get(column).copied()).collect();
    let axis = Axis::of(&spreads);
    let height = TOP + STEP * report.rows.len() as f64 + 20.0;
    let scale = if axis.is_logarithmic { ", logarithmic" } else { "" };
    let title = escaped(&format!("{}: {name}{}{unit}{scale}", report.name, if unit.is_empty() { "" } else { ", " }));
    let machine = escaped(&report.machine.words());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
         {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n<rect width=\"100%\" \
         height=\"100%\" fill=\"white\"/>\n<text x=\"16\" y=\"26\" font-size=\"16\">{title}</text>\n<text x=\"16\" \
         y=\"46\" fill=\"#666666\">{machine}</text>\n"
    );
    for (number, row) in report.rows.iter().enumerate() {
        bar(&mut svg, TOP + STEP * number as f64, row, row.figures.get(column), &axis);
    }
    svg += "</svg>\n";
    svg
}

fn bar(svg: &mut String, top: f64, row: &Row, spread: Option<&Spread>, axis: &Axis) {
    let (base, words_at) = (top + BAR - 5.0, LEFT - 10.0);
    let name = escaped(&row.variant);
    let _ = writeln!(svg, "<text x=\"{words_at}\" y=\"{base}\" text-anchor=\"end\">{name}</text>");
    let Some(spread) = spread else {
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{base}\" fill=\"#a33\">{}</text>", escaped(row.note()));
        return;
    };
    let [low, median, high] = [spread.low, spread.median, spread.high].map(|figure| axis.x_of(figure));
    let colour = if row.is_disturbed { "#b9c4d0" } else { "#2563a8" };
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n<path d=\"M{low:.1} \
         {:.1}H{high:.1}\" stroke=\"#d1622b\" stroke-width=\"3\"/>\n<text x=\"{:.1}\" y=\"{base}\">{}</text>",
        median - LEFT,
        top + BAR / 2.0,
        high.max(median) + 8.0,
        escaped(&spread.words()),
    );
}
