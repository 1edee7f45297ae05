//! `/v1/edges/clients`: where the clients of edges come from.

use std::cmp::Reverse;

use axum::{
    extract::{Query, State},
    response::Response,
};
use http::{StatusCode, Uri};
use sallyport_api::{ClientGroup, ClientPage, ClientQuery, ClientsBy};
use sallyport_bus::{Answer, Ask, ClientFigures, ClientList, ClientsBy as ByAtEdge, MAX_ANSWER_ITEMS};

use super::ways::{AskedEdges, name_of};
use crate::{
    clock::date_of_ms,
    problem::ApiError,
    request::{caller::Caller, extract::json},
    state::App,
};

/// The most items of each edge, unless the request gives another number.
const DEFAULT_ITEMS: u32 = 100;

fn to_api(edge: &str, clients: ClientFigures) -> ClientGroup {
    ClientGroup {
        prefix: clients.prefix,
        system: clients.system,
        country: clients.country,
        edge: edge.to_owned(),
        networks: clients.networks,
        connections: clients.connections,
        min_ms: clients.min_us.map(|us| us as f64 / 1_000.0),
        last_seen: date_of_ms(clients.seen_ms),
    }
}

/// List where the clients of edges come from
///
/// Only the account that owns the installation may do so. Edges count the ended connections of clients by network, with
/// the shortest round trip. They keep no whole addresses. Control asks all edges. `silent` names the edges that do not
/// respond within a second.
#[utoipa::path(
    get, path = "/v1/edges/clients", tag = "edges", operation_id = "list_edge_clients", params(ClientQuery),
    responses(
        (status = 200, description = "The networks or systems with the most connections.", body = ClientPage),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let invalid = |detail: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail);
    let Query(query) = Query::<ClientQuery>::try_from_uri(&uri)
        .map_err(|rejection| invalid(format!("the query is not valid: {}", rejection.body_text())))?;
    let limit = query.limit.unwrap_or(DEFAULT_ITEMS) as usize;
    if !(1..=MAX_ANSWER_ITEMS).contains(&limit) {
        return Err(invalid(format!("limit must be a whole number from 1 to {MAX_ANSWER_ITEMS}")));
    }
    let by = match query.by.unwrap_or_default() {
        ClientsBy::Prefix => ByAtEdge::Prefix,
        ClientsBy::As => ByAtEdge::System,
    };
    let edges = AskedEdges::find(&app, query.edge.as_deref()).await?;
    let (gathered, silent) = edges.ask(&app, &Ask::Clients { by, limit }).await;
    let mut page = ClientPage { items: Vec::new(), cut: Vec::new(), silent };
    for answered in gathered.answered {
        let edge = name_of(&answered);
        let Answer::Clients(ClientList { clients, has_more }) = answered.answer else { continue };
        page.items.extend(clients.into_iter().map(|clients| to_api(&edge, clients)));
        if has_more {
            page.cut.push(edge);
        }
    }
    page.cut.sort_unstable();
    page.items.sort_by_cached_key(|one| (Reverse(one.connections), one.prefix.clone(), one.system, one.edge.clone()));
    Ok(json(StatusCode::OK, &page))
}
