//! The path of a TCP or TLS connection, from its arrival to its record: [`serve`] is the whole of it, step by step.

use std::{io, net::SocketAddr, sync::Arc};

use sallyport_balance::Attempts;
use sallyport_model::{ProxyProtocol, SocketRoute};
use sallyport_net::{
    Broke, Carried, Pace as _, ProxiedAddresses, ReadAhead, Recorded, RelayEnd, Side, header_v1, header_v2, relay,
};
use sallyport_wire::ResetCode;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::{
    Edge,
    affinity::Wish,
    drain, entry,
    flow_record::{FlowTicket, Verdict},
    limits::RunningGuard,
    origin::InFlight,
    reach::{self, Reached, Unreached},
    sockets::SocketPool,
};

/// A client's connection that is passed on as it is.
pub(crate) trait ClientIo: RelayEnd + Send + 'static {
    /// The connection underneath, for what concerns TCP alone.
    fn socket(&self) -> &TcpStream;
}

impl ClientIo for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl ClientIo for Recorded<ReadAhead<TcpStream>> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().get_ref()
    }
}

impl<S: ClientIo> ClientIo for TlsStream<S> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0.socket()
    }
}

/// A client's connection to a socket that is not HTTP.
pub(crate) struct Arrival<S> {
    /// The connection; for a socket that ends TLS at the edge, what is inside of it.
    pub(crate) io: S,
    /// The socket that it is for, by its port or the name in its ClientHello.
    pub(crate) route: Arc<SocketRoute>,
    /// Its two ends.
    pub(crate) ends: ProxiedAddresses,
    /// The name that the client asked for, where it said one.
    pub(crate) server_name: String,
}

/// Serves one connection until both directions have ended, one side broke off, or the edge has no more time.
pub(crate) async fn serve<S: ClientIo>(edge: Arc<Edge>, mut arrival: Arrival<S>, _running: RunningGuard) {
    // 1. Name the flow: its id, its client, its moment.
    let pool = edge.sockets.pool(arrival.route.id);
    let mut ticket = FlowTicket::new(&edge, &arrival.route, &pool, arrival.ends.client);
    let mut phase = edge.phase.subscribe();
    let mut carried = Carried::default();
    let steps = async {
        // 2. May they?
        let mut pass = entry::may_enter(&edge, &arrival.route, &pool, arrival.ends.client.ip()).await?;
        // 3. Choose an origin, 4. open a stream to it, and another one where that fails.
        let reached = reach_origin(&edge, &mut arrival, &pool, pass.wish(), &mut ticket).await?;
        // 5. Carry bytes both ways.
        carry(&mut arrival.io, reached, &mut pass, &mut carried).await
    };
    let end = tokio::select! {
        end = steps => end,
        () = drain::cut(&mut phase) => Err(Verdict::CutOff),
    };
    // A client whose flow did not end in good order must not take it for complete.
    if end.is_err() {
        drop(arrival.io.socket().set_zero_linger());
    }
    // 6. Record it.
    ticket.count(carried);
    ticket.ended(end.err().unwrap_or(Verdict::Complete));
}

/// Steps 3 and 4. Another origin is tried only when the one before took nothing.
async fn reach_origin<S: ClientIo>(
    edge: &Edge,
    arrival: &mut Arrival<S>,
    pool: &SocketPool,
    wish: &Wish,
    ticket: &mut FlowTicket,
) -> Result<(Reached, InFlight), Verdict> {
    let mut first_bytes = reach::FirstBytes::new(greeting(arrival.route.settings.proxy_protocol, arrival.ends));
    let mut tried = Attempts::default();
    let mut last = None;
    loop {
        let Some(origin) = pool.choose(&mut tried, wish) else {
            let is_unwell = pool.is_unwell();
            let is_hopeful = !is_unwell && !tried.is_exhausted() && last.is_none();
            if is_hopeful && edge.sockets.hold(pool, &tried, ticket.began()).await {
                continue;
            }
            return Err(last.unwrap_or(if is_unwell { Verdict::NoHealthyOrigin } else { Verdict::NoTunnel }));
        };
        ticket.went_to(origin.origin().handle().clone());
        let stream = match origin.origin().open_flow(arrival.ends, &arrival.server_name) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a tunnel opens no stream");
                last = Some(Verdict::NoTunnel);
                continue;
            }
        };
        match reach::reach(&mut arrival.io, stream, &mut first_bytes, edge.config.connect_timeout).await {
            Ok(reached) => {
                origin.origin().standing().served();
                return Ok((reached, origin));
            }
            Err(Unreached::ClientLeft) => return Err(Verdict::ClientLeft),
            Err(Unreached::Lost) => return Err(Verdict::Broken),
            Err(Unreached::Refused) => last = Some(Verdict::OriginRefused),
            Err(Unreached::TimedOut) => last = Some(Verdict::OriginTimedOut),
        }
        pool.failed(origin.origin());
        edge.metrics.retried();
    }
}

/// What the origin is told before the client's first byte.
fn greeting(version: ProxyProtocol, ends: ProxiedAddresses) -> Vec<u8> {
    match version {
        ProxyProtocol::Off => Vec::new(),
        ProxyProtocol::V1 => header_v1(ends),
        ProxyProtocol::V2 => header_v2(ends),
    }
}

/// Step 5.
async fn carry<S: ClientIo>(
    client: &mut S,
    (reached, _origin): (Reached, InFlight),
    pass: &mut entry::Pass,
    carried: &mut Carried,
) -> Result<(), Verdict> {
    let Reached { mut stream, said, early } = reached;
    carried.forth += said as u64;
    pass.moved(said);
    let end = match write_early(client, &early, carried).await {
        Ok(()) => relay(client, &mut stream, pass, carried).await,
        Err(error) => Err(Broke { side: Side::First, error }),
    };
    let Err(broke) = end else { return Ok(()) };
    tracing::debug!(error = %broke.error, side = ?broke.side, "a flow broke off");
    match broke.side {
        Side::First => {
            stream.reset(ResetCode::Cancelled);
            Err(Verdict::ClientLeft)
        }
        Side::Second => Err(Verdict::Broken),
    }
}

/// What the origin said while the stream was being opened.
async fn write_early<S: ClientIo>(client: &mut S, early: &[u8], carried: &mut Carried) -> io::Result<()> {
    if early.is_empty() {
        return Ok(());
    }
    tokio::io::AsyncWriteExt::write_all(client, early).await?;
    tokio::io::AsyncWriteExt::flush(client).await?;
    carried.back += early.len() as u64;
    Ok(())
}

/// Both ends of a connection that came directly.
pub(crate) fn ends_of(stream: &TcpStream, peer: SocketAddr) -> ProxiedAddresses {
    // A socket that is gone has no address; nothing will come of the flow then.
    let destination = stream.local_addr().unwrap_or(peer);
    ProxiedAddresses { client: peer, destination }
}
