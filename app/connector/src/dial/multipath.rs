//! QUIC over an association of paths: asks the edge for the association by TLS, then uses all links.

use std::{io, net::SocketAddr, time::Duration};

use sallyport_links_model::Link;
use sallyport_multipath::{AssociationId, Config, Side};
use sallyport_multipath_udp::{Multipath, Offer, endpoint, transport};
use sallyport_net::ShardTcpStream;
use sallyport_tunnel::carrier::{
    association::{AssociationRefused, ask_for_association},
    quic::{QuicCarrier, QuicConnection},
};
use sallyport_wire::{ALPN, Associate, Associated, NOT_YET_KNOWN};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use super::{ATTEMPT_DELAY, EdgeAddress, EdgeDialer, Failed, HANDSHAKE_TIME_OF_SEVERAL, QUIC_TIME, Verdict, failed};

/// By how many pairs of a link and an address of the edge the question is tried.
const MAX_ATTEMPTS: usize = 16;
/// How many tunnels' credentials are tried: the first ones may be of deleted tunnels.
const MAX_QUESTIONS: usize = 4;

impl EdgeDialer {
    /// The first carrier of a new QUIC connection over all links.
    pub(super) async fn new_multipath(&self) -> Result<QuicCarrier, Failed> {
        let blocked = |error| Failed { error, verdict: Verdict::Blocked };
        let EdgeAddress { host, outbound, links, .. } = &self.address;
        if let Some(proxy) = &outbound.proxy {
            let text = format!("several links do not go through the proxy {proxy}: choose another transport");
            return Err(blocked(io::Error::new(io::ErrorKind::Unsupported, text)));
        }
        let present = links.present().await.map_err(blocked)?;
        let (reached, Associated { edge, connector, secret, port }) = self.ask(&present).await?;
        let offer = Offer { edge: AssociationId(edge), connector: AssociationId(connector), secret };
        let multipath = Multipath::new(Config::default(), &offer.setup(Side::Connector));
        let edge = SocketAddr::new(reached.ip(), port);
        links.carry(&multipath, edge, &present).map_err(blocked)?;
        let endpoint = endpoint(multipath, edge, None).map_err(blocked)?;
        let connecting = QuicConnection::connect_on(endpoint, transport(), edge, host, &self.native);
        let silent = || {
            let text = format!("{edge} does not answer over UDP by any link: does a firewall stop UDP?");
            blocked(io::Error::new(io::ErrorKind::TimedOut, text))
        };
        let connection = tokio::time::timeout(QUIC_TIME, connecting).await.map_err(|_| silent())?.map_err(blocked)?;
        let carrier = connection.open_carrier().await.map_err(blocked)?;
        *self.quic.lock() = Some(connection);
        Ok(carrier)
    }

    /// Asks for an association, with the credentials of a few tunnels. Also returns the edge's address.
    async fn ask(&self, links: &[Link]) -> Result<(SocketAddr, Associated), Failed> {
        let text = "there is no tunnel yet with which to ask for several paths";
        let mut last = Failed { error: io::Error::new(io::ErrorKind::NotFound, text), verdict: Verdict::Blocked };
        for question in self.address.services.questions().into_iter().take(MAX_QUESTIONS) {
            match self.ask_with(&question, links).await {
                Err(refused) if refused.verdict == Verdict::Refused => last = refused,
                answer => return answer,
            }
        }
        Err(last)
    }

