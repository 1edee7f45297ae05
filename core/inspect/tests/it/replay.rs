//! The request that is sent again.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sallyport_inspect::{
    Exchange, MAX_BODY_BYTES,
    answer::{Header, Replay},
    replay,
};

use crate::drive::{OK, Rig, post};

fn exchange(request: &[u8]) -> Exchange {
    Rig::new().exchange(request, OK)
}

fn confirmed() -> Replay {
    Replay { confirm: true, ..Replay::default() }
}

#[test]
fn it_is_the_same_but_for_stripped_fields() {
    let body = b"{\"a\" : 1.0,\n\t\"b\":\"\xc3\xa9\"}";
    let start = format!(
        "POST /hook?x=%20y HTTP/1.1\r\nHost: shop.example.com\r\nX-Odd-CASE:  a  b\r\nStripe-Signature: t=1\r\n\
         Authorization: Bearer x\r\nCookie: a\r\nX-Auth-Email: ann@example.com\r\nX_Auth_Email: eve@example.com\r\n\
         X-Sallyport-Assertion: e\r\nX-Sallyport-Replay: 99\r\nX-Request-Id: r\r\nConnection: keep-alive\r\n\
         Content-Length: {}\r\nContent-Type: application/json\r\n\r\n",
        body.len()
    );
    let sent = replay::request(&exchange(&[start.as_bytes(), body].concat()), &confirmed()).unwrap();
    let expected = format!(
        "POST /hook?x=%20y HTTP/1.1\r\nHost: shop.example.com\r\nX-Odd-CASE: a  b\r\nStripe-Signature: t=1\r\n\
         content-length: {}\r\nContent-Type: application/json\r\nx-sallyport-replay: 1\r\nconnection: close\r\n\r\n",
        body.len()
    );
    assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(&[expected.as_bytes(), body].concat()));
}

#[test]
fn people_confirm_what_may_happen_twice() {
    let unasked = |request: &[u8]| replay::request(&exchange(request), &Replay::default());
    let refusal = unasked(&post("/", "text/plain", b"x")).unwrap_err();
    assert!(refusal.status == 409 && refusal.needs_confirmation && refusal.detail.contains("POST"), "{refusal:?}");
    assert!(unasked(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").is_ok());
    assert!(unasked(b"PUT / HTTP/1.1\r\nhost: a\r\n\r\n").is_ok());
    let refusal = unasked(b"GET /?token=x HTTP/1.1\r\nhost: a\r\n\r\n").unwrap_err();
    assert!(refusal.needs_confirmation && refusal.detail.contains("query"), "{refusal:?}");
}

#[test]
fn what_is_not_whole_is_not_sent() {
    let long = post("/", "text/plain", &vec![b'x'; MAX_BODY_BYTES + 1]);
    let refusal = replay::request(&exchange(&long), &confirmed()).unwrap_err();
    assert!(refusal.status == 422 && !refusal.needs_confirmation && refusal.detail.contains("longer"), "{refusal:?}");
    let own = Replay { body_base64: Some(BASE64_STANDARD.encode("own")), ..confirmed() };
    assert!(replay::request(&exchange(&long), &own).unwrap().ends_with(b"\r\n\r\nown"));
    let mut rig = Rig::new();
    rig.client(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc");
    assert_eq!(replay::request(rig.last(), &confirmed()).unwrap_err().status, 422);
}

#[test]
fn an_edited_request_is_checked() {
    let header = |name: &str, value: &str| Header { name: name.to_owned(), value: value.to_owned() };
    let get = exchange(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let edited = Replay {
        method: Some("DELETE".to_owned()),
        path: Some("/other".to_owned()),
        headers: Some(vec![
            header("x", "1"),
            header("x-auth-email", "boss@example.com"),
            header("authorization", "[redacted]"),
            header("Transfer-Encoding", "chunked"),
            header("content-length", "7"),
        ]),
        body_base64: Some(BASE64_STANDARD.encode("abc")),
        confirm: true,
    };
    let sent = String::from_utf8(replay::request(&get, &edited).unwrap()).unwrap();
    let expected = "DELETE /other HTTP/1.1\r\nx: 1\r\ncontent-length: 3\r\nhost: a\r\nx-sallyport-replay: 1\r\n\
                    connection: close\r\n\r\nabc";
    assert_eq!(sent, expected);
    for bad in [
        Replay { path: Some("/a b".to_owned()), ..confirmed() },
        Replay { path: Some("/a\r\nx: y".to_owned()), ..confirmed() },
        Replay { path: Some("http://evil/".to_owned()), ..confirmed() },
        Replay { method: Some("GET /x".to_owned()), ..confirmed() },
        Replay { method: Some(String::new()), ..confirmed() },
        Replay { headers: Some(vec![header("a b", "c")]), ..confirmed() },
        Replay { headers: Some(vec![header("a", "b\r\nc: d")]), ..confirmed() },
        Replay { headers: Some(vec![header("a", "b\0")]), ..confirmed() },
        Replay { headers: Some(vec![header("a", "b"); 600]), ..confirmed() },
        Replay { body_base64: Some("not base64!".to_owned()), ..confirmed() },
    ] {
        assert_eq!(replay::request(&get, &bad).unwrap_err().status, 422, "{bad:?}");
    }
}
