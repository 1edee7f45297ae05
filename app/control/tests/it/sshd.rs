//! A stock sshd that trusts an organisation's authority, and a stock ssh with certificates from the API.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http::StatusCode;
use sallyport_api::{ClientSshCertificate, SshHostCertificate};
use serde_json::json;

use crate::{
    client::World,
    harness::{Api, START, free_port},
};

const SSHD: &str = "/usr/sbin/sshd";

/// A running sshd, ended by its process id with the test.
struct Sshd {
    child: Child,
    dir: PathBuf,
    port: u16,
    user: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.dir.join("log")).unwrap_or_default());
        }
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn make_key(file: &Path) -> String {
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", file.to_str().unwrap()]);
    fs::read_to_string(file.with_extension("pub")).unwrap().trim().to_owned()
}

impl Sshd {
    /// An sshd for the current user, for certificates with these principals, with this host certificate.
    fn start(dir: &Path, authority: &str, principals: &str, host_certificate: &str) -> Self {
        let user = run("id", &["-un"]).trim().to_owned();
        fs::write(dir.join("ca.pub"), format!("{authority}\n")).unwrap();
        fs::write(dir.join("principals"), format!("{principals}\n")).unwrap();
        fs::write(dir.join("host-cert.pub"), format!("{host_certificate}\n")).unwrap();
        let port = free_port();
        let at = dir.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nHostCertificate {at}/host-cert.pub\n\
             PidFile none\nTrustedUserCAKeys {at}/ca.pub\nAuthorizedPrincipalsFile {at}/principals\n\
             AuthorizedKeysFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nLogLevel VERBOSE\n\
             PermitRootLogin prohibit-password\n"
        );
        fs::write(dir.join("sshd_config"), config).unwrap();
        // The privilege separation directory, which sshd needs as root.
        drop(fs::create_dir_all("/run/sshd"));
        let config = dir.join("sshd_config");
        let child = Command::new(SSHD)
            .args(["-D", "-f", config.to_str().unwrap(), "-E", dir.join("log").to_str().unwrap()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, dir: dir.to_owned(), port, user }
    }

    /// Runs a command with this certificate; the host must show the certificate of this name.
    fn ssh(&self, certificate: &Path, host: &str, command: &str) -> Output {
        let known_hosts = format!("UserKnownHostsFile={}", self.dir.join("known_hosts").display());
        let identity = format!("IdentityFile={}", self.dir.join("id").display());
        let certificate = format!("CertificateFile={}", certificate.display());
        let alias = format!("HostKeyAlias={host}");
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-p", &self.port.to_string(), "-l", &self.user]);
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "StrictHostKeyChecking=yes",
            "GlobalKnownHostsFile=none",
            &known_hosts,
            &identity,
            &certificate,
            &alias,
        ] {
            ssh.args(["-o", option]);
        }
        ssh.args(["127.0.0.1", command]).stdin(Stdio::null()).output().unwrap()
    }
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether there is an sshd; outside of CI a missing one is only reported.
fn has_sshd() -> bool {
    let is_there = Path::new(SSHD).exists();
    assert!(is_there || std::env::var_os("CI").is_none(), "sshd must be there in CI");
    if !is_there {
        println!("skipped: there is no sshd here (Debian's package `openssh-server` is missing)");
    }
    is_there
}

/// Sets the clock of the API to the real one.
fn set_clock(api: &Api) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    api.clock.jump(now - START);
}

async fn certificate(world: &World, token: &str, dir: &Path, name: &str) -> PathBuf {
    let key = fs::read_to_string(dir.join("id.pub")).unwrap();
    let signed: ClientSshCertificate = world.ssh(token, world.host(), key.trim()).await.read(StatusCode::OK);
    let file = dir.join(format!("{name}-cert.pub"));
    fs::write(&file, signed.certificate).unwrap();
    file
}

