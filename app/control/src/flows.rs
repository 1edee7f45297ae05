//! `/v1/flows`.

use std::sync::{Arc, atomic::Ordering};

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use sallyport_api::{DEFAULT_PAGE_ITEMS, Flow, MAX_PAGE_ITEMS, Page, PageQuery, Problem};
use sallyport_bus::LiveFlow;
use sallyport_model::Scope;

use crate::{App, audit_trail, auth::Caller, extract::json, problem::ApiError};

fn shown(flow: &Arc<LiveFlow>) -> Flow {
    let way = flow.way();
    Flow {
        id: flow.id.clone(),
        socket: flow.socket,
        socket_name: flow.socket_name.as_str().to_owned(),
        transport: flow.transport.as_str().to_owned(),
        tunnel: way.tunnel,
        identity: way.identity,
        client: flow.client,
        began: sallyport_api::to_millisecond(flow.began.into()),
        bytes: flow.bytes.load(Ordering::Relaxed),
    }
}

/// Which flows run
///
/// Connections and flows of datagrams, and HTTP connections that became WebSockets; not single requests.
#[utoipa::path(
    get, path = "/v1/flows", tag = "audit", operation_id = "list_flows", params(PageQuery),
    responses(
        (status = 200, description = "One page, in no order that means anything.", body = Page<Flow>),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require(Scope::AuditRead)?;
    let invalid = |detail: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail);
    let axum::extract::Query(page) = axum::extract::Query::<PageQuery>::try_from_uri(&uri)
        .map_err(|rejection| invalid(format!("the query is not valid: {}", rejection.body_text())))?;
    let limit = page.limit.unwrap_or(DEFAULT_PAGE_ITEMS);
    if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
        return Err(invalid(format!("limit must be a whole number from 1 to {MAX_PAGE_ITEMS}")));
    }
    let after = page.after.unwrap_or_default();
    let (flows, has_more) = app.config.flows.of(caller.organisation, &after, limit as usize);
    let next = flows.last().filter(|_| has_more).map(|flow| flow.id.clone());
    Ok(json(StatusCode::OK, &Page { items: flows.iter().map(shown).collect(), next }))
}

/// Cut a flow
///
/// Both sides see it broken off. Who may come may come again: to keep somebody out, change who may, or end their login.
#[utoipa::path(
    delete, path = "/v1/flows/{id}", tag = "audit", operation_id = "kill_flow",
    params(("id" = String, Path, description = "The flow's id.")),
    responses(
        (status = 204, description = "It is told to end."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn kill(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let flow = app.config.flows.kill(caller.organisation, &id).ok_or_else(|| ApiError::not_found("flow"))?;
    audit_trail::target(format_args!("{}/{}", flow.socket_name, flow.id));
    Ok(StatusCode::NO_CONTENT.into_response())
}
