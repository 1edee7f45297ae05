//! The path of a request, from its head to its record: [`serve`] takes the steps in order.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT, HOST, TE, USER_AGENT},
    request::Parts,
};
use sallyport_balance::{Attempts, Delivery, Next};
use sallyport_http::{
    RequestHost, RequestId, RequestRefusal,
    basic::Credentials,
    connection::keeps_connection,
    forward::{self, ForwardContext, NextHop, OurFields, Recipient},
    refuse,
    websocket::{NoWebSocket, WebSocketKey},
};
use sallyport_model::{Identity, OriginProtocol, SocketRoute, SocketType};
use sallyport_tunnel::OpenError;
use sallyport_wire::OpenError::TooManyStreams;
use tracing::{Instrument, Span, field::Empty};

use crate::{
    access::{self, admit},
    body::upload::{ClientBody, UploadState},
    http::{
        connection::Client,
        context::RequestContext,
        error_page::{self, RequestError},
        local,
        response_body::{ResponseBody, Source},
        server::HttpServer,
        tunnel_websocket,
        upgrade::{Relay, Upgrade, Upgraded},
    },
    origins::{
        affinity::AffinityHint,
        http::{
            exchange::{self, Failure, OriginConnection, OriginRequest, OriginTimeouts},
            forwarding::{self, Forwarding, Group},
            response_body::{Download, ResponseCarrier},
            tls_detection,
        },
        opening::Opening,
        origin::{ConnectError, InFlight, Origin},
        pool::SocketPool,
        quotas::QuotaChoice,
        rules::Rules,
    },
    policy::basic_auth::Access,
    util::OWN_PROGRAM,
};

/// The field that marks early data for origins (RFC 8470 section 5.1).
const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// Marks a request in the early data of a connection (0-RTT): somebody who has recorded the request may send it again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlyData;

