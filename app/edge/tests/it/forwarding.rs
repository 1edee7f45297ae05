//! Changes that owners configure on the path: services by path, hosts and header fields. Also origins that expect TLS.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response, StatusCode, header::LOCATION};
use http_body_util::BodyExt;
use sallyport_model::{
    Affinity, AttachedPolicy, HeaderChanges, HeaderField, HeaderRules, OriginProtocol, PathRoute, PolicyId, SocketType,
    TunnelId,
};
use sallyport_policy::DialedNetworks;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    harness::*,
    mesh::{Installation, MeshEdge},
};

fn path(prefix: &str, rewrite: Option<&str>) -> PathRoute {
    PathRoute { prefix: prefix.parse().unwrap(), rewrite: rewrite.map(|rewrite| rewrite.parse().unwrap()) }
}

impl TestSocket {
    /// Sets the paths that this tunnel serves.
    fn set_path(&mut self, world: &World, tunnel: TunnelId, path: PathRoute) {
        let tunnel = self.route.tunnels.iter_mut().find(|one| one.id == tunnel).unwrap();
        tunnel.path = path;
        world.routes.put(self.route.clone());
    }
}

/// Connects a tunnel for these paths to this origin.
async fn tunnel_for_path(world: &World, socket: &mut TestSocket, path: PathRoute, origin: SocketAddr) -> Connector {
    let id = world.new_tunnel(socket);
    socket.set_path(world, id, path);
    world.connect(id, origin).await
}

/// Describes a request to an origin: origin name, target, host, and some fields.
fn describe(name: &str, target: &http::Uri, headers: &HeaderMap) -> String {
    let host = headers.get("host").map_or(target.authority().map(|one| one.to_string()).unwrap_or_default(), |host| {
        host.to_str().unwrap().to_owned()
    });
    let field = |name: &str| headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    let path = target.path_and_query().map_or("", |path| path.as_str());
    let (prefix, public) = (field("x-forwarded-prefix"), field("x-forwarded-host"));
    format!("{name} {path} host={host} prefix={prefix} public={public} set={} gone={}", field("x-set"), field("x-gone"))
}

async fn describing_origin(name: &'static str) -> SocketAddr {
    origin(move |request| {
        let description = describe(name, request.uri(), request.headers());
        async move {
            Response::builder().header("server", "secret").header("x-a", "origin").body(text(description)).unwrap()
        }
    })
    .await
}

fn rules(set: &[(&str, &str)], remove: &[&str]) -> HeaderChanges {
    let field = |(name, value): &(&str, &str)| HeaderField { name: (*name).to_owned(), value: (*value).to_owned() };
    let remove = remove.iter().map(|name| (*name).to_owned()).collect();
    HeaderChanges { set: set.iter().map(field).collect(), remove }
}

#[tokio::test]
async fn services_share_a_name_by_path() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _front = tunnel_for_path(&world, &mut socket, path("/", None), describing_origin("front").await).await;
    let _api = tunnel_for_path(&world, &mut socket, path("/api", None), describing_origin("api").await).await;
    let _v2 = tunnel_for_path(&world, &mut socket, path("/api/v2", Some("/")), describing_origin("v2").await).await;
    let _docs =
        tunnel_for_path(&world, &mut socket, path("/docs", Some("/x/y")), describing_origin("docs").await).await;
    for (target, description) in [
        ("/", "front / "),
        ("/apis", "front /apis "),
        ("/api", "api /api "),
        ("/api/x?y=/docs", "api /api/x?y=/docs "),
        ("/%61pi/x/a%2Fb", "api /%61pi/x/a%2Fb "),
        ("/api/v2/x?y", "v2 /x?y "),
        ("/api/v2", "v2 / "),
        ("/api/v2/a%2Fb;c", "v2 /a%2Fb;c "),
        ("/docs/a", "docs /x/y/a "),
    ] {
        for _ in 0..3 {
            let answer = world.get(&socket, target).await;
            assert!(answer.text().starts_with(description), "{target}: {}", answer.text());
        }
    }
    let stripped = world.get(&socket, "/api/v2/x").await;
    assert!(stripped.text().contains("prefix=/api/v2 "), "{}", stripped.text());
    let smuggled = format!("GET /api HTTP/1.1\r\nhost: {}\r\nx-forwarded-prefix: /admin\r\n\r\n", socket.host());
    assert!(world.raw(&socket, smuggled.as_bytes()).await.text().contains("prefix=- "));

    let mut client = world.http2(&socket).await;
    let request = Request::get(format!("https://{}/api/v2/x?y=1", socket.host())).body(text("")).unwrap();
    let answer = soon(client.send_request(request)).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"v2 /x?y=1 "), "{body:?}");
}

