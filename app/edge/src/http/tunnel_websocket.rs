//! Carriers of tunnels: connections of connectors by ALPN, or as a WebSocket on `tunnel.<domain>`.

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
    client::tcp::ClientTcp,
    http::{
        connection::{Client, ClientStream},
        error_page::{self, RequestError},
        response_body::{ResponseBody, Source},
        server::HttpServer,
        upgrade::Upgrade,
    },
};

const TEXT: &str = "text/plain; charset=utf-8";

/// Serves a carrier that was negotiated by ALPN.
pub(crate) async fn serve_native(server: &HttpServer, stream: UnbufferedTlsStream<ClientTcp>, peer: SocketAddr) {
    serve(server, stream, peer, "tcp", |stream| Some(stream.get_ref().get_ref().get_ref().get_ref())).await;
}

/// Responds to a request on `tunnel.<domain>`. An accepted WebSocket upgrade becomes a carrier.
pub(crate) fn respond(
    head: &Parts,
    websocket: bool,
    upgrade: &mut Option<Upgrade>,
) -> Result<Response<ResponseBody>, RequestError> {
    if head.uri.path() != websocket::PATH {
        return Err(RequestError::UnknownPath);
    }
    let agreement = if websocket { websocket::agree(&head.headers) } else { Err(WebSocketRefusal::NoUpgrade) };
    let (mut response, headers) = match agreement {
        Ok(headers) => {
            *upgrade = Some(Upgrade::Carrier);
            let mut response = Response::new(ResponseBody::new(Source::Empty, None));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            (response, headers)
        }
        Err(refusal) => (error_page::plain(refusal.status(), TEXT, format!("{refusal}\n")), refusal.headers()),
    };
    response.headers_mut().extend(headers);
    Ok(response)
}

/// Serves the carrier that a connection becomes when the 101 response is written.
pub(crate) fn start(server: Arc<HttpServer>, client: Arc<Client>, stream: ClientStream, early: BytesMut) {
    sallyport_shards::spawn_near(async move {
        let peer = client.addr;
        // The tunnel's own keepalive bounds the silence of a connector, so the send bound ends here.
        let io = (*stream).into_inner();
        let carrier = Box::pin(WebSocketCarrier::accepted(io, early.into())).await;
        serve(&server, carrier, peer, "websocket", |carrier| Some(carrier.get_ref().socket())).await;
        drop(client);
    });
}

/// Passes a carrier to the tunnels. `tcp` finds its own TCP connection, if there is one. A leg gets a place among the
/// legs, because it outlives this call, which releases the place of the connection.
pub(crate) async fn serve<S>(
    server: &HttpServer,
    carrier: S,
    peer: SocketAddr,
    transport: &'static str,
    tcp: fn(&S) -> Option<&TcpStream>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tune = |carrier: &S, kind| {
        server.state.metrics.carrier_came(transport, kind_name(kind));
        let Some(tcp) = tcp(carrier) else { return Ok(None) };
        if let Some(congestion) = &server.state.config.tunnel_congestion
            && let Err(error) = congestion.set(tcp)
        {
            tracing::debug!(%error, %congestion, "the congestion control of a tunnel's connection could not be set");
        }
        if kind != CarrierKind::Leg {
            let _ = set_notsent_lowat(tcp, CONTROL_NOTSENT_BYTES);
        }
        match kind {
            CarrierKind::Leg => server.legs.enter(peer.ip()).map(Some).ok_or_else(too_many_legs),
            CarrierKind::Control | CarrierKind::Datagrams | CarrierKind::Association | CarrierKind::Packets => Ok(None),
        }
    };
    server.tunnels.serve_carrier_with(carrier, peer, tune).await;
}

fn too_many_legs() -> Refusal {
    Refusal::new("busy", "your address has as many legs at this server as it may", true)
}

fn kind_name(kind: CarrierKind) -> &'static str {
    match kind {
        CarrierKind::Control => "control",
        CarrierKind::Leg => "leg",
        CarrierKind::Datagrams => "datagrams",
        CarrierKind::Association => "association",
        CarrierKind::Packets => "packets",
    }
}
