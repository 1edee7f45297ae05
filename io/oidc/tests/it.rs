//! Requests to a provider: trusted certificates, redirects, and bounds of the bytes read.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sallyport_model::{ProviderConfig, ProviderKind};
use sallyport_net::{Certificates, LocalCa};
use sallyport_oidc::{MAX_ANSWER_BYTES, OidcError, Providers, Reach};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const KEY: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}, {"kty":"oct","k":"AAAA"}, {"kty":"odd"}]}"#;

fn config(issuer: &str) -> ProviderConfig {
    ProviderConfig {
        kind: ProviderKind::Oidc,
        issuer: Some(issuer.to_owned()),
        tenant: None,
        client_id: "c".to_owned(),
        scopes: Vec::new(),
        groups_claim: None,
        trust_email: false,
        ca_pem: None,
        hook: None,
        require_totp: false,
        check_minutes: None,
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, issuer: &str) -> Option<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let request = String::from_utf8(request).unwrap();
    let body = if request.contains("openid-configuration") {
        format!(
            concat!(
                r#"{{"issuer":"{issuer}","authorization_endpoint":"{issuer}/a","token_endpoint":"{issuer}/t","#,
                r#""jwks_uri":"{issuer}/k"}}"#
            ),
            issuer = issuer
        )
    } else {
        KEY.to_owned()
    };
    stream
        .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await
        .ok()?;
    stream.shutdown().await.ok()
}

#[tokio::test]
async fn a_provider_with_an_authority_of_its_own_is_believed_by_that_alone() {
    let dir = tempfile::tempdir().unwrap();
    let ca = LocalCa::open_or_create(dir.path(), "localhost").unwrap();
    let pem = ca.root_pem().to_owned();
    let tls = sallyport_net::server_config(Certificates::new(ca, "localhost").unwrap(), b"none");
    let acceptor = TlsAcceptor::from(tls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("https://id.localhost:{}", listener.local_addr().unwrap().port());
    let says = issuer.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, says) = (acceptor.clone(), says.clone());
            tokio::spawn(async move { answer(acceptor.accept(stream).await.ok()?, &says).await });
        }
    });
    let anywhere = Providers::new(Reach::Anywhere, "tests");
    let by_pem = ProviderConfig { ca_pem: Some(pem), ..config(&issuer) };
    let metadata = anywhere.test(&by_pem).await.unwrap();
    assert_eq!(
        (metadata.issuer, metadata.keys),
        (issuer.clone(), 1),
        "a shared secret is no key, nor is what is not known"
    );

    let other = tempfile::tempdir().unwrap();
    let other = LocalCa::open_or_create(other.path(), "localhost").unwrap().root_pem().to_owned();
    for ca_pem in [None, Some(other)] {
        let refused = anywhere.test(&ProviderConfig { ca_pem, ..config(&issuer) }).await.unwrap_err();
        let is_told = matches!(&refused, OidcError::Unreachable { reason, .. } if reason.contains("certificate"))
            || matches!(&refused, OidcError::Config(reason) if reason.contains("root certificates"));
        assert!(is_told, "{refused}");
    }
    let broken = ProviderConfig { ca_pem: Some("-----BEGIN CERTIFICATE-----\nx".to_owned()), ..config(&issuer) };
    assert!(matches!(anywhere.test(&broken).await, Err(OidcError::Config(_))));

    let public = Providers::new(Reach::Public, "tests");
    assert_eq!(public.test(&by_pem).await.unwrap_err(), OidcError::Private { host: "id.localhost".to_owned() });
}

#[tokio::test]
async fn answers_are_bounded_and_silence_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let served = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = served.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    request.push(byte);
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                let chunk = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
                // An endless body, as far as the client reads.
                for _ in 0..1_000 {
                    if stream.write_all(&chunk).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    let providers = Providers::new(Reach::Anywhere, "tests");
    let refused = providers.test(&config(&issuer)).await.unwrap_err();
    assert!(
        matches!(&refused, OidcError::Answer { reason, .. } if reason.contains(&MAX_ANSWER_BYTES.to_string())),
        "{refused}"
    );
    // Many logins during an outage do not each wait for the provider.
    let request = sallyport_oidc::AuthorizationRequest {
        redirect_uri: "https://l/",
        state: "s",
        nonce: "n",
        challenge: "c",
        prompt: sallyport_oidc::Prompt::IfNeeded,
    };
    for _ in 0..20 {
        assert!(providers.begin(&config(&issuer), request).await.is_err());
    }
    assert!(served.load(std::sync::atomic::Ordering::SeqCst) <= 10, "it is left alone for a while");
}
