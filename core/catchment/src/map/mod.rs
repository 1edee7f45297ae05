//! The catchment as a picture in SVG: countries as dots in the colour of where they land, sites as squares.

mod places;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    str::FromStr,
    time::Duration,
};

use sallyport_model::RegionName;
use sallyport_policy::Country;

/// The size of the world, in units of the picture.
const WIDTH: f64 = 1_080.0;
const HEIGHT: f64 = 540.0;
/// The height of the legend's head and of each line.
const LINE: f64 = 20.0;
/// The greatest radius of a dot.
const MAX_RADIUS: f64 = 18.0;
/// The least radius of a dot.
const MIN_RADIUS: f64 = 2.5;
/// The most sites in the legend, and the most losses.
const MAX_LEGEND_SITES: usize = 24;
const MAX_LEGEND_LOSSES: usize = 8;
/// How many colours there are. Further sites take them again.
const COLOURS: usize = 8;

/// The clients of a country that land at a site.
#[derive(Debug, Clone, PartialEq)]
pub struct CountryAtSite {
    /// The country; `None` if unknown: only the legend counts it.
    pub country: Option<Country>,
    /// The site.
    pub site: RegionName,
    /// How many networks there are.
    pub networks: u64,
    /// Their requests.
    pub requests: u64,
    /// The mean round trip, if known.
    pub round_trip: Option<Duration>,
    /// Requests times the excess over another site, in milliseconds.
    pub lost_ms: f64,
    /// The site that would be nearest for most of what is lost.
    pub better: Option<RegionName>,
}

/// Where a site is, as an operator gives it: degrees north and east.
#[derive(Debug, Clone, PartialEq)]
pub struct SitePlace {
    /// The site.
    pub site: RegionName,
    /// Degrees north, from -90 to 90.
    pub north: f64,
    /// Degrees east, from -180 to 180.
    pub east: f64,
}

/// The text is no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no place of a site: use REGION=NORTH,EAST in degrees, such as eu=50,8 or us=39,-97")]
pub struct SitePlaceError {
    /// The text, cut to 64 characters.
    text: String,
}

impl FromStr for SitePlace {
    type Err = SitePlaceError;

    fn from_str(text: &str) -> Result<Self, SitePlaceError> {
        let read = || {
            let (site, place) = text.split_once('=')?;
            let (north, east) = place.split_once(',')?;
            let degrees = |text: &str, most: f64| text.trim().parse::<f64>().ok().filter(|value| value.abs() <= most);
            Some(Self { site: site.parse().ok()?, north: degrees(north, 90.0)?, east: degrees(east, 180.0)? })
        };
        read().ok_or_else(|| SitePlaceError { text: text.chars().take(64).collect() })
    }
}

/// What is known of a site, for its mark and its line.
#[derive(Debug, Default)]
struct Site {
    place: Option<(f64, f64)>,
    networks: u64,
    requests: u64,
    /// Requests of known round trips, and the sum of these times.
    timed: u64,
    time_ms: f64,
    lost_ms: f64,
}

/// The picture. A site without a given place is in the middle of the countries of its clients.
#[must_use]
pub fn svg(clients: &[CountryAtSite], places: &[SitePlace], title: &str) -> String {
    let sites = sites_of(clients, places);
    let colour = |site: &RegionName| sites.keys().position(|known| known == site).unwrap_or_default() % COLOURS;
    let mut lost: Vec<&CountryAtSite> = clients.iter().filter(|one| one.lost_ms > 0.0).collect();
    lost.sort_by(|one, other| other.lost_ms.total_cmp(&one.lost_ms));
    lost.truncate(MAX_LEGEND_LOSSES);
    let lines = sites.len().min(MAX_LEGEND_SITES).max(lost.len()) as f64 + 2.0;
    let height = HEIGHT + lines * LINE;
    let mut text = String::new();
    // Writing to a text never fails.
    let _ = write_head(&mut text, height, title)
        .and_then(|()| write_world(&mut text))
        .and_then(|()| write_clients(&mut text, clients, &sites, colour))
        .and_then(|()| write_sites(&mut text, &sites, colour))
        .and_then(|()| write_legend(&mut text, &sites, &lost, colour))
        .and_then(|()| text.write_str("</svg>\n"));
    text
}

