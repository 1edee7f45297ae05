//! WebSockets by extended CONNECT.

use http::{Method, Request, Response, StatusCode, Version, request::Parts};
use sallyport_http::{
    forward::is_websocket_upgrade,
    websocket::{NoWebSocket, WebSocketKey, is_websocket},
};

/// The key of the example in RFC 6455 section 1.3: the Base64 of these bytes is `dGhlIHNhbXBsZSBub25jZQ==`.
const SAMPLE: [u8; 16] = *b"the sample nonce";
const SAMPLE_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn connect(version: Version, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(Method::CONNECT).version(version).uri("https://a.example/chat?x=1");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn switched(fields: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::builder().status(101);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap()
}

#[test]
fn only_the_token_of_websockets_names_them() {
    assert!(is_websocket(b"websocket") && is_websocket(b"WebSocket"));
    for other in [&b""[..], b"websockets", b"connect-udp", b"websocket "] {
        assert!(!is_websocket(other), "{other:?}");
    }
}

#[test]
fn an_extended_connect_becomes_an_upgrade() {
    for version in [Version::HTTP_2, Version::HTTP_3] {
        let fields = [
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat, superchat"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-key", "from the client"),
            ("sec-websocket-key", "and another"),
            ("origin", "https://a.example"),
            ("cookie", "a=1"),
        ];
        let mut head = connect(version, &fields);
        WebSocketKey::from_random(SAMPLE).to_upgrade(&mut head);
        assert!(is_websocket_upgrade(&head.method, head.version, &head.headers));
        assert_eq!(head.uri, "https://a.example/chat?x=1");
        let keys: Vec<_> = head.headers.get_all("sec-websocket-key").iter().collect();
        assert_eq!(keys, ["dGhlIHNhbXBsZSBub25jZQ=="]);
        for (name, value) in [&fields[..3], &fields[5..]].concat() {
            assert_eq!(head.headers[name], value);
        }
    }
}

#[test]
fn an_accepted_key_opens_the_websocket() {
    let mut response = switched(&[
        ("connection", "Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-accept", SAMPLE_ACCEPT),
        ("sec-websocket-protocol", "chat"),
        ("content-length", "0"),
        ("x-request-id", "1"),
    ]);
    WebSocketKey::from_random(SAMPLE).to_opened(&mut response).unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let fields = response.headers();
    assert_eq!(fields.len(), 2, "{fields:?}");
    assert!(fields["sec-websocket-protocol"] == "chat" && fields["x-request-id"] == "1");
}

#[test]
fn a_wrong_answer_to_the_key_opens_nothing() {
    let (upgrade, accept) = (("upgrade", "websocket"), ("sec-websocket-accept", SAMPLE_ACCEPT));
    let cases: [&[(&str, &str)]; 7] = [
        &[],
        &[upgrade],
        &[accept],
        &[upgrade, ("sec-websocket-accept", "S3pPLMBiTxaQ9kYGzzhZRbK+xOo=")],
        &[upgrade, accept, accept],
        &[upgrade, upgrade, accept],
        &[("upgrade", "h2c"), accept],
    ];
    for fields in cases {
        let mut response = switched(fields);
        assert_eq!(WebSocketKey::from_random(SAMPLE).to_opened(&mut response), Err(NoWebSocket), "{fields:?}");
        assert_eq!((response.status().as_u16(), response.headers().len()), (101, fields.len()), "unchanged");
    }
    let mut response = switched(&[upgrade, accept]);
    assert_eq!(WebSocketKey::from_random([7; 16]).to_opened(&mut response), Err(NoWebSocket), "another key");
    *response.status_mut() = StatusCode::OK;
    assert_eq!(WebSocketKey::from_random(SAMPLE).to_opened(&mut response), Err(NoWebSocket), "no switch");
}
