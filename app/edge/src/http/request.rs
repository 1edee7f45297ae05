//! The path of a request, from its head to its record: [`serve`] is the whole of it, step by step.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT, HOST, TE},
    request::Parts,
};
use sallyport_balance::{Attempts, Delivery, Next};
use sallyport_http::{
    RequestHost, RequestId,
    basic::Credentials,
    codec,
    forward::{self, ForwardContext, NextHop, OurFields, Reach},
    refuse,
};
use sallyport_model::{Identity, OriginProtocol, SocketRoute, SocketType};
use sallyport_tunnel::OpenError;
use sallyport_wire::OpenError::TooManyStreams;
use tracing::{Instrument, Span, field::Empty};

use crate::{
    access::{self, admit},
    body::upload::{ClientBody, UploadSlot},
    http::{
        answer_body::{AnswerBody, Source},
        connection::Client,
        context::Ticket,
        error_page::{self, Trouble},
        guarded_io::Refused,
        local,
        server::HttpServer,
        tunnel_websocket,
        upgrade::{Relay, Upgrade, Upgraded},
    },
    origins::{
        affinity::Wish,
        http::{
            exchange::{self, Failure, OriginConnection, Patience, Question},
            forwarding::{self, Forwarding, Group},
            response_body::{Carrier, Download},
        },
        opening::Opening,
        origin::{ConnectError, InFlight, Origin},
        pool::SocketPool,
        transport::tls_detection,
    },
    policy::basic_auth::Access,
};

