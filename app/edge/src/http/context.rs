//! The record of a request, step 9 of the request path.

use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http::{Method, Uri, Version, uri::PathAndQuery};
use sallyport_bus::FlowGuard;
use sallyport_http::{RequestHost, RequestId};
use sallyport_model::{Identity, RequestRecord, SocketId, SocketRoute};
use tokio::sync::watch;

use crate::{
    access::{AccessRevalidation, RevocationCheck, RevocationSlot, UncheckedRequest, Whereabouts, admit::Pass},
    body::upload::UploadState,
    http::{connection::Client, send_bound, server::HttpServer, wire_state::WireState},
    metrics::{
        SocketMetrics,
        recent::{Entry, EntryId, kept_path},
        socket_counts,
    },
    origins::{affinity::AffinityHint, pool::SocketPool, transport::OriginTransport},
    record::audit::{self, Audited, Use},
};

/// A request from its beginning to its record. Dropping the context records the end once.
pub(crate) struct RequestContext {
    began: Instant,
    id: RequestId,
    method: Method,
    uri: Uri,
    version: Version,
    client: SocketAddr,
    wire: Arc<WireState>,
    access_log: bool,
    status: u16,
    bytes_out: u64,
    bytes_in: u64,
    upload: Option<Arc<UploadState>>,
    host: Option<RequestHost>,
    socket: Option<SocketId>,
    transport: Option<OriginTransport>,
    metrics: Arc<SocketMetrics>,
    pass: Option<Pass>,
    identity: Option<String>,
    provider: Option<String>,
    rule: Option<String>,
    revocation: RevocationCheck,
    pool: Option<Arc<SocketPool>>,
    is_revocable: bool,
    route: Option<Arc<SocketRoute>>,
    audit: Option<Audited>,
    /// How long the first byte of an origin's response took.
    first_byte: Option<Duration>,
    /// Where the client moves.
    moves: Option<watch::Receiver<Whereabouts>>,
    /// Why the edge responded with an error.
    refused: Option<&'static str>,
    /// Whether the head of the request could not be read.
    is_unreadable: bool,
    /// Whether a WebSocket follows the response.
    is_upgraded: bool,
    /// A transport to the socket's owner for the live log, if the request was refused before an origin was chosen.
    log_transport: Option<OriginTransport>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client left before the end of the response.
    Left,
    /// The response was sent completely.
    Complete,
    /// The response failed.
    Broken,
    /// The access of the client was revoked.
    Revoked,
    /// An authorised person cut the request.
    Killed,
}

impl RequestContext {
    /// A request of this client that begins now.
    pub(crate) fn new(
        id: RequestId,
        head: &http::request::Parts,
        client: &Client,
        metrics: Arc<SocketMetrics>,
        access_log: bool,
    ) -> Box<Self> {
        client.wire.mark_request_begun();
        Box::new(Self {
            began: Instant::now(),
            id,
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            client: client.addr,
            moves: client.moves.clone(),
            wire: client.wire.clone(),
            access_log,
            status: 0,
            bytes_out: 0,
            bytes_in: 0,
            upload: None,
            host: None,
            socket: None,
            transport: None,
            metrics,
            pass: None,
            identity: None,
            provider: None,
            rule: None,
            revocation: RevocationCheck::Nothing,
            pool: None,
            is_revocable: false,
            route: None,
            audit: None,
            first_byte: None,
            refused: None,
            is_unreadable: false,
            is_upgraded: false,
            log_transport: None,
            end: End::Left,
        })
    }

    /// The request's id.
    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    /// Records that the head could not be read: the request has no known method and target.
    pub(crate) fn mark_unreadable(&mut self) {
        self.is_unreadable = true;
    }

    /// The HTTP version of the client.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The method for logs, as the client sent it; empty if the head could not be read.
    pub(crate) fn method(&self) -> &str {
        if self.is_unreadable { "" } else { self.method.as_str() }
    }

    /// The requested path without the query, which may hold secrets; empty if the head could not be read.
    pub(crate) fn path(&self) -> &str {
        if self.is_unreadable { "" } else { self.uri.path() }
    }

