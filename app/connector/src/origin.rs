//! Reaching the private service, once for every stream.

use std::{io, sync::Arc, time::Duration};

use sallyport_model::OriginAddr;
use sallyport_net::{ReadAhead, RelayEnd};
use sallyport_tunnel::{BoxFuture, FlowHandler, IncomingStream, OriginHandler};
use sallyport_wire::{FailureReason, Open, OpenFailure, StreamProtocol};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tracing::debug;

use crate::{
    flows::Flows,
    origin_tls::{Configs, OriginTls, OriginTlsError},
    quick_ack::Stalls,
    relay::relay,
};

/// The private service, as its connector reaches it.
#[derive(Debug)]
pub(crate) struct Origin {
    shared: Arc<Shared>,
    flows: Arc<Flows>,
}

#[derive(Debug)]
struct Shared {
    address: OriginAddr,
    tls: Option<Tls>,
    connect_timeout: Duration,
    stalls: Stalls,
}

#[derive(Debug)]
struct Tls {
    configs: Configs,
    server_name: String,
}

impl Origin {
    pub(crate) fn new(
        address: OriginAddr,
        tls: Option<&OriginTls>,
        connect_timeout: Duration,
    ) -> Result<Self, OriginTlsError> {
        let tls = match tls {
            Some(tls) => Some(Tls {
                configs: tls.configs()?,
                server_name: tls.server_name.clone().unwrap_or_else(|| address.host.clone()),
            }),
            None => None,
        };
        let flows = Arc::new(Flows::new(address.clone()));
        Ok(Self { shared: Arc::new(Shared { address, tls, connect_timeout, stalls: Stalls::default() }), flows })
    }
}

impl OriginHandler for Origin {
    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        Some(self.flows.clone())
    }

    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let shared = self.shared.clone();
        // What connecting needs is in a box of its own, gone before the bytes move: streams may idle for long.
        if shared.tls.is_some() {
            Box::pin(async move {
                let connected = Box::pin(shared.connect_tls(open.protocol)).await;
                shared.serve(stream, connected).await;
            })
        } else {
            Box::pin(async move {
                let connected = Box::pin(shared.connect_plain()).await;
                shared.serve(stream, connected).await;
            })
        }
    }
}

impl Shared {
    async fn connect_plain(&self) -> Result<TcpStream, OpenFailure> {
        let address = &self.address;
        let connect = sallyport_net::connect_tcp(&address.host, address.port, self.connect_timeout);
        connect.await.map_err(|error| why_not_connected(&error, address))
    }

    async fn connect_tls(&self, protocol: StreamProtocol) -> Result<Box<TlsStream<ReadAhead<TcpStream>>>, OpenFailure> {
        let Some(tls) = &self.tls else {
            return Err(OpenFailure::new(FailureReason::Other, "TLS to the service is not set up"));
        };
        let address = &self.address;
        let config = tls.configs.of(protocol);
        let connect =
            sallyport_net::connect_tls(&address.host, address.port, &tls.server_name, config, self.connect_timeout);
        match connect.await {
            Ok(origin) if protocol == StreamProtocol::Http2 && origin.get_ref().1.alpn_protocol() != Some(b"h2") => {
                Err(OpenFailure::new(FailureReason::Tls, &format!("{address} speaks no HTTP/2 over TLS")))
            }
            Ok(origin) => Ok(Box::new(origin)),
            Err(error) => Err(match tls_refusal(&error) {
                Some(text) => {
                    OpenFailure::new(FailureReason::Tls, &format!("the TLS handshake with {address} failed: {text}"))
                }
                None => why_not_connected(&error, address),
            }),
        }
    }

    async fn serve(&self, stream: IncomingStream, connected: Result<impl RelayEnd, OpenFailure>) {
        let outcome = match connected {
            Ok(origin) => match stream.opened().await {
                Ok(tunnel) => relay(tunnel, origin, &self.stalls).await,
                Err(error) => Err(error),
            },
            Err(failure) => {
                debug!(%failure, "the service was not reached");
                stream.failed(failure).await;
                Ok(())
            }
        };
        if let Err(error) = outcome {
            debug!(%error, "a stream ended early");
        }
    }
}

/// What TLS found wrong, when that is what went wrong.
fn tls_refusal(error: &io::Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> =
        error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
    while let Some(inner) = cause {
        if let Some(rustls::Error::Other(other)) = inner.downcast_ref::<rustls::Error>() {
            return Some(other.to_string());
        }
        if let Some(error) = inner.downcast_ref::<rustls::Error>() {
            return Some(error.to_string());
        }
        // An `io::Error` inside of an `io::Error` hides what it holds from `source`.
        cause = match inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held) => Some(held),
            None => inner.source(),
        };
    }
    None
}

/// One sentence for the owner of the service, who reads it in an error page or a log.
fn why_not_connected(error: &io::Error, address: &OriginAddr) -> OpenFailure {
    let (reason, text) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            FailureReason::Refused,
            format!("nothing listens on {address}: start the service, or choose another one with --port and --host"),
        ),
        io::ErrorKind::TimedOut => (FailureReason::TimedOut, error.to_string()),
        io::ErrorKind::NotFound => (FailureReason::Unresolved, format!("the host {:?} has no address", address.host)),
        _ => (FailureReason::Other, error.to_string()),
    };
    OpenFailure::new(reason, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_service_and_the_way_out() {
        let address = OriginAddr { host: "localhost".into(), port: 8000 };
        let refused = why_not_connected(&io::ErrorKind::ConnectionRefused.into(), &address);
        assert_eq!(refused.reason, FailureReason::Refused);
        assert_eq!(
            refused.message,
            "nothing listens on localhost:8000: start the service, or choose another one with --port and --host"
        );
        assert_eq!(why_not_connected(&io::ErrorKind::TimedOut.into(), &address).reason, FailureReason::TimedOut);
        assert_eq!(why_not_connected(&io::ErrorKind::NotFound.into(), &address).reason, FailureReason::Unresolved);
    }
}