fn sites_of(clients: &[CountryAtSite], places: &[SitePlace]) -> BTreeMap<RegionName, Site> {
    let mut sites: BTreeMap<RegionName, Site> = BTreeMap::new();
    let mut middles: BTreeMap<&RegionName, (f64, f64, f64)> = BTreeMap::new();
    for one in clients {
        let site = sites.entry(one.site.clone()).or_default();
        site.networks = site.networks.saturating_add(one.networks);
        site.requests = site.requests.saturating_add(one.requests);
        site.lost_ms += one.lost_ms;
        if let Some(time) = one.round_trip {
            site.timed = site.timed.saturating_add(one.requests);
            site.time_ms += one.requests as f64 * time.as_secs_f64() * 1e3;
        }
        if let Some((north, east)) = one.country.and_then(places::of_country) {
            let weight = one.requests.max(1) as f64;
            let middle = middles.entry(&one.site).or_default();
            *middle = (middle.0 + weight * north, middle.1 + weight * east, middle.2 + weight);
        }
    }
    for (site, (north, east, weight)) in middles {
        if let Some(site) = sites.get_mut(site) {
            site.place = Some((north / weight, east / weight));
        }
    }
    for place in places {
        sites.entry(place.site.clone()).or_default().place = Some((place.north, place.east));
    }
    sites
}

/// The point of a place.
fn point((north, east): (f64, f64)) -> (f64, f64) {
    ((east + 180.0) / 360.0 * WIDTH, (90.0 - north) / 180.0 * HEIGHT)
}

fn write_head(text: &mut String, height: f64, title: &str) -> fmt::Result {
    write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{}</title>\n<style>\n",
        Escaped(title)
    )?;
    text.write_str(
        ":root{--back:#fff;--sea:#eef3f7;--grid:#d5dee6;--ink:#1c2833;--lost:#c0392b}\n\
         @media (prefers-color-scheme:dark){:root{--back:#11181f;--sea:#18222b;--grid:#2a3844;--ink:#dce6ee;\
         --lost:#ff7b6b}}\n\
         .back{fill:var(--back)}.sea{fill:var(--sea)}.grid{stroke:var(--grid);stroke-width:1}\
         text{fill:var(--ink)}.way{fill:none;stroke-width:.8;opacity:.45}.dot{opacity:.75}\
         .mark{stroke:var(--ink);stroke-width:1.5}.lost{fill:none;stroke:var(--lost);stroke-width:1.6}\n",
    )?;
    let colours = ["#1f77b4", "#e08214", "#2ca02c", "#9467bd", "#17a2a2", "#b8860b", "#e377c2", "#7f7f7f"];
    for (number, colour) in colours.iter().enumerate().take(COLOURS) {
        write!(text, ".c{number}{{fill:{colour}}}.way.c{number}{{fill:none;stroke:{colour}}}")?;
    }
    writeln!(text, "\n</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>")
}

fn write_world(text: &mut String) -> fmt::Result {
    writeln!(text, "<rect class=\"sea\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>")?;
    text.write_str("<path class=\"grid\" d=\"")?;
    for east in (-150..=150).step_by(30) {
        let (x, _) = point((0.0, f64::from(east)));
        write!(text, "M{x:.0} 0V{HEIGHT}")?;
    }
    for north in (-60..=60).step_by(30) {
        let (_, y) = point((f64::from(north), 0.0));
        write!(text, "M0 {y:.0}H{WIDTH}")?;
    }
    text.write_str("\"/>\n")
}

