//! Services that speak TLS, and their certificates.

use std::sync::Arc;

use sallyport_connector::OriginTls;
use sallyport_net::{Fingerprint, server_config};
use sallyport_wire::{FailureReason, StreamProtocol};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::lab::*;

/// A service that sends the negotiated protocol, then echoes.
async fn tls_service(names: &Names, alpn: &[&[u8]]) -> u16 {
    let mut config = (*server_config(names.certificates.clone(), b"none")).clone();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    service(move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let agreed = stream.get_ref().1.alpn_protocol().unwrap_or(b"-").to_vec();
                tokio::io::AsyncWriteExt::write_all(&mut stream, &agreed).await.unwrap();
                echo(stream).await;
            }
        }
    })
    .await
}

fn leaf(names: &Names) -> Fingerprint {
    Fingerprint::of_der(names.certificates.certificate("localhost").unwrap().end_entity_cert().unwrap())
}

#[tokio::test]
async fn each_stream_agrees_on_its_protocol() {
    let names = Names::new();
    let port = tls_service(&names, &[b"h2", b"http/1.1"]).await;
    let (edge, _connector) = before(port, Some(OriginTls::ca(names.ca_file()))).await;
    for (protocol, agreed) in
        [(StreamProtocol::Http1, "http/1.1"), (StreamProtocol::Http2, "h2"), (StreamProtocol::Raw, "-")]
    {
        let answer = edge.exchange(protocol, b" and more").await.unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), format!("{agreed} and more"));
    }
}

#[tokio::test]
async fn a_service_without_http2_gets_none() {
    let names = Names::new();
    let port = tls_service(&names, &[]).await;
    let (edge, _connector) = before(port, Some(OriginTls::ca(names.ca_file()))).await;
    is(&edge.failure(StreamProtocol::Http2).await, FailureReason::Tls, "speaks no HTTP/2");
    assert_eq!(edge.exchange(StreamProtocol::Http1, b"!").await.unwrap(), b"-!");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named_so_that_it_can_be_pinned() {
    let (names, others) = (Names::new(), Names::new());
    let port = tls_service(&names, &[]).await;
    let pin = leaf(&names);
    for (tls, says) in [
        (OriginTls::ca(others.ca_file()), "--origin-ca FILE, or the certificate itself with"),
        (OriginTls::pinned(leaf(&others)), "is not the pinned one: if it is the right one, give"),
    ] {
        let (edge, _connector) = before(port, Some(tls)).await;
        let failure = edge.failure(StreamProtocol::Http1).await;
        is(&failure, FailureReason::Tls, &format!("{says} --origin-pin {pin}"));
    }
    let (edge, _connector) = before(port, Some(OriginTls::pinned(pin))).await;
    assert_eq!(edge.exchange(StreamProtocol::Http1, b"!").await.unwrap(), b"-!");
}

#[tokio::test]
async fn the_certificate_must_be_for_the_name_that_is_expected() {
    let names = Names::new();
    let port = tls_service(&names, &[]).await;
    let tls = OriginTls::ca(names.ca_file()).with_server_name("calm.localhost".into());
    let (edge, _connector) = before(port, Some(tls)).await;
    assert_eq!(edge.exchange(StreamProtocol::Http1, b"!").await.unwrap(), b"-!");
    let tls = OriginTls::ca(names.ca_file()).with_server_name("example.com".into());
    let (edge, _connector) = before(port, Some(tls)).await;
    let says = "it has no certificate for example.com: say with --origin-server-name";
    is(&edge.failure(StreamProtocol::Http1).await, FailureReason::Tls, says);

    // Most services have one certificate, whatever name is requested.
    let mut config = (*server_config(names.certificates.clone(), b"none")).clone();
    let own = names.certificates.certificate("calm.localhost").unwrap();
    config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from((*own).clone()));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let port = service(move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move { drop(acceptor.accept(stream).await) }
    });
    let (edge, _connector) = before(port.await, Some(OriginTls::ca(names.ca_file()))).await;
    let says = "its certificate is for other names (calm.localhost) than localhost: say with --origin-server-name";
    is(&edge.failure(StreamProtocol::Http1).await, FailureReason::Tls, says);
}

#[tokio::test]
async fn a_service_without_tls_is_detected() {
    let names = Names::new();
    let tls = || Some(OriginTls::ca(names.ca_file()));
    let says = "for a service without TLS, make a socket of --type http";
    let (edge, _connector) = before(service(echo).await, tls()).await;
    is(&edge.failure(StreamProtocol::Http1).await, FailureReason::Tls, &format!("it speaks no TLS: {says}"));
    let (edge, _connector) = before(service(async |stream| drop(stream)).await, tls()).await;
    is(&edge.failure(StreamProtocol::Http1).await, FailureReason::Tls, says);
}
