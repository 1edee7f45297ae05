//! `/v1/client`: requests of programs for persons.

use axum::{
    extract::{FromRequestParts, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header, request::Parts};
use sallyport_api::{
    AuditCertificate, BeginDeviceLogin, ClientCertificate, ClientLogin, ClientSshCertificate, ClientToken,
    CreateClientCertificate, CreateClientSshCertificate, DeviceLogin, ExchangeClientCode, ExchangeDeviceCode, Secret,
};
use sallyport_identity::Purpose;
use sallyport_model::{LoginSession, LoginSessionId, SocketId};
use sallyport_pki::{ClientRequest, ClientSubject, MYSOCKET_PRINCIPAL, SIGNED_PRINCIPAL, SSH_USER_SECONDS, SshPerson};
use sallyport_policy::SshExtension;
use sallyport_store::{AuthorityKind, DeviceAnswer, IssuedCertificate, NewDeviceLogin};

use super::{
    admission::{Admitted, login_required},
    codes::{format_user_code, user_code},
    grants::{Code, Token},
};
use crate::{
    clock::date,
    problem::ApiError,
    request::extract::{Input, json},
    security::{
        client::ClientAddress,
        device_limits::{DEVICE_TIME, INTERVAL},
        random,
    },
    service::PublicKeyText,
    state::App,
};

/// How device codes begin.
const DEVICE_CODE_PREFIX: &str = "spd_";
/// The random bytes for a user code, some of which are skipped.
const USER_CODE_BYTES: usize = 32;

/// The person of a program's token.
pub(crate) struct ClientCaller {
    pub(super) session: std::sync::Arc<LoginSession>,
}

impl FromRequestParts<App> for ClientCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let given = values.next().and_then(|value| value.to_str().ok()).filter(|_| values.next().is_none());
        let token =
            given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, token)) = token else {
            let detail = "log in first: send Authorization: Bearer with the token of `sallyport client login`";
            return Err(ApiError::unauthorized("not-logged-in", detail));
        };
        let token: Option<Token> = app.sealer.open(Purpose::ClientToken, token.trim());
        let token = token.ok_or_else(|| login_required("the token is not one of a program's login: log in again"))?;
        let session = app.session(token.session).await?;
        let session = session.filter(|session| session.organisation == token.organisation);
        session.map(|session| Self { session }).ok_or_else(|| login_required("this login has ended: log in again"))
    }
}

impl App {
    async fn client_token(&self, session: LoginSessionId, socket: SocketId) -> Result<ClientToken, ApiError> {
        let gone = || login_required("this login has ended: log in again");
        let session = self.session(session).await?.ok_or_else(gone)?;
        let route = self.route(socket).await?.ok_or_else(|| ApiError::not_found("socket"))?;
        self.require_accepted_session(&session, &route)?;
        let now = self.clock.now().unix_seconds;
        let token = Token { session: session.id, organisation: session.organisation, at: now };
        let token = self.sealer.seal(Purpose::ClientToken, &token, random::bytes()?);
        let token = token.ok_or_else(|| ApiError::internal("a token cannot be sealed"))?;
        tracing::debug!(
            target: "audit", event = "program-logged-in", organisation = %session.organisation,
            email = %session.person.email, socket = %socket, session = %session.id,
        );
        Ok(ClientToken {
            token: Secret::from(token),
            email: session.person.email.to_string(),
            host: self.dns_name(&route.name),
            expires_at: date(session.expires_at),
        })
    }

    /// Records a certificate before it is handed out.
    async fn note_issued(
        &self,
        admitted: &Admitted,
        kind: AuthorityKind,
        serial: &[u8],
        life: (i64, i64),
    ) -> Result<(), ApiError> {
        let Admitted { session, route, address, .. } = admitted;
        let issued = IssuedCertificate {
            organisation: route.account,
            kind,
            serial: serial.to_vec(),
            socket: Some(route.id),
            subject: session.person.email.to_string(),
            not_before: life.0,
            not_after: life.1,
        };
        self.store.record_certificate(&issued).await?;
        let serial: String = serial.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind_name = match kind {
            AuthorityKind::ClientTls => "tls-client",
            AuthorityKind::Ssh => "ssh-user",
        };
        self.audit_certificate(
            route.account,
            AuditCertificate {
                identity: session.person.email.to_string(),
                socket: Some(self.dns_name(&route.name)),
                certificate_type: kind_name.to_owned(),
                serial: serial.clone(),
                not_after: date(life.1),
                client: None,
            },
        );
        tracing::debug!(
            target: "audit", event = "certificate-issued", kind = kind.as_str(), organisation = %route.account,
            socket = %route.id, email = %session.person.email, session = %session.id, %address, serial,
            not_after = life.1,
        );
        Ok(())
    }