    /// When the request began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// When the request began, by the wall clock. Only some requests need it.
    fn began_at(&self) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(self.began.elapsed()).unwrap_or(now)
    }

    /// Sets the requested host.
    pub(crate) fn set_host(&mut self, host: &RequestHost) {
        self.host = Some(host.clone());
    }

    /// Sets the requested socket and its metrics.
    pub(crate) fn set_socket(&mut self, socket: SocketId, metrics: Arc<SocketMetrics>) {
        self.socket = Some(socket);
        self.metrics = metrics;
    }

    /// Sets the request's route, and prepares the audit record if the route is audited.
    pub(crate) fn set_route(&mut self, server: &HttpServer, route: &Arc<SocketRoute>) {
        self.route = Some(route.clone());
        self.audit = Audited::when_wanted(&server.state, route, SystemTime::now);
    }

    /// Begins the time after an upgrade: makes the request visible as a live flow, which can be cut. Copies the parts of
    /// the request head, which would otherwise keep the read buffer alive.
    pub(crate) fn begin_live_flow(&mut self, server: &HttpServer) -> Option<FlowGuard> {
        self.is_upgraded = true;
        self.host = self.host.as_ref().map(RequestHost::detached);
        if let Ok(uri) = self.uri.to_string().parse() {
            self.uri = uri;
        }
        let route = self.route.as_ref()?;
        let guard =
            server.state.config.flows.begin(audit::live_flow(self.id.as_str(), route, self.client, self.began_at()));
        if let Some(transport) = &self.transport {
            guard.flow().goes_to(transport.origin());
        }
        Some(guard)
    }

    /// Records that an authorised person cut the request.
    pub(crate) fn mark_killed(&mut self) {
        self.end = End::Killed;
    }

    /// The outcome, for the audit log and the list of recent requests.
    fn verdict(&self) -> &'static str {
        match (self.end, self.status) {
            (End::Killed, _) => "killed",
            (End::Revoked, _) => "revoked",
            (_, 401 | 403) if self.transport.is_none() => "denied",
            (_, 300..=399) if self.transport.is_none() => "sent-to-login",
            (_, 429) if self.transport.is_none() => "limited",
            (_, 502..=504) if self.transport.is_none() => "no-origin",
            (End::Complete, _) => "complete",
            (End::Left, _) => "client-left",
            (End::Broken, _) => "broken",
        }
    }

    /// Writes the audit record, if the route is audited.
    fn audit(&mut self, bytes_in: u64) {
        let Some(audit) = self.audit.take() else { return };
        audit.record(Use {
            id: self.id.as_str(),
            client: self.client,
            transport: self.transport.as_ref(),
            bytes_in,
            bytes_out: self.bytes_out,
            verdict: self.verdict(),
            identity: self.identity.as_deref().map(|identity| (identity, self.provider.as_deref())),
            // The rule that admitted the request is not what cut the request.
            rule: self.rule.as_deref().filter(|_| !matches!(self.end, End::Killed | End::Revoked)),
            http: Some((self.method.as_str(), self.uri.path(), self.status)),
        });
    }

    /// Sets the request's place within the socket's limits, kept until the end.
    pub(crate) fn set_pass(&mut self, pass: Pass) {
        if let Some(upload) = &self.upload {
            upload.set_meter(pass.meter().clone());
        }
        self.pass = Some(pass);
    }

    /// Records the rule that admitted or refused the request.
    pub(crate) fn record_decision(&mut self, identity: Option<&Identity>, rule: String) {
        let label = identity.map(Identity::label);
        self.provider = identity.map(|identity| identity.provider().to_owned());
        tracing::debug!(id = %self.id, identity = label, rule, "the policies decided on a request");
        (self.identity, self.rule) = (label, Some(rule));
    }

    /// Sets the check that repeats the admission decision.
    pub(crate) fn set_revalidation(&mut self, revalidation: Option<AccessRevalidation>) {
        self.revocation = revalidation.map_or(RevocationCheck::Nothing, RevocationCheck::of);
    }

    /// Takes the revocation check, for a connection that outlives its request.
    pub(crate) fn take_revocation(&mut self) -> RevocationCheck {
        std::mem::take(&mut self.revocation)
    }

    /// Ready when a request that waits for an origin is revoked. A request admitted before the socket had policies is
    /// evaluated when policies appear.
    pub(crate) fn poll_over(
        &mut self,
        server: &Arc<HttpServer>,
        pool: &Arc<SocketPool>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let has_moved = || self.moves.as_ref().is_some_and(|moves| moves.has_changed().unwrap_or_default());
        if matches!(self.revocation, RevocationCheck::Nothing) && (pool.judges() || has_moved()) {
            self.revocation = RevocationCheck::UncheckedRequest(self.unchecked_request(server.clone(), pool.clone()));
        }
        ready!(self.revocation.poll_over(cx));
        self.end = End::Revoked;
        self.revocation = RevocationCheck::page_timeout();
        Poll::Ready(())
    }

    fn unchecked_request(&self, server: Arc<HttpServer>, pool: Arc<SocketPool>) -> UncheckedRequest {
        let port = self.route.as_ref().and_then(|route| route.port).unwrap_or(server.state.config.public_port);
        // The policies judge an extended CONNECT as the GET of an upgrade.
        let method = if self.method == Method::CONNECT { Method::GET } else { self.method.clone() };
        let (client, moves) = (self.client.ip(), self.moves.clone());
        let target = self.uri.path_and_query().cloned();
        UncheckedRequest { access: server.access.clone(), pool, client, moves, port, method, target }
    }

    /// Sets the pool of the origin that responded.
    pub(crate) fn set_pool(&mut self, pool: Arc<SocketPool>) {
        self.pool = Some(pool);
    }

    /// Moves the revocation check to where the response is written. To be called when the response begins.
    pub(crate) fn begin_revocation_checks(&mut self, server: Arc<HttpServer>) {
        let revocation = match (std::mem::take(&mut self.revocation), self.pool.take()) {
            (RevocationCheck::Nothing, Some(pool)) => {
                RevocationCheck::UncheckedRequest(self.unchecked_request(server, pool))
            }
            (revocation, _) => revocation,
        };
        if !matches!(revocation, RevocationCheck::Nothing) {
            self.is_revocable = true;
            let _ = self.with_slot(|slot| slot.put(revocation));
        }
    }

    /// Whether the request has a stream of its own, over HTTP/2 or HTTP/3.
    fn is_multiplexed(&self) -> bool {
        matches!(self.version, Version::HTTP_2 | Version::HTTP_3)
    }

    /// Calls `look` with the slot of the revocation check: that of the stream over HTTP/2 and HTTP/3, that of the
    /// connection over HTTP/1.
    fn with_slot<R>(&self, look: impl FnOnce(&RevocationSlot) -> R) -> Option<R> {
        if self.is_multiplexed() { send_bound::with_slot(look) } else { Some(look(self.wire.revocation())) }
    }

    /// Ready when the access of the client is revoked. `is_waiting` says that the response has no bytes at the moment.
    pub(crate) fn poll_revoked(&mut self, is_waiting: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_revocable {
            return Poll::Pending;
        }
        let look = |slot: &RevocationSlot| if is_waiting { slot.poll_over(cx) } else { slot.poll_known(cx) };
        ready!(self.with_slot(look).unwrap_or(Poll::Pending));
        self.end = End::Revoked;
        Poll::Ready(())
    }

    /// Which origin the request prefers.
    pub(crate) fn hint(&self) -> &AffinityHint {
        self.pass.as_ref().map_or(&AffinityHint::Any, Pass::hint)
    }

    /// Counts the bytes of the response against the socket's limits.
    pub(crate) fn pass(&mut self) -> Option<&mut Pass> {
        self.pass.as_mut()
    }

    /// Sets the request's body.
    pub(crate) fn set_upload(&mut self, upload: Option<Arc<UploadState>>) {
        self.upload = upload;
    }

    /// Whether the request body has been read completely.
    pub(crate) fn has_whole_request(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| upload.is_finished())
    }

    /// The body, if the request has a stream of its own.
    pub(crate) fn stream_upload(&self) -> Option<&Arc<UploadState>> {
        self.upload.as_ref().filter(|_| self.is_multiplexed())
    }

    /// Sets the transport of the origin that responded, or that failed last. The request log goes to its connector.
    pub(crate) fn set_transport(&mut self, transport: OriginTransport) {
        self.transport = Some(transport);
    }

    /// Records the status of the response.
    pub(crate) fn record_status(&mut self, status: http::StatusCode) {
        self.status = status.as_u16();
        if self.refused.is_none() {
            self.first_byte = Some(self.began.elapsed());
        }
    }

    /// Records that the edge responds with an error, for this reason.
    pub(crate) fn record_refusal(&mut self, reason: &'static str) {
        self.refused = Some(reason);
        self.metrics.counts.refused(reason);
    }

    /// Chooses a transport for the live log of a refused request: any that is up.
    pub(crate) fn set_log_transport(&mut self, server: &HttpServer) {
        if self.transport.is_none() {
            let pool = self.socket.and_then(|socket| server.state.sockets.known(socket));
            self.log_transport = pool.and_then(|pool| pool.any_up());
        }
    }

    /// Counts the request for its socket, and keeps an entry in the list of recent requests.
    fn record_use(&mut self, duration: Duration, duration_us: u64, bytes: (u64, u64)) {
        let (ended, origin) = (self.began + duration, self.transport.as_ref().map(OriginTransport::origin));
        let first_byte = self.first_byte;
        // The duration of a WebSocket is no response time.
        let took = (!self.is_upgraded).then_some(duration);
        self.metrics.counts.used(&socket_counts::Use { ended, took, first_byte, origin, bytes });
        let metrics = self.metrics.clone();
        metrics.ended.keep(ended, || Entry {
            id: EntryId::Request(self.id),
            duration_us,
            first_byte_us: first_byte.map(|span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
            client: self.client,
            origin,
            identity: self.identity.take().map(Into::into),
            rule: self.rule.take().map(Into::into),
            bytes,
            verdict: self.refused.unwrap_or_else(|| self.verdict()),
            http: Some((self.method.clone(), kept_path(self.uri.path()), self.status)),
        });
    }

    /// Records bytes of the response body that were sent.
    pub(crate) fn record_sent(&mut self, bytes: usize) {
        self.bytes_out += bytes as u64;
    }

    /// Records bytes that were relayed after an upgrade.
    pub(crate) fn record_relayed(&mut self, bytes_in: u64, bytes_out: u64) {
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
    }

    /// Records that the response was sent completely.
    pub(crate) fn mark_complete(&mut self) {
        if self.end == End::Left {
            self.end = End::Complete;
        }
    }

    /// Records that the response failed.
    pub(crate) fn mark_broken(&mut self) {
        if self.end != End::Revoked {
            self.end = End::Broken;
        }
    }

    /// Records that the access of the client was revoked.
    pub(crate) fn mark_revoked(&mut self) {
        self.end = End::Revoked;
    }

    /// Ends and records the request.
    pub(crate) fn record(self: Box<Self>) {
        drop(self);
    }

    fn to_record(&self, bytes_in: u64, duration_us: u64) -> RequestRecord {
        // The query of a refused request may hold secrets of a stranger, so the owner does not see it.
        let target = match self.refused.filter(|_| self.transport.is_none()) {
            None => self.uri.path_and_query().map_or("/", |target| target.as_str()),
            Some(_) => self.uri.path_and_query().map_or("/", PathAndQuery::path),
        };
        let at = self.began_at().duration_since(UNIX_EPOCH).unwrap_or_default();
        RequestRecord {
            at_ms: i64::try_from(at.as_millis()).unwrap_or(i64::MAX),
            request_id: self.id.as_str().to_owned(),
            method: self.method.as_str().to_owned(),
            target: truncate_target(target).to_owned(),
            version: name_of(self.version).to_owned(),
            status: self.status,
            bytes_in,
            bytes_out: self.bytes_out,
            duration_us,
            client: self.client,
            tunnel: self.transport.as_ref().or(self.log_transport.as_ref()).and_then(OriginTransport::tunnel),
            omitted_before: 0,
            identity: self.identity.clone(),
            rule: self.rule.clone(),
            refused: self.refused.map(str::to_owned),
        }
    }
}

