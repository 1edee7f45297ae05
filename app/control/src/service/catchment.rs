//! Where clients land: lists, a suggestion, and imports.

use std::{cmp::Ordering, net::IpAddr, time::Duration};

use http::StatusCode;
use sallyport_api::{
    CatchmentSuggestion, ImportCatchment, ImportedCatchment, ImportedLanding, Landing as ApiLanding, LandingPage,
    LandingSource, LandingsBy, MAX_IMPORT_ITEMS, MAX_LANDINGS, SuggestedChange,
};
use sallyport_catchment::{
    GroupBy, Landing, LandingGroup, Landings, MAX_CLIENT_ROUND_TRIP, Prefix, Row, Source, Suggestion, groups, suggest,
};
use sallyport_ping::is_one_host;

use crate::{clock::date, problem::ApiError, state::App};

/// The most items, unless the request gives another number.
const DEFAULT_ITEMS: u32 = 100;
/// Rows of this age, in seconds, are not listed any more: a week.
const MAX_AGE: i64 = 7 * 86_400;
/// The most requests of a row that is imported.
const MAX_IMPORTED_REQUESTS: u32 = 1_000_000;

impl App {
    /// Where all known networks land.
    async fn landings(&self) -> Result<Vec<Landing>, ApiError> {
        let now = self.clock.now().unix_seconds;
        let rows = self.store.catchment().await?;
        let fresh: Landings = rows.into_iter().filter(|row| row.is_fresh(now, MAX_AGE)).collect();
        Ok(fresh.landings().collect())
    }

    /// Where networks land, put together.
    pub(crate) async fn catchment(&self, by: LandingsBy, limit: Option<u32>) -> Result<LandingPage, ApiError> {
        let limit = limit.unwrap_or(DEFAULT_ITEMS) as usize;
        if !(1..=MAX_LANDINGS).contains(&limit) {
            let detail = format!("limit must be a whole number from 1 to {MAX_LANDINGS}");
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail));
        }
        let by = match by {
            LandingsBy::Prefix => GroupBy::Prefix,
            LandingsBy::As => GroupBy::System,
            LandingsBy::Country => GroupBy::Country,
            LandingsBy::Site => GroupBy::Site,
        };
        let landings = self.landings().await?;
        let mut found = groups(&landings, by);
        found.sort_by(by_loss);
        let has_more = found.len() > limit;
        found.truncate(limit);
        let networks = u64::try_from(landings.len()).unwrap_or(u64::MAX);
        Ok(LandingPage { items: found.into_iter().map(to_api).collect(), has_more, networks, frozen: self.frozen() })
    }

    /// The change that would gain the most.
    pub(crate) async fn suggest_change(&self) -> Result<CatchmentSuggestion, ApiError> {
        let change = suggest(&self.landings().await?).map(|found| change_to_api(&found));
        Ok(CatchmentSuggestion { change, frozen: self.frozen() })
    }

    fn frozen(&self) -> Option<String> {
        self.catchment.frozen().map(|reason| reason.to_string())
    }

    /// Adds what others have measured, and which networks may be pinged.
    pub(crate) async fn import_catchment(&self, import: &ImportCatchment) -> Result<ImportedCatchment, ApiError> {
        let ImportCatchment { rows, targets, opt_outs, replaces_targets, replaces_opt_outs } = import;
        for (field, items) in [("rows", rows.len()), ("targets", targets.len()), ("opt_outs", opt_outs.len())] {
            if items > MAX_IMPORT_ITEMS {
                return Err(ApiError::field(field, format!("send at most {MAX_IMPORT_ITEMS} at a time")));
            }
        }
        let now = self.clock.now().unix_seconds;
        let each = rows.iter().enumerate();
        let rows = each.map(|(at, row)| self.imported(row, now).map_err(|why| at_place("rows", at, why)));
        let rows: Vec<Row> = rows.collect::<Result<_, _>>()?;
        let each = targets.iter().enumerate();
        let targets = each.map(|(at, text)| target(text).map_err(|why| at_place("targets", at, why)));
        let targets: Vec<IpAddr> = targets.collect::<Result<_, _>>()?;
        let each = opt_outs.iter().enumerate();
        let opt_outs = each.map(|(at, text)| network(text).map_err(|why| at_place("opt_outs", at, why)));
        let opt_outs: Vec<Prefix> = opt_outs.collect::<Result<_, _>>()?;
        self.store.put_catchment(&rows).await?;
        for source in Source::ALL {
            self.metrics.catchment.wrote(source, rows.iter().filter(|row| row.source == source).count());
        }
        if !targets.is_empty() || *replaces_targets {
            self.store.put_ping_targets(&targets, *replaces_targets).await?;
        }
        if !opt_outs.is_empty() || *replaces_opt_outs {
            self.store.put_ping_opt_outs(&opt_outs, *replaces_opt_outs).await?;
        }
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        Ok(ImportedCatchment {
            rows: count(rows.len()),
            targets: count(self.store.ping_targets().await?.len()),
            opt_outs: count(self.store.ping_opt_outs().await?.len()),
        })
    }

    fn imported(&self, row: &ImportedLanding, now: i64) -> Result<Row, String> {
        let source = match row.source {
            LandingSource::Chaos => Source::Chaos,
            LandingSource::Atlas => Source::Atlas,
            LandingSource::Clients | LandingSource::Ping => {
                return Err("only rows of chaos and atlas can be imported".to_owned());
            }
        };
        let prefix: Prefix = row.prefix.parse().map_err(|error: sallyport_catchment::PrefixError| error.to_string())?;
        let site = row.site.parse().map_err(|error: sallyport_model::EdgeNameError| error.to_string())?;
        if row.requests > MAX_IMPORTED_REQUESTS {
            return Err(format!("a row has at most {MAX_IMPORTED_REQUESTS} requests"));
        }
        let time = row.round_trip_ms.map(|ms| {
            let time = Duration::try_from_secs_f64(ms / 1e3).ok();
            let time = time.filter(|time| !time.is_zero() && *time <= MAX_CLIENT_ROUND_TRIP);
            time.ok_or_else(|| {
                format!("a round trip takes more than 0 and at most {} s", MAX_CLIENT_ROUND_TRIP.as_secs())
            })
        });
        if row.requests == 0 && row.round_trip_ms.is_none() {
            return Err("a row has requests or a round trip".to_owned());
        }
        let seen = row.seen.map_or(now, |seen| seen.unix_timestamp());
        if seen > now + 60 {
            return Err("a row cannot be of the future".to_owned());
        }
        let (system, country) = self.place_of(prefix.first());
        let round_trip = time.transpose()?;
        let requests = u64::from(row.requests);
        Ok(Row { system, country, round_trip, requests, ..Row::new(prefix, site, source, seen) })
    }

    /// The autonomous system and the country of an address, as far as this control knows them.
    pub(super) fn place_of(&self, address: IpAddr) -> (Option<u32>, Option<sallyport_policy::Country>) {
        let geo = self.config.geo.as_ref();
        (geo.and_then(|geo| geo.asn(address)).map(|asn| asn.number()), geo.and_then(|geo| geo.country(address)))
    }
}

