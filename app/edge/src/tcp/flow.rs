//! The path of a TCP or TLS connection from accept to record: [`serve`] has all steps.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use sallyport_balance::{Attempts, Delivery, Next, ejection};
use sallyport_bus::LiveFlow;
use sallyport_model::{Identity, ProxyProtocol, SocketRoute};
use sallyport_net::{Pace, ProxiedAddresses, RelayCounts, RelayError, Side, header_v1, header_v2, relay};
use sallyport_wire::ResetCode;
use tokio::net::TcpStream;

use crate::{
    access::{
        Access, AccessRevalidation,
        admit::{self, Pass},
    },
    client::tcp::ClientIo,
    lifecycle::phase,
    metrics::verdict::Verdict,
    origins::{
        affinity::AffinityHint, http::forwarding::Group, opening::Opening, origin::InFlight, pool::SocketPool,
        quotas::QuotaChoice, transport::OriginStream,
    },
    record::flow::FlowContext,
    tcp::connect::{self, ConnectFailure, Reached},
    util::wake_gated::WakeGated,
};

/// A client's connection to a socket of type `tcp` or `tls`.
pub(crate) struct AcceptedFlow<S> {
    /// The connection; the decrypted stream where the edge terminates TLS.
    pub(crate) io: S,
    /// The socket, determined by the port or the server name.
    pub(crate) route: Arc<SocketRoute>,
    /// Its two ends.
    pub(crate) ends: ProxiedAddresses,
    /// The server name of the client; empty if the client sent none.
    pub(crate) server_name: String,
    /// The identity in the client certificate, if the socket demands one.
    pub(crate) identity: Option<Identity>,
}

/// What an origin is needed for.
struct FlowTarget {
    route: Arc<SocketRoute>,
    ends: ProxiedAddresses,
    server_name: String,
    identity: Option<Identity>,
}

/// Serves a connection until both directions have ended, one side has failed, or the edge cuts it off. Drops `guards`
/// then.
///
/// Returns a plain future instead of an `async fn`: many connections stay idle for long, and an `async fn` holds its
/// arguments twice. What only the beginning needs is boxed and freed early.
pub(crate) fn serve<S: ClientIo>(
    access: Arc<Access>,
    accepted: AcceptedFlow<S>,
    guards: impl Send + 'static,
) -> impl Future<Output = ()> + Send {
    // 1. Name the flow: its id, its client, its time.
    let AcceptedFlow { mut io, route, ends, server_name, identity } = accepted;
    let pool = access.state.sockets.pool(route.id);
    let (clients, client) = (access.state.clients.clone(), ends.client.ip());
    let mut context = FlowContext::new(&access.state, &route, &pool, ends.client);
    let mut revalidation = AccessRevalidation::new(
        &access,
        &pool,
        ends.client.ip(),
        route.port.unwrap_or(access.state.config.public_port),
    );
    revalidation.set_identity(identity.clone());
    let wanted = Box::new(FlowTarget { route, ends, server_name, identity });
    let live = context.live().flow().clone();
    let mut phase = access.state.phase.subscribe();
    // Events that end a flow are rare, and a flow wakes its task for every piece of data.
    let mut ended = WakeGated::new({
        let live = live.clone();
        async move {
            tokio::select! {
                () = revalidation.until_over() => Verdict::Revoked,
                () = live.until_cut() => Verdict::Killed,
                () = phase::cut(&mut phase) => Verdict::CutOff,
            }
        }
    });
    let mut carried = RelayCounts::default();
    async move {
        let steps = async {
            let reaching = Box::pin(async {
                let wanted = wanted;
                // 2. Admission.
                let (route, client) = (&wanted.route, wanted.ends.client.ip());
                let identity = wanted.identity.as_ref();
                let pass = admit::admit_flow(&access, route, &pool, client, identity, &mut context).await?;
                // 3. Select an origin; 4. open a stream to it, and try another origin if that fails.
                let (reached, origin) =
                    reach_origin(&access, &mut io, &wanted, &pool, pass.hint(), &mut context).await?;
                Ok::<_, Verdict>((pass, reached, origin))
            });
            let (mut pass, Reached { mut stream, sent, early }, _origin) = reaching.await?;
            // 5. Relay bytes in both directions.
            carried.forth += sent as u64;
            pass.moved(sent);
            live.moved(sent + early.len());
            let end = match write_early(&mut io, early, &mut carried).await {
                Ok(()) => {
                    relay(&mut io, &mut stream, &mut Watched { pass: &mut pass, live: &live }, &mut carried).await
                }
                Err(error) => Err(RelayError { side: Side::First, is_done: false, error }),
            };
            end.map_err(|broke| broke_off(&broke, stream))
        };
        let end = tokio::select! {
            end = steps => end,
            verdict = &mut ended => Err(verdict),
        };
        clients.record_tcp(io.socket(), client);
        // A reset tells the client that the flow is incomplete.
        if end.is_err() {
            drop(io.socket().set_zero_linger());
        }
        // 6. Record the flow.
        context.set_carried(carried);
        context.ended_in(&pool, end.err().unwrap_or(Verdict::Complete));
        drop(guards);
    }
}

/// A pass that also counts its bytes in the list of live flows.
struct Watched<'a> {
    pass: &'a mut Pass,
    live: &'a LiveFlow,
}

impl Pace for Watched<'_> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.pass.poll_ready(cx)
    }
    fn moved(&mut self, bytes: usize) {
        self.pass.moved(bytes);
        self.live.moved(bytes);
    }
}

