//! `/v1/sockets/{id}/tunnels`.

use std::collections::{HashMap, HashSet};

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    ConnectEdge, ConnectTo, CreateSshCertificate, CreateTunnel, CreatedTunnel, LabelQuery, Page, PageQuery, Secret,
    SshCertificate, Tunnel, TunnelHolder, TunnelLink, TunnelStatus, UpdateTunnel,
};
use sallyport_bus::{Answer, Ask, EdgeState, TunnelFigures, TunnelOnEdge};
use sallyport_model::{AccountId, EdgeId, EdgeName, RegionName, Scope, SocketId, TunnelId};
use sallyport_store::Creation;

use super::params::{IdempotencyHeader, IfMatchHeader, SocketPath, TunnelPath};
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        creation::{located, secret_already_shown},
        etag::IfMatch,
        extract::{Input, Labelled, OptionalInput, json},
        lines::{AsLines, LINES_AT_ONCE, lines},
        via::Via,
    },
    service::{ANY_SOCKET, origin_health},
    state::App,
};

fn location(socket: SocketId, id: TunnelId) -> String {
    format!("/v1/sockets/{socket}/tunnels/{id}")
}

/// The responses of edges about tunnels; the edge is `None` on one machine.
type TunnelHolders = HashMap<TunnelId, Vec<(Option<EdgeId>, TunnelFigures)>>;

/// Asks the edges that hold tunnels of the socket about these tunnels.
async fn ask_holders(app: &App, organisation: AccountId, socket: SocketId, tunnels: &[TunnelId]) -> TunnelHolders {
    let ask = Ask::Tunnels { organisation, socket };
    let is_one_machine = app.fleet.edges().is_empty();
    let holders = tunnels.iter().flat_map(|tunnel| app.fleet.holders(*tunnel)).map(|card| card.edge);
    let holders: Vec<_> = holders.collect::<HashSet<_>>().into_iter().collect();
    let gathered = match holders.as_slice() {
        [] if is_one_machine && tunnels.iter().any(|tunnel| app.directory.get(*tunnel).is_some()) => {
            app.config.asker.ask_all(&ask).await
        }
        [] => return TunnelHolders::new(),
        holders => app.config.asker.ask_these(holders, &ask).await,
    };
    let mut answers = TunnelHolders::new();
    for answered in gathered.answered {
        let Answer::Tunnels(tunnels_there) = answered.answer else { continue };
        let edge = answered.edge.as_ref().map(|card| card.edge);
        for one in tunnels_there {
            answers.entry(one.tunnel).or_default().push((edge, one));
        }
    }
    answers
}

#[expect(clippy::cast_precision_loss, reason = "round trips are far below 2^52 microseconds")]
fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// The home of a tunnel: edge and region. The region is that of its connector, else that of the edge that has held the
/// tunnel longest. The edge is the one of this region that has held the tunnel longest, else one elsewhere.
fn home(holders: &[TunnelOnEdge]) -> Option<(EdgeName, RegionName)> {
    let longest = |one: &&TunnelOnEdge| (one.presence.since, one.card.name.clone());
    let declared = holders.iter().filter(|one| one.presence.home.is_some()).min_by_key(longest);
    let first = holders.iter().min_by_key(longest)?;
    let region = declared.and_then(|one| one.presence.home.clone()).unwrap_or_else(|| first.card.region.clone());
    let at_home = holders.iter().filter(|one| one.card.region == region).min_by_key(longest);
    Some((at_home.unwrap_or(first).card.name.clone(), region))
}

/// The links of the tunnel at each edge, in the order of the edges' names.
fn links(holders: &[TunnelOnEdge], answers: &[(Option<EdgeId>, TunnelFigures)]) -> Vec<TunnelLink> {
    let name = |edge: Option<EdgeId>| {
        let card = holders.iter().map(|one| &one.card).find(|card| Some(card.edge) == edge)?;
        Some(card.name.clone())
    };
    let mut links: Vec<_> = answers
        .iter()
        .flat_map(|(edge, tunnel)| tunnel.links.iter().map(|link| TunnelLink::new(name(*edge), link)))
        .collect();
    links.sort_by(|one, other| one.edge.cmp(&other.edge));
    links
}

/// The tunnel as far as control itself knows it.
fn to_api(app: &App, tunnel: &sallyport_model::Tunnel) -> Tunnel {
    to_api_with_holders(app, tunnel, &TunnelHolders::new())
}

