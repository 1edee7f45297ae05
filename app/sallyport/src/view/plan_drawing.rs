//! The last hour of a plan as a drawing (SVG): load, share and latency of each origin over time.

use std::{collections::BTreeMap, fmt::Write as _};

use sallyport_api::PlanSample;

const WIDTH: f64 = 860.0;
const CHART_HEIGHT: f64 = 180.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 220.0;
const GAP: f64 = 50.0;
const TOP: f64 = 50.0;
/// The line of each origin.
const COLOURS: [&str; 8] = ["#1f5fa8", "#c4541c", "#3d8a3d", "#7d4aa5", "#a8861f", "#1f8a8a", "#a83f6f", "#555555"];

/// One line of a chart: the value at each sample.
struct Line {
    colour: &'static str,
    is_dashed: bool,
    values: Vec<Option<f64>>,
}

/// Draws the samples. `names` has the names of origins.
pub(crate) fn draw(title: &str, samples: &[PlanSample], names: &BTreeMap<String, String>) -> String {
    let mut origins: Vec<&String> =
        samples.iter().flat_map(|sample| sample.origins.iter().map(|origin| &origin.origin)).collect();
    origins.sort_unstable();
    origins.dedup();
    let colour = |at: usize| COLOURS[at % COLOURS.len()];
    let values = |origin: &str, value: &dyn Fn(&PlanSample, &sallyport_api::PlanSampleOrigin) -> Option<f64>| {
        let of = |sample: &PlanSample| {
            let found = sample.origins.iter().find(|one| one.origin == origin)?;
            value(sample, found)
        };
        samples.iter().map(of).collect::<Vec<_>>()
    };
    let lines = |value: &dyn Fn(&PlanSample, &sallyport_api::PlanSampleOrigin) -> Option<f64>| {
        let line = |(at, origin): (usize, &&String)| Line {
            colour: colour(at),
            is_dashed: false,
            values: values(origin, value),
        };
        origins.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let mut load = lines(&|_, origin| Some(origin.rps));
    load.extend(origins.iter().enumerate().map(|(at, origin)| Line {
        colour: colour(at),
        is_dashed: true,
        values: values(origin, &|_, origin| origin.max_rps),
    }));
    let total = |sample: &PlanSample| sample.origins.iter().map(|origin| origin.rps).sum::<f64>();
    let share = lines(&|sample, origin| (total(sample) > 0.0).then(|| 100.0 * origin.rps / total(sample)));
    let latency = lines(&|_, origin| origin.latency_ms);
    let charts =
        [("requests per second (dashed: capacity)", load), ("share in percent", share), ("latency in ms", latency)];
    let height = TOP + charts.len() as f64 * (CHART_HEIGHT + GAP);
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>",
        escaped(title)
    );
    for (number, (caption, lines)) in charts.iter().enumerate() {
        chart(&mut svg, TOP + number as f64 * (CHART_HEIGHT + GAP), caption, lines, samples);
    }
    for (at, origin) in origins.iter().enumerate() {
        let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 14.0 + 18.0 * at as f64);
        let name = names.get(*origin).unwrap_or(origin);
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" stroke=\"{2}\" stroke-width=\"3\"/>\n<text x=\"{3}\" \
             y=\"{y}\">{4}</text>",
            y - 4.0,
            x + 20.0,
            colour(at),
            x + 26.0,
            escaped(name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn chart(svg: &mut String, top: f64, caption: &str, lines: &[Line], samples: &[PlanSample]) {
    let most = lines.iter().flat_map(|line| line.values.iter().flatten()).copied().fold(0.0, f64::max);
    let most = round_up(most);
    let (bottom, right) = (top + CHART_HEIGHT, WIDTH - RIGHT);
    let x = |at: usize| LEFT + (right - LEFT) * at as f64 / (samples.len().max(2) - 1) as f64;
    let y = |value: f64| bottom - CHART_HEIGHT * value / most;
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" fill=\"#333\">{}</text>", top - 8.0, escaped(caption));
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{right}\" y2=\"{0:.1}\" stroke=\"#ddd\"/>\n<text x=\"{1}\" y=\"{2:.1}\" \
             text-anchor=\"end\" fill=\"#555\">{3}</text>",
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            short(value)
        );
    }
    let ends = samples.first().zip(samples.last());
    for (sample, place, anchor) in
        ends.into_iter().flat_map(|(first, last)| [(first, LEFT, "start"), (last, right, "end")])
    {
        let (hour, minute) = (sample.at.hour(), sample.at.minute());
        let _ = writeln!(
            svg,
            "<text x=\"{place}\" y=\"{}\" text-anchor=\"{anchor}\" fill=\"#555\">{hour:02}:{minute:02} UTC</text>",
            bottom + 16.0
        );
    }
    for line in lines {
        let dash = if line.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        for run in line.values.iter().enumerate().collect::<Vec<_>>().split(|(_, value)| value.is_none()) {
            let points: Vec<_> =
                run.iter().filter_map(|(at, value)| Some(format!("{:.1},{:.1}", x(*at), y((**value)?)))).collect();
            if !points.is_empty() {
                let _ = writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{dash}/>",
                    points.join(" "),
                    line.colour
                );
            }
        }
    }
}

/// The next round number that is not less.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|round| *round >= value * 0.999).unwrap_or(value)
}

fn short(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use sallyport_api::PlanSampleOrigin;
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn a_drawing_has_each_origin_and_hostile_names_stay_text() {
        let sample = |rps: f64| PlanSample {
            at: OffsetDateTime::UNIX_EPOCH,
            rps,
            refused_rps: 0.0,
            origins: vec![PlanSampleOrigin {
                origin: "a".into(),
                max_rps: Some(200.0),
                planned_rps: rps,
                rps,
                latency_ms: (rps > 0.0).then_some(4.0),
            }],
        };
        let names = [("a".to_owned(), "<script>".to_owned())].into();
        let svg = draw("plan & more", &[sample(0.0), sample(100.0), sample(180.0)], &names);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("plan &amp; more") && svg.contains("&lt;script&gt;") && !svg.contains("<script>"));
        assert!(svg.matches("<polyline").count() >= 4, "{svg}");
        assert!(draw("", &[], &BTreeMap::new()).contains("</svg>"));
    }
}