fn write_clients(
    text: &mut String,
    clients: &[CountryAtSite],
    sites: &BTreeMap<RegionName, Site>,
    colour: impl Fn(&RegionName) -> usize,
) -> fmt::Result {
    let most = clients.iter().map(|one| one.requests).max().unwrap_or_default().max(1) as f64;
    let mut placed: BTreeMap<Country, u32> = BTreeMap::new();
    // Great dots first, so that small ones are seen.
    let mut sorted: Vec<&CountryAtSite> = clients.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.requests));
    for one in sorted {
        let Some((country, place)) = one.country.and_then(|country| Some((country, places::of_country(country)?)))
        else {
            continue;
        };
        let beside = placed.entry(country).or_default();
        let (x, y) = point(place);
        // Further sites of a country are beside one another.
        let x = (x + f64::from(*beside) * 7.0).min(WIDTH - MIN_RADIUS);
        *beside = beside.saturating_add(1);
        let radius = MIN_RADIUS + (MAX_RADIUS - MIN_RADIUS) * (one.requests as f64 / most).sqrt();
        let colour = colour(&one.site);
        if let Some(at) = sites.get(&one.site).and_then(|site| site.place) {
            let (to_x, to_y) = point(at);
            writeln!(text, "<path class=\"way c{colour}\" d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\"/>")?;
        }
        write!(text, "<circle class=\"dot c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>")?;
        write!(text, "{country} lands at {}: {} requests", Escaped(one.site.as_str()), one.requests)?;
        if let Some(time) = one.round_trip {
            write!(text, ", {}", Ms(time.as_secs_f64() * 1e3))?;
        }
        text.write_str("</title></circle>\n")?;
        if one.lost_ms > 0.0 {
            let around = radius + 2.5;
            writeln!(text, "<circle class=\"lost\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{around:.1}\"/>")?;
        }
    }
    Ok(())
}

fn write_sites(
    text: &mut String,
    sites: &BTreeMap<RegionName, Site>,
    colour: impl Fn(&RegionName) -> usize,
) -> fmt::Result {
    for (name, site) in sites {
        let Some(place) = site.place else { continue };
        let ((x, y), colour, name) = (point(place), colour(name), Escaped(name.as_str()));
        let (left, top) = (x - 6.0, y - 6.0);
        writeln!(text, "<rect class=\"mark c{colour}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\"/>")?;
        let (x, y) = (x + 10.0, y + 4.0);
        writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-weight=\"bold\">{name}</text>")?;
    }
    Ok(())
}

fn write_legend(
    text: &mut String,
    sites: &BTreeMap<RegionName, Site>,
    lost: &[&CountryAtSite],
    colour: impl Fn(&RegionName) -> usize,
) -> fmt::Result {
    let top = HEIGHT + LINE;
    let right = WIDTH / 2.0 + 20.0;
    writeln!(text, "<text x=\"20\" y=\"{top}\" font-weight=\"bold\">Sites</text>")?;
    for (line, (name, site)) in sites.iter().take(MAX_LEGEND_SITES).enumerate() {
        let y = top + (line as f64 + 1.0) * LINE;
        let (square, colour) = (y - 10.0, colour(name));
        write!(text, "<rect class=\"c{colour}\" x=\"20\" y=\"{square}\" width=\"11\" height=\"11\"/>")?;
        write!(text, "<text x=\"38\" y=\"{y}\">{}: {} networks, ", Escaped(name.as_str()), site.networks)?;
        write!(text, "{} requests", site.requests)?;
        if site.timed > 0 {
            write!(text, ", mean {}", Ms(site.time_ms / site.timed as f64))?;
        }
        text.write_str("</text>\n")?;
    }
    writeln!(text, "<text x=\"{right}\" y=\"{top}\" font-weight=\"bold\">Greatest losses</text>")?;
    for (line, one) in lost.iter().enumerate() {
        let y = top + (line as f64 + 1.0) * LINE;
        let country = one.country.map_or_else(|| "unknown".to_owned(), |country| country.to_string());
        let mean = one.lost_ms / one.requests.max(1) as f64;
        write!(text, "<text x=\"{right}\" y=\"{y}\">{country} lands at {}", Escaped(one.site.as_str()))?;
        write!(text, ": {} requests lose {}", one.requests, Ms(mean))?;
        if let Some(better) = &one.better {
            write!(text, " against {}", Escaped(better.as_str()))?;
        }
        text.write_str("</text>\n")?;
    }
    if lost.is_empty() {
        writeln!(text, "<text x=\"{right}\" y=\"{}\">none is known</text>", top + LINE)?;
    }
    Ok(())
}