fn to_api_with_holders(app: &App, tunnel: &sallyport_model::Tunnel, answers: &TunnelHolders) -> Tunnel {
    let presence = app.directory.get(tunnel.id);
    let holding = app.fleet.tunnel_on_edges(tunnel.id);
    let answers = answers.get(&tunnel.id).map(Vec::as_slice).unwrap_or_default();
    let of = |edge: EdgeId| answers.iter().find(|(id, _)| *id == Some(edge)).map(|(_, tunnel)| tunnel);
    let holders = holding.iter().map(|TunnelOnEdge { card, presence }| TunnelHolder {
        edge: card.name.clone(),
        region: card.region.clone(),
        healthy: of(card.edge).and_then(|tunnel| tunnel.is_well),
        failure: origin_health::of_presence(presence),
        round_trip_ms: of(card.edge).and_then(|tunnel| tunnel.rtt_us).map(ms),
        live: of(card.edge).map(|tunnel| tunnel.live),
    });
    let holders: Vec<_> = holders.collect();
    // Healthy if any edge reports so, because that edge sends requests.
    let well = answers.iter().filter_map(|(_, tunnel)| tunnel.is_well).reduce(|one, other| one || other);
    let round_trip_us = answers.iter().filter_map(|(_, tunnel)| tunnel.rtt_us).min();
    let home = home(&holding);
    Tunnel {
        id: tunnel.id,
        socket_id: tunnel.socket,
        name: tunnel.name.clone(),
        weight: tunnel.weight,
        path: tunnel.path.prefix.clone(),
        rewrite_path: tunnel.path.rewrite.clone(),
        capacity: Some(tunnel.capacity.clone()).filter(|capacity| !capacity.is_empty()),
        labels: tunnel.labels.clone(),
        forward_port: tunnel.forward_port,
        created_at: date(tunnel.created_at),
        status: if presence.is_some() { TunnelStatus::Up } else { TunnelStatus::Down },
        connector_addr: presence.as_ref().map(|presence| presence.connector_addr),
        since: presence.as_ref().map(|presence| date(presence.since)),
        host: presence.as_ref().and_then(|presence| presence.host.clone()),
        agent: presence.map(|presence| presence.agent),
        healthy: well.or_else(|| app.directory.health(tunnel.id)),
        failure: app.tunnel_failure(tunnel.id),
        edge: home.as_ref().map(|(edge, _)| edge.clone()),
        region: home.map(|(_, region)| region),
        holders,
        round_trip_ms: round_trip_us.map(ms),
        live: (!answers.is_empty()).then(|| answers.iter().map(|(_, tunnel)| tunnel.live).sum()),
        links: links(&holding, answers),
    }
}

fn to_api_with_credential(app: &App, tunnel: &sallyport_model::Tunnel, credential: Secret, via: Via) -> CreatedTunnel {
    CreatedTunnel { details: to_api(app, tunnel), credential, connect: connect_to(app, via) }
}

/// The address that connectors and machines dial.
pub(super) fn connect_to(app: &App, via: Via) -> ConnectTo {
    let config = &app.config;
    ConnectTo {
        host: config.tunnel_host.clone(),
        port: via.port(app).unwrap_or(config.public_port),
        quic_port: config.quic_port,
        edges: serving_edges(app),
        ca_pem: config.ca_pem.clone().filter(|_| config.acme.is_some()),
    }
}

/// How many edges a connector learns at first; its first edge sends it more.
const MAX_CONNECT_EDGES: usize = 8;

/// Some edges that accept connectors, of all regions in turn.
fn serving_edges(app: &App) -> Vec<ConnectEdge> {
    let cards = app.fleet.edges().into_iter().map(|seen| seen.card).filter(|card| card.state == EdgeState::Serving);
    let mut turns = std::collections::HashMap::new();
    let mut edges: Vec<(usize, ConnectEdge)> = cards
        .map(|card| {
            let turn = turns.entry(card.region.clone()).and_modify(|turn| *turn += 1).or_insert(0_usize);
            let (name, region) = (card.name.clone(), card.region.clone());
            (*turn, ConnectEdge { name, region, addresses: card.addresses.clone() })
        })
        .collect();
    edges.sort_by_key(|(turn, _)| *turn);
    edges.into_iter().map(|(_, edge)| edge).take(MAX_CONNECT_EDGES).collect()
}

