//! Global requests (RFC 4254 sections 4 and 7.1) of both sides.

use std::collections::VecDeque;

use super::Server;
use crate::{
    error::Result,
    event::Event,
    limits::{MAX_PINGS, MAX_REQUESTS},
    message,
    output::Output,
    wire::{Put, Reader},
};

/// Unanswered requests.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// The client's requests, answered in order. The driver decides about the first one.
    requests: VecDeque<Request>,
    /// The server's probes; those of [`Server::ping`] have their number.
    pings: VecDeque<Option<u64>>,
    next_ping: u64,
}

#[derive(Debug)]
struct Request {
    /// The event for the driver; `None` for unknown requests.
    event: Option<Event>,
    wants_reply: bool,
    /// Whether the answer contains the chosen port.
    tells_port: bool,
}

impl Forwards {
    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < MAX_REQUESTS
    }

    /// Probes the client. Clients also answer unknown requests.
    pub(super) fn ask(&mut self, output: &mut Output, number: Option<u64>) {
        if self.pings.len() >= MAX_PINGS {
            return;
        }
        self.pings.push_back(number);
        output.send(|out| {
            out.push(message::GLOBAL_REQUEST);
            out.put_string("keepalive@openssh.com");
            out.put_bool(true);
        });
    }
}

impl Server {
    /// Probes the client; [`Event::Pong`] with this number is the answer. `None` if too many probes are unanswered.
    pub fn ping(&mut self) -> Option<u64> {
        if self.is_over || self.forwards.pings.len() >= MAX_PINGS {
            return None;
        }
        let number = self.forwards.next_ping;
        self.forwards.next_ping += 1;
        self.forwards.ask(&mut self.output, Some(number));
        Some(number)
    }

    /// Answers the last [`Event::Forward`] or [`Event::CancelForward`]: with the port, which matters if the client left
    /// the choice, or with a refusal.
    pub fn answer_request(&mut self, granted: Option<u32>) {
        if self.is_over {
            return;
        }
        let Some(request) = self.forwards.requests.pop_front() else { return };
        self.answer(request.wants_reply, request.tells_port, granted);
        self.next_request();
    }

    fn answer(&mut self, wants_reply: bool, tells_port: bool, granted: Option<u32>) {
        if wants_reply {
            self.output.send(|out| match granted {
                Some(port) => {
                    out.push(message::REQUEST_SUCCESS);
                    if tells_port {
                        out.put_u32(port);
                    }
                }
                None => out.push(message::REQUEST_FAILURE),
            });
        }
    }

    /// Passes the first request to the driver; unknown ones are refused at once.
    fn next_request(&mut self) {
        while let Some(request) = self.forwards.requests.front_mut() {
            if let Some(event) = request.event.take() {
                self.events.push_back(event);
                return;
            }
            let wants_reply = request.wants_reply;
            self.forwards.requests.pop_front();
            self.answer(wants_reply, false, None);
        }
    }

    pub(super) fn handle_global_request(&mut self, mut reader: Reader<'_>) -> Result<()> {
        let (name, wants_reply) = (reader.text()?, reader.bool()?);
        let (event, tells_port) = match name {
            "tcpip-forward" => {
                let (address, port) = (reader.text()?.to_owned(), reader.u32()?);
                reader.end()?;
                (Some(Event::Forward { address, port }), port == 0)
            }
            "cancel-tcpip-forward" => {
                let (address, port) = (reader.text()?.to_owned(), reader.u32()?);
                reader.end()?;
                (Some(Event::CancelForward { address, port }), false)
            }
            _ => (None, false),
        };
        if event.is_none() && !wants_reply {
            return Ok(());
        }
        let is_alone = self.forwards.requests.is_empty();
        self.forwards.requests.push_back(Request { event, wants_reply, tells_port });
        if is_alone {
            self.next_request();
        }
        Ok(())
    }

    /// Handles an answer; clients answer in order.
    pub(super) fn handle_global_answer(&mut self) {
        if let Some(Some(number)) = self.forwards.pings.pop_front() {
            self.events.push_back(Event::Pong(number));
        }
    }
}
