//! `/v1/ssh-authority`, and certificates of hosts.

use axum::{
    extract::{Path, State},
    response::Response,
};
use http::StatusCode;
use sallyport_api::{AuditCertificate, CreateSshHostCertificate, SshAuthority, SshHostCertificate, UpdateSshAuthority};
use sallyport_model::Scope;
use sallyport_pki::{SSH_HOST_SECONDS, SshSignError};
use sallyport_store::{AuthorityKind, IssuedCertificate};

use super::params::SocketPath;
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    security::random,
    service::{PublicKeyText, SshOptions},
    state::App,
};

/// What `ssh` may have behind the socket's name, so that its configuration knows which hosts are meant.
const NAME_SUFFIXES: [&str; 3] = ["", ".sallyport", ".mysocket-dummy"];

fn to_api(public_key: String, options: SshOptions) -> SshAuthority {
    let SshOptions { extensions, force_command, mysocket_principal } = options;
    SshAuthority { public_key, extensions, force_command, mysocket_principal }
}

/// Show the organisation's authority for ssh keys
#[utoipa::path(
    get, path = "/v1/ssh-authority", tag = "programs", operation_id = "get_ssh_authority",
    responses(
        (status = 200, description = "The public key, and the settings for certificates.", body = SshAuthority),
    )
)]
pub(crate) async fn show(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let (_, line, options) = app.ssh_authority(caller.organisation).await?;
    Ok(json(StatusCode::OK, &to_api(line, options)))
}

/// Change what certificates of persons allow
#[utoipa::path(
    patch, path = "/v1/ssh-authority", tag = "programs", operation_id = "update_ssh_authority",
    request_body = UpdateSshAuthority,
    responses(
        (
            status = 200,
            description = "The settings after the change. Issued certificates stay as they are.",
            body = SshAuthority
        ),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    input: Input<UpdateSshAuthority>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let organisation = caller.organisation;
    let (_, line, before) = app.ssh_authority(organisation).await?;
    let UpdateSshAuthority { extensions, force_command, mysocket_principal } = input.value;
    let options = SshOptions {
        extensions: extensions.unwrap_or(before.extensions),
        force_command: force_command.unwrap_or(before.force_command),
        mysocket_principal: mysocket_principal.unwrap_or(before.mysocket_principal),
    };
    options.check()?;
    let settings = serde_json::to_string(&options).map_err(ApiError::internal)?;
    app.store.set_authority_settings(organisation, AuthorityKind::Ssh, &settings).await?;
    tracing::info!(target: "audit", event = "ssh-authority-changed", %organisation, by = %caller.who.id, settings);
    Ok(json(StatusCode::OK, &to_api(line, options)))
}

/// Sign a host key
///
/// ssh clients that trust the organisation's authority then accept the host behind the socket without a prompt about a
/// fingerprint.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/ssh-host-certificate", tag = "programs", operation_id = "sign_ssh_host_key",
    params(SocketPath),
    request_body = CreateSshHostCertificate,
    responses(
        (status = 200, description = "The certificate.", body = SshHostCertificate),
    )
)]
pub(crate) async fn sign_host_key(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
    input: Input<CreateSshHostCertificate>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let organisation = caller.organisation;
    let socket = app.find_socket(organisation, &socket).await?;
    let moment = app.clock.now();
    app.limits.create(organisation, moment.monotonic)?;
    let key = PublicKeyText::read(&input.value.public_key).map_err(|error| ApiError::field("public_key", error))?;
    let (authority, line, _) = app.ssh_authority(organisation).await?;
    let host = app.dns_name(&socket.name);
    let names = NAME_SUFFIXES.map(|suffix| format!("{host}{suffix}"));
    let principals = [names[0].as_str(), names[1].as_str(), names[2].as_str()];
    let serial: [u8; 8] = random::bytes()?;
    let now = u64::try_from(moment.unix_seconds).unwrap_or_default();
    let certificate = authority
        .sign_host(&key.line, &principals, now, u64::from_be_bytes(serial), random::bytes()?)
        .map_err(|error| match error {
            SshSignError::Key(_) => ApiError::field("public_key", error),
            error => ApiError::internal(error),
        })?;
    let until = moment.unix_seconds.saturating_add_unsigned(SSH_HOST_SECONDS);
    let issued = IssuedCertificate {
        organisation,
        kind: AuthorityKind::Ssh,
        serial: serial.to_vec(),
        socket: Some(socket.id),
        subject: host.clone(),
        not_before: moment.unix_seconds,
        not_after: until,
    };
    app.store.record_certificate(&issued).await?;
    app.audit_certificate(
        organisation,
        AuditCertificate {
            identity: host.clone(),
            socket: Some(app.dns_name(&socket.name)),
            certificate_type: "ssh-host".to_owned(),
            serial: serial.iter().map(|byte| format!("{byte:02x}")).collect(),
            not_after: date(until),
            client: None,
        },
    );
    tracing::debug!(
        target: "audit", event = "host-certificate-issued", %organisation, socket = %socket.id, host,
        fingerprint = %key.fingerprint, not_after = until,
    );
    let known_hosts = format!("@cert-authority {} {line}", names.join(","));
    let answer = SshHostCertificate { certificate, names: names.to_vec(), known_hosts, valid_until: date(until) };
    Ok(json(StatusCode::OK, &answer))
}
