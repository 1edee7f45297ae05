//! Web services on the command line: addresses and URLs, several services under one name, hosts and header fields.

use std::{os::unix::fs::PermissionsExt as _, process::Stdio};

use serde_json::Value;

use crate::harness::{Home, Origin, Program, text, wait_until};

/// The host in the URL of a program's first line.
fn host_of(program: &Program) -> String {
    let line = program.wait_for("https://");
    let url = line.lines().find(|line| line.contains("https://")).unwrap();
    url.split("https://").nth(1).unwrap().split([':', '/']).next().unwrap().to_owned()
}

#[test]
fn two_services_share_a_name_by_one_command() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (front, api) = (Origin::start("front"), Origin::start("api"));
    let (front_at, api_path) = (format!("http://{}", front.address), format!("/api={}", api.address));
    let args = ["connect", &front_at, "--path", &api_path, "--strip-path", "--host-header", "origin"];
    let args = [&args[..], &["--request-header", "X-Env: staging", "--response-header", "X-By: sallyport"]].concat();
    let connect = Program::start(&mut home.command(&args));
    let host = host_of(&connect);
    connect.wait_for("/api");
    let at = |path: &str| wait_until("both services", || Some(up.curl(&host, path, &[])).filter(|it| it.status == 200));
    let response = at("/x");
    assert!(response.body.starts_with("front GET /x"), "{}", response.body);
    assert!(
        response.body.to_ascii_lowercase().contains(&format!("\r\nhost: {}\r\n", front.address)),
        "{}",
        response.body
    );
    assert!(
        response.body.contains("x-env: staging") && response.header("x-by") == Some("sallyport"),
        "{}",
        response.body
    );
    let response = at("/api/y?z");
    assert!(response.body.starts_with("api GET /y?z"), "{}", response.body);
    assert!(response.body.contains("x-forwarded-prefix: /api"), "{}", response.body);
    assert!(response.body.contains(&format!("x-forwarded-host: {host}")), "{}", response.body);

    let sockets = home.json(&["socket", "ls"]);
    let socket = sockets[0]["id"].as_str().unwrap();
    let listed = text(&home.run(&["tunnel", "ls", socket]).stdout);
    assert!(listed.contains("PATH") && listed.contains("/api -> /"), "{listed}");
    let edited = home.json(&["socket", "edit", socket, "--request-header", "off", "--host-header", "off"]);
    assert_eq!((&edited["host_header"], &edited["headers"]["request"]), (&Value::Null, &Value::Null), "{edited}");
    assert!(!at("/x").body.contains("x-env"));
    assert_eq!(connect.stop().code(), Some(0), "{}", connect.output());
    assert_eq!(home.json(&["socket", "ls"]), serde_json::json!([]));
}

#[test]
fn a_tunnel_has_a_path_and_a_file_has_several_services_under_one_name() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let (front, api, moved) = (Origin::start("front"), Origin::start("api"), Origin::start("moved"));
    let _front = home.connector(&socket, front.address, &[]);
    let _api = home.connector(&socket, api.address, &["--path", "/api"]);
    let body = |host: &str, path: &str| {
        wait_until("the service", || Some(up.curl(host, path, &[])).filter(|it| it.status == 200)).body
    };
    assert!(body(&host, "/x").starts_with("front GET /x") && body(&host, "/api/x").starts_with("api GET /api/x"));
    let tunnels = home.json(&["tunnel", "ls", &socket]);
    let of_api = tunnels.as_array().unwrap().iter().find(|tunnel| tunnel["path"] == "/api").unwrap();
    let id = of_api["id"].as_str().unwrap();
    let edited = home.json(&["tunnel", "edit", &socket, "--tunnel-id", id, "--path", "/v2", "--rewrite-path", "/api"]);
    assert_eq!((&edited["path"], &edited["rewrite_path"]), (&"/v2".into(), &"/api".into()));
    assert!(
        body(&host, "/v2/x").starts_with("api GET /api/x") && body(&host, "/api/x").starts_with("front GET /api/x")
    );

    let file = format!(
        "[[service]]\nname = \"shop\"\naddress = \"http://{}\"\npath = [\"/api={}\", \"/more={}\"]\n",
        front.address, api.address, moved.address
    );
    let path = home.dir.path().join("services.toml");
    std::fs::write(&path, file).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let checked = home.json(&["run", "--check", path.to_str().unwrap()]);
    assert!(checked[0]["origin"].as_str().unwrap().contains(&format!("/api http://{}", api.address)), "{checked}");
    let run = Program::start(&mut home.command(&["run", path.to_str().unwrap()]));
    run.wait_for("shop/more");
    let shop = host_of(&run);
    for (target, printed) in [("/x", "front GET /x"), ("/api/x", "api GET /api/x"), ("/more", "moved GET /more")] {
        assert!(body(&shop, target).starts_with(printed), "{target}");
    }
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn errors_are_reported_before_anything_is_made() {
    let home = Home::new();
    for (args, says) in [
        (&["connect", "ftp://localhost"][..], "expected http://, https://"),
        (&["connect", "localhost"], "expected a port from 1 to 65535"),
        (&["connect", "http://ann:secret@localhost:1"], "leave out the user name"),
        (&["connect", "http://localhost:1/?x"], "leave out what follows ?"),
        (&["connect", "localhost:1", "--host", "localhost"], "has a host already"),
        (&["connect", "https://localhost:1", "--type", "http"], "use --type https"),
        (&["connect", "tcp://localhost:1", "--path", "/api"], "paths are for http and https sockets"),
        (&["connect", "1", "--path", "/api=2", "--path", "/api=3"], "two services have the path /api"),
        (&["connect", "1", "--path", "/api=https://localhost:2"], "begins with https://"),
        (&["connect", "1", "--path", "/a/../b"], "is no path prefix"),
        (&["connect", "1", "--request-header", "Host: a"], "a setting of its own"),
        (&["connect", "1", "--host-header", "http://a"], "is no host"),
    ] {
        let output = home.run(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn a_tls_service_behind_http_gets_advice_and_an_https_url_works() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let dir = home.dir.path();
    let (key, cert) = (dir.join("service.key"), dir.join("service.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: there is no openssl");
        return;
    }
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let mut service = std::process::Command::new("openssl")
        .args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}"), "-key"])
        .arg(&key)
        .arg("-cert")
        .arg(&cert)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the service", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());

    let plain = Program::start(&mut home.command(&["connect", &format!("127.0.0.1:{port}")]));
    let host = host_of(&plain);
    let response = up.curl(&host, "/", &["-H", "accept: text/plain"]);
    assert_eq!(response.status, 502, "{}", response.body);
    assert!(response.body.contains("origin-speaks-tls"), "{}", response.body);
    // Visitors see no commands; the operator of the service does.
    plain.wait_for("--type https");
    plain.stop();

    let url = format!("https://127.0.0.1:{port}");
    let pin = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(&cert)
        .output()
        .unwrap();
    let pin = text(&pin.stdout).trim().to_owned();
    let secure = Program::start(&mut home.command(&["connect", &url, "--origin-pin", &pin]));
    let response = up.curl(&host_of(&secure), "/", &[]);
    assert_eq!(response.status, 200, "{}", response.body);
    secure.stop();
    service.kill().unwrap();
    service.wait().unwrap();
}