/// Serves one request: forwards it to an origin, or responds with an error.
pub(crate) async fn serve(
    server: Arc<HttpServer>,
    client: Arc<Client>,
    request: Request<ClientBody>,
) -> Response<ResponseBody> {
    let (mut head, body) = request.into_parts();
    let websocket = WebSocketRequest::of(&mut head);
    let (accepted, upload) = (AcceptedMedia::of(&head.headers), UploadState::of(body, client.uploads.as_ref()));
    let has_body = upload.is_some();
    let is_head = head.method == Method::HEAD;
    let stays_open = client.is_multiplexed || keeps_connection(&head.headers, head.version == Version::HTTP_10);
    let mut upgraded = None;
    let mut offers_http3 = head.version != Version::HTTP_3;

    // 1. Name the request: its id, its client, its moment.
    let mut context = name(&server, &client, &head);
    context.set_upload(upload.clone());
    let span = span_of(&context, &head);
    sallyport_otlp::continue_trace(&span, &mut head.headers);
    let steps = async {
        // 2. Refuse what is malformed, or comes too early.
        let host = refuse_malformed(&client, &mut head, &websocket, &span)?;
        refuse_early(&server, &mut head, &host, has_body || websocket.is_wanted())?;
        context.set_host(&host);
        if host.is(&server.api_host) || local::is_monitoring_request(&client, &head, &host) {
            websocket.refuse_connect()?;
            head.headers.insert(forward::X_REQUEST_ID, context.id().header_value());
            let response = Box::pin(local::respond(&server, &client, head, upload)).await;
            return response.map(|response| local::with_hsts(&server, response));
        }
        if host.is(&server.login_host) || host.is(&server.desk_host) {
            websocket.refuse_connect()?;
            head.headers.insert(forward::X_REQUEST_ID, context.id().header_value());
            return Ok(local::with_hsts(&server, local::call_api(&server, &client, head, upload).await));
        }
        if host.is(&server.tunnel_host) {
            return tunnel_websocket::respond(&head, websocket.is_upgrade(), &mut upgraded);
        }
        // 3. Find the socket.
        let (route, pool) = find_socket(&server, &client, &host, &span)?;
        context.set_route(&server, &route);
        // A client with a certificate presents it over TCP.
        offers_http3 &= !access::accepts_certificates(&server.access, &route);
        context.set_socket(route.id, pool.metrics(|| server.state.metrics.of_socket(route.name.as_str())));
        // 4. Check access.
        let rules = admit::check_address(&server.access, &route, &pool, client.addr.ip())?;
        if let Some(claimed) = client.claimed {
            admit::check_address(&server.access, &route, &pool, claimed)?;
        }
        refuse_unproven(&head, &rules)?;
        access::let_login_arrive(&server.access, &head).await;
        let (address, certificate) = (client.addr.ip(), client.certificate.as_deref());
        let (claimed, moves) = (client.claimed, client.moves.as_ref());
        let source = access::RequestSource { address, claimed, moves, certificate, id: context.id() };
        let mut record = |identity: Option<&Identity>, rule| context.record_decision(identity, rule);
        let access = &server.access;
        let mut principal = access::authorize_request(access, &source, &pool, &rules, &host, &mut head, &mut record)?;
        check_access(&server, &client, &route, &mut head).await?;
        if forward::decrement_max_forwards(&head.method, &mut head.headers)? == Recipient::Edge {
            return Ok(error_page::final_recipient_response(&head));
        }
        let forwarding = rules.forwarding();
        let group = forwarding.map_or(Ok(Group::ROOT), |forwarding| forwarding.group(head.uri.path()))?;
        let key = &server.state.config.affinity_key;
        let hint = AffinityHint::of_request(&rules, key, client.addr.ip(), group, &mut head.headers);
        context.set_pass(admit::take_place(&pool, hint).await?);
        let mut outgoing = Outgoing::prepare(&client, &route, host, head, upload, websocket.is_wanted(), &context);
        if let Some(forwarding) = forwarding {
            forwarding.edit_request(&mut outgoing.headers);
        }
        if let Some(principal) = &mut principal {
            principal.announce(&mut outgoing.headers);
            context.set_revalidation(principal.take_revalidation());
        }
        let mut attempts = OriginAttempts::of(&outgoing, group);
        let (mut response, carrier, origin) = loop {
            // 5. Choose an origin.
            let origin = choose_origin(&server, &pool, &mut attempts, &context, &span).await?;
            if let Some(forwarding) = forwarding {
                // The paths of the origin may have changed since the request came.
                if forwarding.group_of(origin.origin().handle().origin()) != Some(group) {
                    continue;
                }
                outgoing.address_to(forwarding, route.socket_type, origin.origin())?;
            }
            context.set_transport(origin.origin().handle().clone());
            // 6. Open a connection to it, or reuse one.
            let connection = open_or_reuse(&server, &client, origin.origin(), attempts.delivery, &outgoing).await;
            // 7. Forward the request over it.
            let outcome = match connection {
                Ok(connection) => {
                    let pending = connection.pending_establishment();
                    let mut forwarded = pin!(forward(&server, &client, connection, attempts.delivery, &mut outgoing));
                    // Dropped before `forwarded`, also when the client leaves.
                    let opening = pending.map(|pending| Opening::new(&pool, origin.origin(), pending));
                    let outcome =
                        poll_fn(|cx| poll_unless_revoked(&server, &pool, &mut context, forwarded.as_mut(), cx)).await;
                    if let Some(opening) = opening {
                        opening.settle();
                    }
                    outcome
                        .ok_or(RequestError::Revoked)?
                        .and_then(|exchanged| tls_detection::check_response(&route, exchanged))
                }
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok((response, carrier)) => {
                    origin.origin().health_state().served();
                    origin.record_answer(is_overload(response.status()));
                    break (response, carrier, origin);
                }
                Err(failure) => {
                    let failure = tls_detection::explain(&route, origin.origin(), &outgoing.host, failure).await;
                    if failure.is_connect_failure() {
                        pool.record_failure(origin.origin(), failure.as_ejection());
                    }
                    origin.record_answer(true);
                    attempts.failed(&server, &context, &outgoing, origin, failure)?;
                }
            }
        };
        // 8. Respond.
        if let Some(forwarding) = forwarding {
            let (origin, origin_host) = (origin.origin().handle().origin(), outgoing.origin_host.as_deref());
            forwarding.edit_response(response.headers_mut(), origin, origin_host, &outgoing.host);
        }
        access::filter_response_cookies(&server.access, principal.as_deref(), &outgoing.host, response.headers_mut());
        let mut response = response_of(&context, &pool, response, carrier, origin, &websocket, &mut upgraded)?;
        if let Some(principal) = &mut principal {
            principal.renew(response.headers_mut());
        }
        context.set_pool(pool);
        Ok(response)
    };
    let mut response = match steps.instrument(span.clone()).await {
        Ok(response) => response,
        Err(error) => error_response(&server, &client, &mut context, error, &accepted, has_body),
    };
    if websocket.is_connect() && upgraded.is_none() && response.status().is_success() {
        // The client would take it for an open WebSocket.
        let error = Failure::NoWebSocket.into();
        response = error_response(&server, &client, &mut context, error, &AcceptedMedia::default(), false);
    }
    if is_head {
        error_page::drop_body(&mut response);
    }
    let is_last = upgraded.is_none() && (!stays_open || client.is_last_request(&server));
    if is_last {
        error_page::set_connection_close(&mut response);
    }

    if offers_http3 {
        server.alt_svc.add_to(response.headers_mut());
    }

    // 9. Record the request when its body, or the protocol after an upgrade, has ended.
    context.record_status(response.status());
    span.record("status", response.status().as_u16());
    response.map(|body| match upgraded {
        Some(upgrade) => body.with_upgrade(Upgraded::new(upgrade, context)),
        None => {
            let body = body.with_context(context, server);
            if is_last { body.with_connection_end(client.wire.clone()) } else { body }
        }
    })
}

