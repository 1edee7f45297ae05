//! The drawing of windows over time (SVG).

use std::fmt::Write as _;

use crate::{NetworkCounts, Sample};

const WIDTH: f64 = 960.0;
const PANEL_HEIGHT: f64 = 220.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 220.0;
/// The room above a panel, for what stands there, and below, for the axis of time.
const ABOVE: f64 = 70.0;
const BELOW: f64 = 50.0;
/// How many parts an axis has.
const PARTS: u32 = 4;

/// One connection of a drawing.
#[derive(Debug, Clone, Copy)]
pub struct Drawn<'a> {
    /// What stands above its panel: its two ends.
    pub title: &'a str,
    /// The sentence below the title.
    pub sentence: &'a str,
    /// Its readings, in the order of time.
    pub samples: &'a [Sample],
}

/// One line of a panel.
struct Line {
    name: &'static str,
    colour: &'static str,
    values: Vec<Option<u64>>,
}

/// Draws the connections below each other, as one SVG that needs nothing else.
///
/// A connection that sends more than it receives shows its send side. `counts` are those of the whole network namespace.
#[must_use]
pub fn draw(connections: &[Drawn<'_>], counts: NetworkCounts) -> String {
    let panel = ABOVE + PANEL_HEIGHT + BELOW;
    let height = panel * connections.len() as f64 + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
         {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    for (number, connection) in connections.iter().enumerate() {
        draw_panel(&mut svg, panel * number as f64, connection);
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#666666\">The whole network namespace meanwhile: {} segments coalesced, {} \
         collapsed, {} dropped.</text>\n</svg>",
        height - 12.0,
        counts.coalesced,
        counts.collapsed,
        counts.dropped
    );
    svg
}

fn draw_panel(svg: &mut String, top: f64, connection: &Drawn<'_>) {
    let samples = connection.samples;
    let lines = lines(samples);
    let highest = lines.iter().flat_map(|line| line.values.iter().flatten()).max().copied().unwrap_or_default();
    let ceiling = ceiling(highest);
    let began = samples.first().map_or(0, |sample| sample.at_us);
    let lasted = samples.last().map_or(0, |sample| sample.at_us).saturating_sub(began).max(1);
    let (y0, x1) = (top + ABOVE, WIDTH - RIGHT);
    let x_of = |sample: &Sample| LEFT + (x1 - LEFT) * sample.at_us.saturating_sub(began) as f64 / lasted as f64;
    let y_of = |value: u64| y0 + PANEL_HEIGHT * (1.0 - value as f64 / ceiling as f64);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" font-size=\"16\">{}</text>\n<text x=\"{LEFT}\" y=\"{}\">{}</text>",
        top + 26.0,
        escaped(connection.title),
        top + 48.0,
        escaped(connection.sentence)
    );
    for part in 0..=PARTS {
        let share = f64::from(part) / f64::from(PARTS);
        let y = y0 + PANEL_HEIGHT * (1.0 - share);
        let x = LEFT + (x1 - LEFT) * share;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{x1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n<text x=\"{}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>\n<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.2} \
             s</text>",
            LEFT - 8.0,
            y + 4.0,
            bytes(ceiling / u64::from(PARTS) * u64::from(part)),
            y0 + PANEL_HEIGHT + 18.0,
            lasted as f64 * share / 1e6
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let points = samples.iter().zip(&line.values);
        let points = points.filter_map(|(sample, value)| value.map(|value| (x_of(sample), y_of(value))));
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let y = y0 + 12.0 + 20.0 * number as f64;
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{0}\" stroke-width=\"1.6\" points=\"{1}\"/>\n<line x1=\"{2}\" \
             y1=\"{3}\" x2=\"{4}\" y2=\"{3}\" stroke=\"{0}\" stroke-width=\"3\"/>\n<text x=\"{5}\" y=\"{y}\">{6}</text>",
            line.colour,
            points.join(" "),
            x1 + 20.0,
            y - 4.0,
            x1 + 40.0,
            x1 + 46.0,
            line.name
        );
    }
}

/// The lines of the side that moved more.
fn lines(samples: &[Sample]) -> Vec<Line> {
    let line = |name, colour, value: &dyn Fn(&Sample) -> Option<u64>| Line {
        name,
        colour,
        values: samples.iter().map(value).collect(),
    };
    let moved = |count: &dyn Fn(&Sample) -> u64| {
        samples.first().zip(samples.last()).map_or(0, |(first, last)| count(last).saturating_sub(count(first)))
    };
    let is_sender = moved(&|sample| sample.acknowledged_bytes) > moved(&|sample| sample.received_bytes)
        || samples.last().is_some_and(|sample| sample.send_queue_bytes > sample.receive_queue_bytes);
    if is_sender {
        return vec![
            line("send buffer", "#555555", &|sample| Some(sample.send_buffer_bytes.into())),
            line("queued to be sent", "#1f5fa8", &|sample| Some(sample.send_queue_bytes.into())),
            line("congestion window", "#7d4aa5", &|sample| Some(sample.congestion_window_bytes)),
            line("window of the peer", "#3d8a3d", &|sample| sample.peer_window_bytes.map(u64::from)),
        ];
    }
    vec![
        line("receive buffer", "#555555", &|sample| Some(sample.receive_buffer_bytes.into())),
        line("memory charged", "#c4541c", &|sample| Some(sample.receive_memory_bytes.into())),
        line("queued, unread", "#1f5fa8", &|sample| Some(sample.receive_queue_bytes.into())),
        line("window, advertised", "#3d8a3d", &|sample| sample.receive_window_bytes.map(u64::from)),
        line("ssthresh of the window", "#7d4aa5", &|sample| Some(sample.receive_ssthresh_bytes.into())),
    ]
}

/// The upper end of an axis: a round number of which a quarter is whole too.
fn ceiling(highest: u64) -> u64 {
    let mut unit = 1_024_u64;
    while unit.saturating_mul(16) < highest {
        unit = unit.saturating_mul(2);
    }
    let four = unit.saturating_mul(4);
    highest.max(1).div_ceil(four).saturating_mul(four)
}

/// A size for people.
fn bytes(size: u64) -> String {
    match size {
        0 => "0".to_owned(),
        1..1_048_576 => format!("{} KiB", size / 1_024),
        _ => format!("{:.1} MiB", size as f64 / 1_048_576.0),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawing(samples: &[Sample]) -> String {
        draw(&[Drawn { title: "a <b> & c", sentence: "It is so.", samples }], NetworkCounts::default())
    }

    #[test]
    fn a_drawing_has_its_lines_units_and_escaped_words() {
        let sample = |at_us, queued| Sample {
            at_us,
            receive_buffer_bytes: 65_536,
            receive_queue_bytes: queued,
            receive_window_bytes: Some(1_000),
            ..Sample::default()
        };
        let svg = drawing(&[sample(0, 0), sample(2_000_000, 32_768)]);
        for part in ["a &lt;b&gt; &amp; c", "It is so.", "2.00 s", "64 KiB", "memory charged", "window, advertised"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // From nothing at the left to half of the height at the right.
        assert!(svg.contains("points=\"90.0,290.0 740.0,180.0\""), "{svg}");
        assert!(!svg.contains("send buffer"), "{svg}");
    }

    #[test]
    fn a_sender_shows_its_side_and_what_the_kernel_does_not_tell_is_left_out() {
        let sample = |at_us| Sample { at_us, acknowledged_bytes: at_us, ..Sample::default() };
        let svg = drawing(&[sample(0), sample(1)]);
        assert!(svg.contains("send buffer") && svg.contains("points=\"\""), "{svg}");
    }

    #[test]
    fn counts_of_the_namespace_stand_below() {
        let later = NetworkCounts { coalesced: 9, collapsed: 8, dropped: 7 };
        let earlier = NetworkCounts { coalesced: 4, collapsed: 9, dropped: 7 };
        let svg = draw(&[], later.since(earlier));
        assert!(svg.contains("5 segments coalesced, 0 collapsed, 0 dropped"), "{svg}");
    }

    proptest! {
        #[test]
        fn an_axis_holds_every_value_and_its_quarters_are_whole(highest in 0_u64..1 << 50) {
            let ceiling = ceiling(highest);
            prop_assert!(ceiling >= highest && ceiling.is_multiple_of(4_096) && ceiling <= highest * 2 + 4_096);
        }

        #[test]
        fn any_readings_are_drawn(rows in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u64>()), 0..20)) {
            let samples: Vec<Sample> = rows.into_iter().map(|(at_us, size, count)| Sample {
                at_us,
                receive_buffer_bytes: size,
                congestion_window_bytes: count,
                acknowledged_bytes: count,
                ..Sample::default()
            }).collect();
            let svg = drawing(&samples);
            prop_assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        }
    }
}
