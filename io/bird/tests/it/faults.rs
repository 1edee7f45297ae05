//! What goes wrong with BIRD: the announcement before it stays.

use std::{fs, time::Duration};

use rustix::process::Signal;
use sallyport_anycast::model::Announcement;
use sallyport_bird::{ApplyError, Bird, BirdError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::network::{Network, PREFIX4, WORLD, can_run, heard, neighbour, part, peer, set, until};

#[tokio::test]
async fn wrong_files_hung_sockets_and_restarts_keep_the_announcement() {
    if !can_run() {
        return;
    }
    let mut network = Network::new();
    let world = format!("{WORLD}{}", neighbour("four", "10.0.0.2", "ttl security on;"));
    let (first, _) = network.start(&world).await;
    let (mut edge, mut world) = (network.edge_bird().await, network.world_bird().await);
    let mut part = part(vec![peer("transit", "10.0.0.2")]);
    set(&mut part, Announcement::Announced);
    edge.apply(&part, &network.file).await.unwrap();
    until("it is heard", async || !heard(&mut world, PREFIX4).await.is_empty()).await;
    let good = fs::read_to_string(&network.file).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&network.file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o640, "the file has passwords");
    let before = edge.status().await.unwrap();
    assert_eq!(before.router_id, Some([192, 0, 2, 1].into()));

    // The operator's own part has a mistake.
    let (path, operator) = (network.edge.path("bird.conf"), network.operator_file());
    fs::write(&path, format!("{operator}no such thing;\n")).unwrap();
    set(&mut part, Announcement::Withdrawn);
    let error = edge.apply(&part, &network.file).await.unwrap_err().to_string();
    assert!(error.contains("bird.conf:5:") && error.contains("syntax error"), "{error}");
    assert_eq!(fs::read_to_string(&network.file).unwrap(), good);
    assert_eq!(heard(&mut world, PREFIX4).await.len(), 1);

    // The operator's own part does not include the file any more.
    fs::write(&path, "protocol device { }\n").unwrap();
    let error = edge.apply(&part, &network.file).await.unwrap_err();
    assert!(matches!(error, ApplyError::NotIncluded(_)), "{error}");
    assert_eq!(fs::read_to_string(&network.file).unwrap(), good);
    fs::write(&path, operator).unwrap();
    until("the undone configuration is heard", async || !heard(&mut world, PREFIX4).await.is_empty()).await;
    until("it is announced", async || edge.announced().await.is_ok_and(|found| !found.is_empty())).await;

    // BIRD hangs.
    network.edge.signal(first, Signal::STOP);
    let mut hasty = Bird::with_limit(network.edge.socket(), Duration::from_millis(200));
    let error = hasty.apply(&part, &network.file).await.unwrap_err();
    assert!(matches!(error, ApplyError::Bird(BirdError::Hung(..))), "{error}");
    assert_eq!(fs::read_to_string(&network.file).unwrap(), good);
    network.edge.signal(first, Signal::CONT);
    until("BIRD answers again", async || edge.version().await.is_ok()).await;

    // BIRD is killed and started again: it reads the file by itself.
    network.edge.signal(first, Signal::KILL);
    network.edge.wait(first);
    let error = edge.version().await.unwrap_err();
    assert!(matches!(error, BirdError::Connect(..)), "{error}");
    let text = network.operator_file();
    network.edge.start_bird(&text);
    until("BIRD answers again", async || edge.version().await.is_ok()).await;
    assert_ne!(edge.status().await.unwrap().started, before.started);
    until("the session is back", async || {
        edge.protocols().await.unwrap().iter().any(sallyport_anycast::bird::Protocol::is_established)
    })
    .await;
    until("it is heard again", async || !heard(&mut world, PREFIX4).await.is_empty()).await;
    assert_eq!(edge.announced().await.unwrap().len(), 2);

    // The planned end: neighbours keep the route.
    edge.graceful_restart().await.unwrap();
    network.edge.wait(1);
    assert_eq!(heard(&mut world, PREFIX4).await.len(), 1);
}

/// A program that answers this many commands, and then hangs.
async fn hangs_after(listener: tokio::net::UnixListener, answers: usize) -> Vec<String> {
    let mut seen = Vec::new();
    let (stream, _) = listener.accept().await.unwrap();
    let (read, mut write) = stream.into_split();
    write.write_all(b"0001 BIRD 2.0.12 ready.\n").await.unwrap();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let answer = match line.as_str() {
            "show status" => "0013 Daemon is up and running\n",
            "configure check" => "0020 Configuration OK\n",
            "configure timeout 30" => "0003 Reconfigured\n",
            _ => "1007-Table x:\n0000 \n",
        };
        seen.push(line);
        if seen.len() <= answers {
            write.write_all(answer.as_bytes()).await.unwrap();
        }
    }
    seen
}

#[tokio::test]
async fn a_socket_that_hangs_midway_brings_the_former_file_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sallyport.conf");
    for answers in 0..=3 {
        fs::write(&file, "# former\n").unwrap();
        let socket = folder.path().join(format!("{answers}.ctl"));
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(hangs_after(listener, answers));
        let mut bird = Bird::with_limit(&socket, Duration::from_millis(20));
        let error = bird.apply(&part(Vec::new()), &file).await.unwrap_err();
        assert!(matches!(error, ApplyError::Bird(BirdError::Hung(..))), "{answers}: {error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "# former\n");
        drop(bird);
        let seen = server.await.unwrap();
        let expected = ["show status", "configure check", "configure timeout 30", "show status"];
        assert_eq!(seen, expected[..=answers]);
    }
}

#[tokio::test]
async fn what_is_no_bird_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("x.ctl");
    let mut bird = Bird::new(&socket);
    let error = bird.version().await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("x.ctl"), "{error}");
    for (greeting, words) in [
        ("SSH-2.0-x\r\n", "without a number"),
        ("0001 BIRD 1.6.8 ready.\n", "too old"),
        ("0000 hello\n", "not the greeting"),
        ("", "broke"),
    ] {
        let _ = fs::remove_file(&socket);
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting.as_bytes()).await.unwrap();
        });
        let error = bird.version().await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = bird.check(Some("/etc/a\"b".as_ref())).await.unwrap_err().to_string();
    assert!(error.contains("no path"), "{error}");
}
