//! The inspector beside a real connector: what it shows, what it sends again, and whom it refuses.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::{
    fleet::{Bus, ControlHere, EdgeHere, edges},
    harness::{Home, HttpResponse, Program, Up, curl, text, wait_until},
    json_schema,
    protocols::{call, service, tool},
};

/// A connector with an inspector.
struct Page {
    connect: Program,
    /// The address of the inspector, such as `127.0.0.1:4040`.
    at: String,
    key: String,
    /// The public host.
    host: String,
    ca: PathBuf,
}

impl Page {
    fn start(home: &Home, up: &Up, origin: SocketAddr, more: &[&str]) -> Self {
        Self::start_by(home, up.ca.clone(), origin, more)
    }

    /// The same, with the authority of the edges in this file.
    fn start_by(home: &Home, ca: PathBuf, origin: SocketAddr, more: &[&str]) -> Self {
        let port = origin.port().to_string();
        let mut args = vec!["connect", &port, "--host", "127.0.0.1", "--inspect", "127.0.0.1:0", "-o", "json"];
        args.extend(more);
        let connect = Program::start(&mut home.command(&args));
        let event: Value = serde_json::from_str(&connect.wait_for("\"inspector\"")).unwrap();
        let url = event["url"].as_str().unwrap().to_owned();
        let (at, key) = url.strip_prefix("http://").unwrap().split_once("/#key=").unwrap();
        assert!(key.len() >= 43, "256 bits: {key}");
        let attached: Value = serde_json::from_str(&connect.wait_for("\"attached\"")).unwrap();
        let host = attached["url"].as_str().unwrap().strip_prefix("https://").unwrap().split(':').next().unwrap();
        Self { at: at.to_owned(), key: key.to_owned(), host: host.to_owned(), connect, ca }
    }

    /// A request with these options of curl, without the key.
    fn ask(&self, path: &str, more: &[&str]) -> HttpResponse {
        curl(&self.ca, &format!("http://{}{path}", self.at), more)
    }

    fn with_key(&self, path: &str, more: &[&str]) -> HttpResponse {
        let key = format!("Authorization: Bearer {}", self.key);
        self.ask(path, &[&["-H", &key], more].concat())
    }

    /// An answer of JSON, which is as the description says.
    fn json(&self, path: &str, schema: &str) -> Value {
        let answer = self.with_key(path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let value = serde_json::from_str(&answer.body).unwrap();
        let description = include_str!("../../../../api/inspector.json");
        conforms(description, schema, &value);
        value
    }

    fn list(&self, filter: &str) -> Vec<Value> {
        let filter = filter.replace(':', "%3A").replace(' ', "+");
        self.json(&format!("/api/exchanges?filter={filter}"), "ExchangePage")["items"].as_array().unwrap().clone()
    }

    /// Waits for the only exchange that the filter selects, once it is over.
    fn wait_for(&self, filter: &str) -> Value {
        wait_until(filter, || {
            let mut found = self.list(filter);
            assert!(found.len() < 2, "{found:?}");
            found.pop().filter(|found| found["state"] != "open")
        })
    }

    fn details(&self, id: &Value) -> Value {
        self.json(&format!("/api/exchanges/{id}"), "Details")
    }

    fn view(&self, id: &Value, side: &str) -> Value {
        self.json(&format!("/api/exchanges/{id}/{side}/view"), "View")
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let answer = self.with_key(path, &["-H", "content-type: application/json", "-d", &body]);
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }
}

fn conforms(description: &str, schema: &str, value: &Value) {
    let description: Value = serde_json::from_str(description).unwrap();
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    let mut wrong = Vec::new();
    json_schema::wrong_with(&description, &schema, value, "", &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}\n{value:#}");
}

/// A service that remembers each request as it came, and answers with these bytes for its path, or with `ok`.
struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recorder {
    fn start(answers: &'static [(&'static str, &'static [u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                thread::spawn(move || drop(record(&stream, answers, &kept)));
            }
        });
        Self { address, requests }
    }

    fn last(&self) -> Vec<u8> {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn record(stream: &TcpStream, answers: &[(&str, &[u8])], kept: &Mutex<Vec<Vec<u8>>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut request)? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        request.extend_from_slice(&body);
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        kept.lock().unwrap().push(request);
        match answers.iter().find(|(known, _)| path.starts_with(known)) {
            // Answers that say nothing about their end need the close.
            Some((_, answer)) => {
                writer.write_all(answer)?;
                stream.shutdown(std::net::Shutdown::Write)?;
                return Ok(());
            }
            None => writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok")?,
        }
    }
}

