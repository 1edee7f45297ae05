//! `/v1/flows`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use sallyport_api::{DEFAULT_PAGE_ITEMS, Flow, FlowPage, MAX_PAGE_ITEMS, PageQuery, SilentEdge};
use sallyport_bus::{Answer, Answered, Ask, FlowList, FlowSeen, Routes, UnansweredEdge};
use sallyport_model::{DirectOriginId, EdgeName, Scope, SocketId};

use crate::{
    audit,
    clock::date_of_ms,
    problem::ApiError,
    request::{caller::Caller, extract::json},
    state::App,
};

/// The longest id of a flow in a query, in bytes.
const MAX_FLOW_ID_BYTES: usize = 128;

/// The address of a direct origin, as long as its socket has it.
pub(crate) fn address_of(routes: &Routes, socket: SocketId, origin: Option<DirectOriginId>) -> Option<String> {
    Some(routes.get(socket)?.origin(origin?)?.address.to_string())
}

fn to_api(routes: &Routes, flow: FlowSeen, edge: Option<EdgeName>) -> Flow {
    Flow {
        direct_origin: flow.direct_origin,
        direct_origin_address: address_of(routes, flow.socket, flow.direct_origin),
        id: flow.id,
        edge,
        socket: flow.socket,
        socket_name: flow.socket_name.as_str().to_owned(),
        transport: flow.transport.as_str().to_owned(),
        tunnel: flow.tunnel,
        identity: flow.identity,
        client: flow.client,
        began: date_of_ms(flow.began_ms),
        bytes: flow.bytes,
    }
}

/// The edges that did not respond, in the form of the API.
pub(crate) fn silent(silent: &[UnansweredEdge]) -> Vec<SilentEdge> {
    silent.iter().map(|one| SilentEdge { edge: one.edge.name.clone(), why: one.why.to_string() }).collect()
}

/// One page of all edges' flows, in the order of ids.
fn page(routes: &Routes, answered: Vec<Answered>, limit: usize) -> (Vec<Flow>, Option<String>) {
    let (mut flows, mut has_more) = (Vec::new(), false);
    // An edge with more flows may have some that come before those of other edges: the page ends there.
    let mut known_to: Option<String> = None;
    for Answered { edge, answer, .. } in answered {
        let Answer::Flows(FlowList { flows: of_edge, has_more: edge_has_more }) = answer else { continue };
        if let Some(last) = of_edge.last().filter(|_| edge_has_more) {
            has_more = true;
            known_to = Some(known_to.map_or_else(|| last.id.clone(), |to: String| to.min(last.id.clone())));
        }
        let edge = edge.map(|card| card.name.clone());
        flows.extend(of_edge.into_iter().map(|flow| to_api(routes, flow, edge.clone())));
    }
    flows.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    if let Some(to) = known_to {
        flows.retain(|flow| flow.id <= to);
    }
    has_more |= flows.len() > limit;
    flows.truncate(limit);
    let next = flows.last().filter(|_| has_more).map(|flow| flow.id.clone());
    (flows, next)
}

/// List the flows that run
///
/// Flows are connections, flows of datagrams, and HTTP connections that became WebSockets; not single requests. Control
/// asks all edges. `silent` names the edges that do not respond within a second.
#[utoipa::path(
    get, path = "/v1/flows", tag = "audit", operation_id = "list_flows", params(PageQuery),
    responses(
        (status = 200, description = "One page, in no particular order.", body = FlowPage),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require(Scope::AuditRead)?;
    let invalid = |detail: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail);
    let axum::extract::Query(query) = axum::extract::Query::<PageQuery>::try_from_uri(&uri)
        .map_err(|rejection| invalid(format!("the query is not valid: {}", rejection.body_text())))?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_ITEMS);
    if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
        return Err(invalid(format!("limit must be a whole number from 1 to {MAX_PAGE_ITEMS}")));
    }
    let (organisation, limit) = (caller.organisation, limit as usize);
    let after = query.after.unwrap_or_default();
    if after.len() > MAX_FLOW_ID_BYTES {
        return Err(invalid("after must be the `next` of a page of this list".to_owned()));
    }
    let gathered = app.config.asker.ask_all(&Ask::Flows { organisation, after, limit }).await;
    let (items, next) = page(&app.routes, gathered.answered, limit);
    Ok(json(StatusCode::OK, &FlowPage { items, next, silent: silent(&gathered.silent) }))
}

/// Cut a flow
///
/// Both sides see the connection break. The client may connect again: to keep the client out, change the policies, or
/// end the login.
#[utoipa::path(
    delete, path = "/v1/flows/{id}", tag = "audit", operation_id = "kill_flow",
    params(("id" = String, Path, description = "The flow's id.")),
    responses(
        (status = 204, description = "The edge cuts the flow."),
        (status = 503, description = "`edges-silent`: no edge that responded has the flow, and others did not \
            respond."),
    )
)]
pub(crate) async fn kill(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    if id.len() > MAX_FLOW_ID_BYTES {
        return Err(ApiError::not_found("flow"));
    }
    let ask = Ask::KillFlow { organisation: caller.organisation, flow: id.clone() };
    let gathered = app.config.asker.ask_for(&ask, |answer| matches!(answer, Answer::Killed(Some(_)))).await;
    let killed = gathered.answered.into_iter().find_map(|answered| match answered.answer {
        Answer::Killed(name) => name,
        _ => None,
    });
    match (killed, silent_names(&gathered.silent)) {
        (Some(name), _) => {
            audit::set_target(format_args!("{name}/{id}"));
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (None, None) => Err(ApiError::not_found("flow")),
        (None, Some(names)) => {
            let detail =
                format!("no edge that responded has this flow, and not all did ({names}): try again in a moment");
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "edges-silent", detail))
        }
    }
}

/// The names of edges that did not respond; `None` if all did.
fn silent_names(silent: &[UnansweredEdge]) -> Option<String> {
    let named = silent.iter().map(|one| format!("{}: {}", one.edge.name, one.why)).collect::<Vec<_>>();
    (!named.is_empty()).then(|| named.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_model::SocketType;

    use super::*;

    fn answered(ids: &[&str], has_more: bool) -> Answered {
        let flow = |id: &&str| FlowSeen {
            id: (*id).to_owned(),
            socket: SocketId::from_random([1; 16]),
            socket_name: "calm-bay-1000".parse().unwrap(),
            transport: SocketType::Tcp,
            tunnel: None,
            direct_origin: None,
            identity: None,
            client: "192.0.2.1:1".parse().unwrap(),
            began_ms: 0,
            bytes: 0,
        };
        let answer = Answer::Flows(FlowList { flows: ids.iter().map(flow).collect(), has_more });
        Answered { edge: None, took: Duration::ZERO, answer }
    }

    #[test]
    fn pages_of_several_edges_miss_nothing() {
        let of = |a: &[&str], b: &[&str], more: bool, limit| {
            let (flows, next) = page(&Routes::default(), vec![answered(a, false), answered(b, more)], limit);
            let ids: String = flows.iter().map(|flow| flow.id.as_str()).collect();
            (ids, next.unwrap_or_default())
        };
        let expected = |ids: &str, next: &str| (ids.to_owned(), next.to_owned());
        assert_eq!(of(&["a", "d"], &["b", "c"], false, 10), expected("abcd", ""));
        assert_eq!(of(&["a", "d"], &["b", "c"], false, 3), expected("abc", "c"));
        // The second edge has more flows after c, which may come before d.
        assert_eq!(of(&["a", "d"], &["b", "c"], true, 10), expected("abc", "c"));
        assert_eq!(of(&[], &[], false, 10), expected("", ""));
    }
}
