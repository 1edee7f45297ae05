//! The language of filters.

use sallyport_inspect::{Filter, FilterError, Record};

use crate::drive::{OK, Rig, post};

#[test]
fn each_key_selects() {
    let mut rig = Rig::new();
    rig.client(post("/Hooks/stripe?x=1", "application/json", b"{\"event\":\"Invoice.Paid\"}"));
    rig.passed_ms = 150;
    rig.service("HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy");
    let exchange = rig.last();
    let is_found = |text: &str| Filter::parse(text).unwrap().matches(exchange);
    for filter in [
        "",
        "path:/hooks",
        "status:503",
        "status:5xx",
        "status:>=500",
        "status:500-599",
        "method:post",
        "header:retry-after",
        "header:Retry-After=7",
        "body:invoice.paid",
        "body:BUSY",
        "duration:>100ms",
        "duration:<=150ms",
        "duration:<1s",
        "-status:200",
        "-method:GET path:stripe",
        "invoice",
        "retry",
        "\"service\" -x-none",
        "edge:edge-1",
        "size:>10b",
        "host:shop",
        "state:complete",
        "protocol:http",
        "\"path:/Hooks/stripe\"",
    ] {
        assert_eq!(is_found(filter), !filter.contains("\"service\""), "{filter}");
    }
    for filter in [
        "path:/other",
        "status:2xx",
        "method:GET",
        "header:x",
        "header:retry-after=8",
        "body:none",
        "duration:>1s",
        "-path:/hooks",
        "person:ann",
        "http://nowhere",
        "size:<5",
    ] {
        assert!(!is_found(filter), "{filter}");
    }
}

#[test]
fn a_bad_value_gets_one_sentence() {
    for bad in
        ["status:abc", "status:", "status:0xx", "duration:fast", "duration:>-1s", "size:>1parsec", "duration:>>1s"]
    {
        let error = Filter::parse(bad).unwrap_err();
        assert!(matches!(error, FilterError::Status(_) | FilterError::Bound(_)), "{bad}");
    }
    assert_eq!(Filter::parse(&"x".repeat(2_000)).unwrap_err(), FilterError::Long);
}

#[test]
fn people_are_found() {
    let mut rig = Rig::new();
    rig.exchange("GET / HTTP/1.1\r\nhost: a\r\nx-request-id: r\r\n\r\n", OK);
    rig.record(Record {
        request_id: "r".to_owned(),
        identity: Some("Ann@Example.com".to_owned()),
        ..Record::default()
    });
    assert!(Filter::parse("person:ann@").unwrap().matches(rig.last()));
}