/// The greatest losses first, then the most requests.
fn by_loss(one: &LandingGroup, other: &LandingGroup) -> Ordering {
    other.lost_ms.total_cmp(&one.lost_ms).then(other.requests.cmp(&one.requests))
}

fn at_place(field: &str, at: usize, why: String) -> ApiError {
    ApiError::field(&format!("{field}[{at}]"), why)
}

fn target(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "this is no IP address".to_owned())?;
    if is_one_host(address) {
        Ok(address.to_canonical())
    } else {
        Err(format!("{address} is not the address of one host"))
    }
}

fn network(text: &str) -> Result<Prefix, String> {
    let of_address = |_| text.parse().map(Prefix::of);
    text.parse().or_else(of_address).map_err(|_| "use ADDRESS/24, ADDRESS/48, or an address".to_owned())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn to_api(group: LandingGroup) -> ApiLanding {
    ApiLanding {
        prefix: group.prefix.map(|prefix| prefix.to_string()),
        system: group.system,
        country: group.country.map(|country| country.to_string()),
        site: group.site.into(),
        networks: group.networks,
        requests: group.requests,
        mean_ms: group.round_trip.map(ms),
        better: group.better.map(String::from),
        better_ms: group.better_round_trip.map(ms),
        lost_ms: group.lost_ms,
        source: group.source.map(|source| match source {
            Source::Clients => LandingSource::Clients,
            Source::Ping => LandingSource::Ping,
            Source::Chaos => LandingSource::Chaos,
            Source::Atlas => LandingSource::Atlas,
        }),
        last_seen: date(group.seen),
    }
}

fn change_to_api(found: &Suggestion) -> SuggestedChange {
    let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
    SuggestedChange {
        action: found.action(),
        alternative: found.alternative(),
        group: found.group.to_string(),
        from: found.from.to_string(),
        to: found.to.to_string(),
        networks: count(found.networks),
        unmeasured: count(found.unmeasured),
        requests: found.requests,
        before_ms: ms(found.before),
        after_ms: ms(found.after),
        gain_ms: found.gain_ms,
    }
}
