//! OpenSSL's own client and server, as peers of the record layer.

use std::{
    fs,
    io::{Read, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sallyport_tls_records::Handshake;

use crate::{
    forger::Forger,
    side::{Failure, Identity, Side, localhost},
};

/// The longest wait for OpenSSL, long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a program printed until now.
#[derive(Default)]
struct Output {
    text: Mutex<Vec<u8>>,
    grew: Condvar,
}

/// An OpenSSL program that runs.
pub(crate) struct Openssl {
    child: Child,
    stdin: ChildStdin,
    output: Arc<Output>,
    folder: PathBuf,
}

impl Drop for Openssl {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Openssl {
    fn start(folder: PathBuf, arguments: &[&str]) -> Self {
        let mut child = Command::new("openssl")
            .args(arguments)
            .args(["-ciphersuites", "TLS_AES_128_GCM_SHA256", "-keylogfile"])
            .arg(folder.join("keys"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Output::default());
        collect(child.stdout.take().unwrap(), output.clone());
        collect(child.stderr.take().unwrap(), output.clone());
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, output, folder }
    }

    /// Writes this to the program's input.
    pub(crate) fn write(&mut self, data: &[u8]) {
        self.stdin.write_all(data).unwrap();
        self.stdin.flush().unwrap();
    }

    /// Waits until the program has printed this.
    pub(crate) fn wait_for(&self, expected: &str) -> Vec<u8> {
        self.wait_until(expected, |text| text.windows(expected.len()).any(|part| part == expected.as_bytes()))
    }

    /// Waits until the output of the program is enough.
    pub(crate) fn wait_until(&self, what: &str, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        let mut text = self.output.text.lock().unwrap();
        while !is_enough(&text) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} is missing in: {}", String::from_utf8_lossy(&text));
            text = self.output.grew.wait_timeout(text, left).unwrap().0;
        }
        text.clone()
    }

    /// Seals records as this program would: the side is `CLIENT` or `SERVER`.
    fn forger(&self, side: &str) -> Forger {
        let label = format!("{side}_TRAFFIC_SECRET_0 ");
        let until = Instant::now() + PATIENCE;
        loop {
            let keys = fs::read_to_string(self.folder.join("keys")).unwrap_or_default();
            let line = keys.split_inclusive('\n').find(|line| line.starts_with(&label) && line.ends_with('\n'));
            if let Some(secret) = line.and_then(|line| line.split_whitespace().nth(2)) {
                return Forger::new(&from_hex(secret));
            }
            assert!(Instant::now() < until, "no secret of the {side} in: {keys}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn collect(mut from: impl Read + Send + 'static, output: Arc<Output>) {
    thread::spawn(move || {
        let mut chunk = [0; 8_192];
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            output.text.lock().unwrap().extend_from_slice(&chunk[..n]);
            output.grew.notify_all();
        }
    });
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("openssl-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Whether OpenSSL can be run on this machine; prints a line when a test is skipped.
pub(crate) fn is_there() -> bool {
    let found = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok_and(|it| it.success());
    if !found {
        println!("skipped: no openssl here");
    }
    found
}

fn with_timeouts(io: TcpStream) -> TcpStream {
    io.set_nodelay(true).unwrap();
    io.set_read_timeout(Some(PATIENCE)).unwrap();
    io.set_write_timeout(Some(PATIENCE)).unwrap();
    io
}

/// A client of OpenSSL that has connected to us, with further arguments.
pub(crate) fn connect_client(arguments: &[&str]) -> (Openssl, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let fixed = ["s_client", "-connect", &at, "-servername", "localhost", "-tls1_3"];
    let openssl = Openssl::start(folder(), &[&fixed[..], arguments].concat());
    (openssl, with_timeouts(listener.accept().unwrap().0))
}

/// A client of OpenSSL after the handshake with our server, and the forger of the client's records.
pub(crate) fn client(arguments: &[&str]) -> (Openssl, Side, Forger) {
    let (openssl, io) = connect_client(arguments);
    let side = serve(io, &[]).unwrap();
    let forger = openssl.forger("CLIENT");
    (openssl, side, forger)
}

/// Our server's handshake with a client; `injected` comes behind the ClientHello.
pub(crate) fn serve(io: TcpStream, injected: &[u8]) -> Result<Side, Failure> {
    Side::establish(io, Handshake::server(Arc::new(Identity::new().server())).unwrap(), injected)
}

/// A server of OpenSSL with a certificate for `localhost`, and its address.
pub(crate) fn start_server(arguments: &[&str]) -> (Openssl, Identity, String) {
    let (identity, folder) = (Identity::new(), folder());
    let (certificate, key) = (folder.join("certificate"), folder.join("key"));
    fs::write(&certificate, identity.certificate_pem()).unwrap();
    fs::write(&key, identity.key_pem()).unwrap();
    let fixed = [
        "s_server",
        "-accept",
        "127.0.0.1:0",
        "-tls1_3",
        "-cert",
        certificate.to_str().unwrap(),
        "-key",
        key.to_str().unwrap(),
    ];
    let openssl = Openssl::start(folder, &[&fixed[..], arguments].concat());
    let address = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let line =
            text.split_inclusive('\n').find(|line| line.starts_with("ACCEPT 127.0.0.1:") && line.ends_with('\n'));
        line.map(|line| line["ACCEPT ".len()..].trim().to_owned())
    };
    let text = openssl.wait_until("the server's address", |text| address(text).is_some());
    let at = address(&text).unwrap();
    (openssl, identity, at)
}

/// A server of OpenSSL, and our client whose handshake with it is over.
pub(crate) fn server(arguments: &[&str]) -> (Openssl, Side) {
    let (openssl, identity, at) = start_server(arguments);
    let io = with_timeouts(TcpStream::connect(at).unwrap());
    let handshake = Handshake::client(Arc::new(identity.client()), localhost()).unwrap();
    (openssl, Side::establish(io, handshake, &[]).unwrap())
}

/// A bare TCP connection to a server of OpenSSL.
pub(crate) fn bare_server() -> (Openssl, TcpStream) {
    let (openssl, _, at) = start_server(&[]);
    (openssl, with_timeouts(TcpStream::connect(at).unwrap()))
}

/// Two ends of a bare TCP connection.
pub(crate) fn bare_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (with_timeouts(near), with_timeouts(listener.accept().unwrap().0))
}
