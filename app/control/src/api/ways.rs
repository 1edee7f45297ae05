//! `/v1/edges/ways`: the round trips that edges measure.

use axum::{
    extract::{Query, State},
    response::Response,
};
use http::{StatusCode, Uri};
use sallyport_api::{EdgeQuery, MeasureWay, SilentEdge, Way, WayKind, WayMethod, WayNote, WayPage};
use sallyport_bus::{
    Answer, Answered, Ask, AskResults, WayFigures, WayKind as KindAtEdge, WayList, WayMethod as MethodAtEdge,
};
use sallyport_ping::Target;
use sallyport_store::StoredEdge;

use super::flows::silent;
use crate::{
    audit,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    state::App,
};

/// The name of the edge of an installation on one machine.
const THIS_MACHINE: &str = "edge";

/// The edges that a request names.
pub(super) enum AskedEdges {
    All,
    One(Box<StoredEdge>),
}

impl AskedEdges {
    /// The edge with this name or id, or all of them.
    pub(super) async fn find(app: &App, edge: Option<&str>) -> Result<Self, ApiError> {
        let Some(wanted) = edge else { return Ok(Self::All) };
        if app.edges_config().is_err() && wanted == THIS_MACHINE {
            return Ok(Self::All);
        }
        let known = app.store.edges().await?;
        let found = known.into_iter().find(|one| one.name.to_string() == wanted || one.id.to_string() == wanted);
        let missing = || ApiError::new(StatusCode::NOT_FOUND, "not-found", format!("there is no edge {wanted:?}"));
        Ok(Self::One(Box::new(found.ok_or_else(missing)?)))
    }

    /// Asks these edges. An edge that is away is among those that did not answer.
    pub(super) async fn ask(&self, app: &App, ask: &Ask) -> (AskResults, Vec<SilentEdge>) {
        let gathered = match self {
            Self::All => app.config.asker.ask_all(ask).await,
            Self::One(edge) => app.config.asker.ask_these(&[edge.id], ask).await,
        };
        let mut away = silent(&gathered.silent);
        if let Self::One(edge) = self
            && away.is_empty()
            && gathered.answered.is_empty()
        {
            away.push(SilentEdge { edge: edge.name.clone(), why: "it is not there now".to_owned() });
        }
        (gathered, away)
    }
}

/// The name of the edge that has answered.
pub(super) fn name_of(answered: &Answered) -> String {
    answered.edge.as_ref().map_or_else(|| THIS_MACHINE.to_owned(), |card| card.name.to_string())
}

/// The query of a request.
pub(super) fn query_of(uri: &Uri) -> Result<EdgeQuery, ApiError> {
    let Query(query) = Query::<EdgeQuery>::try_from_uri(uri).map_err(|rejection| {
        let detail = format!("the query is not valid: {}", rejection.body_text());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
    })?;
    Ok(query)
}

fn to_api(from: &str, way: WayFigures) -> Way {
    let ms = |us: Option<u64>| us.map(|us| us as f64 / 1_000.0);
    Way {
        from: from.to_owned(),
        to: way.to,
        kind: match way.kind {
            KindAtEdge::Host => WayKind::Host,
            KindAtEdge::Edge => WayKind::Edge,
            KindAtEdge::Origin => WayKind::Origin,
        },
        by: match way.by {
            MethodAtEdge::Icmp => WayMethod::Icmp,
            MethodAtEdge::Tcp => WayMethod::Tcp,
            MethodAtEdge::Link => WayMethod::Link,
        },
        address: way.address,
        sent: way.sent,
        lost: way.lost,
        recent: way.recent,
        recent_lost: way.recent_lost,
        last_ms: ms(way.last_us),
        min_ms: ms(way.min_us),
        median_ms: ms(way.median_us),
        max_ms: ms(way.max_us),
        floor_ms: ms(way.floor_us),
        failure: way.failure,
    }
}

/// Asks edges for their ways, which measure this host from now on.
async fn ways(app: &App, edge: Option<&str>, to: Option<String>) -> Result<WayPage, ApiError> {
    let edges = AskedEdges::find(app, edge).await?;
    let (mut gathered, silent) = edges.ask(app, &Ask::Ways { to }).await;
    gathered.answered.sort_by_cached_key(name_of);
    let mut page = WayPage { items: Vec::new(), notes: Vec::new(), cut: Vec::new(), silent };
    for answered in gathered.answered {
        let from = name_of(&answered);
        let Answer::Ways(WayList { ways, notes, has_more }) = answered.answer else { continue };
        page.items.extend(ways.into_iter().map(|way| to_api(&from, way)));
        page.notes.extend(notes.into_iter().map(|why| WayNote { edge: from.clone(), why }));
        if has_more {
            page.cut.push(from);
        }
    }
    Ok(page)
}

/// List the round trips that edges measure
///
/// Only the account that owns the installation may do so. Edges measure the ways to other edges, to direct origins, to
/// connectors, and to hosts that they are told. Control asks all edges. `silent` names the edges that do not respond
/// within a second.
#[utoipa::path(
    get, path = "/v1/edges/ways", tag = "edges", operation_id = "list_ways", params(EdgeQuery),
    responses(
        (status = 200, description = "The ways of all edges, or of one.", body = WayPage),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let query = query_of(&uri)?;
    Ok(json(StatusCode::OK, &ways(&app, query.edge.as_deref(), None).await?))
}

/// Have edges measure the way to a host
///
/// Only the account that owns the installation may do so. The edges measure the host once a second for a minute. The
/// response has what they know at once; ask again after some seconds.
#[utoipa::path(
    post, path = "/v1/edges/ways", tag = "edges", operation_id = "measure_way", request_body = MeasureWay,
    responses(
        (status = 200, description = "The ways of these edges.", body = WayPage),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn measure(
    State(app): State<App>,
    caller: Caller,
    input: Input<MeasureWay>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let MeasureWay { to, edge } = input.value;
    let target: Target = to.parse().map_err(|error| ApiError::field("to", error))?;
    let target = target.to_string();
    audit::set_target(&target);
    Ok(json(StatusCode::OK, &ways(&app, edge.as_deref(), Some(target)).await?))
}