/// The lines of a request that are sent again, and those that are not.
fn without_stripped(request: &[u8]) -> String {
    let stripped = ["connection:", "x-sallyport-", "x-auth-", "x-request-id:", "cookie:", "content-length:"];
    let text = String::from_utf8_lossy(request);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let kept = head.lines().filter(|line| {
        let lower = line.to_ascii_lowercase();
        !stripped.iter().any(|start| lower.starts_with(start))
    });
    format!("{}\n\n{body}", kept.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_webhook_shows_with_its_person_and_is_sent_again() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    assert!(home.run(&["policy", "create", "machines", "--service-token", "ci"]).status.success());
    let made = home.json(&["service-token", "create", "ci"]);
    let id = format!("sallyport-token-id: {}", made["id"].as_str().unwrap());
    let secret = format!("sallyport-token-secret: {}", made["secret"].as_str().unwrap());
    let origin = Recorder::start(&[]);
    let page = Page::start(&home, &up, origin.address, &["--name", "shop", "--cloudauth", "--policy", "machines"]);
    assert_ne!(up.curl(&page.host, "/denied", &["--http1.1"]).status, 200);
    assert_eq!(page.wait_for("path:/denied")["state"], "denied", "those that were refused show too");

    let body = r#"{"type":"invoice.paid","amount":1.10,"card":{"token":"tok_secret"},"note":"'$(x)`\u00e9é"}"#;
    let more = [
        "--http1.1",
        "-H",
        &id,
        "-H",
        &secret,
        "-H",
        "content-type: application/json",
        "-H",
        "Stripe-Signature: t=1,v1=abc",
        "-H",
        "X-Sallyport-Replay: 7",
        "-H",
        "X_Sallyport_Replay: 7",
        "-H",
        "Authorization: Bearer 0credential0",
        "--data-raw",
        body,
    ];
    assert_eq!(up.curl(&page.host, "/hook?source=stripe", &more).status, 200);
    let first = origin.last();
    let sent = String::from_utf8_lossy(&first).to_ascii_lowercase();
    assert!(!sent.contains("replay"), "a stranger's mark stays outside: {sent}");
    let shown =
        wait_until("the person", || Some(page.wait_for("path:/hook")).filter(|one| one["identity"].is_string()));
    assert_eq!((&shown["identity"], &shown["socket_name"]), (&"service:ci".into(), &"shop".into()));
    assert!(shown["rule"].as_str().unwrap().contains("machines"), "{shown}");
    assert_eq!((&shown["status"], &shown["state"]), (&200.into(), &"complete".into()));
    let details = page.details(&shown["id"]);
    let all = details.to_string();
    assert!(
        all.contains("t=1,v1=abc") && !all.contains("0credential0") && !all.contains("sallyport-token-secret"),
        "{all}"
    );
    let view = page.view(&shown["id"], "request");
    let read = view["text"].as_str().unwrap();
    assert!(read.contains("\"amount\": 1.10") && read.contains("[redacted]") && !read.contains("tok_"), "{read}");
    assert_eq!(page.list("person:ci").len(), 1);

    let again = format!("/api/exchanges/{}/replay", shown["id"]);
    let (status, asks) = page.post(&again, &json!({}));
    assert!(status == 409 && asks["needs_confirmation"] == true, "{asks}");
    assert_eq!(origin.count(), 1, "nothing was sent yet");
    let (status, new) = page.post(&again, &json!({ "confirm": true }));
    assert_eq!(status, 201, "{new}");
    let new = wait_until("the end of the replay", || {
        Some(page.details(&new["id"])).filter(|found| found["state"] == "complete")
    });
    assert_eq!((&new["replay_of"], &new["status"]), (&shown["id"], &200.into()));
    let expected = without_stripped(&first).replace("tok_secret", "[redacted]");
    let expected: Vec<&str> = expected.lines().filter(|line| !line.starts_with("authorization")).collect();
    let second = origin.last();
    assert_eq!(without_stripped(&second).lines().collect::<Vec<_>>(), expected);
    let second = String::from_utf8_lossy(&second).to_ascii_lowercase();
    assert!(second.contains(&format!("x-sallyport-replay: {}\r\n", shown["id"])), "{second}");
    assert!(!second.contains("x-auth-") && !second.contains("assertion") && !second.contains("bearer"), "{second}");

    // A request without secrets in its body arrives with the same bytes.
    let body = "{\"a\" :\t1.0}\n";
    let more = ["--http1.1", "-X", "PUT", "-H", &id, "-H", &secret, "--data-raw", body];
    assert_eq!(up.curl(&page.host, "/same", &more).status, 200);
    let first = origin.last();
    let same = page.wait_for("path:/same")["id"].clone();
    let (status, new) = page.post(&format!("/api/exchanges/{same}/replay"), &json!({}));
    assert_eq!(status, 201, "{new}");
    let second = wait_until("the replay", || Some(origin.last()).filter(|last| *last != first));
    assert_eq!(without_stripped(&second), without_stripped(&first));
    assert!(second.ends_with(body.as_bytes()));

    let diff = page.json(&format!("/api/exchanges/{}/diff/{same}", shown["id"]), "Diff");
    assert!(diff["sections"].to_string().contains("/hook?source=stripe"), "{diff}");
    let har: Value = serde_json::from_str(&page.with_key("/api/har", &[]).body).unwrap();
    conforms(include_str!("har.json"), "Archive", &har);
    assert!(har["log"]["entries"].as_array().unwrap().len() >= 5, "{har}");
    assert!(!har.to_string().contains("tok_secret"));
    assert_eq!(page.json("/api/state", "State")["tunnels"][0]["socket_name"], "shop");
    let cleared = page.with_key("/api/exchanges", &["-X", "DELETE", "-H", "content-type: application/json"]);
    assert_eq!((cleared.status, page.list("").len()), (204, 0));
}

#[test]
fn an_exported_command_runs_nothing_and_sends_the_same() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Recorder::start(&[]);
    let page = Page::start(&home, &up, origin.address, &[]);
    let body = home.dir.path().join("body");
    std::fs::write(&body, b"a\0'b\n$(touch ./x)%s\\n\xff").unwrap();
    let data = format!("@{}", body.display());
    // The edge refuses quotes and backticks that are not escaped.
    for path in ["/a'b;touch$IFS./x;'", "/$(touch$IFS./x)", "/%60touch%20x%60/%0a%00"] {
        let more = ["--http1.1", "--globoff", "-X", "PUT", "--data-binary", &data];
        assert_eq!(up.curl(&page.host, path, &more).status, 200, "{path}");
        let first = origin.last();
        let newest = wait_until("the request", || page.list("state:complete").into_iter().next());
        let command = page.with_key(&format!("/api/exchanges/{}/curl", newest["id"]), &[]);
        assert_eq!(command.header("content-type"), Some("text/plain; charset=utf-8"));
        // The same curl, with the authority and the address of the test.
        let script = home.dir.path().join("script.sh");
        let start = format!("curl() {{ command curl -sS --http1.1 --cacert {} \"$@\"; }}\n", up.ca.display());
        std::fs::write(&script, start + &command.body).unwrap();
        let output = Command::new("sh").arg(&script).current_dir(home.dir.path()).output().unwrap();
        assert!(output.status.success(), "{}\n{}", command.body, text(&output.stderr));
        assert!(!home.dir.path().join("x").exists(), "{}", command.body);
        let second = origin.last();
        assert_ne!(first, second, "it has an id of its own");
        let [first, second] = [&first, &second].map(|one| without_stripped(one));
        assert_eq!(second, first, "{}", command.body);
        page.with_key("/api/exchanges", &["-X", "DELETE", "-H", "content-type: application/json"]);
    }
}