    async fn ask_with(&self, question: &Associate, links: &[Link]) -> Result<(SocketAddr, Associated), Failed> {
        let EdgeAddress { host, port, .. } = &self.address;
        let blocked = |error| Failed { error, verdict: Verdict::Blocked };
        let tcp = self.tcp_by_links(links).await.map_err(blocked)?;
        let reached = tcp.peer_addr().map_err(blocked)?;
        let (stream, agreed) = sallyport_net::start_unbuffered_tls(
            ShardTcpStream::new(tcp),
            host,
            *port,
            host,
            self.native.clone(),
            self.handshake_time(),
        )
        .await
        .map_err(failed)?;
        if agreed.as_deref() != Some(ALPN) {
            let text = format!("{host}:{port} takes no tunnels: is it a Sallyport edge?");
            return Err(blocked(io::Error::new(io::ErrorKind::Unsupported, text)));
        }
        match ask_for_association(stream, question).await {
            Ok(associated) => Ok((reached, associated)),
            Err(error) => Err(Failed { verdict: refusal_verdict(&error), error }),
        }
    }

    /// A TCP connection to the edge by the first link that leads there. A metered link is used if no other does.
    async fn tcp_by_links(&self, links: &[Link]) -> io::Result<TcpStream> {
        let EdgeAddress { host, port, addresses, .. } = &self.address;
        let addresses = match addresses.as_slice() {
            [] => sallyport_net::resolve(host, *port).await?,
            known => known.to_vec(),
        };
        let (metered, free): (Vec<_>, Vec<_>) = links.iter().partition(|link| link.properties.is_metered);
        let mut last = None;
        for links in [free, metered] {
            let mut attempts = JoinSet::new();
            let pairs = addresses.iter().flat_map(|address| links.iter().map(move |link| (*address, (*link).clone())));
            let usable = pairs.filter(|(address, link)| link.source_for(address.ip()).is_some());
            for (number, (address, link)) in (0..).zip(usable.take(MAX_ATTEMPTS)) {
                attempts.spawn(connect_after(ATTEMPT_DELAY * number, address, link));
            }
            while let Some(attempt) = attempts.join_next().await {
                match attempt.map_err(io::Error::other).flatten() {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = Some(error),
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            let text = format!("no link has an address of the family of {host}:{port}");
            io::Error::new(io::ErrorKind::AddrNotAvailable, text)
        }))
    }
}

/// Connects by a link.
async fn connect_after(delay: Duration, address: SocketAddr, link: Link) -> io::Result<TcpStream> {
    tokio::time::sleep(delay).await;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    sallyport_links::bind(&socket, &link, address)?;
    let connecting = TcpSocket::from_std_stream(socket.into()).connect(address);
    let named =
        |kind, why: &str| io::Error::new(kind, format!("{address} cannot be reached by the link {}: {why}", link.name));
    match tokio::time::timeout(HANDSHAKE_TIME_OF_SEVERAL, connecting).await {
        Ok(connected) => connected.map_err(|error| named(error.kind(), &error.to_string())),
        Err(_) => Err(named(io::ErrorKind::TimedOut, "no answer")),
    }
}

/// What the edge's answer means for the transport.
fn refusal_verdict(error: &io::Error) -> Verdict {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<AssociationRefused>());
    match refused.map(|AssociationRefused(refusal)| refusal) {
        Some(refusal) if refusal.code == NOT_YET_KNOWN || refusal.retry => Verdict::Unclear,
        Some(refusal) if matches!(refusal.code.as_str(), "unknown-tunnel" | "bad-credential") => Verdict::Refused,
        _ => Verdict::Blocked,
    }
}

#[cfg(test)]
mod tests {
    use sallyport_wire::Refusal;

    use super::*;

    #[test]
    fn a_refusal_of_the_tunnel_is_told_from_one_of_the_transport() {
        let verdict = |code: &str, retry| {
            let refused = AssociationRefused(Refusal::new(code, "no", retry));
            refusal_verdict(&io::Error::new(io::ErrorKind::Unsupported, refused))
        };
        assert_eq!(verdict("bad-credential", false), Verdict::Refused);
        assert_eq!(verdict("no-multipath", false), Verdict::Blocked);
        assert_eq!(verdict(NOT_YET_KNOWN, true), Verdict::Unclear);
        assert_eq!(refusal_verdict(&io::ErrorKind::Unsupported.into()), Verdict::Blocked, "an older edge");
    }
}
