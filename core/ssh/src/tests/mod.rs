//! Tests of the whole connection, with a misbehaving client.

mod channels;
mod logins;
mod transport;

use std::{sync::Arc, time::Instant};

use crate::{
    Config, Event, Result, Server,
    testing::{Client, config, not_random},
};

/// A connection with this configuration.
fn server_with(change: impl FnOnce(&mut Config)) -> (Server, Instant) {
    let now = Instant::now();
    let mut config = config();
    change(&mut config);
    (Server::new(Arc::new(config), not_random, now), now)
}

fn server() -> (Server, Instant) {
    server_with(|_| {})
}

fn events(server: &mut Server) -> Vec<Event> {
    std::iter::from_fn(|| server.poll_event()).collect()
}

/// A client that is logged in, its server, and the time.
fn logged_in() -> (Server, Client, Instant) {
    logged_in_with(|_| {})
}

fn logged_in_with(change: impl FnOnce(&mut Config)) -> (Server, Client, Instant) {
    let (mut server, now) = server_with(change);
    let client = Client::logged_in(&mut server, now).unwrap();
    (server, client, now)
}

/// The numbers of the messages that the server wrote.
fn numbers_of(client: &mut Client, server: &mut Server) -> Vec<u8> {
    received(client, server).iter().map(|payload| payload[0]).collect()
}

fn received(client: &mut Client, server: &mut Server) -> Vec<Vec<u8>> {
    client.receive(server).unwrap()
}

fn is_protocol_fault(result: &Result<()>) -> bool {
    matches!(result, Err(crate::Error::Protocol(_)))
}
