//! `/v1/networks`: networks of machines.

use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use sallyport_api::{
    CreateMachine, CreateNetwork, CreatedMachine, DeleteNetworkQuery, Machine, Network, NetworkPolicy, Page, PageQuery,
    SetNetworkPolicy,
};
use sallyport_model::Scope;
use sallyport_store::StoredMachine;

use super::{
    params::{IdempotencyHeader, MachinePath, NetworkPath},
    tunnels::connect_to,
};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::{Made, ShownSecret},
        via::Via,
    },
    service::{find_machine, machine_to_api},
    state::App,
};

/// The networks of the organisation, by name
#[utoipa::path(
    get, path = "/v1/networks", tag = "networks", operation_id = "list_networks", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Network>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let networks = app.store.networks_of(caller.organisation).await?;
    let rows = (1..).zip(networks).filter(|(position, _)| *position > page.after);
    let rows = rows.take(usize::try_from(page.rows()).unwrap_or(usize::MAX)).collect();
    Ok(json(StatusCode::OK, &page.page(rows, |network| app.network_to_api(&network))))
}

/// Make a network of machines
///
/// Its ranges overlap those of no other network of the organisation. Without ranges it gets a free /24 of IPv4 and a
/// random /64 of IPv6, both private.
#[utoipa::path(
    post, path = "/v1/networks", tag = "networks", operation_id = "create_network",
    params(IdempotencyHeader),
    request_body = CreateNetwork,
    responses(
        (status = 201, description = "The network.", body = Network),
        (status = 409, description = "`name-taken`, `range-taken`, `no-free-range` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateNetwork>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let make = async {
        let network = app.create_network(caller.organisation, input.value).await?;
        let location = Some(format!("/v1/networks/{}", network.name));
        Ok(Made { location, body: app.network_to_api(&network.summary()) })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// One network
#[utoipa::path(
    get, path = "/v1/networks/{network}", tag = "networks", operation_id = "get_network",
    params(NetworkPath),
    responses(
        (status = 200, description = "The network.", body = Network),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(network): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let network = app.find_network(caller.organisation, &network).await?;
    Ok(json(StatusCode::OK, &app.network_to_api(&network.summary())))
}

/// Remove a network
///
/// A network with machines is removed only with `force`: its machines lose their addresses. Machines that others have
/// added need `identity:write` too.
#[utoipa::path(
    delete, path = "/v1/networks/{network}", tag = "networks", operation_id = "delete_network",
    params(NetworkPath, DeleteNetworkQuery),
    responses(
        (status = 204, description = "The removal is done."),
        (status = 409, description = "`network-in-use`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(network): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let Query(how) = Query::<DeleteNetworkQuery>::try_from_uri(&uri).map_err(|rejection| {
        let detail = format!("the query is not valid: {}", rejection.body_text());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
    })?;
    let network = app.find_network(caller.organisation, &network).await?;
    let is_forced = how.force.unwrap_or_default();
    if is_forced {
        network.machines.iter().try_for_each(|machine| require_removal(&caller, machine))?;
    }
    app.delete_network(&network, is_forced).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The policy of a network
#[utoipa::path(
    get, path = "/v1/networks/{network}/policy", tag = "networks", operation_id = "get_network_policy",
    params(NetworkPath),
    responses(
        (status = 200, description = "The policy.", body = NetworkPolicy),
    )
)]
pub(crate) async fn get_policy(
    State(app): State<App>,
    caller: Caller,
    Path(network): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let network = app.find_network(caller.organisation, &network).await?;
    Ok(json(StatusCode::OK, &app.network_policy(&network)?))
}

/// Set the policy of a network
///
/// From then on, what no rule allows is denied. Rules name machines and groups of the network; with `force` also ones
/// that are not there yet, which stand for nobody until then.
#[utoipa::path(
    put, path = "/v1/networks/{network}/policy", tag = "networks", operation_id = "set_network_policy",
    params(NetworkPath),
    request_body = SetNetworkPolicy,
    responses(
        (status = 200, description = "The policy. The edge of `up` applies it already; edges on other machines do a \
             moment later.", body = NetworkPolicy),
        (status = 409, description = "`limit-reached`"),
    )
)]
pub(crate) async fn set_policy(
    State(app): State<App>,
    caller: Caller,
    Path(network): Path<String>,
    input: Input<SetNetworkPolicy>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let network = app.find_network(caller.organisation, &network).await?;
    Ok(json(StatusCode::OK, &app.set_network_policy(&network, input.value).await?))
}