#[test]
fn strangers_get_nothing_from_the_page() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Recorder::start(&[]);
    let page = Page::start(&home, &up, origin.address, &[]);
    let start = page.ask("/", &[]);
    let policy = start.header("content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(start.status == 200 && !policy.contains("unsafe") && !start.body.contains(&page.key), "{}", start.head);
    assert!(start.header("access-control-allow-origin").is_none());

    let port = page.at.rsplit_once(':').unwrap().1;
    for host in [
        "evil.example",
        "127.0.0.1",
        "localhost.evil.example",
        "[::1]:1",
        &format!("evil.example:{port}"),
        &format!("127.0.0.1.:{port}"),
        &format!("user@127.0.0.1:{port}"),
        "",
    ] {
        let field = format!("Host: {host}");
        for path in ["/", "/api/state"] {
            assert!(matches!(page.with_key(path, &["-H", &field]).status, 400 | 421), "{host:?} {path}");
        }
    }
    assert_eq!(page.with_key("/api/state", &["-H", &format!("Host: LocalHost:{port}")]).status, 200);
    assert_eq!(page.with_key("/", &["--request-target", "http://evil.example/api/state"]).status, 421);

    let wrong = format!("Authorization: Bearer {}x", page.key);
    let basic = format!("Authorization: Basic {}", page.key);
    for field in ["X-None: 1", "Authorization: Bearer ", "Authorization: Bearer", &wrong, &basic] {
        assert_eq!(page.ask("/api/exchanges", &["-H", field]).status, 401, "{field}");
        assert_eq!(page.ask(&format!("/api/exchanges?key={}", page.key), &["-H", field]).status, 401, "{field}");
    }
    let other = format!("Origin: http://127.0.0.1:{}", port.parse::<u16>().unwrap() ^ 1);
    for field in [
        "Origin: https://evil.example",
        "Origin: null",
        &other,
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: none",
    ] {
        assert_eq!(page.with_key("/api/exchanges", &["-H", field]).status, 403, "{field}");
        let json = "content-type: application/json";
        assert_eq!(page.with_key("/api/exchanges", &["-X", "DELETE", "-H", json, "-H", field]).status, 403, "{field}");
    }
    let own = format!("Origin: http://{}", page.at);
    assert_eq!(page.with_key("/api/exchanges", &["-H", &own, "-H", "Sec-Fetch-Site: same-origin"]).status, 200);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let field = format!("content-type: {kind}");
        assert_eq!(page.with_key("/api/exchanges", &["-X", "DELETE", "-H", &field]).status, 415, "{kind}");
    }
    let preflight = page.ask("/api/exchanges", &["-X", "OPTIONS", "-H", "Access-Control-Request-Method: DELETE"]);
    assert!(preflight.status == 401 && preflight.header("access-control-allow-origin").is_none());
    for (path, status) in [
        ("/api/exchanges?filter=status%3Aabc", 422),
        ("/api/exchanges?limit=0", 422),
        ("/api/exchanges?before=x", 422),
        ("/api/exchanges/1", 404),
        ("/api/exchanges/x/curl", 404),
        ("/api/none", 404),
        ("/none", 404),
        ("/../../etc/passwd", 404),
        ("/api/exchanges/99999999999999999999", 404),
    ] {
        let answer = page.with_key(path, &["--path-as-is"]);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
    }

    // A tunnel to the inspector itself.
    let at: Vec<&str> = page.at.split(':').collect();
    let refused = home.run(&["connect", at[1], "--host", at[0], "--inspect", &page.at]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("inspector's own address, not a service"), "{}", text(&refused.stderr));
    let leak = Program::start(&mut home.command(&["connect", at[1], "--host", at[0], "-o", "json"]));
    let attached: Value = serde_json::from_str(&leak.wait_for("\"attached\"")).unwrap();
    let host =
        attached["url"].as_str().unwrap().strip_prefix("https://").unwrap().split(':').next().unwrap().to_owned();
    let key = format!("Authorization: Bearer {}", page.key);
    for path in ["/", "/api/state"] {
        assert_eq!(up.curl(&host, path, &["-H", &key]).status, 421, "another process's tunnel leads nowhere");
    }
    let taken = home.run(&["connect", "1", "--inspect", &page.at]);
    assert!(text(&taken.stderr).contains("the inspector cannot listen on"), "{}", text(&taken.stderr));
    for bad in [&["--inspect", "0.0.0.0:4040"][..], &["--inspect-keep", "0"], &["--inspect", "4040", "--no-inspect"]] {
        assert_eq!(home.run(&[&["connect", "1"], bad].concat()).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn hostile_answers_of_a_service_are_shown_as_what_they_are() {
    const GZIP: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/plain\r\ncontent-length: 14\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\x03broken";
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Recorder::start(&[
        ("/gzip", GZIP),
        ("/utf8", b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-odd: \xff\xfe\r\ncontent-length: 24\r\n\r\n\xff\xfe<script>alert(1)</script"),
        ("/svg", b"HTTP/1.1 200 OK\r\ncontent-type: image/svg+xml\r\ncontent-length: 22\r\n\r\n<svg onload=alert(1)/>\x20"),
        ("/chunks", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n50\r\nshort"),
        ("/silent", b""),
        ("/other", b"SSH-2.0-OpenSSH_9.2\r\n"),
        ("/json", b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\n \"a\": oops"),
    ]);
    let page = Page::start(&home, &up, origin.address, &[]);
    for path in ["/gzip", "/utf8", "/svg", "/chunks", "/silent", "/other", "/json", "/%3Cscript%3E/javascript:x"] {
        // The client of a broken answer fails too.
        let url = up.url(&page.host, path);
        drop(Command::new("curl").args(["-s", "--max-time", "60", "--cacert"]).arg(&up.ca).arg(url).output().unwrap());
    }
    let id = |path: &str| {
        let found = wait_until(path, || page.list(&format!("path:{path} -state:open")).into_iter().next());
        found["id"].clone()
    };
    let view = page.view(&id("/gzip"), "response");
    assert!(view["problem"].as_str().unwrap().contains("broken or incomplete gzip"), "{view}");
    let view = page.view(&id("/utf8"), "response");
    assert!(view["kind"] == "text" && view["problem"].as_str().unwrap().contains("not UTF-8"), "{view}");
    assert_eq!(page.view(&id("/svg"), "response")["kind"], "text", "no image that could run a script");
    let view = page.view(&id("/json"), "response");
    assert_eq!((&view["problem_line"], &view["kind"]), (&2.into(), &"json".into()), "{view}");
    for path in ["/chunks", "/silent", "/other"] {
        let found = page.details(&id(path));
        assert!(found["state"] == "failed" && found["error"].is_string(), "{path}: {found}");
    }
    id("javascript");
    let body = page.with_key(&format!("/api/exchanges/{}/response/body?form=decoded", id("/svg")), &[]);
    assert_eq!(body.header("content-type"), Some("application/octet-stream"));
    assert!(body.header("content-disposition").unwrap().starts_with("attachment"), "{}", body.head);
    assert!(body.header("content-security-policy").unwrap().contains("sandbox"), "{}", body.head);
    assert!(page.connect.pid() > 0 && !page.connect.has_ended());
}

#[test]
fn a_large_upload_keeps_its_bytes_and_takes_little_memory() {
    const MEBIBYTES: usize = 96;
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let expected = block.clone();
    // Answers each upload with the number of bytes that are as they were sent.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            if head.is_empty() {
                // The connector looks whether a service is there.
                continue;
            }
            let (mut came, mut right, mut piece) = (0, 0, vec![0; 64 << 10]);
            while came < MEBIBYTES << 20 {
                let at = came % expected.len();
                let wanted = piece.len().min(expected.len() - at);
                let read = reader.read(&mut piece[..wanted]).unwrap();
                assert!(read > 0, "the upload ended early");
                right += if piece[..read] == expected[at..at + read] { read } else { 0 };
                came += read;
            }
            let text = right.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
            write!(&stream, "{head}{text}").unwrap();
        }
    });
    let page = Page::start(&home, &up, address, &[]);
    let file = home.dir.path().join("large");
    std::fs::write(&file, block.repeat(MEBIBYTES)).unwrap();
    let data = file.to_str().unwrap();
    for path in ["/first", "/second"] {
        let before = page.connect.peak_memory_kib();
        let answer = up.curl(&page.host, path, &["--http1.1", "-T", data]);
        assert_eq!((answer.status, answer.body), (200, (MEBIBYTES << 20).to_string()), "{path}");
        let grown = page.connect.peak_memory_kib() - before;
        println!("{path}: {grown} KiB more");
        // The first one brings the connector to its usual size.
        assert!(path == "/first" || grown <= 16 << 10, "{path}: {grown} KiB");
    }
    let found = page.wait_for("path:/second");
    assert_eq!(
        (found["request_bytes"].as_u64(), &found["state"]),
        (Some((MEBIBYTES as u64) << 20), &"complete".into())
    );
    let details = page.details(&found["id"]);
    assert_eq!((&details["request"]["kept"], &details["request"]["is_truncated"]), (&(1 << 20).into(), &true.into()));
    let (status, refusal) = page.post(&format!("/api/exchanges/{}/replay", found["id"]), &json!({ "confirm": true }));
    assert!(status == 422 && refusal["detail"].as_str().unwrap().contains("longer than what is kept"), "{refusal}");
}