/// Steps 3 and 4. Another origin is tried only if the one before has no byte of the client.
async fn reach_origin<S: ClientIo>(
    access: &Access,
    client: &mut S,
    wanted: &FlowTarget,
    pool: &SocketPool,
    hint: &AffinityHint,
    context: &mut FlowContext,
) -> Result<(Reached, InFlight), Verdict> {
    let mut first_bytes = connect::FirstBytes::new(greeting(wanted.route.settings.proxy_protocol, wanted.ends));
    let (mut delivery, mut tried) = (Delivery::new(false), Attempts::default());
    let mut last = None;
    // The client's first bytes mostly follow its connection at once. After one turn of the scheduler they are here, and
    // leave together with the open message.
    tokio::task::yield_now().await;
    loop {
        let chosen = if pool.quotas().is_limited() {
            match Box::pin(pool.choose_by_quota(Group::ROOT, &mut tried, hint)).await {
                QuotaChoice::Chosen(origin) => Some(origin),
                QuotaChoice::NoOrigin => None,
                QuotaChoice::Full(_) => return Err(last.unwrap_or(Verdict::OverCapacity)),
            }
        } else {
            pool.choose(Group::ROOT, &mut tried, hint)
        };
        let Some(origin) = chosen else {
            let is_unhealthy = pool.is_unhealthy(Group::ROOT);
            let is_hopeful =
                !is_unhealthy && !tried.is_exhausted() && last.is_none_or(|last| last == Verdict::NoTunnel);
            if is_hopeful && access.state.sockets.hold(pool, Group::ROOT, &tried, context.began()).await {
                continue;
            }
            return Err(last.unwrap_or(if is_unhealthy { Verdict::NoHealthyOrigin } else { Verdict::NoTunnel }));
        };
        context.set_transport(origin.origin().handle().clone());
        let place = Box::pin(origin.origin().opening_place(wanted.ends.client.ip()));
        let Ok(place) = tokio::time::timeout(access.state.config.connect_timeout, place).await else {
            return Err(Verdict::OriginTimedOut);
        };
        let stream = match origin.origin().open_flow(wanted.ends, &wanted.server_name) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a tunnel does not open a stream");
                last = Some(Verdict::NoTunnel);
                continue;
            }
        };
        let opening = Opening::new(pool, origin.origin(), stream.establishment());
        let reached = connect::reach(client, stream, &mut first_bytes, access.state.config.connect_timeout).await;
        drop(place);
        match reached {
            Err(ConnectFailure::ClientLeft) => opening.give_up(),
            _ => opening.settle(),
        }
        let why = match reached {
            Ok(reached) => {
                origin.origin().health_state().served();
                origin.record_answer(false);
                return Ok((reached, origin));
            }
            Err(why) => why,
        };
        let next = delivery.handle_end(why.received(), true, false);
        let (verdict, failure) = match why {
            ConnectFailure::ClientLeft => return Err(Verdict::ClientLeft),
            ConnectFailure::NoTunnel => (Verdict::NoTunnel, None),
            // Another tunnel may work, or this one when it is back.
            ConnectFailure::Lost(_) if next != Next::Nothing => (Verdict::NoTunnel, None),
            ConnectFailure::Lost(_) => (Verdict::Broken, None),
            ConnectFailure::Refused => (Verdict::OriginRefused, Some(ejection::Failure::Connect)),
            ConnectFailure::TimedOut(_) => (Verdict::OriginTimedOut, Some(ejection::Failure::Silent)),
        };
        if let Some(failure) = failure {
            origin.record_answer(true);
            pool.record_failure(origin.origin(), failure);
        }
        if next == Next::Nothing {
            return Err(verdict);
        }
        last = Some(verdict);
        access.state.metrics.retried();
    }
}

/// The PROXY protocol header for the origin; empty without one.
fn greeting(version: ProxyProtocol, ends: ProxiedAddresses) -> Vec<u8> {
    match version {
        ProxyProtocol::Off => Vec::new(),
        ProxyProtocol::V1 => header_v1(ends),
        ProxyProtocol::V2 => header_v2(ends),
    }
}

/// The verdict of a flow that one side has broken off; the other side gets a reset.
fn broke_off(broke: &RelayError, stream: OriginStream) -> Verdict {
    tracing::debug!(error = %broke.error, side = ?broke.side, "a flow failed");
    if broke.side == Side::First {
        stream.reset(ResetCode::Cancelled);
    }
    match broke.side {
        // No bytes were expected any more: many TLS clients end their connections like this.
        _ if broke.is_done => Verdict::Complete,
        Side::First => Verdict::ClientLeft,
        Side::Second => Verdict::Broken,
    }
}

/// Writes the origin's first bytes, which came during the open.
async fn write_early<S: ClientIo>(client: &mut S, early: Vec<u8>, carried: &mut RelayCounts) -> io::Result<()> {
    if early.is_empty() {
        return Ok(());
    }
    tokio::io::AsyncWriteExt::write_all(client, &early).await?;
    tokio::io::AsyncWriteExt::flush(client).await?;
    carried.back += early.len() as u64;
    Ok(())
}

/// The addresses of a direct connection.
pub(crate) fn ends_of(stream: &TcpStream, peer: SocketAddr) -> ProxiedAddresses {
    // A closed connection has no local address; its flow ends at once.
    let destination = stream.local_addr().unwrap_or(peer);
    ProxiedAddresses { client: peer, destination }
}
