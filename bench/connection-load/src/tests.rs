use std::{io::Read as _, net::TcpListener, sync::Arc};

use rustls::{ServerConfig, ServerConnection, Stream, crypto::aws_lc_rs, pki_types::PrivateKeyDer, version::TLS13};

use super::*;

/// A server on a port of its own that answers every connection so; it ends with the test's process.
fn serve(answer: &'static str, with_tickets: bool) -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(vec!["app.test".to_owned()]).unwrap();
    let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    if with_tickets {
        tls.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    } else {
        tls.send_tls13_tickets = 0;
    }
    let tls = Arc::new(tls);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let (mut tcp, tls) = (tcp.unwrap(), Arc::clone(&tls));
            thread::spawn(move || {
                let mut tls = ServerConnection::new(tls).unwrap();
                request(&mut Stream::new(&mut tls, &mut tcp));
                Stream::new(&mut tls, &mut tcp).write_all(answer.as_bytes()).unwrap();
                tls.send_close_notify();
                while tls.wants_write() {
                    tls.write_tls(&mut tcp).unwrap();
                }
            });
        }
    });
    address
}

/// Reads a request to its end.
fn request(client: &mut impl io::Read) -> Vec<u8> {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut part = [0; 512];
        let length = client.read(&mut part).unwrap();
        assert_ne!(length, 0, "the client left in its request");
        asked.extend_from_slice(&part[..length]);
    }
    asked
}

const WELL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn words(address: SocketAddr, rest: &str) -> Vec<String> {
    format!("{address} app.test /100b {rest}").split(' ').map(str::to_owned).collect()
}

fn load(address: SocketAddr, rest: &str) -> Load {
    Load::parse(&words(address, rest)).unwrap()
}

#[test]
fn a_connection_resumes_the_session_before_of_its_place_where_it_is_to() {
    let address = serve(WELL, true);
    let said = load(address, "2 0.3 --resume").run().unwrap();
    let count = said["count"].as_u64().unwrap();
    assert_eq!((said["resumed"].as_u64(), said["failed"].as_u64()), (Some(count - 2), Some(0)), "{said}");
    assert!(count > 2, "{said}");
    let said = load(address, "2 0.3 --full").run().unwrap();
    assert_eq!((said["resumed"].as_u64(), said["failed"].as_u64()), (Some(0), Some(0)), "{said}");
}

#[test]
fn what_a_server_without_tickets_gives_counts_as_not_resumed() {
    let said = load(serve(WELL, false), "1 0.3 --resume").run().unwrap();
    assert_eq!((&said["resumed"], &said["failed"]), (&0.into(), &0.into()), "{said}");
}

#[test]
fn an_answer_of_many_records_is_read_to_its_end() {
    // More than a socket holds: the server would not get rid of it, and say no close_notify, were it not read.
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "and so on ".repeat(2 << 20));
    let said = load(serve(long.leak(), true), "2 0 --resume").run().unwrap();
    assert_eq!((&said["count"], &said["failed"]), (&2.into(), &0.into()), "{said}");
}

#[test]
fn a_server_that_leaves_in_the_handshake_is_a_failure_that_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let _ = tcp.unwrap().read(&mut [0; 4096]);
        }
    });
    let said = load(address, "1 0 --full").run().unwrap();
    assert_eq!((&said["count"], &said["failed"]), (&0.into(), &1.into()), "{said}");
    assert_eq!(said["first_failure"], "unexpected end of file");
}

#[test]
fn nobody_there_is_a_failure_that_is_told() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = load(address, "2 0 --full").run().unwrap();
    assert_eq!((&said["count"], &said["failed"]), (&0.into(), &2.into()), "{said}");
    assert!(said["first_failure"].as_str().unwrap().starts_with("Connection refused"), "{said}");
}

#[test]
fn all_places_count() {
    let said = load(serve(WELL, true), "3 0 --full").run().unwrap();
    assert_eq!((&said["count"], &said["resumed"], &said["failed"]), (&3.into(), &0.into(), &0.into()), "{said}");
    assert!(said["p50_ms"].as_f64() > Some(0.0) && said["p99_ms"].as_f64() >= said["p50_ms"].as_f64(), "{said}");
    assert_eq!(said["first_failure"], "");
}

#[test]
fn without_tls_an_answer_has_its_beginning_and_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            thread::spawn(move || {
                assert!(request(&mut tcp).starts_with(b"GET /100b HTTP/1.1\r\nHost: app.test"));
                tcp.write_all(WELL.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(200));
            });
        }
    });
    let said = load(address, "5 0 --plain").run().unwrap();
    assert_eq!((&said["count"], &said["resumed"], &said["failed"]), (&5.into(), &0.into(), &0.into()), "{said}");
    let time = |name: &str| said[name].as_f64().unwrap();
    assert!(time("answer_p50_ms") <= time("answer_max_ms") && time("answer_max_ms") < 200.0, "{said}");
    assert!(time("p50_ms") >= 200.0, "{said}");
}

#[test]
fn another_answer_is_a_failure_that_is_told() {
    let said = load(serve("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", true), "2 0 --resume").run().unwrap();
    assert_eq!((&said["count"], &said["failed"]), (&0.into(), &2.into()), "{said}");
    assert!(said["first_failure"].as_str().unwrap().starts_with("answered \"HTTP/1.1 503 Busy"), "{said}");
    assert!(load(serve("", true), "1 0 --full").run().unwrap()["first_failure"] == "answered \"\"");
}

#[test]
fn who_asks_wrongly_is_told_what_is_wrong() {
    let address = "127.0.0.1:443".parse().unwrap();
    for (rest, reason) in [
        ("0 1 --full", "CONNECTIONS is a number above 0, not \"0\""),
        ("many 1 --full", "CONNECTIONS is a number above 0, not \"many\""),
        ("1 -1 --full", "SECONDS is a number, not \"-1\""),
        ("1 1 --half", "the last word is --full, --resume or --plain, not \"--half\""),
        ("1 1", "usage: "),
    ] {
        let said = Load::parse(&words(address, rest)).err().unwrap();
        assert!(said.starts_with(reason) && said.contains("usage: "), "{rest}: {said}");
    }
    for (word, wrong, reason) in
        [(0, "localhost:443", "ADDRESS:PORT is"), (1, "a b", "SERVER_NAME is"), (2, "100b", "PATH begins")]
    {
        let mut words = words(address, "1 1 --full");
        words[word] = wrong.to_owned();
        let said = Load::parse(&words).err().unwrap();
        assert!(said.starts_with(reason), "{wrong}: {said}");
    }
}