/// Serves one request: it goes to an origin and its answer comes back, or the client is told why not.
pub(crate) async fn serve(
    server: Arc<HttpServer>,
    client: Arc<Client>,
    request: Request<ClientBody>,
) -> Response<AnswerBody> {
    let websocket = forward::is_websocket_upgrade(request.method(), request.version(), request.headers());
    let (mut head, body) = request.into_parts();
    let (asked, upload) = (Asked::of(&head.headers), UploadSlot::of(body, client.uploads.as_ref()));
    let has_body = upload.is_some();
    let is_head = head.method == Method::HEAD;
    let stays_open = client.http2 || codec::keeps_connection(&head.headers, head.version == Version::HTTP_10);
    let mut upgraded = None;

    // 1. Name the request: its id, its client, its moment.
    let mut ticket = name(&server, &client, &head);
    ticket.has_body(upload.clone());
    let span = span_of(&ticket, &head);
    sallyport_otlp::continue_trace(&span, &mut head.headers);
    let steps = async {
        // 2. Refuse what is malformed.
        let host = refuse_malformed(&server, &client, &head, &span)?;
        ticket.is_for(&host);
        if host.is(&server.api_host) || local::is_watched(&client, &head, &host) {
            head.headers.insert(forward::X_REQUEST_ID, ticket.id().header_value());
            let answer = Box::pin(local::answer(&server, &client, head, upload)).await;
            return answer.map(|answer| local::by_tls_alone(&server, answer));
        }
        if host.is(&server.login_host) {
            head.headers.insert(forward::X_REQUEST_ID, ticket.id().header_value());
            return Ok(local::by_tls_alone(&server, local::pass_on(&server, &client, head, upload).await));
        }
        if host.is(&server.tunnel_host) {
            return tunnel_websocket::answer(&head, websocket, &mut upgraded);
        }
        // 3. Find the socket.
        let (route, pool) = find_socket(&server, &client, &host, &span)?;
        ticket.takes(&server, &route);
        ticket.is_of(route.id, pool.metrics(|| server.context.metrics.of_socket(route.name.as_str())));
        // 4. May they?
        let rules = admit::check_address(&server.access, &route, &pool, client.addr.ip())?;
        access::let_login_arrive(&server.access, &head).await;
        let arrival =
            access::Arrival { address: client.addr.ip(), certificate: client.shown.as_deref(), id: ticket.id() };
        let mut record = |who: Option<&Identity>, rule| ticket.is_judged(who, rule);
        let access = &server.access;
        let mut guest = access::may_enter(access, &arrival, &pool, &rules, &host, &mut head, &mut record)?;
        check_access(&server, &client, &route, &mut head).await?;
        if forward::count_hop(&head.method, &mut head.headers)? == Reach::Here {
            return Ok(error_page::in_place_of_origin(&head));
        }
        let forwarding = rules.forwarding();
        let group = forwarding.map_or(Ok(Group::ROOT), |forwarding| forwarding.group(head.uri.path()))?;
        let key = &server.context.config.affinity_key;
        let wish = Wish::of_request(&rules, key, client.addr.ip(), group, &mut head.headers);
        ticket.enters(admit::take_place(&pool, wish).await?);
        let mut outgoing = Outgoing::prepare(&client, &route, host, head, upload, websocket, ticket.id());
        if let Some(forwarding) = forwarding {
            forwarding.edit_request(&mut outgoing.headers);
        }
        if let Some(guest) = &mut guest {
            guest.announce(&mut outgoing.headers);
            ticket.stands(guest.standing());
        }
        let mut attempts = Tries::of(&outgoing, group);
        let (mut response, carrier, origin) = loop {
            // 5. Choose an origin.
            let origin = choose_origin(&server, &pool, &mut attempts, &ticket, &span).await?;
            if let Some(forwarding) = forwarding {
                // Its paths may have changed since the request came.
                if forwarding.group_of(origin.origin().handle().origin()) != Some(group) {
                    continue;
                }
                outgoing.go_by(forwarding, route.socket_type, origin.origin())?;
            }
            ticket.went_to(origin.origin().handle().clone());
            // 6. Open a connection to it, or reuse one.
            let connection = open_or_reuse(&server, &client, origin.origin(), attempts.delivery, &outgoing).await;
            // 7. Forward the request over it.
            let outcome = match connection {
                Ok(connection) => {
                    let pending = connection.pending_establishment();
                    let mut forwarded = pin!(forward(&server, &client, connection, attempts.delivery, &mut outgoing));
                    // Dropped before what is forwarded, and with it where the client leaves.
                    let opening = pending.map(|pending| Opening::new(&pool, origin.origin(), pending));
                    let outcome =
                        poll_fn(|cx| while_standing(&server, &pool, &mut ticket, forwarded.as_mut(), cx)).await;
                    if let Some(opening) = opening {
                        opening.settle();
                    }
                    outcome.ok_or(Trouble::Revoked)?.and_then(|answered| tls_detection::check_answer(&route, answered))
                }
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok((response, carrier)) => {
                    origin.origin().standing().served();
                    break (response, carrier, origin);
                }
                Err(failure) => {
                    let failure = tls_detection::explain(&route, origin.origin(), &outgoing.host, failure).await;
                    if failure.is_of_origin() {
                        pool.failed(origin.origin(), failure.as_ejection());
                    }
                    attempts.failed(&server, &ticket, &outgoing, origin, failure)?;
                }
            }
        };
        // 8. Answer.
        if let Some(forwarding) = forwarding {
            let (origin, told) = (origin.origin().handle().origin(), outgoing.told.as_deref());
            forwarding.edit_response(response.headers_mut(), origin, told, &outgoing.host);
        }
        access::is_answered(&server.access, guest.as_deref(), &outgoing.host, response.headers_mut());
        let mut answer = answer_with(&ticket, &pool, response, carrier, origin, websocket, &mut upgraded)?;
        if let Some(guest) = &mut guest {
            guest.renew(answer.headers_mut());
        }
        ticket.is_answered_by(pool);
        Ok(answer)
    };
    let mut answer = match steps.instrument(span.clone()).await {
        Ok(answer) => answer,
        Err(trouble) => tell(&server, &client, &mut ticket, trouble, &asked, has_body),
    };
    if websocket {
        client.wire.upgrade_answered(upgraded.is_some());
    }
    if is_head {
        error_page::without_body(&mut answer);
    }
    let is_last = upgraded.is_none() && (!stays_open || client.is_last_request(&server));
    if is_last {
        error_page::close_after(&mut answer);
    }

    // 9. Record it, once its body, or what it was upgraded to, has come to its end.
    ticket.answered(answer.status());
    span.record("status", answer.status().as_u16());
    answer.map(|body| match upgraded {
        Some(upgrade) => body.switching(Upgraded::new(upgrade, ticket)),
        None => {
            let body = body.with_ticket(ticket, server);
            if is_last { body.ending(client.wire.clone()) } else { body }
        }
    })
}

/// What the client can read, kept for an error page.
struct Asked {
    accept: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
}

