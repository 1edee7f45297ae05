//! The test bench: a server whose gate gives every forward a port of its own, and `ssh` as its client.

use std::{
    collections::HashMap,
    future::Future,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use sallyport_ssh::{
    Attempt, BoxFuture, Connection, ConnectionEnd, Credential, Forward, ForwardRefusal, Granted, HostKeys, OpenError,
    PublicKey, SshConfig, SshGate, SshServer, Verdict,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

/// The longest wait in a test, longer than any step takes on a slow machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A port that the gate refuses to forward.
pub(crate) const TAKEN_PORT: u32 = 81;

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("this should not take so long")
}

/// Waits until the function returns a value.
pub(crate) async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    soon(async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[derive(Default)]
pub(crate) struct Gate {
    /// The keys that may log in, by user.
    pub(crate) keys: Mutex<HashMap<String, Vec<PublicKey>>>,
    /// The authority whose certificates are accepted.
    pub(crate) authority: Mutex<Option<PublicKey>>,
    pub(crate) guests: bool,
    /// Logins that were refused for a SHA-1 signature.
    pub(crate) with_sha1: Mutex<Vec<(String, PublicKey)>>,
    /// The current logins, the newest last.
    pub(crate) connections: Mutex<Vec<Connection>>,
    pub(crate) closed: Mutex<Vec<u64>>,
    /// The public address of a port's forward.
    pub(crate) published: Mutex<HashMap<u32, SocketAddr>>,
    pub(crate) forwards: Mutex<Vec<Forward>>,
    pub(crate) open_errors: Mutex<Vec<OpenError>>,
    pub(crate) listening: Mutex<HashMap<(u64, u32), JoinHandle<()>>>,
}

impl Gate {
    fn decide(&self, attempt: Attempt<'_>) -> Verdict {
        let is_good = match attempt.credential {
            Credential::Offered(key) | Credential::Key(key) => {
                let keys = self.keys.lock().unwrap();
                keys.get(attempt.user).is_some_and(|keys| keys.iter().any(|k| k.key_data() == key.key_data()))
            }
            Credential::OfferedCertificate(certificate) | Credential::Certificate(certificate) => {
                let authority = self.authority.lock().unwrap();
                authority.as_ref().is_some_and(|key| key.key_data() == certificate.signature_key())
                    && certificate.valid_principals().iter().any(|principal| principal == attempt.user)
            }
            Credential::Nothing => self.guests && attempt.user == "guest",
            Credential::Guest => self.guests,
        };
        if is_good { Verdict::Accept(format!("login-{}", attempt.user)) } else { Verdict::Refuse }
    }
}

/// The gate as the server holds it.
pub(crate) struct SharedGate(pub(crate) Arc<Gate>);

impl SshGate for SharedGate {
    fn authenticate<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = self.0.decide(attempt);
        Box::pin(async move { verdict })
    }

    fn refused_sha1(&self, user: &str, key: &PublicKey, _peer: SocketAddr) {
        self.0.with_sha1.lock().unwrap().push((user.to_owned(), key.clone()));
    }

    fn opened(&self, connection: &Connection) {
        self.0.connections.lock().unwrap().push(connection.clone());
    }

    fn forward<'a>(
        &'a self,
        connection: &'a Connection,
        forward: Forward,
    ) -> BoxFuture<'a, Result<Granted, ForwardRefusal>> {
        Box::pin(async move {
            if forward.requested_port() == TAKEN_PORT {
                return Err(ForwardRefusal::new("port 81 is taken by another service: choose another one"));
            }
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let port = if forward.requested_port() == 0 { u32::from(address.port()) } else { forward.requested_port() };
            // A newer login takes over the port.
            let earlier =
                self.0.forwards.lock().unwrap().iter().rev().find(|f| f.port() == port && f.is_usable()).cloned();
            if let Some(earlier) = earlier {
                earlier.connection().disconnect("replaced by a newer login");
            }
            self.0.published.lock().unwrap().insert(port, address);
            self.0.forwards.lock().unwrap().push(forward.clone());
            let task = tokio::spawn(publish(self.0.clone(), listener, forward));
            self.0.listening.lock().unwrap().insert((connection.id(), port), task);
            Ok(Granted { port, lines: vec![format!("your service: http://{address}")] })
        })
    }

    fn cancelled(&self, connection: &Connection, forward: &Forward) {
        if let Some(task) = self.0.listening.lock().unwrap().remove(&(connection.id(), forward.port())) {
            task.abort();
        }
        self.0.published.lock().unwrap().remove(&forward.port());
    }

    fn closed(&self, connection: &Connection) {
        self.0.listening.lock().unwrap().retain(|(id, _), task| {
            if *id == connection.id() {
                task.abort();
            }
            *id != connection.id()
        });
        self.0.closed.lock().unwrap().push(connection.id());
    }
}

async fn publish(gate: Arc<Gate>, listener: TcpListener, forward: Forward) {
    loop {
        let (mut visitor, from) = listener.accept().await.unwrap();
        forward.connection().console().line(&format!("visitor from {}", from.ip()));
        let (gate, forward) = (gate.clone(), forward.clone());
        tokio::spawn(async move {
            match forward.open(from).await {
                Ok(mut stream) => {
                    let _ = copy_bidirectional_with_sizes(&mut visitor, &mut stream, 64 << 10, 64 << 10).await;
                }
                Err(error) => gate.open_errors.lock().unwrap().push(error),
            }
        });
    }
}

