//! Header fields that are forwarded to origins and clients.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use proptest::{collection::vec, prelude::*};
use sallyport_http::{
    RequestHost, RequestId, RequestRefusal,
    forward::{
        ClientFields, ForwardContext, NextHop, OurFields, Recipient, decrement_max_forwards, drop_overrides, is_grpc,
        is_websocket_upgrade, request_headers, response_headers, trailers,
    },
};

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The fields at the origin, for these fields of a client.
fn forwarded(fields: &[(&str, &str)], client: &str, websocket: bool, origin: NextHop) -> HeaderMap {
    let mut headers = headers(fields);
    let client = ClientFields::new(client.parse().unwrap(), "https", 8443);
    let host = RequestHost::from_value(&HeaderValue::from_static("Calm.localhost:8443")).unwrap();
    let ours = OurFields {
        client: &client,
        host: &host,
        request_id: &RequestId::from_random([0xab; 16]),
        version: Version::HTTP_11,
    };
    request_headers(&mut headers, &ForwardContext { ours, websocket, origin });
    if origin == NextHop::Http2 {
        return headers;
    }
    read_head(&written(&headers, &ours))
}

/// The request head for an HTTP/1.1 origin.
fn written(headers: &HeaderMap, ours: &OurFields<'_>) -> BytesMut {
    let mut head = BytesMut::from("GET / HTTP/1.1\r\n");
    for (name, value) in headers {
        head.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    ours.write(&mut head);
    head.extend_from_slice(b"\r\n");
    head
}

/// The fields of an encoded head.
fn read_head(head: &[u8]) -> HeaderMap {
    let mut room = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut room);
    assert!(request.parse(head).unwrap().is_complete());
    let field = |field: &httparse::Header<'_>| {
        (HeaderName::try_from(field.name).unwrap(), HeaderValue::from_bytes(field.value).unwrap())
    };
    request.headers.iter().map(field).fold(HeaderMap::new(), |mut fields, (name, value)| {
        fields.append(name, value);
        fields
    })
}

fn to_http1(fields: &[(&str, &str)]) -> HeaderMap {
    forwarded(fields, "192.0.2.7:1234", false, NextHop::Http1)
}

/// The names of the fields that the edge sets, sorted.
const OURS: [&str; 8] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