/// Whether a request asks for a WebSocket, and how.
enum WebSocketRequest {
    /// It does not.
    No,
    /// By an HTTP/1.1 upgrade.
    Upgrade,
    /// By an extended CONNECT. The edge opens the WebSocket to the origin with this key.
    Connect(WebSocketKey),
}

impl WebSocketRequest {
    /// Takes the key of an extended CONNECT out of the head.
    fn of(head: &mut Parts) -> Self {
        match head.extensions.remove() {
            Some(key) => Self::Connect(key),
            None if forward::is_websocket_upgrade(&head.method, head.version, &head.headers) => Self::Upgrade,
            None => Self::No,
        }
    }

    fn is_wanted(&self) -> bool {
        !matches!(self, Self::No)
    }

    fn is_upgrade(&self) -> bool {
        matches!(self, Self::Upgrade)
    }

    fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_))
    }

    /// Refuses an extended CONNECT to the edge itself, which has no WebSockets.
    fn refuse_connect(&self) -> Result<(), RequestRefusal> {
        if self.is_connect() { Err(RequestRefusal::Connect) } else { Ok(()) }
    }
}

/// The header fields that decide the format of an error page.
#[derive(Default)]
struct AcceptedMedia {
    accept: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
}

impl AcceptedMedia {
    fn of(headers: &HeaderMap) -> Self {
        Self { accept: headers.get(ACCEPT).cloned(), content_type: headers.get(CONTENT_TYPE).cloned() }
    }

