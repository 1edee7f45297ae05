//! Error responses and pages.

use http::{HeaderMap, HeaderValue, StatusCode, header::ACCEPT};
use sallyport_http::{
    RequestRefusal,
    page::{Action, Format, Page, Problem, Site, grpc_status},
};

fn site() -> Site {
    Site::of_domain("tunnels.example.com")
}

fn problem() -> Problem<'static> {
    Problem {
        status: StatusCode::NOT_FOUND,
        code: "unknown-name",
        title: "No such name".into(),
        detail: "Nothing is served under <script>alert('x')</script> & \"co\".".into(),
        next_step: "Check the address.".into(),
        request_id: "00ff",
    }
}

fn wanted(accept: &[&'static str]) -> Format {
    let mut headers = HeaderMap::new();
    for value in accept {
        headers.append(ACCEPT, HeaderValue::from_static(value));
    }
    Format::wanted(&headers)
}

#[test]
fn the_format_follows_accept() {
    for (accept, format) in [
        (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"][..], Format::Html),
        (&["Text/HTML"], Format::Html),
        (&["application/json", "text/html;q=0.5"], Format::Html),
        (&["application/json, text/plain, */*"], Format::Json),
        (&["application/problem+json"], Format::Json),
        (&["application/vnd.api+json; charset=utf-8"], Format::Json),
        (&["text/html;q=0, application/json"], Format::Json),
        (&["text/html; Q=0.000"], Format::Text),
        (&["*/*"], Format::Text),
        (&["text/htmlx"], Format::Text),
        (&["image/webp,*/*"], Format::Text),
        (&[""], Format::Text),
        (&[], Format::Text),
    ] {
        assert_eq!(wanted(accept), format, "{accept:?}");
    }
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/html"));
    assert_eq!(Format::wanted(&headers), Format::Grpc);
}

#[test]
fn a_page_is_escaped_and_self_contained() {
    let response = problem().respond(Format::Html, &site());
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(response.headers()["x-request-id"], "00ff");
    assert!(response.headers()["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    let body = std::str::from_utf8(response.body()).unwrap();
    assert!(body.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;co&quot;."), "{body}");
    for text in ["<h1>No such name</h1>", "404", "Check the address.", "<code>00ff</code>", "prefers-color-scheme:dark"]
    {
        assert!(body.contains(text), "{text}");
    }
    // The only address in the page is the `data:` URL of the icon.
    let loaded: Vec<&str> = body.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(matches!(loaded[..], [icon] if icon.starts_with("data:image/svg+xml;base64,")), "{loaded:?}");
    for text in ["<script", "src=", "url(", "@import", "http://", "https://", "style=", "onclick"] {
        assert!(!body.contains(text), "{text}");
    }
    assert!(body.len() < 4_096);
}

#[test]
fn json_is_a_problem_document() {
    let response = problem().respond(Format::Json, &site());
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(json["type"], "about:blank");
    assert_eq!(json["title"], "No such name");
    assert_eq!((&json["status"], &json["code"]), (&404.into(), &"unknown-name".into()));
    assert_eq!(json["detail"], problem().detail.as_ref());
    assert_eq!(json["next_step"], "Check the address.");
    assert_eq!(json["request_id"], "00ff");
    let silent = Problem { next_step: "".into(), code: "", ..problem() }.respond(Format::Json, &site());
    let json: serde_json::Value = serde_json::from_slice(silent.body()).unwrap();
    assert!(json.get("next_step").is_none() && json.get("code").is_none());
}

#[test]
fn text_is_one_line() {
    let text = |problem: Problem<'_>| problem.respond(Format::Text, &site()).into_body();
    let plain = Problem { detail: "Nothing is served here.".into(), ..problem() };
    let body = text(plain.clone());
    assert_eq!(body, "No such name: Nothing is served here. Check the address. (unknown-name, request 00ff)\n");
    let body = text(Problem { next_step: "".into(), code: "", ..plain });
    assert_eq!(body, "No such name: Nothing is served here. (request 00ff)\n");
}

#[test]
fn grpc_gets_its_status_in_header_fields() {
    let response = Problem { detail: "50% of caf\u{e9}\n".into(), ..problem() }.respond(Format::Grpc, &site());
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-message"], "50%25 of caf%C3%A9%0A");
    assert!(response.body().is_empty() && !response.headers().contains_key("content-length"));
    for (status, code) in
        [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14), (500, 2)]
    {
        assert_eq!(grpc_status(StatusCode::from_u16(status).unwrap()), code, "{status}");
    }
}

#[test]
fn closing_bytes_are_a_complete_response() {
    let problem = Problem::refused(RequestRefusal::BothLengths, "00ff");
    let bytes = problem.closing_bytes("Sun, 06 Nov 1994 08:49:37 GMT");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
    for line in ["connection: close", "date: Sun, 06 Nov 1994 08:49:37 GMT", &format!("content-length: {}", body.len())]
    {
        assert!(head.split("\r\n").any(|other| other == line), "{line}: {head}");
    }
    assert_eq!(
        body,
        "Bad Request: The request has both Content-Length and Transfer-Encoding. Correct the request before it is \
         sent again. (malformed, request 00ff)\n"
    );
    let hostile = Problem { request_id: "a\r\nb", ..problem };
    let head = String::from_utf8(hostile.closing_bytes("x\r\ny")).unwrap();
    assert!(!head.split_once("\r\n\r\n").unwrap().0.contains("\r\nb"));
}

#[test]
fn a_page_with_actions_has_no_script_and_limits_form_targets() {
    let page = |actions| Page {
        status: StatusCode::FORBIDDEN,
        title: "Not <you>".into(),
        paragraphs: vec!["<script>alert(1)</script>".into()],
        actions,
        request_id: "r1",
    };
    let leave = Action::Link { href: "/a?b=\"><script>".into(), label: "Use & go".into() };
    let link = page(vec![leave.clone()]).respond(&site());
    let text = std::str::from_utf8(link.body()).unwrap();
    assert!(!text.contains("<script") && text.contains("href=\"/a?b=&quot;&gt;&lt;script&gt;\""), "{text}");
    assert_eq!(
        (link.status(), &link.headers()["cache-control"]),
        (StatusCode::FORBIDDEN, &"no-store".parse().unwrap())
    );
    assert!(link.headers()["content-security-policy"].to_str().unwrap().ends_with("form-action 'none'"));
    let leads_to = "https://login.localhost:8443".into();
    let button = Action::Button { path: "/x".into(), label: "Out".into(), leads_to };
    let both = page(vec![button, leave]).respond(&site());
    let policy = both.headers()["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.ends_with("form-action 'self' https://login.localhost:8443")
    );
    // The first action has the emphasised style.
    let text = std::str::from_utf8(both.body()).unwrap();
    assert!(text.contains("<button class=\"\">Out</button>") && text.contains("<a class=\"act other\""), "{text}");
}

#[test]
fn text_between_backticks_is_set_as_code() {
    let shown = |detail: &'static str| {
        let response = Problem { detail: detail.into(), ..problem() }.respond(Format::Html, &site());
        let body = String::from_utf8(response.into_body().to_vec()).unwrap();
        body.split("</h1>\n<p>").nth(1).unwrap().split("</p>").next().unwrap().to_owned()
    };
    assert_eq!(shown("Nothing at `a.example`."), "Nothing at <code>a.example</code>.");
    assert_eq!(shown("`<b>` and `c`"), "<code>&lt;b&gt;</code> and <code>c</code>");
    assert_eq!(shown("a ` b"), "a ` b");
    assert_eq!(shown("`` and `"), "`` and `");
}
