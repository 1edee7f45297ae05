//! Properties of any input of an HTTP/2 client, with arbitrary actions of readers and responders.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sallyport_http2::{Config, NewRequest, Piece, Room, Server, Signal, StreamId};

const CONFIG: Config = Config {
    max_concurrent_streams: 10,
    stream_window_bytes: 40_000,
    connection_window_bytes: 100_000,
    max_header_list_bytes: 2_000,
    max_output_bytes: 50_000,
};
/// The longest tested input, in bytes.
const MAX_INPUT: usize = 16_384;
/// Length of one response, in bytes.
const ANSWER_BYTES: usize = 3_000;
/// From this value on a byte is an action; below it, the number of following input bytes.
const ACTIONS: u8 = 0xf0;

/// Ignores notifications: everything is checked after each step.
#[derive(Debug, Default)]
struct NoSignal;

impl Signal for NoSignal {
    fn signal(&mut self) {}
}

/// Checks one connection: pieces of input, and actions in between.
pub(crate) fn frames_input(data: &[u8]) {
    let mut data = &data[..data.len().min(MAX_INPUT)];
    let mut server: Server<NoSignal> = Server::new(CONFIG);
    server.handle_input(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let (mut serving, mut came, mut taken) = (Vec::new(), 0_usize, 0_usize);
    while let Some((first, rest)) = data.split_first() {
        data = rest;
        if *first < ACTIONS {
            let (piece, rest) = data.split_at(data.len().min(usize::from(*first)));
            data = rest;
            server.handle_input(piece);
        } else {
            act(*first, &mut server, &mut serving, &mut taken);
        }
        while let Some(NewRequest { stream, .. }) = server.poll_request() {
            serving.push(stream);
        }
        came += server.received();
        assert!(serving.len() <= came.max(MAX_INPUT), "no more requests than bytes");
        assert!(taken <= came, "what is read has come: {taken} of {came}");
        if server.is_over() {
            break;
        }
    }
    server.abandon();
    for stream in serving {
        server.release_body(stream);
        server.release_response(stream);
    }
    assert!(server.is_idle() || server.is_over(), "streams without a reader and a writer are gone");
}

/// One action of a reader or responder, or of the connection.
fn act(action: u8, server: &mut Server<NoSignal>, serving: &mut Vec<StreamId>, taken: &mut usize) {
    match action {
        0xf0 => {
            let waiting = server.output().len();
            server.mark_written(waiting);
        }
        0xf1 => server.mark_written(server.output().len().min(1)),
        0xf2 => server.rest(),
        0xf3 => server.ping(),
        0xf4 => server.graceful_shutdown(),
        0xf5 => server.forget_ended(),
        0xf6..=0xf9 => {
            for stream in serving.iter() {
                while let Piece::Data(data) = server.poll_body(*stream) {
                    *taken += data.len();
                }
            }
        }
        0xfa | 0xfb => {
            if let Some(stream) = serving.pop() {
                server.release_body(stream);
                server.release_response(stream);
            }
        }
        _ => {
            if let Some(stream) = serving.pop() {
                server.send_head(stream, StatusCode::OK, &HeaderMap::new(), false);
                let room = match server.room(stream) {
                    Room::Bytes(room) => room.min(ANSWER_BYTES),
                    _ => 0,
                };
                if room > 0 {
                    server.send_data(stream, Bytes::from(vec![9; room]), true);
                }
                server.release_body(stream);
                server.release_response(stream);
            }
        }
    }
}
