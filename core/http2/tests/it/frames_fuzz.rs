//! What holds of every byte that a client of HTTP/2 sends, whatever those who serve its streams do meanwhile.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sallyport_http2::{Config, NewRequest, Read, Room, Server, Signal, StreamId};

const CONFIG: Config = Config {
    max_concurrent_streams: 10,
    stream_window_bytes: 40_000,
    connection_window_bytes: 100_000,
    max_header_list_bytes: 2_000,
    max_output_bytes: 50_000,
};
/// The longest input that is tried, in bytes.
const MAX_INPUT: usize = 16_384;
/// How much one answer has, in bytes.
const ANSWER_BYTES: usize = 3_000;
/// From here on a byte is an action of ours; below it says how many bytes of the client follow.
const ACTIONS: u8 = 0xf0;

/// Nobody is called: everything is looked at after each step.
#[derive(Debug, Default)]
struct Nobody;

impl Signal for Nobody {
    fn signal(&mut self) {}
}

/// Checks one connection: pieces of the client's bytes, and actions of ours between them.
pub(crate) fn frames_input(data: &[u8]) {
    let mut data = &data[..data.len().min(MAX_INPUT)];
    let mut server: Server<Nobody> = Server::new(CONFIG);
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
        server.leave_upload(stream);
        server.leave_answer(stream);
    }
    assert!(server.is_idle() || server.is_over(), "what nobody serves is gone");
}

/// One action of those who serve streams, or of the connection.
fn act(action: u8, server: &mut Server<Nobody>, serving: &mut Vec<StreamId>, taken: &mut usize) {
    match action {
        0xf0 => {
            let waiting = server.output().len();
            server.written(waiting);
        }
        0xf1 => server.written(server.output().len().min(1)),
        0xf2 => server.rest(),
        0xf3 => server.ping(),
        0xf4 => server.shut_down(),
        0xf5 => server.forget_ended(),
        0xf6..=0xf9 => {
            for stream in serving.iter() {
                while let Read::Data(data) = server.read(*stream) {
                    *taken += data.len();
                }
            }
        }
        0xfa | 0xfb => {
            if let Some(stream) = serving.pop() {
                server.leave_upload(stream);
                server.leave_answer(stream);
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
                server.leave_upload(stream);
                server.leave_answer(stream);
            }
        }
    }
}
