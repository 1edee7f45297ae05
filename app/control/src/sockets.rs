//! `/v1/sockets`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_api::{CreateSocket, FieldError, Page, PageQuery, Problem, Protect, Protected, Socket, UpdateSocket};
use sallyport_model::{AccountId, BasicAuth, MAX_PASSWORD_BYTES, Scope, SocketId, SocketName};
use sallyport_store::{Creation, NewSocket, SocketChange};

use crate::{
    App,
    auth::Caller,
    clock::date,
    extract::{Input, PageOf, json, json_text},
    problem::ApiError,
    random,
    replay::located,
};

/// How many random names are tried before giving up.
const MAX_NAME_TRIES: usize = 32;
/// The longest user name of a protected socket, in characters.
const MAX_USERNAME_CHARS: usize = 128;
/// Marks an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

fn location(id: SocketId) -> String {
    format!("/v1/sockets/{id}")
}

impl App {
    /// The socket as its owner sees it.
    fn shown(&self, socket: sallyport_model::Socket) -> Socket {
        let route = self.routes.get(socket.id);
        let tunnels = route.as_ref().map(|route| route.tunnels.as_slice()).unwrap_or_default();
        let up = tunnels.iter().filter(|tunnel| self.directory.get(tunnel.id).is_some()).count();
        let dns_name = format!("{}.{}", socket.name, self.config.domain);
        let url = match self.config.public_port {
            443 => format!("https://{dns_name}"),
            port => format!("https://{dns_name}:{port}"),
        };
        Socket {
            id: socket.id,
            name: socket.display_name,
            dns_name,
            url,
            socket_type: socket.socket_type,
            origin_protocol: socket.origin_protocol,
            protected: socket.basic_auth.map(|basic| Protected { username: basic.username }),
            created_at: date(socket.created_at),
            tunnels_total: u32::try_from(tunnels.len()).unwrap_or(u32::MAX),
            tunnels_up: u32::try_from(up).unwrap_or(u32::MAX),
        }
    }

    /// The account's socket with this id or DNS name.
    pub(crate) async fn find_socket(
        &self,
        account: AccountId,
        id_or_name: &str,
    ) -> Result<sallyport_model::Socket, ApiError> {
        let found = if let Ok(id) = id_or_name.parse::<SocketId>() {
            self.store.socket(account, id).await?
        } else {
            let label = id_or_name.strip_suffix(&self.config.domain).and_then(|name| name.strip_suffix('.'));
            match label.unwrap_or(id_or_name).parse::<SocketName>() {
                Ok(name) => self.store.socket_by_name(account, &name).await?,
                Err(_) => None,
            }
        };
        found.ok_or_else(|| ApiError::not_found("socket"))
    }

    /// The protection as it is stored.
    async fn protect(&self, protect: Protect) -> Result<BasicAuth, ApiError> {
        let Protect { username, password } = protect;
        let mut errors = Vec::new();
        let mut refuse = |field: &str, detail: String| {
            errors.push(FieldError { field: format!("protected.{field}"), detail });
        };
        let chars = username.chars().count();
        if chars == 0 || chars > MAX_USERNAME_CHARS || username.contains(':') || username.chars().any(char::is_control)
        {
            refuse(
                "username",
                format!("it has 1 to {MAX_USERNAME_CHARS} characters and no colon or control character"),
            );
        }
        let text = password.expose();
        if text.is_empty() || text.len() > MAX_PASSWORD_BYTES || text.chars().any(char::is_control) {
            refuse("password", format!("it has 1 to {MAX_PASSWORD_BYTES} bytes and no control character"));
        }
        if !errors.is_empty() {
            return Err(ApiError::fields(errors));
        }
        Ok(BasicAuth { username, password_hash: self.passwords.hash(password).await? })
    }
}

/// The account's sockets, oldest first
#[utoipa::path(
    get, path = "/v1/sockets", tag = "sockets", operation_id = "list_sockets", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Socket>),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let rows = app.store.sockets(caller.account.id, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |socket| app.shown(socket))))
}