/// A time in milliseconds.
struct Ms(f64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10.0 { write!(f, "{:.1} ms", self.0) } else { write!(f, "{:.0} ms", self.0) }
    }
}

/// Text within SVG. Characters that XML cannot have become U+FFFD.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                _ if c.is_control() => f.write_char('\u{fffd}')?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(country: &str, site: &str, requests: u64, lost_ms: f64) -> CountryAtSite {
        CountryAtSite {
            country: country.parse().ok(),
            site: site.parse().unwrap(),
            networks: 3,
            requests,
            round_trip: Some(Duration::from_millis(12)),
            lost_ms,
            better: (lost_ms > 0.0).then(|| "eu".parse().unwrap()),
        }
    }

    #[test]
    fn countries_and_sites_are_where_they_should_be() {
        let known = [clients("CH", "eu", 100, 0.0), clients("CH", "us", 25, 1_000.0), clients("?", "eu", 7, 0.0)];
        let places = ["us=39,-97".parse().unwrap()];
        let text = svg(&known, &places, "Where clients land");
        // Switzerland: 47 north, 8 east. Its second dot is beside.
        assert!(text.contains("<circle class=\"dot c0\" cx=\"564.0\" cy=\"129.0\" r=\"18.0\">"), "{text}");
        assert!(text.contains("<circle class=\"dot c1\" cx=\"571.0\" cy=\"129.0\" r=\"10.2\">"), "{text}");
        assert!(text.contains("<circle class=\"lost\" cx=\"571.0\""), "{text}");
        // The given place, and the middle of the clients.
        assert!(text.contains("<rect class=\"mark c1\" x=\"243.0\" y=\"147.0\""), "{text}");
        assert!(text.contains("<rect class=\"mark c0\" x=\"558.0\" y=\"123.0\""), "{text}");
        assert!(text.contains(">eu: 6 networks, 107 requests, mean 12 ms</text>"), "{text}");
        assert!(text.contains(">CH lands at us: 25 requests lose 40 ms against eu</text>"), "{text}");
        assert!(text.contains("prefers-color-scheme:dark"), "{text}");
        assert_eq!(text.matches('<').count(), text.matches('>').count());
    }

    #[test]
    fn all_text_is_escaped() {
        let text = svg(&[], &[], "<script>\"&'\u{0}\u{ffff}</script>");
        let title = "<title>&lt;script&gt;&quot;&amp;&#39;\u{fffd}\u{fffd}&lt;/script&gt;</title>";
        assert!(text.contains(title) && !text.contains("<script"), "{text}");
        assert!(text.contains("none is known"), "{text}");
    }

    #[test]
    fn the_picture_is_bounded() {
        let many: Vec<_> = (0..3_000).map(|number| clients("US", &format!("s{number}"), 1, 5.0)).collect();
        let text = svg(&many, &[], "many");
        assert_eq!(text.matches("<circle class=\"dot").count(), 3_000);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(text.matches("lose").count(), MAX_LEGEND_LOSSES);
    }

    #[test]
    fn places_are_degrees() {
        let place: SitePlace = "eu=50.1, -8".parse().unwrap();
        assert_eq!((place.site.as_str(), place.north, place.east), ("eu", 50.1, -8.0));
        for bad in ["", "eu", "eu=50", "eu=91,0", "eu=0,181", "eu=NaN,0", "EU=1,1", "eu=inf,0"] {
            assert!(bad.parse::<SitePlace>().is_err(), "{bad}");
        }
    }
}