impl Asked {
    fn of(headers: &HeaderMap) -> Self {
        Self { accept: headers.get(ACCEPT).cloned(), content_type: headers.get(CONTENT_TYPE).cloned() }
    }

    fn headers(&self) -> HeaderMap {
        let fields = [(ACCEPT, &self.accept), (CONTENT_TYPE, &self.content_type)];
        fields.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

/// Step 1. The ticket follows the request to its end.
fn name(server: &HttpServer, client: &Client, head: &Parts) -> Box<Ticket> {
    let metrics = server.no_socket.clone();
    let mut ticket = Ticket::new(
        server.context.ids.next(),
        head,
        client.addr,
        client.wire.clone(),
        metrics,
        server.context.config.access_log,
    );
    if refused(server, client, head).is_some() {
        ticket.has_no_target();
    }
    ticket
}

/// Why a request was refused before it could be read, where this is the one of our own making that stands for it.
fn refused(server: &HttpServer, client: &Client, head: &Parts) -> Option<Refused> {
    if client.http2 {
        // Its connection goes on with others.
        return head.extensions.get().copied();
    }
    client.wire.refused().filter(|_| server.refusal_path.is(head.uri.path()))
}

/// The span under which everything about the request is traced.
fn span_of(ticket: &Ticket, head: &Parts) -> Span {
    tracing::debug_span!(
        target: "request",
        "request",
        id = %ticket.id(),
        method = %head.method,
        path = ticket.path(),
        version = ?head.version,
        host = Empty,
        socket = Empty,
        tunnel = Empty,
        status = Empty,
    )
}

/// Step 2. What was refused unread comes as a request of our own making; everything else is looked at here.
fn refuse_malformed(server: &HttpServer, client: &Client, head: &Parts, span: &Span) -> Result<RequestHost, Trouble> {
    if let Some(refused) = refused(server, client, head) {
        return Err(match refused {
            Refused::Malformed(refusal) => Trouble::Malformed(refusal),
            Refused::HeadTimeout => Trouble::HeadTimeout,
        });
    }
    let known = client.last_host();
    let host = refuse::check_request(&head.method, &head.uri, head.version, &head.headers, known.as_ref())?;
    if client.shown.as_ref().is_some_and(|shown| !shown.is_for(host.name())) {
        return Err(Trouble::Misdirected);
    }
    span.record("host", host.as_str());
    Ok(host)
}

/// Step 3.
fn find_socket(
    server: &HttpServer,
    client: &Client,
    host: &RequestHost,
    span: &Span,
) -> Result<(Arc<SocketRoute>, Arc<SocketPool>), Trouble> {
    let find = || server.context.routes.by_name(&host.label_under(&server.context.config.domain)?);
    let route = client
        .route_of(&server.context.routes, host, find)
        .filter(|route| route.socket_type.is_http())
        .ok_or_else(|| Trouble::UnknownName(host.name().to_owned()))?;
    span.record("socket", tracing::field::display(route.id));
    let pool = server.context.sockets.pool(route.id);
    Ok((route, pool))
}

/// Step 4. The credentials are for us alone, and go no further.
async fn check_access(
    server: &HttpServer,
    client: &Client,
    route: &SocketRoute,
    head: &mut Parts,
) -> Result<(), Trouble> {
    let Some(rule) = &route.basic_auth else { return Ok(()) };
    let given = head.headers.remove(AUTHORIZATION).and_then(|value| Credentials::parse(value.as_bytes()).ok());
    match Box::pin(server.gatekeeper.check(rule, route.id, given, client.addr.ip())).await {
        Access::Granted => Ok(()),
        Access::Denied => Err(Trouble::Unauthorized(route.name.as_str().to_owned())),
        Access::TooManyFailures(seconds) => Err(Trouble::TooManyFailures(seconds)),
        Access::Busy => Err(Trouble::Busy),
    }
}

/// A request as it goes to an origin; kept until one has answered.
struct Outgoing {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    upload: Option<Arc<UploadSlot>>,
    hop: NextHop,
    websocket: bool,
    host: RequestHost,
    id: RequestId,
    /// The target as the client asked for it, where the origin knows it by another.
    asked: Option<Uri>,
    /// The host that the origin is told, where that is another than the client's.
    told: Option<String>,
    /// That the client speaks.
    version: Version,
}

impl Outgoing {
    fn prepare(
        client: &Client,
        route: &SocketRoute,
        host: RequestHost,
        mut head: Parts,
        upload: Option<Arc<UploadSlot>>,
        websocket: bool,
        id: RequestId,
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
            // The origin's connection would go on after the answer; over HTTP/1 it ends.
            Some(upload) if hop == NextHop::Http2 => upload.bound_silence(client.send_timeout),
            Some(upload) if expects => upload.expect_continue(),
            _ => {}
        }
        if !upload.as_ref().is_some_and(|upload| upload.expects_continue()) {
            head.headers.remove(EXPECT);
        }
        let version = head.version;
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
        Self { method, uri, headers, upload, hop, websocket, host, id, asked: None, told: None, version }
    }

    /// It goes to this origin, which may know the path and the host by other names.
    fn go_by(&mut self, forwarding: &Forwarding, socket_type: SocketType, origin: &Origin) -> Result<(), Trouble> {
        let way = origin.handle();
        let asked = self.asked.get_or_insert_with(|| self.uri.clone());
        self.uri = forwarding.target(way.origin(), asked, &mut self.headers)?;
        self.told = forwarding.told_host(way, socket_type);
        if let Some(told) = &self.told {
            match self.hop {
                NextHop::Http1 => {
                    if let Ok(host) = HeaderValue::from_str(told) {
                        self.headers.insert(HOST, host);
                    }
                }
                NextHop::Http2 => self.uri = forwarding::with_host(std::mem::take(&mut self.uri), told),
            }
        }
        Ok(())
    }

    fn is_untouched(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| upload.is_untouched())
    }
}

