//! Gathers where clients land, from the counts of edges.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use sallyport_bus::{Answer, Answered, Ask, CatchmentAnswer, CatchmentAsk, ClientFigures};
use sallyport_catchment::{Landings, Seen, Source, Tally};
use sallyport_model::{EdgeId, RegionName};
use tokio::sync::watch;

use crate::{
    config::{LONE_NAME, LONE_REGION},
    problem::ApiError,
    state::{App, AppParts},
};

/// How often the counts are gathered, unless the operator gives another interval.
pub const DEFAULT_CATCHMENT_PERIOD: Duration = Duration::from_secs(30);
/// The most pages of one edge: its networks are bounded.
const MAX_PAGES: usize = 16;

/// The counts of edges as they were last, and the rows of clients.
type Memory = (Tally, Landings);

/// Gathers for as long as control lives, while this control leads. `term` is the own one then.
pub(crate) async fn gather(app: Weak<AppParts>, term: watch::Receiver<Option<i64>>) {
    let Some(period) = app.upgrade().and_then(|app| app.config.catchment_every) else { return };
    let mut memory: Option<Memory> = None;
    loop {
        tokio::time::sleep(period).await;
        let Some(app) = app.upgrade().map(App) else { return };
        if term.borrow().is_none() {
            memory = None;
            continue;
        }
        if let Err(error) = gather_once(&app, &mut memory).await {
            tracing::warn!(error = error.inner().unwrap_or(error.sentence()), "the catchment cannot be kept");
            // What the store has may be less than what is remembered.
            memory = None;
        }
    }
}

async fn gather_once(app: &App, memory: &mut Option<Memory>) -> Result<(), ApiError> {
    if memory.is_none() {
        let rows = app.store.catchment().await?;
        let rows = rows.into_iter().filter(|row| row.source == Source::Clients);
        *memory = Some((Tally::default(), rows.collect()));
    }
    let Some((tally, known)) = memory else { return Ok(()) };
    let seen = seen(app).await;
    let now = app.clock.now().unix_seconds;
    let rows = tally.gather(known, &seen, now);
    app.store.put_catchment(&rows).await?;
    app.metrics.catchment.wrote(Source::Clients, rows.len());
    let frozen = app.catchment.handle_gathering(known.absorb(rows));
    app.metrics.catchment.set_frozen(frozen.is_some());
    Ok(())
}

/// What all edges say of all networks.
async fn seen(app: &App) -> Vec<Seen> {
    let mut seen = Vec::new();
    let first = app.config.asker.ask_all(&ask_after(None)).await;
    // The edges with more, and after which network.
    let mut more: BTreeMap<Option<EdgeId>, String> = BTreeMap::new();
    take(first.answered, &mut seen, &mut more);
    for _ in 1..MAX_PAGES {
        if more.is_empty() {
            break;
        }
        for (edge, after) in std::mem::take(&mut more) {
            let ask = ask_after(Some(after));
            let next = match edge {
                Some(edge) => app.config.asker.ask_these(&[edge], &ask).await,
                None => app.config.asker.ask_all(&ask).await,
            };
            take(next.answered, &mut seen, &mut more);
        }
    }
    seen
}

fn ask_after(after: Option<String>) -> Ask {
    Ask::Catchment(CatchmentAsk::Clients { after })
}

fn take(answered: Vec<Answered>, seen: &mut Vec<Seen>, more: &mut BTreeMap<Option<EdgeId>, String>) {
    for one in answered {
        let Answer::Catchment(CatchmentAnswer::Clients(list)) = one.answer else { continue };
        let (edge, site) = match &one.edge {
            Some(card) => (card.name.to_string(), Some(card.region.clone())),
            None => (LONE_NAME.to_owned(), LONE_REGION.parse().ok()),
        };
        let Some(site) = site else { continue };
        if list.has_more
            && let Some(last) = list.clients.last().and_then(|last| last.prefix.clone())
        {
            more.insert(one.edge.as_ref().map(|card| card.edge), last);
        }
        seen.extend(list.clients.into_iter().filter_map(|clients| to_seen(&edge, &site, clients)));
    }
}

fn to_seen(edge: &str, site: &RegionName, clients: ClientFigures) -> Option<Seen> {
    Some(Seen {
        edge: edge.to_owned(),
        site: site.clone(),
        prefix: clients.prefix?.parse().ok()?,
        system: clients.system,
        country: clients.country.and_then(|country| country.parse().ok()),
        connections: clients.connections,
        round_trip: clients.min_us.map(Duration::from_micros),
        last_seen: clients.seen_ms.div_euclid(1_000),
    })
}