/// List the socket's tunnels, oldest first
///
/// With `-` in the place of the socket, the response has the tunnels of all sockets, without the fields that only edges
/// know.
#[utoipa::path(
    get, path = "/v1/sockets/{id}/tunnels", tag = "tunnels", operation_id = "list_tunnels",
    params(SocketPath, PageQuery, LabelQuery),
    responses(
        (status = 200, description = "One page; all items, one in each line, for `Accept: application/x-ndjson`. \
             Lines lack the fields that only edges know.",
            content((Page<Tunnel> = "application/json"), (Tunnel = "application/x-ndjson"))),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
    Labelled { page, labels }: Labelled,
    AsLines(as_lines): AsLines,
) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsRead)?;
    if as_lines {
        let organisation = caller.organisation;
        let socket = match socket.as_str() {
            ANY_SOCKET => None,
            socket => Some(app.find_socket(organisation, socket).await?.id),
        };
        return lines(page.after, move |after| {
            let (app, labels) = (app.clone(), labels.clone());
            async move {
                let rows = match socket {
                    Some(socket) => app.store.tunnels(socket, &labels, after, LINES_AT_ONCE).await?,
                    None => app.store.tunnels_of_account(organisation, &labels, after, LINES_AT_ONCE).await?,
                };
                Ok(rows.into_iter().map(|(at, tunnel)| (at, to_api(&app, &tunnel))).collect())
            }
        })
        .await;
    }
    if socket == ANY_SOCKET {
        let rows = app.store.tunnels_of_account(caller.organisation, &labels, page.after, page.rows()).await?;
        return Ok(json(StatusCode::OK, &page.page(rows, |tunnel| to_api(&app, &tunnel))));
    }
    let socket = app.find_socket(caller.organisation, &socket).await?;
    let rows = app.store.tunnels(socket.id, &labels, page.after, page.rows()).await?;
    let ids: Vec<_> = rows.iter().map(|(_, tunnel)| tunnel.id).collect();
    let answers = ask_holders(&app, caller.organisation, socket.id, &ids).await;
    Ok(json(StatusCode::OK, &page.page(rows, |tunnel| to_api_with_holders(&app, &tunnel, &answers))))
}

/// Make a tunnel at a socket
///
/// The response has the credential, which the API never shows again. A repetition with the same idempotency key
/// therefore gets 409 `secret-already-shown` and the tunnel's location, where a new credential is available.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/tunnels", tag = "tunnels", operation_id = "create_tunnel",
    params(SocketPath, IdempotencyHeader),
    request_body = CreateTunnel,
    responses(
        (status = 201, description = "The tunnel, with its credential. The edge of `up` knows the tunnel already; \
             edges on other machines do a moment later.", body = CreatedTunnel),
        (status = 409, description = "`secret-already-shown` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    via: Via,
    Path(socket): Path<String>,
    input: OptionalInput<CreateTunnel>,
) -> Result<Response, ApiError> {
    caller.require(Scope::TunnelsConnect)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    match app.create_tunnel(&socket, input.value, None, input.keyed.as_ref()).await? {
        Creation::Made((tunnel, credential)) => {
            let created = to_api_with_credential(&app, &tunnel, credential, via);
            Ok(located(json(StatusCode::CREATED, &created), &location(socket.id, tunnel.id)))
        }
        Creation::Repeated(stored) => {
            let location = location(socket.id, TunnelId::from_bytes(stored.resource));
            Err(secret_already_shown("tunnel", "ask for a new credential", &location))
        }
    }
}

/// One tunnel
#[utoipa::path(
    get, path = "/v1/sockets/{id}/tunnels/{tunnel_id}", tag = "tunnels", operation_id = "get_tunnel",
    params(TunnelPath),
    responses(
        (status = 200, description = "The tunnel.", body = Tunnel),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsRead)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let answers = ask_holders(&app, caller.organisation, tunnel.socket, &[tunnel.id]).await;
    Ok(app.tunnel_tag(&tunnel)?.on(json(StatusCode::OK, &to_api_with_holders(&app, &tunnel, &answers))))
}

/// Change a tunnel
#[utoipa::path(
    patch, path = "/v1/sockets/{id}/tunnels/{tunnel_id}", tag = "tunnels", operation_id = "update_tunnel",
    params(TunnelPath, IfMatchHeader),
    request_body = UpdateTunnel,
    responses(
        (status = 200, description = "The tunnel after the change. The edge of `up` applies the change already; \
             edges on other machines do a moment later.", body = Tunnel),
        (status = 412, description = "`precondition-failed`"),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    if_match: IfMatch,
    input: Input<UpdateTunnel>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    if input.value.is_empty() {
        let detail = "it is missing, and so are name, path, rewrite_path, capacity and labels: nothing is to change";
        return Err(ApiError::field("weight", detail));
    }
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let tunnel = app.change_tunnel(caller.organisation, &tunnel, input.value, &if_match).await?;
    Ok(app.tunnel_tag(&tunnel)?.on(json(StatusCode::OK, &to_api(&app, &tunnel))))
}