#[test]
fn messages_of_websockets_and_grpc_show() {
    let Some(python) = tool("python") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (_echo, address) = service(&python, "websocket_echo.py");
    let page = Page::start(&home, &up, address, &[]);
    assert!(call(&python, "websocket_echo.py", "call", &up, &page.host).contains("all messages came back"));
    let socket = page.wait_for("protocol:websocket");
    assert!(socket["frames"].as_u64().unwrap() >= 1_010, "{socket}");
    let frames = page.json(&format!("/api/exchanges/{}/frames", socket["id"]), "FramePage");
    let shown = frames.to_string();
    assert!(frames["items"].as_array().unwrap().len() == 200 && frames["next"].is_u64(), "{shown}");
    assert!(shown.contains("\"text\":\"7\""), "compressed messages are unfolded: {shown}");
    let har: Value =
        serde_json::from_str(&page.with_key(&format!("/api/exchanges/{}/har", socket["id"]), &[]).body).unwrap();
    conforms(include_str!("har.json"), "Archive", &har);
    assert!(har["log"]["entries"][0]["_webSocketMessages"].as_array().unwrap().len() > 500);
    let (status, refusal) = page.post(&format!("/api/exchanges/{}/replay", socket["id"]), &json!({ "confirm": true }));
    assert_eq!(status, 422, "{refusal}");

    let (_echo, address) = service(&python, "grpc_echo.py");
    let page = Page::start(&home, &up, address, &[]);
    assert!(call(&python, "grpc_echo.py", "call", &up, &page.host).contains("all calls answered"));
    let unary = page.list("protocol:grpc path:unary");
    assert!(!unary.is_empty() && unary[0]["frames"].as_u64().unwrap() >= 1, "{unary:?}");
    page.json(&format!("/api/exchanges/{}/frames", unary[0]["id"]), "FramePage");
}