/// Remove the policy of a network
///
/// Its machines may then all talk to each other.
#[utoipa::path(
    delete, path = "/v1/networks/{network}/policy", tag = "networks", operation_id = "delete_network_policy",
    params(NetworkPath),
    responses(
        (status = 204, description = "The removal is done."),
    )
)]
pub(crate) async fn delete_policy(
    State(app): State<App>,
    caller: Caller,
    Path(network): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let network = app.find_network(caller.organisation, &network).await?;
    app.delete_network_policy(&network).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The machines of a network, by name
#[utoipa::path(
    get, path = "/v1/networks/{network}/machines", tag = "networks", operation_id = "list_machines",
    params(NetworkPath, PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Machine>),
    )
)]
pub(crate) async fn list_machines(
    State(app): State<App>,
    caller: Caller,
    Path(network): Path<String>,
    page: PageOf,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let network = app.find_network(caller.organisation, &network).await?;
    let rows = (1..).zip(&network.machines).filter(|(position, _)| *position > page.after);
    let rows = rows.take(usize::try_from(page.rows()).unwrap_or(usize::MAX)).collect();
    Ok(json(StatusCode::OK, &page.page(rows, machine_to_api)))
}

/// Add a machine to a network
///
/// It gets an address of each range. Groups, routes and an exit need `identity:write` too. The response has its
/// credential, which the API never shows again. A repetition with the same idempotency key therefore gets 409
/// `secret-already-shown`.
#[utoipa::path(
    post, path = "/v1/networks/{network}/machines", tag = "networks", operation_id = "create_machine",
    params(NetworkPath, IdempotencyHeader),
    request_body = CreateMachine,
    responses(
        (status = 201, description = "The machine, with its credential. The edge of `up` knows the machine already; \
             edges on other machines do a moment later.", body = CreatedMachine),
        (status = 409, description = "`name-taken`, `network-full`, `exit-taken`, `policy-refuses`, `secret-already-shown` or \
             `limit-reached`"),
    )
)]
pub(crate) async fn create_machine(
    State(app): State<App>,
    caller: Caller,
    via: Via,
    Path(network): Path<String>,
    input: Input<CreateMachine>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let machine = &input.value;
    let is_empty = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
    if machine.is_exit || !is_empty(&machine.groups) || !is_empty(&machine.routes) {
        // Policies and other machines go by these, so they are for those that set policies.
        caller.require(Scope::IdentityWrite)?;
    }
    let network = app.find_network(caller.organisation, &network).await?;
    let make = async {
        let (network, machine, credential) = app.create_machine(&network, caller.who.id, input.value).await?;
        let location = Some(format!("/v1/networks/{}/machines/{}", network.name, machine.route.name));
        let network = app.network_to_api(&network.summary());
        let edge = connect_to(&app, via);
        Ok(Made { location, body: CreatedMachine { details: machine_to_api(&machine), credential, network, edge } })
    };
    let secret = ShownSecret { what: "machine", way_out: "remove the machine, and add it again" };
    app.once(caller.organisation, input.keyed.as_ref(), Some(secret), make).await
}

/// One machine of a network
#[utoipa::path(
    get, path = "/v1/networks/{network}/machines/{machine}", tag = "networks", operation_id = "get_machine",
    params(MachinePath),
    responses(
        (status = 200, description = "The machine.", body = Machine),
    )
)]
pub(crate) async fn get_machine(
    State(app): State<App>,
    caller: Caller,
    Path((network, machine)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let network = app.find_network(caller.organisation, &network).await?;
    Ok(json(StatusCode::OK, &machine_to_api(find_machine(&network, &machine)?)))
}

/// Remove a machine from a network
///
/// Its addresses are leased again after all others. A machine that another account has added needs `identity:write` too.
#[utoipa::path(
    delete, path = "/v1/networks/{network}/machines/{machine}", tag = "networks", operation_id = "delete_machine",
    params(MachinePath),
    responses(
        (status = 204, description = "The removal is done."),
    )
)]
pub(crate) async fn delete_machine(
    State(app): State<App>,
    caller: Caller,
    Path((network, machine)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let network = app.find_network(caller.organisation, &network).await?;
    let machine = find_machine(&network, &machine)?;
    require_removal(&caller, machine)?;
    app.delete_machine(&network, machine).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Refuses a machine of somebody else to a caller without the right to set policies, which says who may talk to whom.
fn require_removal(caller: &Caller, machine: &StoredMachine) -> Result<(), ApiError> {
    if machine.added_by == Some(caller.who.id) { Ok(()) } else { caller.require(Scope::IdentityWrite) }
}