#[tokio::test]
async fn an_ambiguous_path_reaches_no_service() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _front = tunnel_for_path(&world, &mut socket, path("/", None), describing_origin("front").await).await;
    let _api = tunnel_for_path(&world, &mut socket, path("/api", Some("/")), describing_origin("api").await).await;
    for target in [
        "//api",
        "/api/../x",
        "/x/../api",
        "/api/%2e%2e/x",
        "/api/%252e%252e/x",
        "/api%2fx",
        "/api;x/y",
        "/api/..;/x",
        "/api/x%5c..%5cy",
        "/api/%00",
        "/api//x",
    ] {
        let answer = world.get(&socket, target).await;
        assert_eq!((answer.status, answer.text().contains("more than one way")), (400, true), "{target}");
    }
    assert!(world.edge.metrics_text().unwrap().contains("sallyport_edge_refusals_total{reason=\"ambiguous-path\"} 11"));

    // A tunnel without paths takes every path.
    let mut plain = world.socket();
    let _plain = world.tunnel(&mut plain, describing_origin("plain").await).await;
    assert!(world.get(&plain, "//api/../x").await.text().starts_with("plain //api/../x "));
}

#[tokio::test]
async fn policies_apply_to_the_requested_path() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _front = tunnel_for_path(&world, &mut socket, path("/", None), describing_origin("front").await).await;
    let _api = tunnel_for_path(&world, &mut socket, path("/api", Some("/admin")), describing_origin("api").await).await;
    let document = r#"{"allow":[{"name":"here","where":["127.0.0.0/8"]}],
                       "deny":[{"name":"inside","what":{"paths":["/admin","/api/internal"]}}]}"#;
    socket.route.policies =
        vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "paths".into(), document: document.into() }];
    world.routes.put(socket.route.clone());
    for (target, status) in [
        ("/", 200),
        ("/api/x", 200),
        ("/admin", 403),
        ("/api/internal", 403),
        ("/api/%69nternal/x", 403),
        ("/api/x%2f..%2f..%2finternal", 403),
    ] {
        assert_eq!(world.get(&socket, target).await.status, status, "{target}");
    }
}

#[tokio::test]
async fn an_unknown_path_is_404_and_a_path_without_its_tunnel_waits() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _docs = tunnel_for_path(&world, &mut socket, path("/docs", None), describing_origin("docs").await).await;
    let nothing = world.get(&socket, "/x").await;
    assert_eq!((nothing.status, nothing.text().contains("No service of this name serves this path")), (404, true));

    let api = world.new_tunnel(&mut socket);
    socket.set_path(&world, api, path("/docs/api", None));
    let origin = describing_origin("api").await;
    let waits = async {
        let answer = world.get(&socket, "/docs/api/x").await;
        (answer.status, answer.text().split(' ').next().unwrap().to_owned())
    };
    let comes = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.connect(api, origin).await
    };
    let (waited, connector) = tokio::join!(waits, comes);
    assert_eq!(waited, (200, "api".to_owned()), "the request waits for the tunnel of its own service");
    connector.kill();
    until("its tunnel is down", || world.directory.get(api).is_none()).await;
    let (waited, _back) = tokio::join!(world.get(&socket, "/docs/api/y"), world.connect(api, origin));
    assert!(waited.text().starts_with("api /docs/api/y "), "{}", waited.text());
}