/// Whether the client takes trailers, which we pass on.
fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get(TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// The target in the form that the next hop wants (RFC 9112 section 3.2, RFC 9113 section 8.3.1).
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

/// What was tried for one request.
struct Tries {
    delivery: Delivery,
    tried: Attempts<u64>,
    /// The origins that it is for.
    group: Group,
    last: Option<Failure>,
    /// The same origin once more, over a new connection.
    again: Option<InFlight>,
}

impl Tries {
    fn of(outgoing: &Outgoing, group: Group) -> Self {
        let delivery = Delivery::new(outgoing.method.is_idempotent());
        Self { delivery, tried: Attempts::default(), group, last: None, again: None }
    }

    /// Whether another attempt may follow this failure; if not, it is what the client is told.
    fn failed(
        &mut self,
        server: &HttpServer,
        ticket: &Ticket,
        outgoing: &Outgoing,
        origin: InFlight,
        failure: Failure,
    ) -> Result<(), Trouble> {
        let next = self.delivery.handle_end(failure.received(), outgoing.is_untouched(), failure.is_stale());
        let asked = origin.origin().handle().origin();
        tracing::debug!(id = %ticket.id(), origin = %asked, ?next, %failure, "an attempt failed");
        match next {
            Next::Nothing => return Err(failure.into()),
            Next::SameOrigin => self.again = Some(origin),
            Next::OtherOrigin => self.last = Some(failure),
        }
        server.context.metrics.retried();
        Ok(())
    }
}

/// Step 5. Where no tunnel is up but one may be expected, the request waits for it.
async fn choose_origin(
    server: &HttpServer,
    pool: &SocketPool,
    attempts: &mut Tries,
    ticket: &Ticket,
    span: &Span,
) -> Result<InFlight, Trouble> {
    if let Some(origin) = attempts.again.take() {
        return Ok(origin);
    }
    loop {
        if let Some(origin) = pool.choose(attempts.group, &mut attempts.tried, ticket.wish()) {
            span.record("tunnel", tracing::field::display(origin.origin().handle().origin()));
            return Ok(origin);
        }
        let is_unwell = pool.is_unwell(attempts.group);
        let is_hopeful = !attempts.tried.is_exhausted() && attempts.last.as_ref().is_none_or(Failure::is_of_tunnel);
        if is_unwell
            || !is_hopeful
            || !Box::pin(server.context.sockets.hold(pool, attempts.group, &attempts.tried, ticket.began())).await
        {
            let nobody = || {
                if is_unwell { Trouble::NoHealthyOrigin } else { Trouble::NoTunnel }
            };
            return Err(attempts.last.take().map_or_else(nobody, Trouble::Origin));
        }
    }
}

/// Step 6.
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
            let shared = !has_own && outgoing.upload.is_none() && origin.shares_well();
            let idle = if has_own { None } else { origin.take_idle(client.addr, delivery.may_repeat(), shared) };
            match idle {
                Some(connection) => Ok(OriginConnection::H1 { connection, reused: true }),
                None => {
                    let place = origin.opening_place(client.addr.ip());
                    let place = tokio::time::timeout(server.context.config.connect_timeout, Box::pin(place)).await;
                    // It says nothing of the origin.
                    let place = place.map_err(|_| ConnectError::from(OpenError::NoRoom(TooManyStreams)))?;
                    let mut connection = origin.connect_h1(client.addr, server_name, shared)?;
                    connection.holds_until_taken(place);
                    Ok(OriginConnection::H1 { connection, reused: false })
                }
            }
        }
        NextHop::Http2 => {
            let place =
                Box::pin(origin.connect_h2(client.addr, server_name, server.context.config.connect_timeout)).await?;
            Ok(OriginConnection::H2(place))
        }
    }
}