#[test]
fn forwarding_fields_describe_the_client() {
    let got = to_http1(&[("host", "Calm.localhost:8443"), ("accept", "*/*")]);
    for (name, value) in [
        ("host", "Calm.localhost:8443"),
        ("accept", "*/*"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-real-ip", "192.0.2.7"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "Calm.localhost:8443"),
        ("x-forwarded-port", "8443"),
        ("forwarded", "for=192.0.2.7;proto=https;host=\"Calm.localhost:8443\""),
        ("x-request-id", &"ab".repeat(16)),
        ("via", "1.1 sallyport"),
    ] {
        assert_eq!(got.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
    }
    assert_eq!(got.len(), 10);

    let got = forwarded(&[], "[2001:db8::1]:9", false, NextHop::Http2);
    assert_eq!(got["x-forwarded-for"], "2001:db8::1");
    assert_eq!(got["forwarded"], "for=\"[2001:db8::1]\";proto=https;host=\"Calm.localhost:8443\"");
    assert!(!got.contains_key("host"), "HTTP/2 has the host in its authority");
    let got = forwarded(&[], "[::ffff:192.0.2.7]:9", false, NextHop::Http1);
    assert_eq!(got["x-real-ip"], "192.0.2.7");
}

#[test]
fn our_via_entry_follows_those_of_earlier_hops() {
    for origin in [NextHop::Http1, NextHop::Http2] {
        let got = forwarded(&[("via", "1.0 fred, 1.1 p.example"), ("via", "2 x")], "192.0.2.7:1", false, origin);
        let via: Vec<_> = got.get_all("via").iter().collect();
        assert_eq!(via, ["1.0 fred, 1.1 p.example", "2 x", "1.1 sallyport"], "{origin:?}");
    }
    let client = ClientFields::new("192.0.2.7:1".parse().unwrap(), "https", 8443);
    let host = RequestHost::from_value(&HeaderValue::from_static("a")).unwrap();
    let request_id = &RequestId::from_random([0xab; 16]);
    for (version, via) in
        [(Version::HTTP_10, "1.0 sallyport"), (Version::HTTP_2, "2 sallyport"), (Version::HTTP_3, "3 sallyport")]
    {
        let ours = OurFields { client: &client, host: &host, request_id, version };
        assert_eq!(read_head(&written(&HeaderMap::new(), &ours))["via"], via);
    }
}

#[test]
fn max_forwards_is_decremented_for_options_and_trace() {
    let hops = |method: Method, values: &[&str]| {
        let fields: Vec<_> = values.iter().map(|value| ("max-forwards", *value)).collect();
        let mut headers = headers(&fields);
        let recipient = decrement_max_forwards(&method, &mut headers);
        let left = headers.get("max-forwards").map(|value| value.to_str().unwrap().to_owned());
        (recipient, left.unwrap_or_default())
    };
    for method in [Method::OPTIONS, Method::TRACE] {
        assert_eq!(hops(method.clone(), &[]), (Ok(Recipient::Origin), String::new()));
        assert_eq!(hops(method.clone(), &["0"]), (Ok(Recipient::Edge), "0".into()));
        assert_eq!(hops(method.clone(), &["000"]), (Ok(Recipient::Edge), "000".into()));
        assert_eq!(hops(method.clone(), &["1"]), (Ok(Recipient::Origin), "0".into()));
        assert_eq!(hops(method.clone(), &["12"]), (Ok(Recipient::Origin), "11".into()));
        assert_eq!(hops(method.clone(), &["99999999999999999999"]).0, Ok(Recipient::Origin));
        for bad in [&["-1"][..], &["+1"], &["1, 2"], &[""], &["x"], &["1", "1"], &["1.0"]] {
            assert_eq!(hops(method.clone(), bad).0, Err(RequestRefusal::MaxForwards), "{bad:?}");
        }
    }
    // For other methods, Max-Forwards has no meaning.
    assert_eq!(hops(Method::GET, &["0"]), (Ok(Recipient::Origin), "0".into()));
}

#[test]
fn reserved_fields_are_dropped_in_every_spelling() {
    for name in [
        "X-Forwarded-For",
        "x_forwarded_for",
        "X-Forwarded_For",
        "X.Forwarded.For",
        "x-forwarded-proto",
        "X_FORWARDED_PROTO",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Forwarded-Server",
        "X-Forwarded-Client-Cert",
        "X-Forwarded-",
        "X-Forwarded",
        "X_Forwarded",
        "Forwarded",
        "FORWARDED",
        "X-Real-Ip",
        "X_REAL_IP",
        "x-real_ip",
        "X-Request-Id",
        "X_Request_Id",
        "X-Auth-Email",
        "x_auth_user",
        "X-Auth_Groups",
        "X-Sallyport-Identity",
        "X_SALLYPORT_ANYTHING",
        "x~sallyport~x",
        "X-Sallyport-Assertion",
        "x-sallyport_assertion",
        "X.Auth.Groups",
        "X_AUTH_NAME",
        "X-Auth-",
        "Sallyport-Token-Id",
        "SALLYPORT_TOKEN_SECRET",
        "sallyport.token.secret",
        "Transfer_Encoding",
        "Content_Length",
    ] {
        let got = to_http1(&[(name, "evil"), (name, "evil too"), ("x-mine", "kept")]);
        assert!(!got.values().any(|value| value.to_str().unwrap().contains("evil")), "{name}: {got:?}");
        assert_eq!(got["x-mine"], "kept");
        let mut names: Vec<&str> = got.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [&OURS[..1], &["host"], &OURS[1..6], &["x-mine"], &OURS[6..]].concat();
        assert_eq!(names, expected, "{name}");
    }
}

#[test]
fn override_fields_are_dropped_in_every_spelling() {
    for name in [
        "X-HTTP-Method-Override",
        "x_http_method_override",
        "X-Http-Method",
        "X.HTTP.METHOD",
        "X-Method-Override",
        "X-Original-URL",
        "x_original_url",
        "X-Original-Uri",
        "X-Rewrite-Url",
        "x~rewrite~url",
    ] {
        let kept = ("x-method-overrides", "kept");
        let mut got = headers(&[(name, "evil"), (name, "evil too"), kept]);
        drop_overrides(&mut got);
        assert!(got.len() == 1 && got[kept.0] == kept.1, "{name}: {got:?}");
        let mut got = headers(&[(name, "evil"), kept]);
        trailers(&mut got);
        assert_eq!(got.len(), 1, "{name} as a trailer");
        assert!(to_http1(&[(name, "x")]).contains_key(name), "{name} is kept without drop_overrides");
    }
}

#[test]
fn similar_names_are_kept() {
    let names = [
        "sallyport-tokens",
        "x-forwarder",
        "x-authority",
        "x-auth",
        "x-real-ips",
        "forwarded-by",
        "x-request-idx",
        "xx-real-ip",
    ];
    let got = to_http1(&names.map(|name| (name, "kept")));
    for name in names {
        assert_eq!(got[name], "kept", "{name}");
    }
}

#[test]
fn hop_by_hop_fields_are_dropped() {
    let got = to_http1(&[
        ("connection", "keep-alive, X-Private , x-forwarded-for"),
        ("connection", "close, Host, content-length, no token!("),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "Basic eA=="),
        ("http2-settings", "AAMAAABk"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("trailer", "x-sum"),
        ("expect", "100-continue"),
        ("content-length", "5"),
        ("authorization", "Bearer x"),
    ]);
    let mut names: Vec<&str> = got.keys().map(HeaderName::as_str).filter(|name| !OURS.contains(name)).collect();
    names.sort_unstable();
    assert_eq!(names, ["authorization", "content-length", "expect", "host", "trailer"]);
    assert_eq!(got["x-forwarded-for"], "192.0.2.7", "Connection cannot remove the edge's field");
}

#[test]
fn te_trailers_is_forwarded_over_http2_only() {
    let te = [("te", "gzip, Trailers")];
    assert_eq!(forwarded(&te, "192.0.2.7:1", false, NextHop::Http2)["te"], "trailers");
    assert!(!to_http1(&te).contains_key("te"));
    assert!(!forwarded(&[("te", "gzip")], "192.0.2.7:1", false, NextHop::Http2).contains_key("te"));
}

#[test]
fn a_websocket_upgrade_is_forwarded() {
    let fields = [
        ("connection", "keep-alive, Upgrade, x-secret"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("x-secret", "1"),
    ];
    assert!(is_websocket_upgrade(&Method::GET, Version::HTTP_11, &headers(&fields)));
    let got = forwarded(&fields, "192.0.2.7:1", true, NextHop::Http1);
    assert_eq!(got["connection"], "Upgrade");
    assert_eq!(got["upgrade"], "websocket");
    assert_eq!(got["sec-websocket-key"], "dGhlIHNhbXBsZSBub25jZQ==");
    assert!(!got.contains_key("x-secret"));

    let mut response = headers(&[("connection", "upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-accept", "x")]);
    response_headers(&mut response, &HeaderValue::from_static("id"), true);
    assert_eq!(
        (&response["connection"], &response["upgrade"]),
        (&"Upgrade".parse().unwrap(), &"websocket".parse().unwrap())
    );
    assert_eq!(response["sec-websocket-accept"], "x");
}

#[test]
fn other_upgrades_are_not_websocket_upgrades() {
    let fields = [("connection", "Upgrade"), ("upgrade", "websocket")];
    assert!(!is_websocket_upgrade(&Method::POST, Version::HTTP_11, &headers(&fields)));
    assert!(!is_websocket_upgrade(&Method::GET, Version::HTTP_10, &headers(&fields)));
    assert!(!is_websocket_upgrade(&Method::GET, Version::HTTP_2, &headers(&fields)));
    for (name, value, is_upgrade) in
        [("content-length", "0", true), ("content-length", "4", false), ("transfer-encoding", "chunked", false)]
    {
        let fields = [fields[0], fields[1], (name, value)];
        assert_eq!(
            is_websocket_upgrade(&Method::GET, Version::HTTP_11, &headers(&fields)),
            is_upgrade,
            "{name}: {value}"
        );
    }
    for fields in [
        &[("upgrade", "websocket")][..],
        &[("connection", "upgrade")],
        &[("connection", "upgraded"), ("upgrade", "websocket")],
        &[("connection", "upgrade"), ("upgrade", "h2c")],
        &[("connection", "upgrade"), ("upgrade", "websocket, h2c")],
        &[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")],
    ] {
        assert!(!is_websocket_upgrade(&Method::GET, Version::HTTP_11, &headers(fields)), "{fields:?}");
    }
}

#[test]
fn cookie_fields_are_joined() {
    let got = to_http1(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3; d=4")]);
    assert_eq!(got.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
    assert_eq!(to_http1(&[("cookie", "a=1")])["cookie"], "a=1");
}

#[test]
fn responses_lose_hop_by_hop_fields() {
    let mut response = headers(&[
        ("connection", "close, x-internal"),
        ("x-internal", "1"),
        ("keep-alive", "timeout=5"),
        ("upgrade", "h2,h2c"),
        ("x_sallyport_identity", "1"),
        ("x-request-id", "theirs"),
        ("x-forwarded-note", "kept"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("content-length", "5"),
    ]);
    response_headers(&mut response, &HeaderValue::from_static("ours"), false);
    let mut names: Vec<&str> = response.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "set-cookie", "x-forwarded-note", "x-request-id"]);
    assert_eq!(response.get_all("set-cookie").iter().count(), 2);
    assert_eq!(response["x-request-id"], "ours");
}

#[test]
fn content_length_beside_transfer_encoding_is_dropped() {
    let mut response = headers(&[("transfer-encoding", "chunked"), ("content-length", "3"), ("x-note", "kept")]);
    response_headers(&mut response, &HeaderValue::from_static("id"), false);
    assert!(!response.contains_key("content-length"), "it would cut off, or lengthen, what the chunks hold");
    assert_eq!(response["x-note"], "kept");
    let mut plain = headers(&[("content-length", "3")]);
    response_headers(&mut plain, &HeaderValue::from_static("id"), false);
    assert_eq!(plain["content-length"], "3");
}

#[test]
fn trailers_lose_reserved_and_framing_fields() {
    let mut fields = headers(&[
        ("grpc-status", "0"),
        ("x-sum", "7"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("host", "a"),
        ("connection", "x"),
        ("x-forwarded-for", "evil"),
        ("X_Auth_Email", "evil"),
    ]);
    trailers(&mut fields);
    let mut names: Vec<&str> = fields.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["grpc-status", "x-sum"]);
}

#[test]
fn grpc_is_recognised_by_its_content_type() {
    for (kind, expected) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("Application/GRPC; charset=x", true),
        ("application/grpc-web", false),
        ("application/grpc-web+proto", false),
        ("application/json", false),
        ("", false),
    ] {
        assert_eq!(is_grpc(&headers(&[("content-type", kind)])), expected, "{kind}");
    }
    assert!(!is_grpc(&HeaderMap::new()));
}

proptest! {
    #[test]
    fn no_spelling_of_a_reserved_name_reaches_an_origin(
        start in prop::sample::select(vec![
            "x-forwarded-", "x-auth-", "x-sallyport-", "sallyport-token-", "forwarded", "x-real-ip", "x-request-id",
        ]),
        rest in "[a-z0-9]{1,6}",
        seed in vec((any::<bool>(), prop::sample::select(vec!['-', '_', '.', '~', '!'])), 32),
    ) {
        let name = if start.ends_with('-') { format!("{start}{rest}") } else { start.to_owned() };
        let spelled: String = name.chars().zip(&seed).map(|(c, (upper, other))| match c {
            '-' => *other,
            c if *upper => c.to_ascii_uppercase(),
            c => c,
        }).collect();
        // Each field twice, to an origin of either version, and as trailers.
        let fields = [(&spelled[..], "evil"), ("a", "kept"), (&spelled[..], "evil"), ("connection", "close")];
        for hop in [NextHop::Http1, NextHop::Http2] {
            let got = forwarded(&fields, "192.0.2.7:9", false, hop);
            prop_assert!(!got.values().any(|value| value == "evil") && got["a"] == "kept", "{spelled}: {got:?}");
        }
        let mut got = headers(&fields);
        trailers(&mut got);
        prop_assert!(!got.values().any(|value| value == "evil") && got["a"] == "kept", "{spelled}: {got:?}");
    }
}