/// Make a socket
///
/// A repetition with the same idempotency key gets the first answer again.
#[utoipa::path(
    post, path = "/v1/sockets", tag = "sockets", operation_id = "create_socket",
    params(("idempotency-key" = Option<String>, Header, description = "Makes the request repeatable for 24 hours.",
         min_length = 1, max_length = 128, pattern = "^[!-~]+$")),
    request_body = CreateSocket,
    responses(
        (status = 201, description = "The socket; edges know it already.", body = Socket),
        (status = 409, description = "`limit-reached`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request` or `idempotency-key-reused`", body = Problem,
         content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateSocket>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    app.limits.create(caller.account.id, app.clock.now().monotonic)?;
    let CreateSocket { name, socket_type, origin_protocol, protected } = input.value;
    let basic_auth = match protected {
        Some(protected) => Some(app.protect(protected).await?),
        None => None,
    };
    let new = NewSocket {
        id: SocketId::from_random(random::bytes()?),
        account: caller.account.id,
        display_name: name,
        socket_type,
        origin_protocol,
        basic_auth,
        port: None,
        settings: sallyport_model::SocketSettings::default(),
        created_at: app.clock.now().unix_seconds,
    };
    let mut randoms = [0; MAX_NAME_TRIES];
    for random in &mut randoms {
        *random = u64::from_ne_bytes(random::bytes()?);
    }
    let answer =
        |socket: &sallyport_model::Socket| serde_json::to_string(&app.shown(socket.clone())).unwrap_or_default();
    match app.store.create_socket(new, &randoms, input.keyed.as_ref(), answer).await? {
        Creation::Made((socket, answer)) => {
            app.publish(socket.id).await?;
            tracing::info!(socket = %socket.id, name = %socket.name, "socket created");
            Ok(located(json_text(StatusCode::CREATED, answer), &location(socket.id)))
        }
        Creation::Repeated(stored) => {
            let answer = stored.answer.ok_or_else(|| ApiError::internal("an answer was not stored"))?;
            let location = location(SocketId::from_bytes(stored.resource));
            let mut response = located(json_text(StatusCode::CREATED, answer), &location);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
    }
}

/// One socket
#[utoipa::path(
    get, path = "/v1/sockets/{id}", tag = "sockets", operation_id = "get_socket",
    params(("id" = String, Path, description = "The socket's id or DNS name.")),
    responses(
        (status = 200, description = "The socket.", body = Socket),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.account.id, &id).await?;
    Ok(json(StatusCode::OK, &app.shown(socket)))
}

/// Change a socket
#[utoipa::path(
    patch, path = "/v1/sockets/{id}", tag = "sockets", operation_id = "update_socket",
    params(("id" = String, Path, description = "The socket's id or DNS name.")),
    request_body = UpdateSocket,
    responses(
        (status = 200, description = "The socket as it is now; edges know it already.", body = Socket),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<UpdateSocket>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    if input.is_absent {
        return Err(ApiError::field("", "the body is missing: send a JSON object with what is to change"));
    }
    let found = app.find_socket(caller.account.id, &id).await?;
    let UpdateSocket { name, socket_type, origin_protocol, protected } = input.value;
    let basic_auth = match protected {
        Some(Some(protect)) => Some(Some(app.protect(protect).await?)),
        Some(None) => Some(None),
        None => None,
    };
    let change = SocketChange { display_name: name, socket_type, origin_protocol, basic_auth, settings: None };
    let changed = app.store.change_socket(caller.account.id, found.id, change).await?;
    let socket = changed.ok_or_else(|| ApiError::not_found("socket"))?;
    app.publish(socket.id).await?;
    tracing::info!(socket = %socket.id, "socket changed");
    Ok(json(StatusCode::OK, &app.shown(socket)))
}

/// Delete a socket with its tunnels
///
/// Its name is never given to another socket.
#[utoipa::path(
    delete, path = "/v1/sockets/{id}", tag = "sockets", operation_id = "delete_socket",
    params(("id" = String, Path, description = "The socket's id or DNS name.")),
    responses(
        (status = 204, description = "It is gone; edges know it already."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let socket = app.find_socket(caller.account.id, &id).await?;
    if !app.store.delete_socket(caller.account.id, socket.id).await? {
        return Err(ApiError::not_found("socket"));
    }
    app.unpublish(&[socket.id]).await;
    tracing::info!(socket = %socket.id, name = %socket.name, "socket deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
