//! `/v1/certificates`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{Certificate, ImportCertificate, Page, PageQuery};
use sallyport_model::Scope;

use super::params::{CertificatePath, IdempotencyHeader};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::Made,
    },
    state::App,
};

/// Whether the caller may see and change the certificates of the installation.
async fn is_owner(app: &App, caller: &Caller) -> bool {
    caller.require_installation_owner(app).await.is_ok()
}

/// The certificates of the organisation, and for the owner of the installation those of the installation, by name
#[utoipa::path(
    get, path = "/v1/certificates", tag = "certificates", operation_id = "list_certificates", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Certificate>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let rows = app.visible_certificates(caller.organisation, is_owner(&app, &caller).await).await?;
    let rows = (1..).zip(rows).filter(|(position, _)| *position > page.after);
    let rows = rows.take(usize::try_from(page.rows()).unwrap_or(usize::MAX)).collect();
    Ok(json(StatusCode::OK, &page.page(rows, |row| app.certificate_to_api(&row))))
}

/// Import a certificate
///
/// Its names are verified domains of the organisation, or names of the installation. It takes the place of the one that
/// the server has ordered for its first name, and the server renews neither.
#[utoipa::path(
    post, path = "/v1/certificates", tag = "certificates", operation_id = "import_certificate",
    params(IdempotencyHeader),
    request_body = ImportCertificate,
    responses(
        (status = 201, description = "The certificate.", body = Certificate),
        (status = 409, description = "`domain-not-verified`"),
    )
)]
pub(crate) async fn import(
    State(app): State<App>,
    caller: Caller,
    input: Input<ImportCertificate>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let owner = is_owner(&app, &caller).await;
    let make = async {
        let stored = app.import_certificate(caller.organisation, owner, input.value).await?;
        let location = Some(format!("/v1/certificates/{}", stored.id));
        Ok(Made { location, body: app.certificate_to_api(&stored) })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// One certificate
#[utoipa::path(
    get, path = "/v1/certificates/{id}", tag = "certificates", operation_id = "get_certificate",
    params(CertificatePath),
    responses(
        (status = 200, description = "The certificate.", body = Certificate),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let stored = app.find_certificate(caller.organisation, is_owner(&app, &caller).await, &id).await?;
    Ok(json(StatusCode::OK, &app.certificate_to_api(&stored)))
}

/// Order a certificate again now
#[utoipa::path(
    post, path = "/v1/certificates/{id}/renew", tag = "certificates", operation_id = "renew_certificate",
    params(CertificatePath),
    responses(
        (status = 202, description = "The order is due. The certificate is served when it is issued.",
         body = Certificate),
        (status = 409, description = "`certificate-imported`, or `no-acme`"),
    )
)]
pub(crate) async fn renew(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let stored = app.find_certificate(caller.organisation, is_owner(&app, &caller).await, &id).await?;
    let stored = app.renew_certificate(&stored).await?;
    Ok(json(StatusCode::ACCEPTED, &app.certificate_to_api(&stored)))
}

/// Remove an imported certificate
///
/// The server orders one in its place, if it orders certificates and the name leads to a socket.
#[utoipa::path(
    delete, path = "/v1/certificates/{id}", tag = "certificates", operation_id = "delete_certificate",
    params(CertificatePath),
    responses(
        (status = 204, description = "The certificate is removed."),
        (status = 409, description = "`certificate-ordered`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let stored = app.find_certificate(caller.organisation, is_owner(&app, &caller).await, &id).await?;
    app.delete_certificate(&stored).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
