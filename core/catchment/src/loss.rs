//! What it costs that networks land far away.

use std::time::Duration;

use sallyport_model::RegionName;

use crate::Landing;

/// A network that lands farther away than a site that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// Where the network lands.
    pub landing: Landing,
    /// The round trip to there.
    pub round_trip: Duration,
    /// The nearest other site.
    pub better: RegionName,
    /// The round trip to that.
    pub better_round_trip: Duration,
    /// Requests times the excess of the round trip, in milliseconds.
    pub lost_ms: f64,
}

/// The losses, the greatest first. Networks without a round trip to where they land, or to another site, have none.
#[must_use]
pub fn losses(landings: impl IntoIterator<Item = Landing>) -> Vec<Loss> {
    let mut found: Vec<Loss> = landings.into_iter().filter_map(loss_of).collect();
    found.sort_by(|one, other| {
        other.lost_ms.total_cmp(&one.lost_ms).then_with(|| one.landing.prefix.cmp(&other.landing.prefix))
    });
    found
}

fn loss_of(landing: Landing) -> Option<Loss> {
    let round_trip = landing.round_trip()?;
    let (better, better_round_trip) = landing.best_other()?;
    let excess = round_trip.checked_sub(better_round_trip).filter(|excess| !excess.is_zero())?;
    let (better, lost_ms) = (better.clone(), landing.requests as f64 * excess.as_secs_f64() * 1e3);
    Some(Loss { round_trip, better, better_round_trip, lost_ms, landing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Landings, Prefix, Row, Source};

    #[test]
    fn the_greatest_loss_comes_first() {
        let row = |third: u8, site: &str, requests, ms| Row {
            requests,
            round_trip: (ms > 0).then(|| Duration::from_millis(ms)),
            ..Row::new(Prefix::of([192, 0, third, 1].into()), site.parse().unwrap(), Source::Ping, 9)
        };
        let rows = [
            // 10 requests of 60 ms more, 100 of 10 ms more.
            (row(1, "us", 10, 90), row(1, "eu", 0, 30)),
            (row(2, "us", 100, 40), row(2, "eu", 0, 30)),
            // It lands at the nearest, one is unknown, and both are alike.
            (row(3, "eu", 999, 30), row(3, "us", 0, 90)),
            (row(4, "us", 999, 0), row(4, "eu", 0, 30)),
            (row(5, "us", 999, 30), row(5, "eu", 0, 30)),
        ];
        let landings: Landings = rows.into_iter().flat_map(|(one, other)| [one, other]).collect();
        let found = losses(landings.landings());
        let shown: Vec<_> = found
            .iter()
            .map(|loss| (loss.landing.prefix.to_string(), loss.better.as_str(), loss.lost_ms.round() as u64))
            .collect();
        assert_eq!(shown, [("192.0.2.0/24".to_owned(), "eu", 1_000), ("192.0.1.0/24".to_owned(), "eu", 600)]);
    }
}