/// Step 7.
async fn forward(
    server: &HttpServer,
    client: &Client,
    connection: OriginConnection,
    delivery: Delivery,
    outgoing: &mut Outgoing,
) -> Result<(Response<()>, Carrier), Failure> {
    let Outgoing { method, uri, headers, upload, host, id, version, .. } = outgoing;
    let ours = Some(OurFields { client: &client.fields, host, request_id: id, version: *version });
    let question = Question { method, target: uri, headers, ours, upload: upload.as_ref(), delivery };
    let patience =
        Patience { connect: server.context.config.connect_timeout, response: server.context.config.response_timeout };
    exchange::exchange(connection, question, patience).await
}

/// Polls this for as long as whose request it is may go on with it.
fn while_standing<T>(
    server: &Arc<HttpServer>,
    pool: &Arc<SocketPool>,
    ticket: &mut Ticket,
    what: Pin<&mut impl Future<Output = T>>,
    cx: &mut Context<'_>,
) -> Poll<Option<T>> {
    match what.poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => ticket.poll_over(server, pool, cx).map(|()| None),
    }
}

/// Step 8, when an origin answered.
fn answer_with(
    ticket: &Ticket,
    pool: &SocketPool,
    response: Response<()>,
    carrier: Carrier,
    origin: InFlight,
    websocket: bool,
    upgraded: &mut Option<Upgrade>,
) -> Result<Response<AnswerBody>, Trouble> {
    let (mut head, ()) = response.into_parts();
    let switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    forward::response_headers(&mut head.headers, &ticket.id().header_value(), switched && websocket);
    ticket.wish().set_cookie(|| pool.code(origin.origin()), &mut head.headers);
    let source = match carrier {
        Carrier::H1(connection) if switched && websocket => {
            *upgraded = Some(Upgrade::Relay(Relay::new(connection, origin)));
            Source::Empty
        }
        _ if switched => return Err(Failure::Unasked.into()),
        carrier => Source::Origin(Download::new(carrier, origin)),
    };
    Ok(Response::from_parts(head, AnswerBody::new(source, None)))
}

/// Step 8, when none did.
fn tell(
    server: &HttpServer,
    client: &Client,
    ticket: &mut Ticket,
    trouble: Trouble,
    asked: &Asked,
    has_body: bool,
) -> Response<AnswerBody> {
    // A body that the guard broke off is malformed, whatever became of the attempt that it broke.
    let trouble = match (client.wire.refused(), &trouble) {
        (Some(Refused::Malformed(refusal)), Trouble::Origin(_)) => Trouble::Malformed(refusal),
        _ => trouble,
    };
    server.context.metrics.refused(trouble.reason());
    ticket.refused(trouble.reason());
    tracing::debug!(id = %ticket.id(), reason = trouble.reason(), ?trouble, "a request was not answered by an origin");
    if has_body {
        client.wire.left_unread();
    }
    let mut answer = trouble.answer(ticket.id(), &asked.headers(), &server.context.site());
    if answer.status().is_client_error() || answer.status().is_server_error() {
        ticket.tell_owner(server);
    }
    if trouble.ends_connection() && !client.http2 {
        error_page::close_after(&mut answer);
    }
    answer
}