#[tokio::test]
async fn each_path_has_its_own_balancing_and_cookie() {
    let world = World::start().await;
    let mut socket = world.socket();
    let mut held = Vec::new();
    for (prefix, name) in [("/", "front-1"), ("/", "front-2"), ("/api", "api-1"), ("/api", "api-2")] {
        held.push(tunnel_for_path(&world, &mut socket, path(prefix, None), named_origin(name).await).await);
    }
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..10 {
        for target in ["/", "/api"] {
            *counts.entry(world.get(&socket, target).await.text().to_owned()).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.values().collect::<Vec<_>>(), [&5, &5, &5, &5], "{counts:?}");

    socket.route.settings.affinity = Affinity::Cookie;
    world.routes.put(socket.route.clone());
    let (front, api) = (world.get(&socket, "/").await, world.get(&socket, "/api").await);
    let cookie = |answer: &HttpResponse| answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let cookies = format!("{}; {}", cookie(&front), cookie(&api));
    for _ in 0..4 {
        for (target, first) in [("/", &front), ("/api", &api)] {
            let head = format!("GET {target} HTTP/1.1\r\nhost: {}\r\ncookie: {cookies}\r\n\r\n", socket.host());
            let again = world.raw(&socket, head.as_bytes()).await;
            assert_eq!((again.text(), again.header("set-cookie")), (first.text(), None), "{target}");
        }
    }
}

#[tokio::test]
async fn a_host_header_is_rewritten_and_redirects_lead_to_the_public_name() {
    let world = World::start_with(|config| {
        config.direct_origins = DialedNetworks::new(vec!["127.0.0.0/8".parse().unwrap()]);
    })
    .await;
    let mut socket = world.socket();
    let moving = origin(|request| {
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        let moved = format!("http://{host}/v2/new");
        let description = describe("moving", request.uri(), request.headers());
        async move { Response::builder().status(302).header(LOCATION, moved).body(text(description)).unwrap() }
    })
    .await;
    socket.direct(&world, &moving.to_string());
    socket.route.origins[0].path = path("/app", Some("/v2"));
    socket.route.settings.host_header = Some("origin".parse().unwrap());
    world.routes.put(socket.route.clone());
    let answer = world.get(&socket, "/app/x").await;
    let description = format!("moving /v2/x host={moving} prefix=/app public={}", socket.host());
    assert!(answer.text().starts_with(&description), "{}", answer.text());
    assert_eq!(answer.header("location").unwrap(), format!("https://{}/app/new", socket.host()));

    socket.route.settings.host_header = Some("localhost:3000".parse().unwrap());
    world.routes.put(socket.route.clone());
    assert!(world.get(&socket, "/app").await.text().contains("/v2 host=localhost:3000 "));

    // In HTTP/2 the host is in `:authority`.
    let mut grpc = world.socket();
    grpc.speaks(&world, OriginProtocol::Http2);
    let h2 = h2_origin(|request| {
        let description = describe("h2", request.uri(), request.headers());
        async move { Response::new(text(description)) }
    })
    .await;
    let _connector = world.tunnel(&mut grpc, h2).await;
    grpc.route.settings.host_header = Some("app.internal".parse().unwrap());
    world.routes.put(grpc.route.clone());
    let answer = world.get(&grpc, "/x?y").await;
    assert!(answer.text().starts_with("h2 /x?y host=app.internal "), "{}", answer.text());
}

#[tokio::test]
async fn header_fields_are_set_and_removed_in_both_directions() {
    let world = World::start().await;
    for protocol in [OriginProtocol::Http1, OriginProtocol::Http2] {
        let mut socket = world.socket();
        socket.speaks(&world, protocol);
        let answer_of = |request: Request<hyper::body::Incoming>| {
            let description = describe("one", request.uri(), request.headers());
            async move {
                let answer = Response::builder().header("server", "secret").header("x-a", "origin");
                answer.header("set-cookie", "a=1").body(text(description)).unwrap()
            }
        };
        let origin = match protocol {
            OriginProtocol::Http2 => h2_origin(answer_of).await,
            _ => origin(answer_of).await,
        };
        let _connector = world.tunnel(&mut socket, origin).await;
        socket.route.settings.headers = HeaderRules {
            request: rules(&[("X-Set", "ours")], &["X-Gone"]),
            response: rules(
                &[("X-A", "ours"), ("Set-Cookie", "b=2; Domain=localhost"), ("Set-Cookie", "c=3"), ("X-More", "1")],
                &["Server"],
            ),
        };
        world.routes.put(socket.route.clone());
        let head = format!(
            "GET / HTTP/1.1\r\nhost: {}\r\nx-set: client\r\nx-gone: 1\r\nconnection: x-set\r\n\r\n",
            socket.host()
        );
        let answer = world.raw(&socket, head.as_bytes()).await;
        assert!(answer.text().ends_with("set=ours gone=-"), "{}", answer.text());
        assert_eq!(
            (answer.header("x-a"), answer.header("server"), answer.header("x-more")),
            (Some("ours"), None, Some("1"))
        );
        let cookies: Vec<_> =
            answer.head.lines().filter(|line| line.to_ascii_lowercase().starts_with("set-cookie")).collect();
        assert_eq!(cookies.len(), 2, "{cookies:?}");
        assert!(!answer.head.contains("Domain"), "no owner sets cookies for others: {}", answer.head);

        let mut client = world.http2(&socket).await;
        let request = Request::get(format!("https://{}/", socket.host())).header("x-gone", "1").body(text("")).unwrap();
        let answer = soon(client.send_request(request)).await.unwrap();
        assert_eq!(
            (answer.headers()["x-a"].to_str().unwrap(), answer.headers().contains_key("server")),
            ("ours", false)
        );
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.ends_with(b"set=ours gone=-"), "{body:?}");

        // The edge's own pages carry none of these fields.
        socket.route.tunnels.clear();
        world.routes.put(socket.route.clone());
        let own = world.get(&socket, "/").await;
        assert_eq!((own.status, own.header("x-more")), (503, None));
    }
}

