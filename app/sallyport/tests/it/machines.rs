//! Machines with client certificates: curl and openssl, as in CI systems.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use crate::harness::{Home, Origin, Program, Up, text, wait_until};

/// curl with a certificate.
fn curl(up: &Up, host: &str, path: &str, cert: &Path, key: &Path, more: &[&str]) -> Output {
    Command::new("curl")
        .args(["-sS", "--max-time", "60", "-o", "-", "-w", "\n%{http_code}", "--cacert"])
        .arg(&up.ca)
        .arg("--cert")
        .arg(cert)
        .arg("--key")
        .arg(key)
        .args(more)
        .arg(up.url(host, path))
        .output()
        .unwrap()
}

/// openssl's client, which asks a line and reads until the connection ends.
fn s_client(up: &Up, host: &str, cert: &Path, key: &Path) -> Program {
    let (line, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-verify_return_error", "-servername", host]);
    client.args(["-connect", &format!("127.0.0.1:{}", up.port), "-CAfile"]).arg(&up.ca);
    client.arg("-cert").arg(cert).arg("-key").arg(key);
    Program::start(client.stdin(line))
}

fn status(output: &Output) -> String {
    text(&output.stdout).rsplit('\n').next().unwrap().to_owned()
}

#[test]
fn curl_and_openssl_come_in_with_the_certificate_of_a_service_token() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let done = |args: &[&str]| {
        let output = home.run(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    done(&["policy", "create", "machines", "--service-token", "ci"]);
    let origin = Origin::start("app");
    let (web, host) = home.socket(&["--cloudauth", "--policy", "machines"]);
    let _web = home.connector(&web, origin.address, &[]);
    let (other, other_host) = home.socket(&["--cloudauth", "--policy", "machines"]);
    let _other = home.connector(&other, origin.address, &[]);
    let file = |name: &str| home.dir.path().join(name);
    let (key, cert) = (file("ci.key"), file("ci.crt"));
    let (key_text, cert_text) = (key.to_str().unwrap(), cert.to_str().unwrap());
    let refused = home.run(&["service-token", "create", "ci", "--certificate"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let made = home.json(&[
        "service-token",
        "create",
        "ci",
        "--read-only",
        "--path",
        "/api",
        "--type",
        "http",
        "--type",
        "tls",
        "--certificate",
        "--key-out",
        key_text,
        "--cert-out",
        cert_text,
        "--certificate-days",
        "7",
    ]);
    assert!(made["certificate"]["serial"].is_string() && made["secret"].is_string(), "{made}");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let printed = Command::new("openssl").args(["x509", "-noout", "-text", "-in", cert_text]).output().unwrap();
    let printed = text(&printed.stdout);
    let uri = format!("URI:urn:sallyport:service-token:{}", made["id"].as_str().unwrap());
    assert!(printed.contains(&uri) && printed.contains("TLS Web Client Authentication"), "{printed}");
    let table = done(&["service-token", "show", "ci"]);
    assert!(table.contains("reading; paths /api; types http,tls") && table.contains("certificate until"), "{table}");

    for version in ["--http1.1", "--http2"] {
        let response = curl(&up, &host, "/api/x", &cert, &key, &[version]);
        assert_eq!(status(&response), "200", "{}{}", text(&response.stdout), text(&response.stderr));
        let headers = text(&response.stdout).to_ascii_lowercase();
        assert!(headers.contains("x-auth-provider: service") && headers.contains("x-auth-name: ci"), "{headers}");
        // Its scope: no other path, and no change.
        assert_eq!(status(&curl(&up, &host, "/admin", &cert, &key, &[version])), "403");
        assert_eq!(status(&curl(&up, &host, "/api", &cert, &key, &[version, "-d", "x"])), "403");
        // Shown to one host, it is invalid at another.
        let other = format!("Host: {other_host}");
        assert_eq!(status(&curl(&up, &host, "/api", &cert, &key, &[version, "-H", &other])), "421");
    }
    // Another key, and another authority with the same name in the certificate.
    let stranger = (file("x.key"), file("x.crt"));
    let san = format!("subjectAltName={uri}");
    let signed = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ci"])
        .args(["-addext", &san, "-addext", "extendedKeyUsage=clientAuth", "-days", "2", "-keyout"])
        .arg(&stranger.0)
        .arg("-out")
        .arg(&stranger.1)
        .output()
        .unwrap();
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    let response = curl(&up, &host, "/api", &stranger.1, &stranger.0, &[]);
    assert!(!response.status.success() && status(&response) == "000", "{}", text(&response.stdout));

    // A `tls` socket, with a token for it, and a certificate request by openssl.
    let tls = home.json(&["socket", "create", "--name", "db", "--type", "tls", "--cloudauth", "--policy", "machines"]);
    let tls_host = tls["dns_name"].as_str().unwrap();
    let echo = Origin::start("echo");
    let _tls = home.connector(tls["id"].as_str().unwrap(), echo.address, &[]);
    let denied = s_client(&up, tls_host, &cert, &key);
    denied.ended();
    assert!(!denied.output().contains("HTTP/1.1"), "a token that only reads: {}", denied.output());
    done(&["service-token", "rm", "ci"]);
    let response = curl(&up, &host, "/api/x", &cert, &key, &[]);
    assert!(!response.status.success(), "what was removed is worth nothing: {}", text(&response.stdout));
    home.json(&["service-token", "create", "ci"]);
    let (key, csr) = (file("own.key"), file("own.csr"));
    let asked = Command::new("openssl")
        .args(["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=root/O=everybody", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&csr)
        .output()
        .unwrap();
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    done(&["service-token", "certificate", "ci", "--csr", csr.to_str().unwrap(), "--cert-out", cert_text]);
    s_client(&up, tls_host, &cert, &key).wait_for("HTTP/1.1");
    let nobody = s_client(&up, tls_host, &stranger.1, &stranger.0);
    nobody.ended();
    assert!(!nobody.output().contains("HTTP/1.1"), "{}", nobody.output());

    // The flow of the admitted client ends a moment after the client.
    let seen = wait_until("all flows are on record", || {
        let seen = done(&["audit", "--socket", tls_host]);
        seen.contains("by policy \"machines\"").then_some(seen)
    });
    assert!(seen.contains("service:ci") && seen.contains("denied: the scope of the service token"), "{seen}");
    assert!(seen.contains("denied: the certificate is not of the organisation's authority"), "{seen}");
    for name in
        [tls["id"].as_str().unwrap(), &format!("tls://{tls_host}:{}", up.port), tls_host.split('.').next().unwrap()]
    {
        assert_eq!(done(&["audit", "--socket", name]), seen, "{name}");
    }
}
