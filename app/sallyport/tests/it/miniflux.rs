//! A real application that trusts the proxy's identity header.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    browser::provider,
    harness::{Home, HttpResponse, Program, Up, curl, text, wait_until},
    protocols::tool,
    tcp::{Postgres, free_port, installed},
};

/// Miniflux with an empty database, as docs/identity.md has it.
fn miniflux(program: &Path, database: SocketAddr) -> (Program, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let program = Program::start(
        Command::new(program)
            .env("DATABASE_URL", format!("postgres://postgres@{database}/postgres?sslmode=disable"))
            .env("LISTEN_ADDR", address.to_string())
            .env("RUN_MIGRATIONS", "1")
            .env("AUTH_PROXY_HEADER", "X-Auth-Email")
            .env("AUTH_PROXY_USER_CREATION", "1")
            .env("TRUSTED_REVERSE_PROXY_NETWORKS", "127.0.0.1/32")
            .env("DISABLE_LOCAL_AUTH", "1")
            .stdin(Stdio::null()),
    );
    wait_until("miniflux", || {
        let response = Command::new("curl").args(["-sf", &format!("http://{address}/healthcheck")]).output().unwrap();
        response.status.success().then_some(())
    });
    (program, address)
}

/// A browser's visit, with cookies and redirects.
fn visit(up: &Up, jar: &Path, url: &str, more: &[&str]) -> HttpResponse {
    let jar = jar.to_str().unwrap();
    let mut args = vec!["-L", "-b", jar, "-c", jar, "-H", "Accept: text/html"];
    args.extend(more);
    curl(&up.ca, url, &args)
}

/// The accounts at Miniflux.
fn users(psql: &Path, database: SocketAddr) -> Vec<String> {
    let output = Command::new(psql)
        .args(["-h", "127.0.0.1", "-p", &database.port().to_string(), "-U", "postgres", "-At", "-d", "postgres"])
        .args(["-c", "SELECT username FROM users ORDER BY username"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn miniflux_gets_the_logged_in_person_from_the_edge_alone() {
    let (Some(dex), Some(program)) = (tool("dex"), tool("miniflux")) else { return };
    let (Some(postgres), Some(psql)) = (Postgres::start(), installed("psql", "postgresql-client")) else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (_dex, issuer) = provider(&dex, &home);
    let (_miniflux, origin) = miniflux(&program, postgres.address);
    let (id, host) = home.socket(&["--cloudauth", "--allowed-email-domains", "example.test"]);
    let _connector = home.connector(&id, origin, &[]);
    let address = up.url(&host, "/settings");

    // Alice opens her settings, is redirected to Dex, and returns: Miniflux asks nothing.
    let jar = home.dir.path().join("cookies");
    let form = visit(&up, &jar, &address, &[]);
    let action = form.body.split("action=\"").nth(1).and_then(|rest| rest.split('"').next());
    let action =
        action.unwrap_or_else(|| panic!("no form of Dex: {} {}", form.status, form.body)).replace("&amp;", "&");
    let (to, _) = issuer.rsplit_once("/dex").unwrap();
    let landed = visit(&up, &jar, &format!("{to}{action}"), &["-d", "login=alice@example.test&password=pw"]);
    assert_eq!(landed.status, 200, "{}{}", landed.head, landed.body);
    assert!(landed.body.contains("<title>Unread") && landed.body.contains("Miniflux</title>"), "{}", landed.body);
    let settings = visit(&up, &jar, &address, &[]);
    assert!(settings.status == 200 && settings.body.contains("<title>Settings"), "{}", settings.body);
    assert_eq!(users(&psql, postgres.address), ["alice@example.test"], "the person with an account of Miniflux");

    // A forged header field is refused, in every spelling.
    let spellings = ["X-Auth-Email", "x-auth-email", "X_Auth_Email", "X.Auth.Email", "X-AUTH_EMAIL"];
    for name in spellings {
        let field = format!("{name}: alice@example.test");
        let stranger = curl(&up.ca, &address, &["-H", &field]);
        assert_eq!(stranger.status, 401, "{field}: {}", stranger.body);
        assert!(!stranger.body.contains("Miniflux"), "{}", stranger.body);
    }
    // And Alice cannot become another user: without its own cookie, Miniflux reads the header again.
    let cookies = std::fs::read_to_string(&jar).unwrap();
    let login = cookies.lines().find(|line| line.contains("\t__Host-sallyport\t")).unwrap();
    let fresh = home.dir.path().join("fresh");
    std::fs::write(&fresh, format!("# Netscape HTTP Cookie File\n{login}\n")).unwrap();
    let fields: Vec<String> = spellings.map(|name| format!("{name}: mallory@example.test")).into();
    let mut args = Vec::new();
    fields.iter().for_each(|field| args.extend(["-H", field]));
    let spoofed = visit(&up, &fresh, &address, &args);
    assert!(spoofed.status == 200 && spoofed.body.contains("<title>Unread"), "{}", spoofed.body);
    assert_eq!(users(&psql, postgres.address), ["alice@example.test"], "and no other person");
    // A direct connection to the application could forge the header, which is why it listens on the loopback only.
    let around = home.dir.path().join("around");
    let field = ["-H", "X-Auth-Email: mallory@example.test"];
    visit(&up, &around, &format!("http://{origin}/settings"), &field);
    assert_eq!(users(&psql, postgres.address), ["alice@example.test", "mallory@example.test"]);
}