#[tokio::test]
async fn an_upgrade_gets_the_configured_fields() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (origin, _) = raw_origin(|mut tcp: TcpStream| async move {
        let head = read_head(&mut tcp).await;
        assert!(head.starts_with("GET /socket HTTP/1.1\r\n") && head.contains("x-set: ours\r\n"), "{head}");
        let switch =
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nserver: x\r\n\r\n";
        tcp.write_all(switch).await.unwrap();
        let mut echo = [0; 4];
        tcp.read_exact(&mut echo).await.unwrap();
        tcp.write_all(&echo).await.unwrap();
    })
    .await;
    let _connector = tunnel_for_path(&world, &mut socket, path("/live", Some("/socket")), origin).await;
    socket.route.settings.headers =
        HeaderRules { request: rules(&[("X-Set", "ours")], &[]), response: rules(&[], &["Server"]) };
    world.routes.put(socket.route.clone());
    let mut client = world.client(&socket).await;
    let head = format!(
        "GET /live HTTP/1.1\r\nhost: {}\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        socket.host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101") && !answer.contains("server:"), "{answer}");
    client.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    soon(client.read_exact(&mut echo)).await.unwrap();
    assert_eq!(&echo, b"ping");
}

/// Another edge holds the tunnel of a path: the route carries the prefix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_is_served_by_a_tunnel_at_another_edge() {
    let mut installation = Installation::new();
    let (a, b): (MeshEdge, MeshEdge) = (installation.edge(61, "eu"), installation.edge(62, "us"));
    let mut socket = a.world.socket();
    let _front = tunnel_for_path(&a.world, &mut socket, path("/", None), describing_origin("front").await).await;
    let _api = tunnel_for_path(&b.world, &mut socket, path("/api", Some("/")), describing_origin("api").await).await;
    installation.announce(&[&a, &b]);
    for edge in [&a, &b] {
        for (target, description) in [("/x", "front /x "), ("/api/x", "api /x ")] {
            let answer = edge.world.get(&socket, target).await;
            assert!(answer.text().starts_with(description), "{target}: {}", answer.text());
        }
    }
    // The connector reports its dial address to the edge that holds its tunnel. That edge reports the address to the
    // other edge.
    socket.route.settings.host_header = Some("origin".parse().unwrap());
    a.world.routes.put(socket.route.clone());
    for edge in [&a, &b] {
        let answer = edge.world.get(&socket, "/api/x").await;
        assert!(answer.text().starts_with("api /x host=app.internal:3000 "), "{}", answer.text());
    }
}