    fn headers(&self) -> HeaderMap {
        let fields = [(ACCEPT, &self.accept), (CONTENT_TYPE, &self.content_type)];
        fields.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

/// Whether the edge asks itself whether it serves.
fn is_own_check(client: &Client, head: &Parts) -> bool {
    head.uri.path() == "/healthz"
        && head.headers.get(USER_AGENT).is_some_and(|program| program == OWN_PROGRAM)
        && client.addr.ip().to_canonical().is_loopback()
}

/// Step 1. Makes the context, which follows the request to its end.
fn name(server: &HttpServer, client: &Client, head: &Parts) -> Box<RequestContext> {
    let metrics = server.no_socket.clone();
    let is_logged = server.state.config.access_log && !is_own_check(client, head);
    let mut context = RequestContext::new(server.state.ids.next(), head, client, metrics, is_logged);
    if refused(head).is_some() {
        context.mark_unreadable();
    }
    context
}

/// Why the request was refused before it could be parsed, if it was.
fn refused(head: &Parts) -> Option<RequestRefusal> {
    head.extensions.get().copied()
}

/// The tracing span of the request.
fn span_of(context: &RequestContext, head: &Parts) -> Span {
    tracing::debug_span!(
        target: "request",
        "request",
        id = %context.id(),
        method = context.method(),
        path = context.path(),
        version = ?head.version,
        host = Empty,
        socket = Empty,
        tunnel = Empty,
        status = Empty,
    )
}

/// Step 2. Returns the refusal of an unparsed request, and checks a parsed one. From here on, an extended CONNECT for a
/// WebSocket is an upgrade.
fn refuse_malformed(
    client: &Client,
    head: &mut Parts,
    websocket: &WebSocketRequest,
    span: &Span,
) -> Result<RequestHost, RequestError> {
    if let Some(refused) = refused(head) {
        return Err(match refused {
            RequestRefusal::HeadTimeout => RequestError::HeadTimeout,
            refusal => RequestError::Malformed(refusal),
        });
    }
    let known = client.last_host();
    let method = if websocket.is_connect() { &Method::GET } else { &head.method };
    let host = refuse::check_request(method, &head.uri, head.version, &head.headers, known.as_ref())?;
    if client.certificate.as_ref().is_some_and(|certificate| !certificate.is_for(host.name())) {
        return Err(RequestError::Misdirected);
    }
    span.record("host", host.as_str());
    if let WebSocketRequest::Connect(key) = websocket {
        key.to_upgrade(head);
    }
    Ok(host)
}

/// Step 2. Refuses early data unless its repetition is harmless, and marks it for the origin. `goes_on` says that a
/// body or a WebSocket follows the head.
//= RFC 8470 section 5.1
//# An intermediary that forwards a request prior to the completion of the TLS handshake with its client MUST send it
//# with the Early-Data header field set to "1"
fn refuse_early(server: &HttpServer, head: &mut Parts, host: &RequestHost, goes_on: bool) -> Result<(), RequestError> {
    if head.extensions.get::<EarlyData>().is_none() {
        return Ok(());
    }
    let is_harmless = matches!(head.method, Method::GET | Method::HEAD) && !goes_on;
    let own_hosts = [&server.api_host, &server.login_host, &server.desk_host, &server.tunnel_host];
    if !is_harmless || own_hosts.iter().any(|own| host.is(own)) {
        return Err(RequestError::TooEarly);
    }
    head.headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
    Ok(())
}

/// Step 4. Refuses early data where the client's address may decide: the proof of it may be a day old.
fn refuse_unproven(head: &Parts, rules: &Rules) -> Result<(), RequestError> {
    let is_early = head.extensions.get::<EarlyData>().is_some();
    if is_early && rules.look_at_addresses() { Err(RequestError::TooEarly) } else { Ok(()) }
}

/// Step 3. Finds the socket's route and its pool of origins.
fn find_socket(
    server: &HttpServer,
    client: &Client,
    host: &RequestHost,
    span: &Span,
) -> Result<(Arc<SocketRoute>, Arc<SocketPool>), RequestError> {
    let find = || server.state.route_of_host(host.name());
    let route = client
        .route_of(&server.state.routes, host, find)
        .filter(|route| route.socket_type.is_http())
        .ok_or_else(|| match host.name() {
            name if name == server.state.config.domain => RequestError::DomainItself(name.to_owned()),
            name => RequestError::UnknownName(name.to_owned()),
        })?;
    span.record("socket", tracing::field::display(route.id));
    let pool = server.state.sockets.pool(route.id);
    Ok((route, pool))
}

/// Step 4. Checks user name and password, and removes them from the request.
async fn check_access(
    server: &HttpServer,
    client: &Client,
    route: &SocketRoute,
    head: &mut Parts,
) -> Result<(), RequestError> {
    let Some(rule) = &route.basic_auth else { return Ok(()) };
    let given = head.headers.remove(AUTHORIZATION).and_then(|value| Credentials::parse(value.as_bytes()).ok());
    let is_wrong = given.is_some();
    match Box::pin(server.basic_auth.check(rule, route.id, given, client.addr.ip())).await {
        Access::Granted => Ok(()),
        Access::Denied => Err(RequestError::Unauthorized { realm: route.name.as_str().to_owned(), is_wrong }),
        Access::TooManyFailures(seconds) => Err(RequestError::TooManyFailures(seconds)),
        Access::Busy => Err(RequestError::Busy),
    }
}

/// A request as origins get it, kept until an origin responds.
struct Outgoing {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    upload: Option<Arc<UploadState>>,
    hop: NextHop,
    websocket: bool,
    host: RequestHost,
    id: RequestId,
    /// The requested target, if the origin gets another one.
    original_uri: Option<Uri>,
    /// The `Host` for the origin, if it differs from the requested host.
    origin_host: Option<String>,
    /// The HTTP version of the client.
    version: Version,
}

impl Outgoing {
    fn prepare(
        client: &Client,
        route: &SocketRoute,
        host: RequestHost,
        mut head: Parts,
        upload: Option<Arc<UploadState>>,
        websocket: bool,
        context: &RequestContext,
    ) -> Self {
        let hop = match route.origin_protocol {
            _ if websocket => NextHop::Http1,
            OriginProtocol::Auto if forward::is_grpc(&head.headers) => NextHop::Http2,
            OriginProtocol::Auto | OriginProtocol::Http1 => NextHop::Http1,
            OriginProtocol::Http2 => NextHop::Http2,
        };
        //= RFC 9110 section 10.1.1
        //# A server that receives a 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation.
        let expects = head.version != Version::HTTP_10
            && head.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        match &upload {
            // An HTTP/2 connection to the origin stays open after the response; an HTTP/1 connection closes.
            Some(upload) if hop == NextHop::Http2 => upload.set_max_silence(client.send_timeout),
            Some(upload) if expects => upload.set_expects_continue(),
            _ => {}
        }
        if !upload.as_ref().is_some_and(|upload| upload.expects_continue()) {
            head.headers.remove(EXPECT);
        }
        let (id, version) = (context.id(), context.version());
        let ours = OurFields { client: &client.fields, host: &host, request_id: &id, version };
        let context = ForwardContext { ours, websocket, origin: hop };
        let wants_trailers = hop == NextHop::Http1 && !websocket && wants_trailers(&head.headers);
        forward::request_headers(&mut head.headers, &context);
        if wants_trailers {
            //= RFC 9110 section 10.1.4
            //# A sender of TE MUST also send a "TE" connection option within the Connection header field
            head.headers.insert(TE, HeaderValue::from_static("trailers"));
            head.headers.insert(CONNECTION, HeaderValue::from_static("TE"));
        }
        let uri = uri_for(hop, route.socket_type, &host, head.uri);
        let (method, headers) = (head.method, head.headers);
        Self { method, uri, headers, upload, hop, websocket, host, id, original_uri: None, origin_host: None, version }
    }

    /// Sets target and host to those that this origin expects.
    fn address_to(
        &mut self,
        forwarding: &Forwarding,
        socket_type: SocketType,
        origin: &Origin,
    ) -> Result<(), RequestError> {
        let transport = origin.handle();
        let original = self.original_uri.get_or_insert_with(|| self.uri.clone());
        self.uri = forwarding.target(transport.origin(), original, &mut self.headers)?;
        self.origin_host = forwarding.origin_host(transport, socket_type);
        if let Some(origin_host) = &self.origin_host {
            match self.hop {
                NextHop::Http1 => {
                    if let Ok(host) = HeaderValue::from_str(origin_host) {
                        self.headers.insert(HOST, host);
                    }
                }
                NextHop::Http2 => self.uri = forwarding::with_host(std::mem::take(&mut self.uri), origin_host),
            }
        }
        Ok(())
    }

    fn is_untouched(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| upload.is_untouched())
    }
}

/// Whether the client accepts trailers.
fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get(TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// The target in the form for the next hop (RFC 9112 section 3.2, RFC 9113 section 8.3.1).
fn uri_for(hop: NextHop, socket_type: SocketType, host: &RequestHost, uri: Uri) -> Uri {
    if hop == NextHop::Http1 && uri.authority().is_none() {
        return uri;
    }
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = uri.path_and_query().cloned();
    if hop == NextHop::Http2 {
        let scheme = match socket_type {
            SocketType::Https => http::uri::Scheme::HTTPS,
            _ => http::uri::Scheme::HTTP,
        };
        parts.scheme = Some(scheme);
        parts.authority = host.as_str().parse().ok();
    }
    Uri::from_parts(parts).unwrap_or(uri)
}

/// The attempts of one request.
struct OriginAttempts {
    delivery: Delivery,
    tried: Attempts<u64>,
    /// The group of origins that may serve the request.
    group: Group,
    last: Option<Failure>,
    /// The origin of the last attempt, to be tried again over a new connection.
    again: Option<InFlight>,
}

impl OriginAttempts {
    fn of(outgoing: &Outgoing, group: Group) -> Self {
        let delivery = Delivery::new(outgoing.method.is_idempotent());
        Self { delivery, tried: Attempts::default(), group, last: None, again: None }
    }

    /// Records a failed attempt.
    ///
    /// # Errors
    /// The failure, if no other attempt may follow.
    fn failed(
        &mut self,
        server: &HttpServer,
        context: &RequestContext,
        outgoing: &Outgoing,
        origin: InFlight,
        failure: Failure,
    ) -> Result<(), RequestError> {
        let next = self.delivery.handle_end(failure.received(), outgoing.is_untouched(), failure.is_stale());
        let tried = origin.origin().handle().origin();
        tracing::debug!(id = %context.id(), origin = %tried, ?next, %failure, "an attempt failed");
        match next {
            Next::Nothing => return Err(failure.into()),
            Next::SameOrigin => self.again = Some(origin),
            Next::OtherOrigin => self.last = Some(failure),
        }
        server.state.metrics.retried();
        Ok(())
    }
}

/// Whether an origin says by this status that it has too much to do.
fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Step 5. Chooses an origin. Waits if no tunnel is up and one is expected, or if no origin has room.
async fn choose_origin(
    server: &HttpServer,
    pool: &SocketPool,
    attempts: &mut OriginAttempts,
    context: &RequestContext,
    span: &Span,
) -> Result<InFlight, RequestError> {
    if let Some(origin) = attempts.again.take() {
        return Ok(origin);
    }
    loop {
        let chosen = if pool.quotas().is_limited() {
            match Box::pin(pool.choose_by_quota(attempts.group, &mut attempts.tried, context.hint())).await {
                QuotaChoice::Chosen(origin) => Some(origin),
                QuotaChoice::NoOrigin => None,
                QuotaChoice::Full(retry_after) => {
                    let full = RequestError::OverCapacity(retry_after);
                    return Err(attempts.last.take().map_or(full, RequestError::Origin));
                }
            }
        } else {
            pool.choose(attempts.group, &mut attempts.tried, context.hint())
        };
        if let Some(origin) = chosen {
            span.record("tunnel", tracing::field::display(origin.origin().handle().origin()));
            return Ok(origin);
        }
        let is_unhealthy = pool.is_unhealthy(attempts.group);
        let may_recover =
            !attempts.tried.is_exhausted() && attempts.last.as_ref().is_none_or(Failure::is_tunnel_failure);
        if is_unhealthy
            || !may_recover
            || !Box::pin(server.state.sockets.hold(pool, attempts.group, &attempts.tried, context.began())).await
        {
            let unavailable = || {
                if is_unhealthy { RequestError::NoHealthyOrigin } else { RequestError::NoTunnel }
            };
            return Err(attempts.last.take().map_or_else(unavailable, RequestError::Origin));
        }
    }
}

/// Step 6. Opens a connection to the origin, or takes an idle one.
async fn open_or_reuse(
    server: &HttpServer,
    client: &Client,
    origin: &Origin,
    delivery: Delivery,
    outgoing: &Outgoing,
) -> Result<OriginConnection, Failure> {
    let server_name = outgoing.host.name();
    match outgoing.hop {
        NextHop::Http1 => {
            let has_own = delivery.wants_new_connection() || outgoing.websocket;
            let shared = !has_own && outgoing.upload.is_none() && origin.prefers_shared();
            let idle = if has_own { None } else { origin.take_idle(client.addr, delivery.may_repeat(), shared) };
            match idle {
                Some(connection) => Ok(OriginConnection::H1 { connection, reused: true }),
                None => {
                    let place = origin.opening_place(client.addr.ip());
                    let place = tokio::time::timeout(server.state.config.connect_timeout, Box::pin(place)).await;
                    // The timeout is no evidence about the origin.
                    let place = place.map_err(|_| ConnectError::from(OpenError::NoRoom(TooManyStreams)))?;
                    let mut connection = origin.connect_h1(client.addr, server_name, shared)?;
                    connection.set_opening_place(place);
                    Ok(OriginConnection::H1 { connection, reused: false })
                }
            }
        }
        NextHop::Http2 => {
            let place =
                Box::pin(origin.connect_h2(client.addr, server_name, server.state.config.connect_timeout)).await?;
            Ok(OriginConnection::H2(place))
        }
    }
}

/// Step 7. Sends the request, and waits for the head of the response.
async fn forward(
    server: &HttpServer,
    client: &Client,
    connection: OriginConnection,
    delivery: Delivery,
    outgoing: &mut Outgoing,
) -> Result<(Response<()>, ResponseCarrier), Failure> {
    let Outgoing { method, uri, headers, upload, host, id, version, .. } = outgoing;
    let ours = Some(OurFields { client: &client.fields, host, request_id: id, version: *version });
    let request = OriginRequest { method, target: uri, headers, ours, upload: upload.as_ref(), delivery };
    let timeouts =
        OriginTimeouts { connect: server.state.config.connect_timeout, response: server.state.config.response_timeout };
    exchange::exchange(connection, request, timeouts).await
}

/// Polls `what` until the access of the client is revoked; then returns `None`.
fn poll_unless_revoked<T>(
    server: &Arc<HttpServer>,
    pool: &Arc<SocketPool>,
    context: &mut RequestContext,
    what: Pin<&mut impl Future<Output = T>>,
    cx: &mut Context<'_>,
) -> Poll<Option<T>> {
    match what.poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => context.poll_over(server, pool, cx).map(|()| None),
    }
}

/// Step 8. Makes the response to the client from that of an origin.
fn response_of(
    context: &RequestContext,
    pool: &SocketPool,
    mut response: Response<()>,
    carrier: ResponseCarrier,
    origin: InFlight,
    websocket: &WebSocketRequest,
    upgraded: &mut Option<Upgrade>,
) -> Result<Response<ResponseBody>, RequestError> {
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if let WebSocketRequest::Connect(key) = websocket
        && switched
    {
        key.to_opened(&mut response).map_err(|NoWebSocket| Failure::NoWebSocket)?;
    }
    let (mut head, ()) = response.into_parts();
    forward::response_headers(&mut head.headers, &context.id().header_value(), switched && websocket.is_upgrade());
    context.hint().set_cookie(|| pool.code(origin.origin()), &mut head.headers);
    let source = match carrier {
        ResponseCarrier::H1(connection) if switched && websocket.is_wanted() => {
            *upgraded = Some(Upgrade::Relay(Relay::new(connection, origin)));
            Source::Empty
        }
        _ if switched => return Err(Failure::UnexpectedUpgrade.into()),
        carrier => Source::Origin(Download::new(carrier, origin)),
    };
    Ok(Response::from_parts(head, ResponseBody::new(source, None)))
}

/// Step 8. Makes the error response if no origin responded.
fn error_response(
    server: &HttpServer,
    client: &Client,
    context: &mut RequestContext,
    error: RequestError,
    accepted: &AcceptedMedia,
    has_body: bool,
) -> Response<ResponseBody> {
    // A malformed body makes the attempt fail. The error page names the cause, not the attempt.
    let error = match (client.wire.refused(), &error) {
        (Some(refusal), RequestError::Origin(_)) => RequestError::Malformed(refusal),
        _ => error,
    };
    server.state.metrics.refused(error.reason());
    context.record_refusal(error.reason());
    tracing::debug!(id = %context.id(), reason = error.reason(), ?error, "the edge answered a request with an error");
    if has_body {
        client.wire.mark_unread();
    }
    let mut response = error.to_response(context.id(), &accepted.headers(), &server.state.site());
    if response.status().is_client_error() || response.status().is_server_error() {
        context.set_log_transport(server);
    }
    if error.ends_connection() && !client.is_multiplexed {
        error_page::set_connection_close(&mut response);
    }
    response
}