    /// A client certificate for the key of the request.
    pub(crate) async fn sign_client(&self, admitted: &Admitted, csr: &str) -> Result<ClientCertificate, ApiError> {
        let Admitted { session, route, host, .. } = admitted;
        if route.socket_type != sallyport_model::SocketType::Tls {
            let detail = format!("{host} is no tls socket: client certificates are for those");
            return Err(ApiError::new(StatusCode::CONFLICT, "wrong-type", detail));
        }
        let moment = self.clock.now();
        self.device_limits.certificate(session.id, moment.monotonic)?;
        let request = ClientRequest::from_pem(csr).map_err(|error| ApiError::field("csr", error))?;
        let authority = self.client_authority(route.account).await?;
        if route.client_authority.as_deref() != Some(authority.certificate_der()) {
            // The socket's route may be older than the organisation's authority.
            self.publish(route.id).await?;
        }
        let email = session.person.email.as_str();
        let login = session.id.uuid().urn().to_string();
        let subject = ClientSubject { email, socket: host, session: &login };
        let now = date(moment.unix_seconds);
        let issued = authority.issue(&request, subject, now, random::bytes()?).map_err(ApiError::internal)?;
        let life = (issued.not_before.unix_timestamp(), issued.not_after.unix_timestamp());
        self.note_issued(admitted, AuthorityKind::ClientTls, &issued.serial, life).await?;
        Ok(ClientCertificate {
            certificate: issued.pem,
            authority: authority.certificate_pem(),
            email: email.to_owned(),
            host: host.clone(),
            port: self.config.public_port,
            valid_until: issued.not_after,
        })
    }

    /// An ssh certificate for the key; `field` names the input in errors.
    pub(crate) async fn sign_person(
        &self,
        admitted: &Admitted,
        field: &str,
        public_key: &str,
        for_mysocket: bool,
    ) -> Result<ClientSshCertificate, ApiError> {
        let Admitted { session, route, host, .. } = admitted;
        // All hosts of the organisation trust its authority, so access to a web page must not suffice.
        if route.socket_type != sallyport_model::SocketType::Tls {
            let detail = format!("{host} is no tls socket: ssh certificates are for hosts behind those");
            return Err(ApiError::new(StatusCode::CONFLICT, "wrong-type", detail));
        }
        let moment = self.clock.now();
        self.device_limits.certificate(session.id, moment.monotonic)?;
        let key = PublicKeyText::read(public_key).map_err(|error| ApiError::field(field, error))?;
        let (authority, line, options) = self.ssh_authority(route.account).await?;
        let email = session.person.email.as_str();
        // The settings of the admitting rule come before those of the authority.
        let extensions: Vec<&str> = match &admitted.ssh.extensions {
            // Certificates list extensions in order.
            Some(granted) => {
                let granted = SshExtension::ALL.into_iter().filter(|one| granted.contains(one));
                granted.map(SshExtension::as_str).collect()
            }
            None => options.extensions.iter().map(String::as_str).collect(),
        };
        let person = SshPerson {
            email,
            for_mysocket: for_mysocket || options.mysocket_principal,
            extensions: &extensions,
            force_command: admitted.ssh.force_command.as_deref().or(options.force_command.as_deref()),
        };
        let serial: [u8; 8] = random::bytes()?;
        let now = u64::try_from(moment.unix_seconds).unwrap_or_default();
        let certificate = authority
            .sign_person(&key.line, person, now, u64::from_be_bytes(serial), random::bytes()?)
            .map_err(|error| match error {
            sallyport_pki::SshSignError::Key(_) => ApiError::field(field, error),
            // An address that two hosts could read as two names is refused, and the owner gets the reason.
            sallyport_pki::SshSignError::Principal(_) => {
                let detail = format!("{email} cannot be a principal of an ssh certificate");
                ApiError::new(StatusCode::CONFLICT, "bad-principal", detail)
            }
            error => ApiError::internal(error),
        })?;
        let until = moment.unix_seconds.saturating_add_unsigned(SSH_USER_SECONDS);
        let from = moment.unix_seconds.saturating_sub_unsigned(sallyport_pki::SSH_BACKDATE_SECONDS);
        self.note_issued(admitted, AuthorityKind::Ssh, &serial, (from, until)).await?;
        let mysocket = person.for_mysocket.then_some(MYSOCKET_PRINCIPAL);
        let principals = [Some(email), Some(SIGNED_PRINCIPAL), mysocket];
        Ok(ClientSshCertificate {
            certificate,
            authority: line,
            email: email.to_owned(),
            principals: principals.into_iter().flatten().map(str::to_owned).collect(),
            host: host.clone(),
            port: self.config.public_port,
            valid_until: date(until),
        })
    }
}