/// The response of an origin to plain HTTP.
async fn get_over_plain_http(world: &World, origin: SocketAddr) -> HttpResponse {
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, origin).await;
    world.get(&socket, "/").await
}

#[tokio::test]
async fn an_origin_that_expects_tls_is_reported_as_such() {
    let world = World::start().await;
    let (alerts, _) = raw_origin(|mut tcp: TcpStream| async move {
        let _ = tcp.read(&mut [0; 4_096]).await;
        let _ = tcp.write_all(&[21, 3, 1, 0, 2, 2, 70]).await;
    })
    .await;
    let (complains, _) = raw_origin(|mut tcp: TcpStream| async move {
        let _ = tcp.read(&mut [0; 4_096]).await;
        let error = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        let _ = tcp.write_all(error).await;
    })
    .await;
    // A real TLS server, which ends a plain request without an HTTP response.
    let tls = Arc::new(sallyport_net_server());
    let (silent, _) = raw_origin(move |tcp: TcpStream| {
        let acceptor = tokio_rustls::TlsAcceptor::from(tls.clone());
        async move {
            let mut first = [0; 1];
            if tcp.peek(&mut first).await.is_ok() && first[0] == 22 {
                let _ = acceptor.accept(tcp).await;
            }
        }
    })
    .await;
    for origin in [alerts, complains, silent] {
        let answer = get_over_plain_http(&world, origin).await;
        assert_eq!(answer.status, 502, "{}", answer.head);
        assert!(answer.text().contains("origin-speaks-tls"), "{}", answer.text());
    }
    let counted = "sallyport_edge_refusals_total{reason=\"origin-speaks-tls\"} 3";
    assert!(world.edge.metrics_text().unwrap().contains(counted));

    // An origin that closes for another reason is not reported so. An application's status 400 passes.
    let (rude, asked) = raw_origin(|tcp: TcpStream| async move { drop(tcp) }).await;
    let answer = get_over_plain_http(&world, rude).await;
    assert_eq!((answer.status, answer.text().contains("origin-speaks-tls")), (502, false));
    assert!(asked.load(std::sync::atomic::Ordering::SeqCst) >= 2, "the edge sent a ClientHello");
    let bad =
        origin(|_| async { Response::builder().status(StatusCode::BAD_REQUEST).body(text("no such thing")).unwrap() })
            .await;
    assert_eq!(get_over_plain_http(&world, bad).await.status, 400);
    let mut https = world.socket();
    https.route.socket_type = SocketType::Https;
    world.routes.put(https.route.clone());
    let _connector = world.tunnel(&mut https, complains).await;
    assert_eq!(world.get(&https, "/").await.status, 400, "behind https it is the service's own answer");
}

fn sallyport_net_server() -> rustls::ServerConfig {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap()
}