/// Give a tunnel a new credential
///
/// The former credential is no longer good.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/tunnels/{tunnel_id}/credential", tag = "tunnels",
    operation_id = "rotate_tunnel_credential",
    params(TunnelPath),
    responses(
        (status = 200, description = "The tunnel, with its new credential.", body = CreatedTunnel),
    )
)]
pub(crate) async fn rotate(
    State(app): State<App>,
    caller: Caller,
    via: Via,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let (tunnel, credential) = app.change_credential(&tunnel).await?;
    Ok(json(StatusCode::OK, &to_api_with_credential(&app, &tunnel, credential, via)))
}

/// Sign an ssh key for a tunnel
///
/// With the certificate, a stock ssh client logs in within five minutes and serves this tunnel alone. The key is not
/// added to the account. Such a login ends with its tunnel.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/tunnels/{tunnel_id}/ssh-certificate", tag = "tunnels",
    operation_id = "sign_ssh_key_for_tunnel",
    params(TunnelPath),
    request_body = CreateSshCertificate,
    responses(
        (status = 200, description = "The certificate, which the server does not keep.", body = SshCertificate),
        (status = 501, description = "`not-offered`: the server takes no ssh clients."),
    )
)]
pub(crate) async fn sign_key(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    input: Input<CreateSshCertificate>,
) -> Result<Response, ApiError> {
    caller.require(Scope::TunnelsConnect)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let signed = app.sign_ssh_key(caller.organisation, &tunnel, "public_key", &input.value.public_key)?;
    Ok(json(StatusCode::OK, &signed))
}

/// Delete a tunnel
#[utoipa::path(
    delete, path = "/v1/sockets/{id}/tunnels/{tunnel_id}", tag = "tunnels", operation_id = "delete_tunnel",
    params(TunnelPath, IfMatchHeader),
    responses(
        (status = 204, description = "The removal is done. The edge of `up` applies it already; edges on other \
             machines do a moment later."),
        (status = 412, description = "`precondition-failed`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    if_match: IfMatch,
) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsWrite)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    app.delete_tunnel(tunnel.socket, tunnel.id, &if_match).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sallyport_bus::EdgeCard;
    use sallyport_model::{OriginHealth, TunnelPresence};

    use super::*;

    fn holder(edge: &str, region: &str, since: i64, home: Option<&str>) -> TunnelOnEdge {
        let card = EdgeCard {
            edge: EdgeId::from_random([1; 16]),
            name: edge.parse().unwrap(),
            region: region.parse().unwrap(),
            addresses: Vec::new(),
            program: "test".to_owned(),
            since: 0,
            state: EdgeState::Serving,
            http3_port: None,
            anycast: Vec::new(),
            egress: Vec::new(),
            balanced: None,
        };
        let presence = TunnelPresence {
            tunnel: TunnelId::from_random([2; 16]),
            socket: SocketId::from_random([3; 16]),
            connector_addr: "192.0.2.1:1".parse().unwrap(),
            agent: "test".to_owned(),
            since,
            home: home.map(|home| home.parse().unwrap()),
            origin: None,
            host: None,
            spread: false,
            health: OriginHealth::Well,
            failure: None,
        };
        TunnelOnEdge { card: Arc::new(card), presence }
    }

    #[test]
    fn a_tunnel_is_at_home_where_its_connector_came_first() {
        let at = |holders: &[TunnelOnEdge]| home(holders).map(|(edge, region)| format!("{edge} {region}"));
        assert_eq!(at(&[]), None);
        let first = holder("eu-1", "eu", 10, None);
        assert_eq!(at(&[holder("us-1", "us", 11, Some("eu")), first.clone()]).unwrap(), "eu-1 eu", "in whatever order");
        // The tunnel returned to its first edge later.
        let back = holder("eu-1", "eu", 20, Some("eu"));
        assert_eq!(at(&[holder("us-1", "us", 11, Some("eu")), back]).unwrap(), "eu-1 eu");
        // No edge of its region holds the tunnel; its home is that region all the same.
        assert_eq!(at(&[holder("us-1", "us", 11, Some("eu"))]).unwrap(), "us-1 eu");
        // Older connectors report no region.
        assert_eq!(at(&[holder("us-1", "us", 11, None), first]).unwrap(), "eu-1 eu");
    }
}
