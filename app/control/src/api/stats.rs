//! `/v1/sockets/{id}/stats`: the counters of all edges.

use std::collections::BTreeMap;

use axum::{
    extract::{Path, State},
    response::Response,
};
use http::StatusCode;
use sallyport_api::{Counts, EdgeCounts, OriginCounts, Quantiles, RegionCounts, SocketStats};
use sallyport_bus::{Answer, Ask, OriginUse, SocketUse};
use sallyport_model::{DirectOriginId, RegionName, Scope, SpanBounds, SpanCounts, TunnelId};

use super::flows::silent;
use super::params::SocketPath;
use crate::{
    clock::date_of_ms,
    problem::ApiError,
    request::{caller::Caller, extract::json},
    state::App,
};

/// How many origins a response lists.
const MAX_LISTED_ORIGINS: usize = 100;

fn quantiles(spans: &SpanCounts, bounds: Option<SpanBounds>) -> Option<Quantiles> {
    let us = |per_mille| spans.quantile_us(per_mille).map(|us| bounds.map_or(us, |bounds| bounds.clamp(us)));
    #[expect(clippy::cast_precision_loss, reason = "times far below 2^52 microseconds")]
    let ms = |per_mille| us(per_mille).map(|us| us as f64 / 1_000.0);
    Some(Quantiles { p50_ms: ms(500)?, p99_ms: ms(990)? })
}

/// The counters in the form of the API.
fn counts(counted: &SocketUse) -> Counts {
    Counts {
        since: (counted.since_ms > 0).then(|| date_of_ms(counted.since_ms)),
        requests: counted.requests.clone(),
        flows: counted.flows.clone(),
        refusals: counted.refusals.clone(),
        bytes_in: counted.bytes_in,
        bytes_out: counted.bytes_out,
        live: counted.live,
        per_second: per_second(counted),
        last_minute: counted.last_minute,
        last_minute_seconds: counted.minute_seconds,
        duration: quantiles(&counted.durations, counted.duration_bounds),
        first_byte: quantiles(&counted.first_bytes, counted.first_byte_bounds),
    }
}

/// The rate of a second, from the observed part of the last minute.
fn per_second(counted: &SocketUse) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "what ends in a minute is far below 2^52")]
    let rate = counted.last_minute as f64 / counted.minute_seconds.max(1) as f64;
    (rate * 100.0).round() / 100.0
}

fn bounds_of_both(one: Option<SpanBounds>, other: Option<SpanBounds>) -> Option<SpanBounds> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.with(other)),
        (one, other) => one.or(other),
    }
}

