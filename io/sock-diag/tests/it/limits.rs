//! What limits real connections over loopback.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use sallyport_sock_diag::Watch;
use sallyport_tcp_window::{Drawn, Judgement, Limit, NetworkCounts, Sample, Target, draw, judge};

/// The time between two readings, and their number.
const EVERY: Duration = Duration::from_millis(10);
const READINGS: usize = 60;

/// A client with its server, whose receive buffer may be set.
pub(crate) fn pair(receive_buffer: Option<usize>) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if let Some(size) = receive_buffer {
        set_socket_recv_buffer_size(&listener, size).unwrap();
    }
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Judges the end of a stream, by readings over some time.
fn judged(stream: &TcpStream) -> Judgement {
    judged_once(stream, |_, _| true)
}

/// Judges the end of a stream, once its first and its last reading are far enough from each other.
pub(crate) fn judged_once(stream: &TcpStream, is_enough: impl Fn(&Sample, &Sample) -> bool) -> Judgement {
    let target = Target::Flow(stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let mut watch = Watch::begin(target).unwrap();
    let began = Instant::now();
    let has_enough = |watch: &Watch| {
        let samples = &watch.watched()[0].samples;
        samples.len() > READINGS && is_enough(&samples[0], &samples[samples.len() - 1])
    };
    while !has_enough(&watch) {
        thread::sleep(EVERY);
        watch.read(began.elapsed()).unwrap();
    }
    let [watched] = watch.watched() else { panic!("{:?}", watch.watched()) };
    let judgement = judge(&watched.samples);
    let drawn = Drawn { title: "a test", sentence: &judgement.sentence, samples: &watched.samples };
    assert!(draw(&[drawn], NetworkCounts::default()).contains("points=\"90.0,"));
    println!("{}\nfirst {:?}\nlast {:?}", judgement.sentence, watched.samples.first(), watched.samples.last());
    judgement
}

/// Sends as fast as the stream takes it, until the other end closes.
pub(crate) fn flood(stream: &TcpStream) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || while stream.write_all(&[7; 65_536]).is_ok() {})
}

/// Reads as fast as bytes come, until the other end closes.
pub(crate) fn drain(stream: &TcpStream) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    })
}

#[test]
fn a_reader_that_does_not_read_limits_at_both_ends() {
    let (client, server) = pair(Some(32_768));
    let sender = flood(&client);
    // The sender is held once the receive queue no longer grows: the window is closed.
    let target = Target::Flow(client.local_addr().unwrap(), client.peer_addr().unwrap());
    let is_closed = || {
        let watch = Watch::begin(target).unwrap();
        watch.watched().iter().any(|watched| watched.samples[0].held_by_peer_us > 0)
    };
    while !is_closed() {
        thread::sleep(EVERY);
    }
    for end in [&server, &client] {
        let judgement = judged(end);
        assert_eq!(judgement.limit, Limit::ReceiverApplication, "{}", judgement.sentence);
    }
    drop(server);
    sender.join().unwrap();
}

#[test]
fn a_small_buffer_that_is_read_at_once_limits_by_its_size() {
    let (client, server) = pair(Some(2_048));
    let threads = [flood(&client), drain(&server)];
    let judgement = judged(&client);
    assert_eq!(judgement.limit, Limit::ReceiverBuffer, "{}", judgement.sentence);
    server.shutdown(std::net::Shutdown::Both).unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_sender_that_pauses_limits_by_itself() {
    let (client, server) = pair(None);
    let reader = drain(&server);
    let (stop, stopped) = mpsc::channel::<()>();
    let mut writer = client.try_clone().unwrap();
    let writer = thread::spawn(move || {
        while stopped.recv_timeout(EVERY * 2).is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout) {
            writer.write_all(b"a few bytes").unwrap();
        }
    });
    let judgement = judged(&client);
    assert_eq!(judgement.limit, Limit::SenderApplication, "{}", judgement.sentence);
    let judgement = judged(&server);
    assert_eq!(judgement.limit, Limit::OtherEnd, "{}", judgement.sentence);
    drop(stop);
    writer.join().unwrap();
    client.shutdown(std::net::Shutdown::Both).unwrap();
    reader.join().unwrap();
}