/// The target, truncated to the length that records hold.
fn truncate_target(target: &str) -> &str {
    &target[..target.floor_char_boundary(RequestRecord::MAX_TARGET_BYTES)]
}

fn name_of(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if self.is_revocable && self.with_slot(RevocationSlot::clear) == Some(true) {
            self.end = End::Revoked;
        }
        self.wire.mark_request_ended();
        if let Some(upload) = &self.upload {
            upload.mark_response_ended();
            if self.end != End::Complete {
                upload.give_up();
            }
            if !upload.is_finished() {
                self.wire.mark_unread();
            }
        }
        if self.status == 0 {
            // The client left before a response: nginx logs 499.
            self.status = 499;
        }
        let duration = self.began.elapsed();
        let bytes_in = self.bytes_in + self.upload.as_ref().map_or(0, |upload| upload.bytes());
        self.metrics.count(self.status, duration.as_secs_f64(), bytes_in, self.bytes_out);
        self.audit(bytes_in);
        let turn = self
            .transport
            .as_ref()
            .or(self.log_transport.as_ref())
            .and_then(|transport| Some((transport, transport.log_turn()?)));
        let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some((transport, omitted)) = turn {
            let mut record = self.to_record(bytes_in, duration_us);
            record.omitted_before = omitted;
            transport.log_request(&record);
        }
        if self.access_log {
            let end = match self.end {
                End::Complete => "complete",
                End::Left => "client-left",
                End::Broken => "broken",
                End::Revoked => "revoked",
                End::Killed => "killed",
            };
            tracing::info!(
                target: "access",
                id = self.id.as_str(),
                client = %self.wire.peer(self.client),
                host = self.host.as_ref().map_or("", RequestHost::as_str),
                method = self.method(),
                // Only the owner's live log has the query.
                path = truncate_target(self.path()),
                version = name_of(self.version),
                status = self.status,
                refused = self.refused,
                malformed = self.wire.refused().map(tracing::field::display),
                bytes_in,
                bytes_out = self.bytes_out,
                duration_us,
                socket = self.socket.map(tracing::field::display),
                tunnel = self.transport.as_ref().and_then(OriginTransport::tunnel).map(tracing::field::display),
                direct_origin = self.transport.as_ref().and_then(|transport| transport.origin().direct()).map(tracing::field::display),
                relayed_by = self.transport.as_ref().and_then(OriginTransport::relay).map(tracing::field::display),
                end,
            );
        }
        if self.socket.is_some() {
            self.record_use(duration, duration_us, (bytes_in, self.bytes_out));
        }
    }
}
