//! The rows of the catchment, and measurements.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use sallyport_catchment::{MAX_ROWS, Prefix, Row, Source};
use sallyport_store::{MAX_MEASUREMENTS, MAX_OPT_OUTS, MEASUREMENT_LOST_SECONDS, Store, StoreError, StoredMeasurement};

use crate::{
    fixtures::store_with_account,
    postgres::{open, server},
};

fn row(number: u32, site: &str, source: Source, requests: u64, seen: i64) -> Row {
    let prefix = Prefix::of(Ipv4Addr::from_bits(number << 8).into());
    Row { requests, ..Row::new(prefix, site.parse().unwrap(), source, seen) }
}

async fn sorted(store: &Store) -> Vec<Row> {
    let mut rows = store.catchment().await.unwrap();
    rows.sort_by_key(|row| (row.prefix, row.site.clone(), row.source));
    rows
}

async fn rows_are_kept(store: &Store) {
    assert_eq!(store.catchment().await.unwrap(), []);
    store.put_catchment(&[]).await.unwrap();
    let known = Row {
        system: Some(u32::MAX),
        country: Some("CH".parse().unwrap()),
        round_trip: Some(Duration::from_micros(12_345)),
        ..row(7, "eu", Source::Clients, 5, 100)
    };
    let six = Row::new(Prefix::of("2001:db8::1".parse().unwrap()), "us".parse().unwrap(), Source::Atlas, -5);
    store.put_catchment(&[six.clone(), known.clone()]).await.unwrap();
    assert_eq!(sorted(store).await, [known.clone(), six]);
    // The newest of one call counts, and an older one changes nothing.
    let newer = row(7, "eu", Source::Clients, 9, 200);
    store.put_catchment(&[newer.clone(), row(7, "eu", Source::Clients, 1, 150)]).await.unwrap();
    store.put_catchment(&[row(7, "eu", Source::Clients, 2, 199)]).await.unwrap();
    let kept = Row { system: known.system, country: known.country, ..newer };
    assert_eq!(sorted(store).await[0], kept, "what is known of the network stays");
    store.put_catchment(&[row(7, "eu", Source::Ping, 1, 1)]).await.unwrap();
    assert_eq!(store.catchment().await.unwrap().len(), 3);
}

async fn the_table_is_bounded(store: &Store) {
    let rows: Vec<_> =
        (0..MAX_ROWS as u32 + 100).map(|at| row(at, "ap", Source::Ping, 1, 1_000 + i64::from(at))).collect();
    store.put_catchment(&rows).await.unwrap();
    let kept = sorted(store).await;
    assert_eq!(kept.len(), MAX_ROWS);
    assert_eq!(kept.iter().map(|row| row.seen).min(), Some(1_100));
}

async fn addresses_are_added_or_replaced(store: &Store) {
    let prefixes = |count: u32| (0..count).map(|at| row(at, "eu", Source::Ping, 0, 0).prefix).collect::<Vec<_>>();
    store.put_ping_opt_outs(&prefixes(3), true).await.unwrap();
    store.put_ping_opt_outs(&prefixes(2), true).await.unwrap();
    store.put_ping_opt_outs(&prefixes(3), false).await.unwrap();
    assert_eq!(store.ping_opt_outs().await.unwrap(), prefixes(3));
    let many = prefixes(MAX_OPT_OUTS as u32 + 1);
    assert!(matches!(store.put_ping_opt_outs(&many, true).await, Err(StoreError::Limit { .. })));
    assert_eq!(store.ping_opt_outs().await.unwrap(), prefixes(3), "nothing has changed");

    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    store.put_ping_targets(&addresses(&["192.0.2.1", "2001:db8::7"]), false).await.unwrap();
    store.put_ping_targets(&addresses(&["192.0.2.9", "192.0.3.1"]), false).await.unwrap();
    assert_eq!(store.ping_targets().await.unwrap(), addresses(&["192.0.2.9", "192.0.3.1", "2001:db8::7"]));
    store.put_ping_targets(&[], true).await.unwrap();
    assert_eq!(store.ping_targets().await.unwrap(), addresses(&[]));
}

async fn one_measurement_runs_at_a_time(store: &Store) {
    let new = |number: i64, at: i64| StoredMeasurement {
        id: format!("m{number:03}"),
        started_at: at,
        beat_at: at,
        is_done: false,
        state: "{}".to_owned(),
    };
    assert_eq!(store.begin_measurement(&new(0, 100)).await.unwrap(), None);
    assert_eq!(store.begin_measurement(&new(1, 101)).await.unwrap(), Some("m000".to_owned()));
    // Its control is gone.
    let later = 100 + MEASUREMENT_LOST_SECONDS;
    assert_eq!(store.begin_measurement(&new(1, later)).await.unwrap(), None);
    let done = StoredMeasurement { is_done: true, beat_at: later + 1, state: "[]".to_owned(), ..new(1, later) };
    store.put_measurement(&done).await.unwrap();
    assert_eq!(store.measurements().await.unwrap(), [done, new(0, 100)]);
    for number in 2..MAX_MEASUREMENTS as i64 + 9 {
        let next = StoredMeasurement { is_done: true, ..new(number, later + number) };
        assert_eq!(store.begin_measurement(&next).await.unwrap(), None);
    }
    let kept = store.measurements().await.unwrap();
    assert_eq!(kept.len(), MAX_MEASUREMENTS);
    assert!(kept.iter().all(|one| one.id != "m000"));
}

#[tokio::test]
async fn in_sqlite() {
    let (_dir, store) = store_with_account().await;
    rows_are_kept(&store).await;
    addresses_are_added_or_replaced(&store).await;
    one_measurement_runs_at_a_time(&store).await;
    // Long, so in one database alone: the text of the statement is the same.
    the_table_is_bounded(&store).await;
}

#[tokio::test]
async fn in_postgres() {
    let Some(server) = server() else { return };
    let store = open(&server.database().await).await;
    rows_are_kept(&store).await;
    addresses_are_added_or_replaced(&store).await;
    one_measurement_runs_at_a_time(&store).await;
}