/// A server, its gate, and a folder with the clients' keys.
pub(crate) struct Lab {
    pub(crate) gate: Arc<Gate>,
    pub(crate) server: SshServer,
    pub(crate) address: SocketAddr,
    pub(crate) ends: Arc<Mutex<Vec<ConnectionEnd>>>,
    dir: TempDir,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        Self::start_with(Gate::default(), |_| {}).await
    }

    pub(crate) async fn start_with(gate: Gate, change: impl FnOnce(&mut SshConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = HostKeys::open_or_create(dir.path()).unwrap();
        let mut config = SshConfig::new(keys.private_keys().to_vec());
        config.banner = Some("a test of Sallyport: log in with a key of your account".to_owned());
        config.greeting = vec!["welcome to the test".to_owned()];
        change(&mut config);
        let gate = Arc::new(gate);
        let server = SshServer::new(config, Arc::new(SharedGate(gate.clone())));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let known = keys.known_hosts_lines("127.0.0.1", address.port()).join("\n");
        std::fs::write(dir.path().join("known_hosts"), known + "\n").unwrap();
        let ends = Arc::<Mutex<Vec<ConnectionEnd>>>::default();
        let (serving, ended) = (server.clone(), ends.clone());
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (serving, ended) = (serving.clone(), ended.clone());
                tokio::spawn(async move {
                    let end = serving.serve_connection(stream, peer).await;
                    ended.lock().unwrap().push(end);
                });
            }
        });
        let lab = Self { gate, server, address, ends, dir };
        lab.add_user("alice", "ed25519");
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a key of this type in a file of this name.
    pub(crate) fn make_key(&self, name: &str, kind: &str) -> PublicKey {
        self.make_key_of_kind(name, &[kind])
    }

    /// A key of this type, with further arguments of `ssh-keygen`.
    fn make_key_of_kind(&self, name: &str, kind: &[&str]) -> PublicKey {
        self.keygen(&[&["-q", "-N", "", "-f", name, "-t"], kind].concat());
        PublicKey::read_openssh_file(self.path(&format!("{name}.pub"))).unwrap()
    }

    /// A user with a key of this type, in a file with the user's name.
    pub(crate) fn add_user(&self, user: &str, kind: &str) {
        self.add_user_of_kind(user, &[kind]);
    }

    pub(crate) fn add_user_of_kind(&self, user: &str, kind: &[&str]) {
        let key = self.make_key_of_kind(user, kind);
        self.gate.keys.lock().unwrap().entry(user.to_owned()).or_default().push(key);
    }

    pub(crate) fn keygen(&self, arguments: &[&str]) {
        let made =
            std::process::Command::new("ssh-keygen").current_dir(self.dir.path()).args(arguments).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// `ssh` as this user with the key of this file; options and the command follow.
    pub(crate) fn ssh_as(&self, user: &str, key: &str, arguments: &[&str]) -> Command {
        let mut command = self.tool("ssh");
        command.arg("-p").arg(self.address.port().to_string());
        command.args(["-l", user, "-i"]).arg(self.path(key)).args(arguments);
        command
    }

    /// One of OpenSSH's programs, with the options that every test needs.
    pub(crate) fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let known = format!("UserKnownHostsFile={}", self.path("known_hosts").display());
        let options = ["IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=none", known.as_str()];
        command.args(["-F", "none"]);
        for option in options {
            command.args(["-o", option]);
        }
        command.env_remove("SSH_AUTH_SOCK").env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `ssh` as alice until it ends.
    pub(crate) async fn ssh(&self, arguments: &[&str]) -> Output {
        self.finish(self.ssh_as("alice", "alice", arguments), &["127.0.0.1"]).await
    }

    pub(crate) async fn finish(&self, mut command: Command, last: &[&str]) -> Output {
        soon(command.args(last).output()).await.unwrap()
    }

    /// Starts `ssh` as alice.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Client {
        Client::new(self.ssh_as("alice", "alice", arguments))
    }

    /// The public address of a forward, once it exists.
    pub(crate) async fn published(&self, port: u32) -> SocketAddr {
        until(|| self.gate.published.lock().unwrap().get(&port).copied()).await
    }
}

/// A running `ssh`; killed when dropped.
pub(crate) struct Client {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) stderr: BufReader<ChildStderr>,
}

impl Client {
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.arg("127.0.0.1").stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdin, stdout, stderr }
    }

    /// Reads lines of the shell until one contains this text.
    pub(crate) async fn line_with(&mut self, text: &str) -> String {
        soon(async {
            let mut line = String::new();
            while !line.contains(text) {
                line.clear();
                assert_ne!(self.stdout.read_line(&mut line).await.unwrap(), 0, "the shell ended without {text:?}");
            }
            line
        })
        .await
    }

    /// Waits for the end; returns the exit status and all of standard error.
    pub(crate) async fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        soon(self.stderr.read_to_string(&mut text)).await.unwrap();
        (soon(self.child.wait()).await.unwrap().code(), text)
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args([format!("-{name}"), id]).status().unwrap().success());
    }
}

/// An origin that answers every connection by this function.
pub(crate) async fn origin<F, R>(serve: F) -> u16
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// An origin that answers HTTP requests with this text.
pub(crate) async fn web(text: &'static str) -> u16 {
    origin(move |mut stream| async move {
        let mut request = [0; 4_096];
        let _ = stream.read(&mut request).await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len());
        let _ = stream.write_all(head.as_bytes()).await;
    })
    .await
}

/// An echo origin, which closes when its client closes.
pub(crate) async fn echo() -> u16 {
    origin(|mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    })
    .await
}

pub(crate) async fn curl(address: SocketAddr) -> String {
    let url = format!("http://{address}/");
    let output = soon(Command::new("curl").args(["-s", "--max-time", "30", &url]).output()).await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
