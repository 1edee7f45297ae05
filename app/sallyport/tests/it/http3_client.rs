//! A client of HTTP/3 by the `h3` library, independent of the program's own implementation.

use std::{
    future::poll_fn,
    net::{SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Method, Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use sallyport_net::{Trust, client_config};
use tokio::runtime::Runtime;

use crate::harness::PATIENCE;

pub(crate) type Http3Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A client with a UDP socket of its own.
pub(crate) struct Http3Client {
    pub(crate) runtime: Arc<Runtime>,
    endpoint: quinn::Endpoint,
    config: quinn::ClientConfig,
}

/// A connection of a client.
pub(crate) struct Http3Connection {
    pub(crate) quic: quinn::Connection,
    pub(crate) requests: SendRequest<OpenStreams, Bytes>,
    runtime: Arc<Runtime>,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Http3Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Http3Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Http3Client {
    pub(crate) fn new(ca: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self::within(Arc::new(runtime), ca)
    }

    /// Another client in the threads of an earlier one.
    pub(crate) fn within(runtime: Arc<Runtime>, ca: &Path) -> Self {
        let mut tls = rustls::ClientConfig::clone(&client_config(&Trust::Ca(ca.to_owned()), &[]).unwrap());
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.enable_early_data = true;
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let mut transport = quinn::TransportConfig::default();
        transport.keep_alive_interval(Some(Duration::from_secs(5)));
        config.transport_config(Arc::new(transport));
        let _inside = runtime.enter();
        let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(config.clone());
        Self { runtime: runtime.clone(), endpoint, config }
    }

    /// How this client connects, for endpoints of a test's own.
    pub(crate) fn config(&self) -> quinn::ClientConfig {
        self.config.clone()
    }

    pub(crate) fn connect(&self, port: u16, host: &str) -> Http3Connection {
        self.try_connect(port, host).unwrap()
    }

    pub(crate) fn try_connect(&self, port: u16, host: &str) -> Result<Http3Connection, quinn::ConnectionError> {
        self.connect_from(&self.endpoint, port, host)
    }

    /// A connection by an endpoint of a test's own.
    pub(crate) fn connect_from(
        &self,
        endpoint: &quinn::Endpoint,
        port: u16,
        host: &str,
    ) -> Result<Http3Connection, quinn::ConnectionError> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        self.runtime.block_on(async {
            let quic = endpoint.connect_with(self.config.clone(), address, host).unwrap().await?;
            let (mut connection, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
            tokio::spawn(async move { poll_fn(|cx| connection.poll_close(cx)).await });
            Ok(Http3Connection { quic, requests, runtime: self.runtime.clone() })
        })
    }

    /// A connection before its handshake, with what the client knows from an earlier one; `None` if the server gave no
    /// permission for early data. `address` is that of the server, or of a relay.
    pub(crate) fn connect_early(&self, address: SocketAddr, host: &str) -> Option<Http3Connection> {
        self.runtime.block_on(async {
            let (quic, _) = self.endpoint.connect(address, host).unwrap().into_0rtt().ok()?;
            let (mut connection, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
            tokio::spawn(async move { poll_fn(|cx| connection.poll_close(cx)).await });
            Some(Http3Connection { quic, requests, runtime: self.runtime.clone() })
        })
    }

    /// Whether the server takes early data; `None` if the client has no permission for early data.
    pub(crate) fn is_early_data_accepted(&self, address: SocketAddr, host: &str) -> Option<bool> {
        self.runtime.block_on(async {
            let (quic, accepted) = self.endpoint.connect(address, host).unwrap().into_0rtt().ok()?;
            let is_accepted = accepted.await;
            quic.close(0_u32.into(), b"");
            Some(is_accepted)
        })
    }

    /// Sends these bytes as a request in early data, and returns the first bytes of the response.
    pub(crate) fn first_response(&self, address: SocketAddr, host: &str, request: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (quic, _) = self.endpoint.connect(address, host).unwrap().into_0rtt().ok().unwrap();
            let mut control = quic.open_uni().await.unwrap();
            // The control stream and its empty SETTINGS.
            control.write_all(&[0, 4, 0]).await.unwrap();
            let (mut send, mut recv) = quic.open_bi().await.unwrap();
            send.write_all(request).await.unwrap();
            let chunk = tokio::time::timeout(PATIENCE, recv.read_chunk(4_096, true)).await.unwrap();
            chunk.unwrap().unwrap().bytes.to_vec()
        })
    }

    /// Moves the client to another UDP port, or to this address.
    pub(crate) fn rebind(&self, address: &str) {
        let _inside = self.runtime.enter();
        self.endpoint.rebind(UdpSocket::bind(address).unwrap()).unwrap();
    }
}

impl Http3Connection {
    pub(crate) fn get(&mut self, host: &str, path: &str) -> Http3Response {
        self.send(Method::GET, host, path, &[], None).unwrap()
    }

    /// One request with these header fields, and its whole response; the error's text else.
    pub(crate) fn send(
        &mut self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> Result<Http3Response, String> {
        let runtime = self.runtime.clone();
        let exchange = async {
            let (response, mut stream) = self.open(method, host, path, headers, body).await?;
            let mut whole = Vec::new();
            while let Some(mut data) = stream.recv_data().await.map_err(|error| error.to_string())? {
                let bytes = data.copy_to_bytes(data.remaining());
                whole.extend_from_slice(&bytes);
            }
            let (head, ()) = response.into_parts();
            Ok(Http3Response { status: head.status.as_u16(), headers: head.headers, body: whole })
        };
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("no response".to_owned()))
        })
    }

    /// Sends a request, and returns the head of its response.
    pub(crate) async fn open(
        &mut self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> Result<(Response<()>, Http3Stream), String> {
        let mut request = Request::builder().method(method).uri(format!("https://{host}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let mut stream = self.requests.send_request(request).await.map_err(|error| error.to_string())?;
        if let Some(body) = body {
            stream.send_data(body).await.map_err(|error| error.to_string())?;
        }
        // A server that has answered need not read the end of the request, and says so (RFC 9114 section 4.1).
        let finished = stream.finish().await.map_err(|error| error.to_string());
        if finished.as_ref().is_err_and(|error| !error.contains("H3_NO_ERROR")) {
            finished?;
        }
        let response = stream.recv_response().await.map_err(|error| error.to_string())?;
        Ok((response, stream))
    }
}