fn add_all(to: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>) {
    for (name, count) in from {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

/// Adds the counters of another edge. The observed part of the last minute is that of the edge with the longest
/// observation, because an edge that has just started has counted everything since.
fn add(to: &mut SocketUse, from: &SocketUse) {
    to.since_ms = if to.since_ms == 0 { from.since_ms } else { to.since_ms.min(from.since_ms) };
    add_all(&mut to.requests, &from.requests);
    add_all(&mut to.flows, &from.flows);
    add_all(&mut to.refusals, &from.refusals);
    to.bytes_in = to.bytes_in.saturating_add(from.bytes_in);
    to.bytes_out = to.bytes_out.saturating_add(from.bytes_out);
    to.live = to.live.saturating_add(from.live);
    to.last_minute = to.last_minute.saturating_add(from.last_minute);
    to.minute_seconds = to.minute_seconds.max(from.minute_seconds);
    to.duration_bounds = bounds_of_both(to.duration_bounds, from.duration_bounds);
    to.first_byte_bounds = bounds_of_both(to.first_byte_bounds, from.first_byte_bounds);
    to.durations.add(&from.durations);
    to.first_bytes.add(&from.first_bytes);
}

/// Show the counters of a socket, edge by edge
///
/// The counters are requests and flows by verdict, bytes, running flows, durations, and the rate of the last minute: of
/// all edges, of each edge, and by origin. Control asks all edges. `silent` names the edges that do not respond within
/// a second.
#[utoipa::path(
    get, path = "/v1/sockets/{id}/stats", tag = "sockets", operation_id = "get_socket_stats",
    params(SocketPath),
    responses(
        (status = 200, description = "The counters.", body = SocketStats),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.organisation, &id).await?;
    let ask = Ask::Stats { organisation: caller.organisation, socket: socket.id };
    let gathered = app.config.asker.ask_all(&ask).await;
    let (mut total, mut edges) = (SocketUse::default(), Vec::new());
    let mut regions = BTreeMap::<RegionName, SocketUse>::new();
    let mut origins = BTreeMap::<(Option<TunnelId>, Option<DirectOriginId>), OriginUse>::new();
    for answered in gathered.answered {
        let Answer::Stats(Some(counted)) = answered.answer else { continue };
        add(&mut total, &counted);
        if let Some(card) = &answered.edge {
            add(regions.entry(card.region.clone()).or_default(), &counted);
        }
        for one in &counted.origins {
            let none = OriginUse { uses: 0, bytes_in: 0, bytes_out: 0, ..one.clone() };
            let sum = origins.entry((one.tunnel, one.direct_origin)).or_insert(none);
            sum.uses = sum.uses.saturating_add(one.uses);
            sum.bytes_in = sum.bytes_in.saturating_add(one.bytes_in);
            sum.bytes_out = sum.bytes_out.saturating_add(one.bytes_out);
        }
        let card = answered.edge.as_deref();
        edges.push(EdgeCounts {
            edge: card.map(|card| card.name.clone()),
            region: card.map(|card| card.region.clone()),
            counts: counts(&counted),
        });
    }
    edges.sort_by(|one, other| one.edge.cmp(&other.edge));
    let mut origins: Vec<_> = origins.into_values().collect();
    origins.sort_by_key(|one| std::cmp::Reverse(one.uses));
    let holders = |tunnel| app.fleet.holders(tunnel).iter().map(|card| card.name.clone()).collect();
    let origins = origins.into_iter().take(MAX_LISTED_ORIGINS).map(|one| OriginCounts {
        tunnel: one.tunnel,
        direct_origin: one.direct_origin,
        edges: one.tunnel.map(holders).unwrap_or_default(),
        uses: one.uses,
        bytes_in: one.bytes_in,
        bytes_out: one.bytes_out,
    });
    let stats = SocketStats {
        socket: socket.id,
        socket_name: socket.name.as_str().to_owned(),
        transport: socket.socket_type.as_str().to_owned(),
        total: counts(&total),
        edges,
        regions: regions
            .into_iter()
            .map(|(region, counted)| RegionCounts { region, counts: counts(&counted) })
            .collect(),
        origins: origins.collect(),
        silent: silent(&gathered.silent),
    };
    Ok(json(StatusCode::OK, &stats))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(since_ms: i64, ok: u64, last_minute: u64, minute_seconds: u64) -> SocketUse {
        SocketUse {
            since_ms,
            requests: BTreeMap::from([("2xx".to_owned(), ok)]),
            bytes_out: ok * 10,
            live: 1,
            last_minute,
            minute_seconds,
            ..SocketUse::default()
        }
    }

    #[test]
    fn edges_add_up() {
        let mut total = SocketUse::default();
        add(&mut total, &counted(2_000, 5, 60, 60));
        add(&mut total, &counted(1_000, 7, 20, 10));
        let counted = counts(&total);
        assert_eq!(
            (counted.since, counted.requests["2xx"], counted.bytes_out, counted.live),
            (Some(date_of_ms(1_000)), 12, 120, 2)
        );
        // Eighty ended in the last minute: an edge that has just started observed only ten seconds of them.
        assert_eq!((counted.last_minute, counted.last_minute_seconds), (80, 60));
        assert!((counted.per_second - 1.33).abs() < 0.01, "{}", counted.per_second);
        assert!(counted.duration.is_none() && counted.first_byte.is_none());
    }

    #[test]
    fn few_requests_have_the_rate_and_the_times_that_they_had() {
        let mut one = counted(1_000, 3, 3, 60);
        let us = 60_000_000;
        one.durations = serde_json::from_value(serde_json::json!([[sallyport_model::span_bucket(us), 3]])).unwrap();
        one.duration_bounds = Some(SpanBounds { least_us: 59_900_000, most_us: us });
        let mut total = SocketUse::default();
        add(&mut total, &one);
        let counted = counts(&total);
        assert!((counted.per_second - 0.05).abs() < 0.001, "three in a minute: {}", counted.per_second);
        let took = counted.duration.unwrap();
        assert!((took.p99_ms - 60_000.0).abs() < 0.01, "nothing took longer than a minute: {took:?}");
        assert!((59_900.0..=60_000.0).contains(&took.p50_ms), "{took:?}");
    }
}
