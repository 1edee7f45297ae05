//! A wall clock that jumps: `up`, its connectors and their clients go on.

use crate::harness::{Home, Origin, Up, text};

/// The status of one request by a curl with the same clock, by which it verifies certificates.
fn status(home: &Home, up: &Up, host: &str) -> String {
    let mut curl = home.program("curl");
    curl.args(["-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"]);
    let output = curl.arg(&up.ca).arg(up.url(host, "/")).output().unwrap();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn jumps_of_the_clock_renew_certificates_and_stop_nothing() {
    let Some(home) = Home::with_clock() else { return };
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &[]);
    assert_eq!(status(&home, &up, &host), "200");

    // A login lives for 30 days, as long as a certificate, which is renewed earlier.
    home.turn_clock("+29d");
    assert_eq!(status(&home, &up, &host), "200");
    assert!(home.run(&["socket", "ls"]).status.success(), "the login renewed itself");
    home.turn_clock("+100d");
    assert_eq!(status(&home, &up, &host), "200", "the certificate was renewed");
    let second = home.connector(&socket, origin.address, &["--token", &token(&home)]);
    assert_eq!(status(&home, &up, &host), "200");

    // What was made meanwhile is of the future now.
    home.turn_clock("+0d");
    for _ in 0..4 {
        assert_eq!(status(&home, &up, &host), "200", "the certificate of the future was replaced");
    }
    let output = home.run(&["socket", "ls"]);
    assert!(output.status.success(), "the login of the future is valid: {}", text(&output.stderr));
    assert_eq!(second.stop().code(), Some(0), "{}", second.output());
    assert_eq!(connector.stop().code(), Some(0), "{}", connector.output());
    assert!(!connector.output().contains("disconnected"), "never lost: {}", connector.output());
    assert_eq!(up.program.stop().code(), Some(0), "{}", up.program.output());
}

/// Logs in again. Returns an API token.
fn token(home: &Home) -> String {
    let ended = home.run(&["socket", "ls"]);
    assert_eq!(ended.status.code(), Some(3), "a login ends after 30 days: {}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("sallyport login"), "{}", text(&ended.stderr));
    assert!(home.run(&["login", "--email", "test@example.com"]).status.success());
    let token = home.json(&["token", "create", "--name", "t", "--scope", "sockets:write"]);
    token["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_token_that_has_expired_is_refused_with_that_reason() {
    let Some(home) = Home::with_clock() else { return };
    let _up = home.up(&[]);
    home.account();
    let scope = ["--scope", "sockets:read"];
    let token = home.json(&[&["token", "create", "--name", "t", "--expires-in-days", "1"], &scope[..]].concat());
    let list = ["socket", "ls", "--token", token["token"].as_str().unwrap()];
    assert!(home.run(&list).status.success());
    home.turn_clock("+2d");
    let refused = home.run(&list);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("expired"), "{}", text(&refused.stderr));
}