#[test]
fn events_reach_the_page_as_they_pass() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Recorder::start(&[(
        "/events",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nid: 1\ndata: {\"token\":\"x\"}\n\ndata: two\n\n",
    )]);
    let page = Page::start(&home, &up, origin.address, &["--inspect-keep", "3,1MiB"]);
    let key = format!("Authorization: Bearer {}", page.key);
    let mut stream = Command::new("curl");
    stream
        .args(["-sN", "--max-time", "60", "-H", &key, &format!("http://{}/api/stream", page.at)])
        .stdin(Stdio::null());
    let stream = Program::start(&mut stream);
    stream.wait_for("event: state");
    assert_eq!(up.curl(&page.host, "/events", &[]).status, 200);
    stream.wait_for("data: two");
    assert!(!stream.output().contains("\\\"token\\\":\\\"x"), "{}", stream.output());
    stream.wait_for("\"protocol\":\"sse\"");
    for number in 0..5 {
        assert_eq!(up.curl(&page.host, &format!("/{number}"), &[]).status, 200);
    }
    wait_until("the bound", || {
        let state = page.json("/api/state", "State");
        (state["exchanges"] == 3 && state["dropped"].as_u64() >= Some(3)).then_some(())
    });
    let plain =
        Program::start(&mut home.command(&["connect", &origin.address.port().to_string(), "--host", "127.0.0.1"]));
    plain.wait_for("https://");
    assert!(!plain.output().contains("inspector"), "in a pipe there is none: {}", plain.output());
}

#[test]
fn two_edges_behind_one_connect_are_one_list() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let (a, b) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    wait_until("both edges are there", || {
        let edges = edges(&home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
    let origin = Recorder::start(&[]);
    let ca = home.data().join("ca.pem");
    let page = Page::start_by(&home, ca, origin.address, &["--name", "shop", "--redundancy", "2"]);
    wait_until("both hold the tunnel", || {
        let state = page.json("/api/state", "State");
        let edges = state["edges"].as_array().unwrap();
        (edges.len() == 2 && edges.iter().all(|edge| edge["is_up"] == true)).then_some(())
    });
    wait_until("the name is known", || (a.knows(&home, &page.host) && b.knows(&home, &page.host)).then_some(()));
    for (edge, path, name) in [(&a, "/from-a", "eu-1"), (&b, "/from-b", "us-1")] {
        wait_until(path, || (edge.get(&home, &page.host, path).0 == 200).then_some(()));
        let shown = wait_until(path, || page.list(&format!("path:{path} status:200")).into_iter().next());
        assert_eq!(shown["edge"], name, "{shown}");
    }
}
