//! Logins: accepted and refused keys, certificates and algorithms.

use std::sync::Arc;

use russh::{
    client,
    keys::{PrivateKey, PrivateKeyWithHashAlg},
};
use sallyport_ssh::{HostKeys, UserAuthority};

use crate::lab::{Gate, Lab, mode, soon, text, until};

/// A client that accepts every host key.
struct Believes;

impl client::Handler for Believes {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &russh::keys::PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

const STRICT: [&str; 3] = ["-N", "-o", "ExitOnForwardFailure=yes"];
/// A login that asks for a forward the gate refuses; the refusal proves the login.
const REFUSED: [&str; 2] = ["-R", "81:localhost:1"];

fn is_logged_in(output: &std::process::Output) -> bool {
    text(&output.stderr).contains("remote port forwarding failed")
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_and_unknown_users_get_the_same_answer() {
    let lab = Lab::start().await;
    lab.make_key("foreign", "ed25519");
    for (user, key) in [("alice", "foreign"), ("nobody", "foreign"), ("nobody", "alice")] {
        let output = lab.finish(lab.ssh_as(user, key, &[]), &["127.0.0.1"]).await;
        assert_eq!(output.status.code(), Some(255));
        let stderr = text(&output.stderr);
        assert!(stderr.contains("Permission denied (publickey)"), "{stderr}");
        assert!(stderr.contains("log in with a key of your account"), "{stderr}");
    }
    assert!(lab.gate.connections.lock().unwrap().is_empty());
    assert!(lab.gate.closed.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_usual_kind_log_in() {
    let lab = Lab::start().await;
    let kinds: [&[&str]; 5] =
        [&["ed25519"], &["ecdsa"], &["ecdsa", "-b", "384"], &["ecdsa", "-b", "521"], &["rsa", "-b", "2048"]];
    for kind in kinds {
        let user = format!("user-{}", kind.concat());
        lab.add_user_of_kind(&user, kind);
        let output = lab.finish(lab.ssh_as(&user, &user, &STRICT), &["-R", "81:localhost:1", "127.0.0.1"]).await;
        assert!(is_logged_in(&output), "{kind:?}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_exchange_and_host_key_that_is_offered_works() {
    let lab = Lab::start().await;
    lab.add_user("ann", "ed25519");
    for option in [
        "KexAlgorithms=curve25519-sha256",
        "KexAlgorithms=ecdh-sha2-nistp256",
        "HostKeyAlgorithms=ssh-ed25519",
        "HostKeyAlgorithms=ecdsa-sha2-nistp256",
    ] {
        let options = [&STRICT[..], &["-o", option]].concat();
        let output = lab.finish(lab.ssh_as("ann", "ann", &options), &["-R", "81:localhost:1", "127.0.0.1"]).await;
        assert!(is_logged_in(&output), "{option}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_wrong_keys_end_the_connection() {
    let lab = Lab::start_with(Gate::default(), |config| config.max_auth_attempts = 2).await;
    for name in ["a", "b", "c"] {
        lab.make_key(name, "ed25519");
    }
    let (b, c) = (lab.path("b"), lab.path("c"));
    let keys = ["-i", b.to_str().unwrap(), "-i", c.to_str().unwrap()];
    let output = lab.finish(lab.ssh_as("alice", "a", &keys), &["127.0.0.1"]).await;
    assert!(text(&output.stderr).contains("Too many authentication attempts"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_the_trusted_authority_log_in_and_no_others() {
    let lab = Lab::start().await;
    // The key types of the original service, all on P-256.
    for (name, kind) in [("authority", "ecdsa"), ("other", "ed25519"), ("bob", "ecdsa")] {
        lab.make_key(name, kind);
    }
    *lab.gate.authority.lock().unwrap() =
        Some(sallyport_ssh::PublicKey::read_openssh_file(lab.path("authority.pub")).unwrap());
    let cases: [(&str, &[&str], bool); 6] = [
        ("good", &["-s", "authority", "-n", "bob"], true),
        ("other authority", &["-s", "other", "-n", "bob"], false),
        ("other principal", &["-s", "authority", "-n", "carol"], false),
        ("expired", &["-s", "authority", "-n", "bob", "-V", "-2h:-1h"], false),
        ("host certificate", &["-s", "authority", "-n", "bob", "-h"], false),
        ("forced command", &["-s", "authority", "-n", "bob", "-O", "force-command=true"], false),
    ];
    for (name, options, is_good) in cases {
        let _ = std::fs::remove_file(lab.path("bob-cert.pub"));
        let arguments = [&["-q", "-I", "test"], options, &["bob.pub"]].concat();
        lab.keygen(&arguments);
        let output = lab.finish(lab.ssh_as("bob", "bob", &STRICT), &["-R", "81:localhost:1", "127.0.0.1"]).await;
        assert_eq!(is_logged_in(&output), is_good, "{name}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_are_let_in_where_the_gate_allows_it() {
    let gate = Gate { guests: true, ..Gate::default() };
    let lab = Lab::start_with(gate, |config| config.guests = true).await;
    lab.make_key("foreign", "ed25519");
    // The guest login works at once under a guest name, and after refused keys under any name.
    let named = lab.finish(lab.ssh_as("guest", "foreign", &STRICT), &["-R", "81:localhost:1", "127.0.0.1"]).await;
    assert!(is_logged_in(&named), "{}", text(&named.stderr));
    let mut asked = lab.ssh_as("anybody", "foreign", &STRICT);
    asked.args(REFUSED);
    let output = lab.finish(asked, &["127.0.0.1"]).await;
    assert!(is_logged_in(&output), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_whose_keys_are_refused_get_a_hint_once_and_others_none() {
    let hint = "add this key first";
    let lab = Lab::start_with(Gate::default(), |config| config.login_hint = Some(hint.to_owned())).await;
    lab.make_key("foreign", "ed25519");
    let output = lab.finish(lab.ssh_as("alice", "foreign", &STRICT), &["127.0.0.1"]).await;
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{stderr}");
    assert_eq!(stderr.matches(hint).count(), 1, "{stderr}");
    let output = lab.finish(lab.ssh_as("alice", "alice", &STRICT), &["-R", "81:localhost:1", "127.0.0.1"]).await;
    assert!(is_logged_in(&output) && !text(&output.stderr).contains(hint), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn old_algorithms_are_not_spoken() {
    let lab = Lab::start().await;
    for option in [
        "Ciphers=aes128-cbc",
        "KexAlgorithms=diffie-hellman-group14-sha1",
        "MACs=hmac-sha1",
        "MACs=hmac-sha2-256",
        "KexAlgorithms=diffie-hellman-group16-sha512",
    ] {
        // A cipher that needs a separate MAC.
        let output = lab.ssh(&["-o", option, "-o", "Ciphers=aes256-ctr,aes128-cbc"]).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(255));
        assert!(
            stderr.contains("Unable to negotiate")
                || stderr.contains("Connection closed")
                || stderr.contains("no matching"),
            "{option}: {stderr}"
        );
    }
    // OpenSSH's default choice, with strict key exchange where the client supports it.
    let output = lab.ssh(&["-vv", "-N", "-o", "ExitOnForwardFailure=yes", REFUSED[0], REFUSED[1]]).await;
    let stderr = text(&output.stderr);
    assert!(stderr.contains("kex: host key algorithm: ssh-ed25519"), "{stderr}");
    assert!(stderr.contains("kex-strict-s-v00@openssh.com"), "{stderr}");
    assert!(stderr.contains("mlkem768x25519-sha256"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_signs_with_sha1_is_refused_and_reported_to_the_gate() {
    let lab = Lab::start().await;
    let key = lab.make_key("rsa", "rsa");
    lab.gate.keys.lock().unwrap().entry("alice".to_owned()).or_default().push(key.clone());
    // Clients of 2021 know only SHA-1 signatures for RSA. OpenSSH does not even try, since the server lists its
    // accepted signature algorithms.
    let private = Arc::new(PrivateKey::read_openssh_file(lab.path("rsa").as_path()).unwrap());
    let mut old = client::connect(Arc::default(), lab.address, Believes).await.unwrap();
    for _ in 0..2 {
        let with_sha1 = PrivateKeyWithHashAlg::new(private.clone(), None);
        assert!(!soon(old.authenticate_publickey("alice", with_sha1)).await.unwrap().success());
    }
    let refused_keys = lab.gate.with_sha1.lock().unwrap().clone();
    assert_eq!(refused_keys.len(), 1, "once for a connection");
    assert!(refused_keys[0].0 == "alice" && refused_keys[0].1.key_data() == key.key_data());
    // The same key with a SHA-2 signature is accepted, and the gate gets no report.
    let mut ssh = lab.ssh_as("alice", "rsa", &STRICT);
    ssh.args(REFUSED);
    let output = lab.finish(ssh, &["127.0.0.1"]).await;
    assert!(is_logged_in(&output), "{}", text(&output.stderr));
    assert_eq!(lab.gate.with_sha1.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bare_key_of_a_certificate_is_refused_before_it_signs() {
    let lab = Lab::start().await;
    let authority = UserAuthority::open_or_create(lab.path(".").as_path()).unwrap();
    let public = lab.make_key("bob", "ecdsa");
    *lab.gate.authority.lock().unwrap() = Some(authority.public_key().clone());
    let bare = lab.finish(lab.ssh_as("bob", "bob", &["-v", "-N"]), &["127.0.0.1"]).await;
    let stderr = text(&bare.stderr);
    assert!(stderr.contains("Permission denied (publickey)") && !stderr.contains("Server accepts key"), "{stderr}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let line = authority.sign(&public.to_openssh().unwrap(), "bob", "a test", now).unwrap();
    std::fs::write(lab.path("bob-cert.pub"), line).unwrap();
    let mut ssh = lab.ssh_as("bob", "bob", &STRICT);
    ssh.args(REFUSED);
    let output = lab.finish(ssh, &["127.0.0.1"]).await;
    assert!(is_logged_in(&output), "{}", text(&output.stderr));
}

#[test]
fn the_authority_is_made_once_and_kept_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let made = UserAuthority::open_or_create(dir.path()).unwrap();
    let again = UserAuthority::open_or_create(dir.path()).unwrap();
    assert_eq!(made.public_key().key_data(), again.public_key().key_data());
    let path = dir.path().join(sallyport_ssh::USER_AUTHORITY_FILE);
    assert_eq!(mode(&path), 0o600);
    for loose in [0o640, 0o604, 0o660] {
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(loose)).unwrap();
        let error = UserAuthority::open_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("open to other users"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    let other = UserAuthority::open_or_create(dir.path()).unwrap();
    assert_ne!(made.public_key().key_data(), other.public_key().key_data());
    assert!(!format!("{other:?}").contains("key:"), "{other:?}");
}

#[test]
fn host_keys_are_made_once_and_kept_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let made = HostKeys::open_or_create(dir.path()).unwrap();
    let again = HostKeys::open_or_create(dir.path()).unwrap();
    assert_eq!(made.fingerprint(), again.fingerprint());
    assert!(made.fingerprint().starts_with("SHA256:"));
    let path = dir.path().join(sallyport_ssh::ED25519_KEY_FILE);
    assert_eq!(mode(&path), 0o600);
    let lines = made.known_hosts_lines("tunnel.example", 2222);
    assert!(lines[0].starts_with("[tunnel.example]:2222 ssh-ed25519 AAAA"), "{}", lines[0]);
    assert!(lines[1].starts_with("[tunnel.example]:2222 ecdsa-sha2-nistp256 AAAA"), "{}", lines[1]);
    assert!(made.known_hosts_lines("tunnel.example", 22)[0].starts_with("tunnel.example ssh-ed25519 "));
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let error = HostKeys::open_or_create(dir.path()).unwrap_err().to_string();
    assert!(error.contains("open to other users (mode 0640)"), "{error}");
    std::fs::remove_file(&path).unwrap();
    std::fs::copy(dir.path().join(sallyport_ssh::ECDSA_KEY_FILE), &path).unwrap();
    let error = HostKeys::open_or_create(dir.path()).unwrap_err().to_string();
    assert!(error.contains("the key is a ecdsa-sha2-nistp256 key"), "{error}");
    std::fs::write(&path, "not a key").unwrap();
    assert!(HostKeys::open_or_create(dir.path()).unwrap_err().to_string().contains("no usable ssh-ed25519 key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_hears_of_each_login_and_of_its_end_once() {
    let lab = Lab::start().await;
    for _ in 0..3 {
        lab.finish(lab.ssh_as("alice", "alice", &[]), &["127.0.0.1", "true"]).await;
    }
    until(|| (lab.gate.closed.lock().unwrap().len() == 3).then_some(())).await;
    let opened: Vec<u64> = lab.gate.connections.lock().unwrap().iter().map(|c| c.id()).collect();
    assert_eq!(*lab.gate.closed.lock().unwrap(), opened);
}
