//! Checks of parsed requests, of HTTP/1 and HTTP/2.

use RequestRefusal as No;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use sallyport_http::{RequestHost, RequestRefusal, limits::MAX_HEADER_COUNT, refuse::check_request};

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn check(method: &str, uri: &str, version: Version, fields: &[(&str, &str)]) -> Result<RequestHost, RequestRefusal> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let (uri, fields) = (uri.parse::<Uri>().unwrap(), headers(fields));
    let result = check_request(&method, &uri, version, &fields, None);
    // The known host does not change the result.
    for known in ["a", "b", "other.example:8443"] {
        let known = RequestHost::from_value(&HeaderValue::from_static(known)).unwrap().detached();
        assert_eq!(check_request(&method, &uri, version, &fields, Some(&known)), result);
    }
    if let Ok(host) = &result {
        assert_eq!(check_request(&method, &uri, version, &fields, Some(&host.detached())).as_ref(), Ok(host));
    }
    result
}

#[test]
fn the_host_is_found_in_every_version() {
    let host = check("GET", "/x", Version::HTTP_11, &[("host", "Calm-Sea-1.LocalHost.:8443")]).unwrap();
    assert_eq!(host.name(), "Calm-Sea-1.LocalHost");
    assert_eq!(host.port(), Some(8443));
    assert_eq!(host.value(), "Calm-Sea-1.LocalHost.:8443");
    assert_eq!(host.label_under("localhost").as_deref(), Some("calm-sea-1"));
    assert!(host.is("calm-sea-1.localhost") && !host.is("localhost"));

    let host = check("GET", "https://calm-sea-1.localhost/x", Version::HTTP_2, &[]).unwrap();
    assert_eq!((host.name(), host.port(), host.as_str()), ("calm-sea-1.localhost", None, "calm-sea-1.localhost"));
    let same = [("host", "Calm-Sea-1.localhost:443")];
    assert!(check("GET", "https://calm-sea-1.localhost/", Version::HTTP_2, &same).is_ok());
    assert!(check("GET", "/", Version::HTTP_2, &[("host", "a")]).is_ok());
    assert!(check("GET", "/", Version::HTTP_3, &[("host", "a")]).is_ok());
    assert!(check("GET", "/", Version::HTTP_10, &[("host", "a")]).is_ok());
    assert!(check("GET", "http://a:80/", Version::HTTP_11, &[("host", "a")]).is_ok());
    assert!(check("OPTIONS", "*", Version::HTTP_11, &[("host", "a")]).is_ok());
    assert!(check("GET", "/", Version::HTTP_11, &[("host", "[::1]:8443")]).is_ok_and(|host| host.name() == "[::1]"));
}

#[test]
fn invalid_requests_are_refused() {
    let (h1, h2) = (Version::HTTP_11, Version::HTTP_2);
    let a = ("host", "a");
    for (method, uri, version, fields, refusal) in [
        ("CONNECT", "a:443", h1, vec![a], No::Connect),
        ("CONNECT", "a:443", h2, vec![], No::Connect),
        ("GET", "/", Version::HTTP_09, vec![a], No::Version),
        ("CONNECT", "a:443", Version::HTTP_3, vec![], No::Connect),
        ("GET", "https://a/", Version::HTTP_3, vec![("connection", "close")], No::ConnectionField),
        ("GET", "*", h1, vec![a], No::Target),
        ("GET", "a:443", h1, vec![a], No::Target),
        ("GET", "ftp://a/", h1, vec![a], No::Target),
        ("GET", "/", h1, vec![], No::MissingHost),
        ("GET", "/", Version::HTTP_10, vec![], No::MissingHost),
        ("GET", "/", h2, vec![], No::MissingHost),
        ("GET", "/", h1, vec![("host", "")], No::MissingHost),
        ("GET", "/", h1, vec![a, a], No::SeveralHosts),
        ("GET", "/", h1, vec![("host", "a b")], No::Host),
        ("GET", "/", h1, vec![("host", "u@a")], No::HostUserInfo),
        ("GET", "https://u@a/", h2, vec![], No::HostUserInfo),
        ("GET", "https://u:p@a/", h2, vec![a], No::HostUserInfo),
        ("GET", "https://a,b/", h2, vec![], No::Host),
        ("GET", "https://a/", h2, vec![("host", "b")], No::ConflictingHosts),
        ("GET", "https://a:8443/", h2, vec![("host", "a")], No::ConflictingHosts),
        ("GET", "https://a/", h2, vec![a, a], No::SeveralHosts),
        ("GET", "http://b/", h1, vec![a], No::ConflictingHosts),
        ("POST", "/", h1, vec![a, ("content-length", "5"), ("content-length", "5")], No::SeveralContentLengths),
        ("POST", "/", h1, vec![a, ("content-length", "+5")], No::ContentLength),
        ("POST", "https://a/", h2, vec![("content-length", "5, 5")], No::SeveralContentLengths),
        ("POST", "/", h1, vec![a, ("content-length", "5"), ("transfer-encoding", "chunked")], No::BothLengths),
        ("POST", "/", h1, vec![a, ("transfer-encoding", "chunked, identity")], No::TransferEncoding),
        ("POST", "/", h1, vec![a, ("transfer-encoding", "gzip")], No::UnknownTransferEncoding),
        ("POST", "/", Version::HTTP_10, vec![a, ("transfer-encoding", "chunked")], No::TransferEncodingVersion),
        ("POST", "https://a/", h2, vec![("transfer-encoding", "chunked")], No::ConnectionField),
        ("POST", "https://a/", h2, vec![("connection", "close")], No::ConnectionField),
        ("POST", "https://a/", h2, vec![("keep-alive", "5")], No::ConnectionField),
        ("POST", "https://a/", h2, vec![("proxy-connection", "x")], No::ConnectionField),
        ("POST", "https://a/", h2, vec![("upgrade", "websocket")], No::ConnectionField),
        ("POST", "https://a/", h2, vec![("te", "gzip")], No::ConnectionField),
        ("POST", "https://a/", h2, vec![("x", " y")], No::FieldValue),
        ("POST", "https://a/", h2, vec![("x", "y\t")], No::FieldValue),
    ] {
        assert_eq!(check(method, uri, version, &fields), Err(refusal), "{method} {uri} {version:?} {fields:?}");
    }
    assert!(check("POST", "https://a/", h2, &[("te", "trailers"), ("x", "")]).is_ok());
    let long = format!("/{}", "x".repeat(16_384));
    assert_eq!(check("GET", &long, h1, &[a]), Err(No::TargetLong));
}

#[test]
fn cookies_that_http2_and_http3_split_count_once() {
    let crumbs = vec![("cookie", "a=b"); MAX_HEADER_COUNT + 50];
    for version in [Version::HTTP_2, Version::HTTP_3] {
        assert!(check("GET", "https://a/", version, &crumbs).is_ok());
    }
    let names: Vec<String> = (0..=MAX_HEADER_COUNT).map(|index| format!("x-{index}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "y")).collect();
    assert_eq!(check("GET", "https://a/", Version::HTTP_2, &many), Err(No::TooManyFields));
    assert!(check("GET", "https://a/", Version::HTTP_2, &many[1..]).is_ok());
}
