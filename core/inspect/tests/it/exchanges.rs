//! Exchanges of HTTP/1.1: what is kept of them, and what of broken ones.

use sallyport_inspect::{
    Bounds, Change, From, MAX_BODY_BYTES, Record, StreamProtocol,
    answer::{Details, ExchangeState, Summary},
    view,
};

use crate::drive::{OK, Rig, post};

#[test]
fn a_webhook_has_its_fields_body_person_and_times() {
    let mut rig = Rig::new();
    let body = br#"{"id":"evt_1","type":"invoice.paid","api_key":"sk_live_1"}"#;
    let head = format!(
        "POST /hooks?source=stripe&token=abc HTTP/1.1\r\nHost: shop.example.com\r\nX-Request-Id: r1\r\n\
         Stripe-Signature: t=1,v1=2\r\nAuthorization: Bearer secret\r\nCookie: a=b\r\nX-Auth-Email: ann@example.com\r\n\
         X-Sallyport-Assertion: eyJ\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    rig.client(head.as_bytes());
    assert_eq!(Summary::from(rig.last()).state, ExchangeState::Open);
    rig.client(body);
    rig.passed_ms = 20;
    rig.service("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nSet-Cookie: s=1\r\nContent-Type: text/plain\r\n");
    rig.service("Transfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n");
    rig.passed_ms = 50;
    rig.service("0\r\nX-Sum: 7\r\n\r\n");
    let details = Details::from(rig.last());
    let summary = &details.summary;
    assert_eq!((summary.status, summary.state), (Some(201), ExchangeState::Complete));
    assert_eq!(summary.duration_ms, Some(50.0));
    assert_eq!(summary.began, "2023-11-14T22:13:20Z");
    assert_eq!(summary.identity.as_deref(), Some("ann@example.com"));
    assert_eq!(summary.path, "/hooks?source=stripe&token=%5Bredacted%5D");
    assert_eq!(summary.edge.as_deref(), Some("edge-1"));
    let redacted = ["Authorization", "Cookie", "X-Sallyport-Assertion", "values in the body"];
    assert_eq!(details.request.redacted, redacted);
    let shown = serde_json::to_string(&details).unwrap();
    assert!(shown.contains("t=1,v1=2"), "a signature is what webhooks are debugged by");
    for secret in ["Bearer secret", "a=b", "eyJ", "s=1", "sk_live"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    let text = view(&rig.last().request).text.unwrap();
    assert!(text.contains("\"api_key\": \"[redacted]\"") && text.contains("invoice.paid"), "{text}");
    let response = rig.last().response.clone().unwrap();
    assert_eq!((&response.body.bytes[..], response.trailers[0].name.as_str()), (&b"yes"[..], "x-sum"));
}

#[test]
fn records_join_by_the_request_id_in_either_order() {
    let mut rig = Rig::new();
    let record = |id: &str| Record {
        request_id: id.to_owned(),
        method: "GET".to_owned(),
        target: "/x?password=1".to_owned(),
        status: 200,
        identity: Some("ann@example.com".to_owned()),
        rule: Some("staff".to_owned()),
        ..Record::default()
    };
    rig.exchange("GET /x HTTP/1.1\r\nhost: a\r\nx-request-id: r1\r\n\r\n", OK);
    rig.record(record("r1"));
    assert_eq!(rig.inspector.store().len(), 1);
    assert_eq!(rig.last().rule.as_deref(), Some("staff"));
    rig.record(record("r2"));
    assert!(rig.last().target.contains("redacted"));
    rig.exchange("GET /x HTTP/1.1\r\nhost: a\r\nx-request-id: r2\r\n\r\n", OK);
    assert_eq!(rig.inspector.store().len(), 2, "the record came first");
    assert_eq!((rig.last().rule.as_deref(), rig.last().status), (Some("staff"), Some(200)));
    assert_eq!(rig.last().request.fields.len(), 2);
    rig.record(Record { refused: Some("denied".to_owned()), status: 403, ..record("r3") });
    assert_eq!(Summary::from(rig.last()).state, ExchangeState::Denied);
    rig.record(Record { refused: Some("origin-refused".to_owned()), status: 502, ..record("r4") });
    assert_eq!(Summary::from(rig.last()).state, ExchangeState::Failed);
}

#[test]
fn bodies_over_the_cap_are_cut_and_their_ends_are_known() {
    let mut rig = Rig::new();
    let total = 2_u64 << 30;
    rig.client(format!("PUT /big HTTP/1.1\r\nhost: a\r\ncontent-length: {total}\r\n\r\n"));
    let piece = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    while rig.inspector.unwanted_until(1, From::Client) == 0 || sent < MAX_BODY_BYTES + piece.len() {
        rig.client(&piece);
        sent += piece.len();
        assert!(sent <= MAX_BODY_BYTES + 4 * piece.len(), "the rest is unwanted soon");
    }
    let head = rig.inspector.unwanted_until(1, From::Client);
    rig.skip(From::Client, total - 1 - sent as u64);
    assert!(head > sent as u64);
    rig.client("x");
    rig.service(OK);
    rig.client("GET /next HTTP/1.1\r\nhost: a\r\n\r\n");
    rig.service(OK);
    let first = rig.inspector.store().get(1).unwrap();
    let body = &first.request.body;
    assert_eq!((body.passed, body.bytes.len()), (total, MAX_BODY_BYTES));
    assert!(body.is_truncated && body.is_complete && body.missed == 0, "{:?}", body.missed);
    assert_eq!(rig.inspector.missed(), 0);
    assert_eq!(Summary::from(first).state, ExchangeState::Complete);
    assert_eq!(rig.last().target, "/next");
    assert!(rig.inspector.store().bytes() < 2 * MAX_BODY_BYTES);
}

#[test]
fn bytes_that_were_missed_are_said_and_the_next_request_is_seen() {
    let mut rig = Rig::new();
    rig.client("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nab");
    rig.skip(From::Client, 6);
    rig.client("yz");
    rig.service(OK);
    let body = &rig.last().request.body;
    assert_eq!((body.missed, body.passed, body.is_truncated), (6, 10, true));
    assert_eq!(rig.inspector.missed(), 6);
    rig.client("POST /b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab");
    rig.skip(From::Client, 100);
    rig.client("\r\n0\r\n\r\n");
    assert!(rig.last().problems[0].contains("missed 100 bytes"), "{:?}", rig.last().problems);
    rig.service(OK);
    let next = rig.exchange("GET /c HTTP/1.1\r\nhost: a\r\n\r\n", OK);
    assert_eq!((next.target.as_str(), next.status), ("/c", Some(200)));
}

#[test]
fn broken_exchanges_say_what_is_wrong() {
    let of = |request: &str, response: &str, reason: Option<&str>| {
        let mut rig = Rig::new();
        rig.client(request);
        rig.service(response);
        rig.close(reason);
        let exchange = rig.last().clone();
        assert!(exchange.is_failed && exchange.duration_us.is_some(), "{exchange:?}");
        exchange.problems.join(" ")
    };
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (request, response, reason, says) in [
        (get, "", None, "ended before"),
        (get, "", Some("reset by peer"), "reset by peer"),
        (get, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", None, "ended before"),
        (get, "SSH-2.0-OpenSSH\r\n", None, "did not answer in HTTP/1.1"),
        (get, &format!("{chunks}5\r\nab"), None, "ended before"),
        (get, &format!("{chunks}zz\r\nab"), None, "chunk"),
        (get, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", None, "content length"),
    ] {
        let said = of(request, response, reason);
        assert!(said.contains(says), "{response:?}: {said}");
    }
    let many: String = (0..10_000).map(|at| format!("x-{at}: y\r\n")).collect();
    let said = of(get, &format!("HTTP/1.1 200 OK\r\n{many}\r\n"), None);
    assert!(said.contains("cannot be used"), "{said}");
    let mut rig = Rig::new();
    rig.client(format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"));
    assert!(rig.inspector.store().is_empty(), "the edge lets no such request through");
    let next = rig.exchange("GET /c HTTP/1.1\r\nhost: a\r\n\r\n", OK);
    assert_eq!(next.target, "/c");
}

#[test]
fn a_response_until_the_close_is_whole() {
    let mut rig = Rig::new();
    rig.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nall of it");
    rig.close(None);
    let exchange = rig.last();
    let body = &exchange.response.as_ref().unwrap().body;
    assert_eq!((&body.bytes[..], body.is_complete, exchange.is_failed), (&b"all of it"[..], true, false));
}

#[test]
fn the_oldest_exchanges_go_at_both_bounds() {
    let mut rig = Rig::with(Bounds { exchanges: 3, bytes: 1 << 20 }, StreamProtocol::Http1);
    for _ in 0..5 {
        rig.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n", OK);
    }
    let ids: Vec<u64> = rig.inspector.store().newest().map(|one| one.id).collect();
    assert_eq!((ids, rig.inspector.store().dropped()), (vec![5, 4, 3], 2));
    for _ in 0..5 {
        rig.exchange(post("/", "text/plain", &vec![b'a'; 400_000]), OK);
        assert!(rig.inspector.store().bytes() <= 1 << 20);
    }
    assert_eq!(rig.inspector.store().len(), 2);
    rig.inspector.clear();
    assert_eq!((rig.inspector.store().len(), rig.inspector.store().bytes()), (0, 0));
    assert!(rig.inspector.take_changes().contains(&Change::Cleared));
    rig.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n", OK);
    assert_eq!(rig.last().id, 11, "ids go on");
}

#[test]
fn a_turned_clock_bends_no_duration() {
    let mut rig = Rig::new();
    rig.client("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    rig.wall_ms -= 86_400_000;
    rig.passed_ms = 7;
    rig.service(OK);
    assert_eq!(rig.last().duration_us, Some(7_000));
}

#[test]
fn secrets_in_encoded_bodies_are_taken_out_too() {
    // `printf '{"token":"hunter2"}' | gzip -n`, made by hand as a stored block.
    let plain = br#"{"token":"hunter2"}"#;
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, plain.len() as u8, 0, !(plain.len() as u8), 0xff];
    gzip.extend_from_slice(plain);
    gzip.extend_from_slice(&crc(plain).to_le_bytes());
    gzip.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    let mut rig = Rig::new();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", gzip.len());
    rig.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n", [head.as_bytes(), &gzip].concat());
    let response = rig.last().response.as_ref().unwrap();
    assert!(response.body.is_kept_decoded && response.encoding().is_empty());
    assert_eq!(&response.body.bytes[..], br#"{"token":"[redacted]"}"#);
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
    })
}