/// Show the person of the token
#[utoipa::path(
    get, path = "/v1/client", tag = "programs", operation_id = "get_client_login",
    responses(
        (status = 200, description = "The person.", body = ClientLogin),
        (status = 401, description = "`login-required`"),
    )
)]
pub(crate) async fn show(State(_app): State<App>, caller: ClientCaller) -> Response {
    let session = &caller.session;
    let login = ClientLogin {
        email: session.person.email.to_string(),
        name: session.person.name.clone(),
        provider: session.person.provider.to_string(),
        expires_at: date(session.expires_at),
    };
    json(StatusCode::OK, &login)
}

/// Log out: end the login of the token
///
/// The login ends at once, also for other programs of the person and for the browser that made it. Open connections of
/// the login are cut.
#[utoipa::path(
    delete, path = "/v1/client", tag = "programs", operation_id = "end_client_login",
    responses(
        (status = 204, description = "The login has ended."),
        (status = 401, description = "`login-required`: the login had ended before."),
    )
)]
pub(crate) async fn end(State(app): State<App>, caller: ClientCaller) -> Result<Response, ApiError> {
    let session = &caller.session;
    app.store.end_person_sessions(session.organisation, Some(session.id), None, None).await?;
    app.identities.end_these(&[session.id]);
    app.audit_logout(session);
    tracing::info!(account = %session.organisation, session = %session.id, "a person's program logged out");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Exchange the code from the browser's redirect
#[utoipa::path(
    post, path = "/v1/client/token", tag = "programs", operation_id = "exchange_client_code", security(()),
    request_body = ExchangeClientCode,
    responses(
        (status = 200, description = "The token.", body = ClientToken),
        (status = 400, description = "`bad-code`"),
    )
)]
pub(crate) async fn exchange_code(
    State(app): State<App>,
    input: Input<ExchangeClientCode>,
) -> Result<Response, ApiError> {
    let ExchangeClientCode { code, code_verifier, redirect_uri } = input.value;
    let refuse = || {
        let detail = "this code is invalid, used or too old: begin the login again";
        ApiError::new(StatusCode::BAD_REQUEST, "bad-code", detail)
    };
    let now = app.clock.now().unix_seconds;
    let code: Code = app.sealer.open(Purpose::ClientCode, code.expose()).ok_or_else(refuse)?;
    // A code with a wrong verifier is used up too, because it has leaked.
    let organisation = app.session(code.session).await?.ok_or_else(refuse)?.organisation;
    let is_new = now <= code.ends_at() && app.store.use_once(organisation, code.id, code.ends_at(), now).await?;
    if !is_new || !code.is_for(code_verifier.expose(), &redirect_uri, now) {
        return Err(refuse());
    }
    Ok(json(StatusCode::OK, &app.client_token(code.session, code.socket).await?))
}

/// Begin a login without a browser on the same machine
#[utoipa::path(
    post, path = "/v1/client/device", tag = "programs", operation_id = "begin_device_login", security(()),
    request_body = BeginDeviceLogin,
    responses(
        (status = 200, description = "The code that the person types, and the page for it.", body = DeviceLogin),
    )
)]
pub(crate) async fn begin_device(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    input: Input<BeginDeviceLogin>,
) -> Result<Response, ApiError> {
    let moment = app.clock.now();
    let now = moment.monotonic;
    app.device_limits.begin_device(address, now)?;
    let (route, _) = app.asking_socket(&input.value.host).await?;
    app.device_limits.begin_device_at(route.account, now)?;
    let (device_code, hash) = random::secret(DEVICE_CODE_PREFIX)?;
    let code = user_code(&random::bytes::<USER_CODE_BYTES>()?).ok_or_else(ApiError::busy)?;
    let new = NewDeviceLogin {
        code: code.clone(),
        device: hash,
        organisation: route.account,
        socket: route.id,
        client: address.to_string(),
        expires_at: moment.unix_seconds.saturating_add_unsigned(DEVICE_TIME.as_secs()),
    };
    if !app.store.begin_device_login(&new, moment.unix_seconds).await? {
        return Err(ApiError::busy());
    }
    app.device_limits.begin_polling(hash, now);
    let verification_uri = format!("{}/device", app.login_url());
    let user_code = format_user_code(&code);
    let login = DeviceLogin {
        device_code,
        verification_uri_complete: format!("{verification_uri}?code={user_code}"),
        verification_uri,
        user_code,
        expires_in: u32::try_from(DEVICE_TIME.as_secs()).unwrap_or(u32::MAX),
        interval: u32::try_from(INTERVAL.as_secs()).unwrap_or(u32::MAX),
    };
    Ok(json(StatusCode::OK, &login))
}

