//! The picture of a set: a Hilbert curve as SVG. Uses `set`.
//!
//! The curve keeps addresses together that are near: each prefix of even length is a square. The picture has 512 x 512
//! cells. For IPv4 the picture is the whole family, with a cell for each /18. For IPv6 it is the longest prefix around
//! the set. A cell that is held in part is paler.

mod curve;

use std::fmt::Write as _;

use self::curve::{CELL_BITS, SIDE, square};
use crate::set::{Address, AddressSet, Ranges};

/// The units of the picture for the side of a cell.
const CELL: u32 = 2;
/// The height of a panel's head.
const HEAD: u32 = 36;
/// The margin around a panel.
const MARGIN: u32 = 16;
/// The steps of paleness of cells that are held in part.
const SHADES: u32 = 4;
/// What is held, and what of it is in use.
const HELD: &str = "#e69f00";
const USED: &str = "#0072b2";

/// Draws what is held, and above it what of it is in use. The families that hold something have a panel each.
///
/// The text has at most 15 MB, for any set.
#[must_use]
pub fn draw(held: &AddressSet, used: Option<&AddressSet>, title: &str) -> String {
    let used = used.map(|used| held.intersection(used)).unwrap_or_default();
    let panels = [panel(&held.v4, &used.v4, "IPv4"), panel(&held.v6, &used.v6, "IPv6")];
    let panels: Vec<_> = panels.into_iter().flatten().collect();
    let width = SIDE * CELL + 2 * MARGIN;
    let height = MARGIN + HEAD + (HEAD + SIDE * CELL + MARGIN) * u32::try_from(panels.len()).unwrap_or(2);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"14\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"32\" font-size=\"20\">{title}</text>\n\
         <rect x=\"{legend}\" y=\"20\" width=\"14\" height=\"14\" fill=\"{HELD}\"/>\
         <text x=\"{held_text}\" y=\"32\">held</text>\n\
         <rect x=\"{used_box}\" y=\"20\" width=\"14\" height=\"14\" fill=\"{USED}\"/>\
         <text x=\"{used_text}\" y=\"32\">held and in use</text>\n",
        title = escaped(title),
        legend = width - 230,
        held_text = width - 210,
        used_box = width - 150,
        used_text = width - 130,
    );
    for (at, panel) in (0..).zip(panels) {
        let top = MARGIN + HEAD + at * (HEAD + SIDE * CELL + MARGIN);
        let _ = writeln!(svg, "<g transform=\"translate({MARGIN} {top})\">\n{panel}</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// The panel of a family; `None` if nothing is held.
fn panel<A: Address>(held: &Ranges<A>, used: &Ranges<A>, family: &str) -> Option<String> {
    let (base, base_length) = frame(held)?;
    let side = SIDE * CELL;
    let mut svg = format!("<text y=\"20\">{family}: {}</text>\n", base.prefix_text(base_length));
    let _ = writeln!(
        svg,
        "<g transform=\"translate(0 {HEAD})\">\n<rect width=\"{side}\" height=\"{side}\" fill=\"#f4f4f4\"/>"
    );
    for (ranges, colour) in [(held, HELD), (used, USED)] {
        for (shade, path) in (1..).zip(shapes(ranges, base, base_length)) {
            if !path.is_empty() {
                let opacity = f64::from(shade) / f64::from(SHADES + 1);
                let _ = writeln!(svg, "<path fill=\"{colour}\" fill-opacity=\"{opacity}\" d=\"{path}\"/>");
            }
        }
    }
    if A::BITS == 32 {
        svg.push_str("<g font-size=\"11\" fill=\"#555\" stroke=\"none\">\n");
        for first in 0..256_u32 {
            let (x, y, width) = square(first << (CELL_BITS - 8), 8);
            let (x, y, width) = (x * CELL, y * CELL, width * CELL);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{width}\" fill=\"none\" stroke=\"#ccc\"/>\
                 <text x=\"{}\" y=\"{}\">{first}</text>",
                x + 3,
                y + 12
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</g>\n");
    Some(svg)
}

/// The prefix that the panel shows: all of IPv4, or the longest prefix around the set.
fn frame<A: Address>(held: &Ranges<A>) -> Option<(A, u8)> {
    let ((first, _), (_, last)) = (held.ranges().first()?, held.ranges().last()?);
    if A::BITS == 32 {
        return Some((A::MIN, 0));
    }
    let differing = (first.number() ^ last.number()).leading_zeros() - (128 - u32::from(A::BITS));
    let longest = u32::from(A::BITS) - CELL_BITS;
    let length = u8::try_from(differing.min(longest)).unwrap_or(0);
    Some((first.masked(length), length))
}

/// The path of whole cells at the last place, and before it the paths of cells that are held in part, by shade.
fn shapes<A: Address>(ranges: &Ranges<A>, base: A, base_length: u8) -> [String; SHADES as usize + 1] {
    let mut paths: [String; SHADES as usize + 1] = Default::default();
    let cell_length = base_length + u8::try_from(CELL_BITS).unwrap_or(0);
    let cell_size = u32::from(A::BITS) - u32::from(cell_length);
    let cell_of = |first: A| u32::try_from((first.number() - base.number()) >> cell_size).unwrap_or(0);
    let mut partial: Option<(u32, u128)> = None;
    let finish = |partial: Option<(u32, u128)>, paths: &mut [String]| {
        let Some((cell, count)) = partial else { return };
        let share = (count * u128::from(SHADES)) >> cell_size;
        add(&mut paths[usize::try_from(share).unwrap_or(0)], square(cell, CELL_BITS));
    };
    for (first, length) in ranges.prefixes() {
        let cell = cell_of(first);
        if length <= cell_length {
            let bits = u32::from(length - base_length);
            if bits % 2 == 0 {
                add(&mut paths[SHADES as usize], square(cell, bits));
            } else {
                add(&mut paths[SHADES as usize], square(cell, bits + 1));
                add(&mut paths[SHADES as usize], square(cell + (1 << (CELL_BITS - bits - 1)), bits + 1));
            }
            continue;
        }
        let count = 1_u128 << (A::BITS - length);
        partial = match partial {
            Some((at, sum)) if at == cell => Some((at, sum + count)),
            before => {
                finish(before, &mut paths);
                Some((cell, count))
            }
        };
    }
    finish(partial, &mut paths);
    paths
}

fn add(path: &mut String, (x, y, side): (u32, u32, u32)) {
    let (x, y, side) = (x * CELL, y * CELL, side * CELL);
    let _ = write!(path, "M{x} {y}h{side}v{side}h-{side}z");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
