//! Permitted forwards, and the report of a refusal to the client.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sallyport_ssh::OpenError;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::lab::{LONG, Lab, TAKEN_PORT, curl, origin, soon, text, until, web};

#[tokio::test(flavor = "multi_thread")]
async fn http_passes_without_a_shell() {
    let lab = Lab::start().await;
    let web = web("hello through ssh").await;
    let client = lab.spawn(&["-N", "-o", "ExitOnForwardFailure=yes", "-R", &format!("80:localhost:{web}")]);
    assert_eq!(curl(lab.published(80).await).await, "hello through ssh");
    let connection = lab.gate.connections.lock().unwrap()[0].clone();
    assert_eq!((connection.login(), connection.user()), ("login-alice", "alice"));
    drop(client);
    until(|| (*lab.gate.closed.lock().unwrap() == [connection.id()]).then_some(())).await;
    assert!(!lab.gate.forwards.lock().unwrap()[0].is_usable());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_forwards_share_a_connection_and_port_0_is_chosen() {
    let lab = Lab::start().await;
    let (one, two) = (web("one").await, web("two").await);
    let forwards =
        [format!("80:localhost:{one}"), format!("app.example:443:localhost:{two}"), format!("0:localhost:{two}")];
    let mut client = lab.spawn(&["-v", "-R", &forwards[0], "-R", &forwards[1], "-R", &forwards[2]]);
    client.line_with("your service").await;
    assert_eq!(curl(lab.published(80).await).await, "one");
    assert_eq!(curl(lab.published(443).await).await, "two");
    let forwards = until(|| Some(lab.gate.forwards.lock().unwrap().clone()).filter(|all| all.len() == 3)).await;
    assert_eq!(forwards[1].address(), "app.example");
    let chosen = forwards[2].clone();
    assert_eq!(chosen.requested_port(), 0);
    until(|| chosen.is_usable().then_some(())).await;
    assert_eq!(curl(lab.published(chosen.port()).await).await, "two");
    client.signal("TERM");
    let (_, stderr) = client.end().await;
    assert!(stderr.contains(&format!("Allocated port {} for remote forward", chosen.port())), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_forward_ends_a_strict_client_and_is_explained_to_the_others() {
    let lab = Lab::start().await;
    let forward = format!("{TAKEN_PORT}:localhost:1");
    let strict = lab.ssh(&["-N", "-v", "-o", "ExitOnForwardFailure=yes", "-R", &forward]).await;
    assert_eq!(strict.status.code(), Some(255));
    let stderr = text(&strict.stderr);
    assert!(stderr.contains("remote port forwarding failed for listen port 81"), "{stderr}");
    assert!(stderr.contains("port 81 is taken by another service"), "{stderr}");
    let mut lenient = lab.spawn(&["-R", &forward]);
    lenient.line_with("port 81 is taken by another service: choose another one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sends_shows_that_it_is_there_when_the_question_does_not_reach_it() {
    let mut lab = Lab::start().await;
    let way = StallingProxy::to(lab.address).await;
    let alias = format!("HostKeyAlias=[127.0.0.1]:{}", lab.address.port());
    lab.address = way.address;
    let ticking = origin(|mut stream| async move {
        while stream.write_all(b".").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let _client = lab.spawn(&["-N", "-o", &alias, "-R", &format!("80:localhost:{ticking}")]);
    let mut visitor = TcpStream::connect(lab.published(80).await).await.unwrap();
    visitor.read_exact(&mut [0]).await.unwrap();
    let connection = lab.gate.connections.lock().unwrap()[0].clone();
    assert!(connection.answers_within(LONG).await);
    way.hold_towards_client.store(true, Ordering::Relaxed);
    assert!(connection.answers_within(LONG).await, "it sends");
    way.hold_towards_server.store(true, Ordering::Relaxed);
    // Bytes that were in flight may still arrive.
    soon(async { while connection.answers_within(Duration::from_millis(500)).await {} }).await;
}

/// A connection to the server that can be stalled in each direction separately.
struct StallingProxy {
    address: SocketAddr,
    hold_towards_client: Arc<AtomicBool>,
    hold_towards_server: Arc<AtomicBool>,
}

impl StallingProxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let holds = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        let [hold_towards_client, hold_towards_server] = holds.clone();
        tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(server).await.unwrap();
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            let [towards_client, towards_server] = holds;
            tokio::join!(pass(from_server, to_client, towards_client), pass(from_client, to_server, towards_server));
        });
        Self { address, hold_towards_client, hold_towards_server }
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, hold: Arc<AtomicBool>) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        while hold.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_forwards_than_allowed_are_refused() {
    let lab = Lab::start_with(Default::default(), |config| config.max_forwards_per_connection = 2).await;
    let (a, b, c) = ("80:localhost:1", "81:localhost:1", "82:localhost:1");
    let output = lab.ssh(&["-N", "-o", "ExitOnForwardFailure=yes", "-R", a, "-R", c, "-R", "83:localhost:1"]).await;
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("listen port 83"), "{}", text(&output.stderr));
    // The same port twice: the server refuses the second request.
    let mut client = lab.spawn(&["-R", a, "-R", &format!("{a}0"), "-R", b]);
    client.line_with("port 80 is already forwarded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_origin_is_reported_separately() {
    let lab = Lab::start().await;
    // Port 1 of localhost has no listener.
    let _client = lab.spawn(&["-N", "-R", "80:localhost:1"]);
    assert_eq!(curl(lab.published(80).await).await, "");
    let error = until(|| lab.gate.open_errors.lock().unwrap().first().cloned()).await;
    assert_eq!(error, OpenError::OriginNotReached { reason: "connect failed" });
    assert_eq!(error.to_string(), "the ssh client could not connect to the service behind it: connect failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_login_replaces_the_older_one() {
    let lab = Lab::start().await;
    let (old, new) = (web("old").await, web("new").await);
    let mut first = lab.spawn(&["-R", &format!("80:localhost:{old}")]);
    first.line_with("your service").await;
    assert_eq!(curl(lab.published(80).await).await, "old");
    let mut second = lab.spawn(&["-R", &format!("80:localhost:{new}")]);
    second.line_with("your service").await;
    first.line_with("replaced by a newer login").await;
    let (status, _) = first.end().await;
    assert_eq!(status, Some(1));
    assert_eq!(curl(lab.published(80).await).await, "new");
    let gone = lab.gate.forwards.lock().unwrap()[0].clone();
    assert_eq!(soon(gone.open(lab.address)).await.unwrap_err(), OpenError::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_can_be_taken_back_and_asked_for_again() {
    let lab = Lab::start().await;
    let web = web("here").await;
    let control = lab.path("control");
    let control = control.to_str().unwrap();
    let forward = format!("80:localhost:{web}");
    let _client = lab.spawn(&["-N", "-M", "-S", control, "-R", &forward]);
    lab.published(80).await;
    until(|| std::path::Path::new(control).exists().then_some(())).await;
    let cancelled = lab.ssh(&["-S", control, "-O", "cancel", "-R", &forward]).await;
    assert!(cancelled.status.success(), "{}", text(&cancelled.stderr));
    until(|| lab.gate.published.lock().unwrap().is_empty().then_some(())).await;
    let again = lab.ssh(&["-S", control, "-O", "forward", "-R", &forward]).await;
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(curl(lab.published(80).await).await, "here");
}
