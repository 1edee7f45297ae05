//! Connectors' connections: how the carriers of tunnels come in, by our ALPN or as a WebSocket on `tunnel.<domain>`.

use std::{net::SocketAddr, sync::Arc};

use bytes::BytesMut;
use http::{Response, StatusCode, request::Parts};
use sallyport_net::{UnbufferedTlsStream, set_notsent_lowat};
use sallyport_tunnel::{
    CONTROL_NOTSENT_BYTES, CarrierKind,
    carrier::websocket::{self, WebSocketCarrier, WebSocketRefusal},
};
use sallyport_wire::Refusal;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    Edge,
    answer::{self, Trouble},
    body::{AnswerBody, Source},
    connection::{Client, ClientStream},
    doors::ClientTcp,
    upgrade::Upgrade,
};

const TEXT: &str = "text/plain; charset=utf-8";

/// Serves a carrier that came with our ALPN.
pub(crate) async fn serve_native(edge: &Edge, stream: UnbufferedTlsStream<ClientTcp>, peer: SocketAddr) {
    serve(edge, stream, peer, "tcp", |stream| Some(stream.get_ref().get_ref().get_ref().get_ref())).await;
}

/// Answers a request to the host that connectors dial. A WebSocket that is agreed on becomes a carrier.
pub(crate) fn answer(
    head: &Parts,
    websocket: bool,
    upgrade: &mut Option<Upgrade>,
) -> Result<Response<AnswerBody>, Trouble> {
    if head.uri.path() != websocket::PATH {
        return Err(Trouble::UnknownPath);
    }
    let agreed = if websocket { websocket::agree(&head.headers) } else { Err(WebSocketRefusal::NoUpgrade) };
    let (mut answer, headers) = match agreed {
        Ok(headers) => {
            *upgrade = Some(Upgrade::Carrier);
            let mut answer = Response::new(AnswerBody::new(Source::Empty, None));
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            (answer, headers)
        }
        Err(refusal) => (answer::plain(refusal.status(), TEXT, format!("{refusal}\n")), refusal.headers()),
    };
    answer.headers_mut().extend(headers);
    Ok(answer)
}

/// Serves the carrier that a connection becomes once our 101 is out.
pub(crate) fn start(edge: Arc<Edge>, client: Arc<Client>, stream: ClientStream, early: BytesMut) {
    sallyport_shards::spawn_near(async move {
        let peer = client.addr;
        // How long a connector may pause is for the tunnel's own keepalive to say.
        let io = (*stream).into_inner();
        let carrier = Box::pin(WebSocketCarrier::accepted(io, early.into())).await;
        serve(&edge, carrier, peer, "websocket", |carrier| Some(carrier.get_ref().socket())).await;
        drop(client);
    });
}

/// Hands a carrier to the tunnels. `tcp` finds its TCP connection, where it has one of its own: a leg then has a place
/// among the legs' connections, since it outlives this call, and the place that it came in by is free again.
pub(crate) async fn serve<S>(
    edge: &Edge,
    carrier: S,
    peer: SocketAddr,
    transport: &'static str,
    tcp: fn(&S) -> Option<&TcpStream>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tune = |carrier: &S, kind| {
        edge.metrics.carrier_came(transport, kind_name(kind));
        let Some(tcp) = tcp(carrier) else { return Ok(None) };
        if let Some(congestion) = &edge.config.tunnel_congestion
            && let Err(error) = congestion.set(tcp)
        {
            tracing::debug!(%error, %congestion, "a tunnel's connection keeps the kernel's congestion control");
        }
        if kind != CarrierKind::Leg {
            let _ = set_notsent_lowat(tcp, CONTROL_NOTSENT_BYTES);
        }
        match kind {
            CarrierKind::Leg => edge.legs.enter(peer.ip()).map(Some).ok_or_else(too_many_legs),
            CarrierKind::Control | CarrierKind::Datagrams => Ok(None),
        }
    };
    edge.tunnels.serve_carrier_with(carrier, peer, tune).await;
}

fn too_many_legs() -> Refusal {
    Refusal::new("busy", "your address has as many legs at this edge as it may", true)
}

fn kind_name(kind: CarrierKind) -> &'static str {
    match kind {
        CarrierKind::Control => "control",
        CarrierKind::Leg => "leg",
        CarrierKind::Datagrams => "datagrams",
    }
}
