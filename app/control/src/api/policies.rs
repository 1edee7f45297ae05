//! `/v1/policies`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    CreatePolicy, LabelQuery, Page, PageQuery, Policy, PolicyPlace, PolicyTest, TestPolicy, UpdatePolicy,
};
use sallyport_model::Scope;

use super::params::{IdempotencyHeader, IfMatchHeader, PolicyPath};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        etag::IfMatch,
        extract::{Input, Labelled, json},
        lines::{AsLines, LINES_AT_ONCE, lines},
        once::Made,
    },
    service::AttachmentChange,
    state::App,
};

/// The organisation's policies, oldest first
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies", operation_id = "list_policies", params(PageQuery, LabelQuery),
    responses(
        (status = 200, description = "One page; all items, one in each line, for `Accept: application/x-ndjson`.",
            content((Page<Policy> = "application/json"), (Policy = "application/x-ndjson"))),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Labelled { page, labels }: Labelled,
    AsLines(as_lines): AsLines,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    if as_lines {
        let organisation = caller.organisation;
        return lines(page.after, move |after| {
            let (app, labels) = (app.clone(), labels.clone());
            async move {
                let rows = app.store.policies(organisation, &labels, after, LINES_AT_ONCE).await?;
                rows.into_iter().map(|(at, policy)| Ok((at, app.policy_to_api(policy)?))).collect()
            }
        })
        .await;
    }
    let rows = app.store.policies(caller.organisation, &labels, page.after, page.rows()).await?;
    let rows = rows.into_iter().map(|(position, policy)| Ok((position, app.policy_to_api(policy)?)));
    let rows = rows.collect::<Result<Vec<_>, ApiError>>()?;
    Ok(json(StatusCode::OK, &page.page(rows, |policy| policy)))
}

/// Make a policy
///
/// A policy that is attached to nothing has no effect. Control refuses rules that no client could match.
#[utoipa::path(
    post, path = "/v1/policies", tag = "policies", operation_id = "create_policy",
    params(IdempotencyHeader),
    request_body = CreatePolicy,
    responses(
        (status = 201, description = "The policy.", body = Policy),
        (status = 409, description = "`policy-name-taken` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreatePolicy>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let make = async {
        let policy = app.create_policy(caller.organisation, input.value).await?;
        Ok(Made { location: Some(format!("/v1/policies/{}", policy.id)), body: policy })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// Show a policy
#[utoipa::path(
    get, path = "/v1/policies/{id}", tag = "policies", operation_id = "get_policy",
    params(PolicyPath),
    responses(
        (status = 200, description = "The policy.", body = Policy),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let policy = app.find_policy(caller.organisation, &id).await?;
    let tag = app.policy_tag(&policy)?;
    Ok(tag.on(json(StatusCode::OK, &app.policy_to_api(policy)?)))
}

/// Change a policy
///
/// Edges apply the change to new connections from the response on, and to open connections within seconds.
#[utoipa::path(
    patch, path = "/v1/policies/{id}", tag = "policies", operation_id = "update_policy",
    params(PolicyPath, IfMatchHeader),
    request_body = UpdatePolicy,
    responses(
        (status = 200, description = "The policy after the change.", body = Policy),
        (status = 412, description = "`precondition-failed`"),
        (status = 409, description = "`policy-name-taken`, `closes-sockets` or `limit-reached`"),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
    input: Input<UpdatePolicy>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let policy = app.update_policy(caller.organisation, &id, input.value, &if_match).await?;
    Ok(json(StatusCode::OK, &policy))
}

/// Delete a policy that is attached to nothing
#[utoipa::path(
    delete, path = "/v1/policies/{id}", tag = "policies", operation_id = "delete_policy",
    params(PolicyPath, IfMatchHeader),
    responses(
        (status = 204, description = "The removal is done."),
        (status = 412, description = "`precondition-failed`"),
        (status = 409, description = "`policy-attached`: detach the policy first."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    app.delete_policy(caller.organisation, &id, &if_match).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Attach a policy to a socket, or to all
///
/// From then on only clients that a rule allows are admitted. Attaching a policy twice changes nothing.
#[utoipa::path(
    post, path = "/v1/policies/{id}/attach", tag = "policies", operation_id = "attach_policy",
    params(PolicyPath),
    request_body = PolicyPlace,
    responses(
        (status = 200, description = "The policy after the change. The edge of `up` applies the change already; \
             edges on other machines do a moment later.", body = Policy),
        (status = 409, description = "`closes-sockets`: a socket would deny every client; `limit-reached`."),
    )
)]
pub(crate) async fn attach(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<PolicyPlace>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let policy = app.place_policy(caller.organisation, &id, input.value, AttachmentChange::Attach).await?;
    Ok(json(StatusCode::OK, &policy))
}

/// Detach a policy from a socket, or from all
///
/// Without its last policy a socket admits every client: control refuses that unless `force` is set.
#[utoipa::path(
    post, path = "/v1/policies/{id}/detach", tag = "policies", operation_id = "detach_policy",
    params(PolicyPath),
    request_body = PolicyPlace,
    responses(
        (status = 200, description = "The policy after the change. The edge of `up` applies the change already; \
             edges on other machines do a moment later.", body = Policy),
        (status = 409, description = "`opens-sockets` or `closes-sockets`: a socket would admit every client, or deny \
            every client."),
    )
)]
pub(crate) async fn detach(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<PolicyPlace>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let policy = app.place_policy(caller.organisation, &id, input.value, AttachmentChange::Detach).await?;
    Ok(json(StatusCode::OK, &policy))
}

/// Test rules against a client, and explain the result
#[utoipa::path(
    post, path = "/v1/policy-test", tag = "policies", operation_id = "test_policy",
    request_body = TestPolicy,
    responses(
        (status = 200, description = "The result of the rules.", body = PolicyTest),
    )
)]
pub(crate) async fn test(
    State(app): State<App>,
    caller: Caller,
    input: Input<TestPolicy>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let says = app.test_policy(caller.organisation, input.value).await?;
    Ok(json(StatusCode::OK, &says))
}