#[tokio::test]
async fn a_stock_ssh_enters_a_stock_host_for_minutes() {
    if !has_sshd() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let world = World::started_at(set_clock).await;
    let (_, host_key) = (make_key(&dir.join("id")), make_key(&dir.join("host")));
    let path = format!("/v1/sockets/{}/ssh-host-certificate", world.socket.id);
    let host = world.api.post(&path, Some(&world.token), json!({"public_key": host_key})).await;
    let host: SshHostCertificate = host.read(StatusCode::OK);
    fs::write(dir.join("known_hosts"), format!("{}\n", host.known_hosts)).unwrap();
    let authority = world.socket.ssh_authority.clone().unwrap();
    let token = world.client_token().await;
    let good = certificate(&world, &token, dir, "good").await;

    let by_signed = Sshd::start(dir, &authority, "sallyport_ssh_signed", &host.certificate);
    let output = by_signed.ssh(&good, world.host(), "echo entered");
    assert!(output.status.success() && output_text(&output).contains("entered"), "{}", output_text(&output));
    assert!(
        fs::read_to_string(dir.join("log")).unwrap().contains("ID \"ann@example.com\" (serial "),
        "the log names the person"
    );
    let other_name = by_signed.ssh(&good, "other.localhost", "echo entered");
    assert!(output_text(&other_name).contains("Host key verification failed"), "{}", output_text(&other_name));

    // The clock of the API is ten minutes behind, then ten minutes ahead: the host refuses both certificates.
    for (ahead, name, why) in [(-600, "late", "expired"), (600, "early", "not yet valid")] {
        world.api.clock.jump(ahead);
        let certificate = certificate(&world, &token, dir, name).await;
        world.api.clock.jump(-ahead);
        let refused = by_signed.ssh(&certificate, world.host(), "echo entered");
        assert!(output_text(&refused).contains("Permission denied"), "{name}: {}", output_text(&refused));
        let log = fs::read_to_string(dir.join("log")).unwrap();
        assert!(log.contains(why), "{why}: {log}");
    }
    drop(by_signed);

    let by_email = Sshd::start(dir, &authority, "ann@example.com", &host.certificate);
    assert!(by_email.ssh(&good, world.host(), "true").status.success());
    drop(by_email);
    let wrong = Sshd::start(dir, &authority, "bob@example.com\nroot\nmysocket_ssh_signed", &host.certificate);
    let refused = wrong.ssh(&good, world.host(), "echo entered");
    assert!(output_text(&refused).contains("Permission denied"), "{}", output_text(&refused));
    drop(wrong);

    // A host of another organisation trusts another authority.
    let other = world.api.account("other@example.com").await;
    let foreign = world.api.get("/v1/ssh-authority", Some(&other)).await.json();
    let foreign = foreign["public_key"].as_str().unwrap().to_owned();
    assert_ne!(foreign, authority);
    let foreign = Sshd::start(dir, &foreign, "sallyport_ssh_signed", &host.certificate);
    assert!(output_text(&foreign.ssh(&good, world.host(), "echo entered")).contains("Permission denied"));
    drop(foreign);

    // Only the forced command runs.
    let change = json!({"force_command": "echo forced", "extensions": []});
    let changed = world.api.send("PATCH", "/v1/ssh-authority", Some(&world.token), Some(change)).await;
    assert_eq!(changed.status, StatusCode::OK);
    let forced = certificate(&world, &token, dir, "forced").await;
    let host_again = Sshd::start(dir, &authority, "sallyport_ssh_signed", &host.certificate);
    let output = host_again.ssh(&forced, world.host(), "echo entered");
    assert!(
        output_text(&output).contains("forced") && !output_text(&output).contains("entered"),
        "{}",
        output_text(&output)
    );
}

#[tokio::test]
async fn the_rule_that_admits_a_person_sets_what_the_certificate_allows() {
    if !has_sshd() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let world = World::started_at(set_clock).await;
    let (_, host_key) = (make_key(&dir.join("id")), make_key(&dir.join("host")));
    let path = format!("/v1/sockets/{}/ssh-host-certificate", world.socket.id);
    let host = world.api.post(&path, Some(&world.token), json!({"public_key": host_key})).await;
    let host: SshHostCertificate = host.read(StatusCode::OK);
    fs::write(dir.join("known_hosts"), format!("{}\n", host.known_hosts)).unwrap();
    let authority = world.socket.ssh_authority.clone().unwrap();
    let token = world.client_token().await;
    let rule = |ssh: serde_json::Value| json!({"allow": [{"who": {"emails": ["ann@example.com"]}, "ssh": ssh}]});
    let create = async |name: &str, document: serde_json::Value| {
        world.api.post("/v1/policies", Some(&world.token), json!({"name": name, "document": document})).await
    };
    for bad in [
        rule(json!({})),
        rule(json!({"force_command": "a\nb"})),
        rule(json!({"force_command": ""})),
        rule(json!({"force_command": null})),
        rule(json!({"extensions": ["permit-everything"]})),
        rule(json!({"extensions": ["permit-pty", "permit-pty"]})),
        rule(json!({"principals": ["root"]})),
        json!({"allow": [{"ssh": {"extensions": []}}]}),
        json!({"deny": [{"who": {"emails": ["ann@example.com"]}, "ssh": {"extensions": []}}]}),
    ] {
        let response = create("bad", bad).await;
        assert!(response.status.is_client_error(), "{}", response.text);
    }
    let ssh = json!({"extensions": ["permit-user-rc", "permit-pty"], "force_command": "echo by rule \"$USER\""});
    assert_eq!(create("operators", rule(ssh)).await.status, StatusCode::CREATED);
    let attach = json!({"socket": world.socket.id});
    let attached = world.api.post("/v1/policies/operators/attach", Some(&world.token), attach).await;
    assert!(attached.status.is_success(), "{}", attached.text);

    // If the socket's own list admits her, the authority's settings apply.
    let usual = certificate(&world, &token, dir, "usual").await;
    let shown = run("ssh-keygen", &["-L", "-f", usual.to_str().unwrap()]);
    assert!(shown.contains("permit-port-forwarding") && !shown.contains("force-command"), "{shown}");
    let path = format!("/v1/sockets/{}", world.socket.id);
    let changed = world.api.send("PATCH", &path, Some(&world.token), Some(json!({"identity": {}}))).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
    let ruled = certificate(&world, &token, dir, "ruled").await;
    let shown = run("ssh-keygen", &["-L", "-f", ruled.to_str().unwrap()]);
    for line in ["force-command echo by rule \"$USER\"", "permit-pty", "permit-user-rc", "ann@example.com"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("forwarding"), "{shown}");
    let principals = shown.split("Principals:").nth(1).unwrap().split("Critical").next().unwrap();
    assert_eq!(principals.split_whitespace().collect::<Vec<_>>(), ["ann@example.com", "sallyport_ssh_signed"]);
    let sshd = Sshd::start(dir, &authority, "sallyport_ssh_signed", &host.certificate);
    let output = sshd.ssh(&ruled, world.host(), "echo entered");
    assert!(
        output_text(&output).contains("by rule") && !output_text(&output).contains("entered"),
        "{}",
        output_text(&output)
    );
}
