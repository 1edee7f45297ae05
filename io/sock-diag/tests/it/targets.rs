//! Whose sockets are found, and how a watch ends.

use std::{net::TcpListener, time::Duration};

use sallyport_sock_diag::{SockDiagError, Watch};
use sallyport_tcp_window::{Limit, Target, judge};

use crate::limits::pair;

#[test]
fn a_port_means_both_ends_and_a_process_has_them() {
    let (client, server) = pair(None);
    let port = server.local_addr().unwrap().port();
    let watch = Watch::begin(Target::Port(port)).unwrap();
    assert_eq!((watch.watched().len(), watch.left_out()), (2, 0));
    let watch = Watch::begin(Target::Process(std::process::id())).unwrap();
    let locals: Vec<_> = watch.watched().iter().map(|watched| watched.local).collect();
    assert!(locals.contains(&client.local_addr().unwrap()) && locals.contains(&server.local_addr().unwrap()));
}

#[test]
fn a_connection_that_ends_keeps_its_readings() {
    let (client, server) = pair(None);
    let mut watch = Watch::begin(Target::Flow(client.local_addr().unwrap(), client.peer_addr().unwrap())).unwrap();
    assert!(watch.is_running());
    // A reset takes both sockets away at once.
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop((client, server));
    let mut reads = 0;
    while watch.is_running() {
        reads += 1;
        watch.read(Duration::from_micros(reads)).unwrap();
        std::thread::yield_now();
    }
    let watched = &watch.watched()[0];
    assert!(watched.has_ended && !watched.samples.is_empty());
    if watched.samples.len() == 1 {
        assert_eq!(judge(&watched.samples).limit, Limit::Unknown);
    }
}

#[test]
fn a_port_of_nobody_has_no_connections_and_a_listener_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let watch = Watch::begin(Target::Port(port)).unwrap();
    assert!(watch.watched().is_empty() && !watch.is_running());
}

#[test]
fn a_process_that_is_not_there_is_refused() {
    let refused = Watch::begin(Target::Process(u32::MAX));
    assert!(matches!(refused, Err(SockDiagError::NoProcess(u32::MAX))));
}