/// Poll for the person's agreement
#[utoipa::path(
    post, path = "/v1/client/device/token", tag = "programs", operation_id = "exchange_device_code", security(()),
    request_body = ExchangeDeviceCode,
    responses(
        (status = 200, description = "The token; the API gives it once.", body = ClientToken),
        (status = 400, description = "`authorization-pending`: poll again after the interval. `slow-down`: add 5 \
                                      seconds to the interval. `access-denied`, `expired-code`: the login has ended."),
    )
)]
pub(crate) async fn exchange_device(
    State(app): State<App>,
    input: Input<ExchangeDeviceCode>,
) -> Result<Response, ApiError> {
    let hash = random::hash(input.value.device_code.expose());
    let refuse = |code, detail: &str| Err(ApiError::new(StatusCode::BAD_REQUEST, code, detail));
    let now = app.clock.now();
    if let Some(interval) = app.device_limits.slow_down(hash, now.monotonic) {
        let seconds = interval.as_secs();
        return refuse("slow-down", &format!("polled too often: wait {seconds} seconds between two polls"));
    }
    let answer = app.store.take_device_answer(hash, now.unix_seconds).await?;
    if answer != Some(DeviceAnswer::Pending) {
        app.device_limits.end_polling(hash);
    }
    match answer {
        Some(DeviceAnswer::Agreed(session, socket)) => {
            Ok(json(StatusCode::OK, &app.client_token(session, socket).await?))
        }
        Some(DeviceAnswer::Pending) => {
            refuse("authorization-pending", "the person has not agreed yet: poll again after the interval")
        }
        Some(DeviceAnswer::Denied) => refuse("access-denied", "the person has refused the login"),
        None => refuse("expired-code", "the code has ended or was used: begin the login again"),
    }
}

/// Get a client certificate for a socket
///
/// Control issues the certificate while the login is valid and the socket's policies allow the person from this
/// address. Edges check both again at every connection.
#[utoipa::path(
    post, path = "/v1/client/tls-certificate", tag = "programs", operation_id = "create_client_certificate",
    request_body = CreateClientCertificate,
    responses(
        (status = 200, description = "The certificate.", body = ClientCertificate),
        (status = 401, description = "`login-required`: log in again."),
        (status = 403, description = "`not-allowed`"),
    )
)]
pub(crate) async fn tls_certificate(
    State(app): State<App>,
    caller: ClientCaller,
    ClientAddress(address): ClientAddress,
    input: Input<CreateClientCertificate>,
) -> Result<Response, ApiError> {
    let CreateClientCertificate { host, csr } = input.value;
    let admitted = app.admit(caller.session.id, &host, address).await?;
    Ok(json(StatusCode::OK, &app.sign_client(&admitted, &csr).await?))
}

/// Sign a person's ssh key
///
/// Hosts that trust the organisation's authority accept the key for some minutes, for the users whose principals the
/// hosts list.
#[utoipa::path(
    post, path = "/v1/client/ssh-certificate", tag = "programs", operation_id = "create_client_ssh_certificate",
    request_body = CreateClientSshCertificate,
    responses(
        (status = 200, description = "The certificate.", body = ClientSshCertificate),
        (status = 401, description = "`login-required`: log in again."),
        (status = 403, description = "`not-allowed`"),
    )
)]
pub(crate) async fn ssh_certificate(
    State(app): State<App>,
    caller: ClientCaller,
    ClientAddress(address): ClientAddress,
    input: Input<CreateClientSshCertificate>,
) -> Result<Response, ApiError> {
    let CreateClientSshCertificate { host, public_key } = input.value;
    let admitted = app.admit(caller.session.id, &host, address).await?;
    Ok(json(StatusCode::OK, &app.sign_person(&admitted, "public_key", &public_key, false).await?))
}
