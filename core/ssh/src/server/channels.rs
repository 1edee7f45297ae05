//! Channels (RFC 4254 section 5): the streams of forwards, and sessions.

use std::collections::HashMap;

use super::Server;
use crate::{
    channel::{Channel, End, Kind, Peer},
    error::{Error, Result},
    event::{ChannelId, Event, SessionRequest},
    limits::{FIRST_WINDOW_BYTES, MAX_CHANNELS, MAX_DATA_BYTES, MAX_GROWN_BYTES, MAX_SESSIONS},
    message,
    wire::{Put, Reader},
};

/// `SSH_OPEN_ADMINISTRATIVELY_PROHIBITED` (RFC 4254 section 5.1).
const PROHIBITED: u32 = 1;
/// `SSH_OPEN_UNKNOWN_CHANNEL_TYPE`.
const UNKNOWN_TYPE: u32 = 3;
/// `SSH_OPEN_RESOURCE_SHORTAGE`.
const SHORTAGE: u32 = 4;
/// `SSH_EXTENDED_DATA_STDERR` (RFC 4254 section 5.2).
const STDERR: u32 = 1;

/// The channels of a connection.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_id: HashMap<u32, Channel>,
    next_id: u32,
    sessions: usize,
    /// Total growth of the windows, in bytes.
    grown_bytes: usize,
    /// Whether further sessions are refused.
    is_closing: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes were read.
    Bytes(usize),
    /// No data yet; [`Event::Readable`] follows.
    Wait,
    /// The client has sent all its data.
    Eof,
    /// The client closed the channel without an EOF.
    Broken,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// This many bytes were accepted, in one packet.
    Bytes(usize),
    /// The client's window is full; [`Event::Writable`] follows.
    NoWindow,
    /// The output is full, or a key exchange is running: try again after output was taken.
    NoRoom,
    /// The channel accepts no more data.
    Closed,
}

impl Channels {
    /// Finds a channel by the client's reference. `None` for a removed channel.
    fn find(&mut self, id: u32) -> Result<Option<&mut Channel>> {
        let was_there = id < self.next_id;
        match self.by_id.get_mut(&id) {
            None if !was_there => Err(Error::Protocol("a message for a channel that never existed")),
            found => Ok(found),
        }
    }

    fn add(&mut self, channel: Channel) -> Option<u32> {
        let id = self.next_id;
        self.next_id = id.checked_add(1)?;
        self.by_id.insert(id, channel);
        Some(id)
    }

    fn forget_if_over(&mut self, id: u32) {
        if self.by_id.get(&id).is_some_and(Channel::is_over) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        if let Some(channel) = self.by_id.remove(&id) {
            self.sessions -= usize::from(channel.kind == Kind::Session);
        }
    }
}

impl Server {
    /// Requests a stream of a forward to the client's origin (RFC 4254 section 7.2); [`Event::Opened`] or
    /// [`Event::Refused`] follows. `None` if the connection is over, or has reached its limit of channels.
    pub fn open_forwarded(
        &mut self,
        (address, port): (&str, u32),
        (originator, originator_port): (&str, u32),
    ) -> Option<ChannelId> {
        if self.is_over || !self.logins.is_done() || self.channels.by_id.len() >= MAX_CHANNELS {
            return None;
        }
        let id = self.channels.add(Channel::new(Kind::Forwarded, None))?;
        self.output.send(|out| {
            out.push(message::CHANNEL_OPEN);
            out.put_string("forwarded-tcpip");
            for number in [id, FIRST_WINDOW_BYTES, MAX_DATA_BYTES] {
                out.put_u32(number);
            }
            out.put_string(address);
            out.put_u32(port);
            out.put_string(originator);
            out.put_u32(originator_port);
        });
        Some(ChannelId(id))
    }

    /// Reads data from a channel; the window opens once a quarter of it has been used.
    pub fn read(&mut self, channel: ChannelId, target: &mut [u8]) -> Read {
        let Some(found) = self.channels.by_id.get_mut(&channel.0) else { return Read::Broken };
        let count = found.inbound.take(target);
        if count == 0 && !target.is_empty() {
            return match found.inbound.end {
                End::Eof => Read::Eof,
                End::Broken => Read::Broken,
                End::Open => {
                    found.inbound.wait();
                    Read::Wait
                }
            };
        }
        self.open_window(channel.0, count);
        Read::Bytes(count)
    }

    /// Sends data on a channel: at most one packet.
    pub fn write(&mut self, channel: ChannelId, data: &[u8]) -> Written {
        let has_room = self.output.has_room();
        let Some(found) = self.channels.by_id.get_mut(&channel.0) else { return Written::Closed };
        if found.has_sent_eof || found.has_sent_close || found.has_received_close || self.is_over {
            return Written::Closed;
        }
        if !has_room {
            return Written::NoRoom;
        }
        let count = found.sendable(data.len());
        let Some(peer) = found.peer.as_mut().filter(|_| count > 0) else {
            found.writer_waits = true;
            return Written::NoWindow;
        };
        peer.window -= count;
        let (peer, count) = (peer.id, count as usize);
        self.output.send_at_once(count, |out| {
            out.push(message::CHANNEL_DATA);
            out.put_u32(peer);
            out.put_string(&data[..count]);
        });
        if let Err(error) = self.renew_keys(self.now) {
            self.fail(error);
        }
        Written::Bytes(count)
    }

    /// Sends a short text to a session's standard error, within the window.
    pub fn write_error(&mut self, channel: ChannelId, text: &str) {
        let Some(found) = self.channels.by_id.get_mut(&channel.0) else { return };
        let count = found.sendable(text.len());
        let Some(peer) = found.peer.as_mut().filter(|_| !found.has_sent_eof && !found.has_sent_close) else { return };
        peer.window -= count;
        let peer = peer.id;
        self.output.send(|out| {
            out.push(message::CHANNEL_EXTENDED_DATA);
            out.put_u32(peer);
            out.put_u32(STDERR);
            out.put_string(&text.as_bytes()[..count as usize]);
        });
    }

    /// Sends the exit status of a session's shell or command (RFC 4254 section 6.10).
    pub fn send_exit_status(&mut self, channel: ChannelId, status: u32) {
        self.send_on(channel.0, message::CHANNEL_REQUEST, |out| {
            out.put_string("exit-status");
            out.put_bool(false);
            out.put_u32(status);
        });
    }

    /// Sends EOF, after earlier data.
    pub fn finish(&mut self, channel: ChannelId) {
        let Some(found) = self.channels.by_id.get_mut(&channel.0) else { return };
        if found.has_sent_close || std::mem::replace(&mut found.has_sent_eof, true) {
            return;
        }
        self.send_on(channel.0, message::CHANNEL_EOF, |_| {});
    }

    /// Releases the channel: closes it after earlier data, and removes it once the client has closed it, too.
    pub fn release(&mut self, channel: ChannelId) {
        let Some(found) = self.channels.by_id.get_mut(&channel.0) else { return };
        if std::mem::replace(&mut found.is_released, true) {
            return;
        }
        self.channels.grown_bytes -= found.inbound.growth();
        found.inbound.discard();
        // A channel that the client has not opened yet is closed once it has.
        if found.peer.is_some() {
            self.send_close(channel.0);
        }
    }

    /// Answers an [`Event::Session`] whose client expects an answer.
    pub fn answer_session(&mut self, channel: ChannelId, is_granted: bool) {
        let number = if is_granted { message::CHANNEL_SUCCESS } else { message::CHANNEL_FAILURE };
        self.send_on(channel.0, number, |_| {});
    }

    /// Refuses further sessions, because the connection is ending.
    pub fn refuse_sessions(&mut self) {
        self.channels.is_closing = true;
    }

    /// Sends a message on an open channel that the server has not closed.
    fn send_on(&mut self, id: u32, number: u8, rest: impl FnOnce(&mut Vec<u8>)) {
        let Some(found) = self.channels.by_id.get(&id).filter(|found| !found.has_sent_close) else { return };
        let Some(peer) = found.peer else { return };
        if self.is_over {
            return;
        }
        self.output.send(|out| {
            out.push(number);
            out.put_u32(peer.id);
            rest(out);
        });
    }

    fn send_close(&mut self, id: u32) {
        self.send_on(id, message::CHANNEL_CLOSE, |_| {});
        if let Some(found) = self.channels.by_id.get_mut(&id) {
            found.has_sent_close = true;
        }
        self.channels.forget_if_over(id);
    }

    /// Records that bytes of a channel were used, and opens its window.
    fn open_window(&mut self, id: u32, used: usize) {
        let Some(found) = self.channels.by_id.get_mut(&id) else { return };
        let Some(grant) = found.inbound.used(used) else { return };
        let grown_bytes = self.channels.grown_bytes + grant.growth as usize;
        let growth = if grown_bytes <= MAX_GROWN_BYTES { grant.growth } else { 0 };
        self.channels.grown_bytes += growth as usize;
        let bytes = grant.read + growth;
        found.inbound.granted(bytes, growth);
        self.send_on(id, message::CHANNEL_WINDOW_ADJUST, |out| out.put_u32(bytes));
    }

    /// Handles the opening of a channel by the client: only sessions are accepted.
    pub(super) fn handle_open(&mut self, mut reader: Reader<'_>) -> Result<()> {
        let kind = reader.text()?;
        let peer = Peer { id: reader.u32()?, window: reader.u32()?, max_data: reader.u32()? };
        let refusal = match kind {
            "session" if self.channels.sessions >= MAX_SESSIONS || self.channels.is_closing => {
                Some((SHORTAGE, "no more sessions"))
            }
            "session" => None,
            "direct-tcpip" | "direct-streamlocal@openssh.com" => Some((PROHIBITED, "this server opens no connections")),
            _ => Some((UNKNOWN_TYPE, "this channel type is not supported")),
        };
        if let Some((reason, text)) = refusal {
            self.output.send(|out| {
                out.push(message::CHANNEL_OPEN_FAILURE);
                out.put_u32(peer.id);
                out.put_u32(reason);
                out.put_string(text);
                out.put_string("en");
            });
            return Ok(());
        }
        let id = self.channels.add(Channel::new(Kind::Session, Some(peer)));
        let id = id.ok_or(Error::Protocol("the channel numbers are used up"))?;
        self.channels.sessions += 1;
        self.output.send(|out| {
            out.push(message::CHANNEL_OPEN_CONFIRMATION);
            for number in [peer.id, id, FIRST_WINDOW_BYTES, MAX_DATA_BYTES] {
                out.put_u32(number);
            }
        });
        self.events.push_back(Event::SessionOpened(ChannelId(id)));
        Ok(())
    }

    /// Handles a message on one channel.
    pub(super) fn handle_channel(&mut self, number: u8, mut reader: Reader<'_>) -> Result<()> {
        let id = reader.u32()?;
        let Some(channel) = self.channels.find(id)? else { return Ok(()) };
        let is_answer = matches!(number, message::CHANNEL_OPEN_CONFIRMATION | message::CHANNEL_OPEN_FAILURE);
        if channel.has_received_close {
            return Ok(());
        }
        if is_answer == channel.peer.is_some() {
            return Err(Error::Protocol("a message that is not allowed in the state of its channel"));
        }
        match number {
            message::CHANNEL_OPEN_CONFIRMATION => {
                channel.peer = Some(Peer { id: reader.u32()?, window: reader.u32()?, max_data: reader.u32()? });
                if channel.is_released {
                    self.send_close(id);
                } else {
                    self.events.push_back(Event::Opened(ChannelId(id)));
                }
            }
            message::CHANNEL_OPEN_FAILURE => {
                let reason = reader.u32()?;
                if !channel.is_released {
                    self.events.push_back(Event::Refused { channel: ChannelId(id), reason });
                }
                self.channels.forget(id);
            }
            message::CHANNEL_WINDOW_ADJUST => {
                channel.widen(reader.u32()?);
                if std::mem::take(&mut channel.writer_waits) {
                    self.events.push_back(Event::Writable(ChannelId(id)));
                }
            }
            message::CHANNEL_DATA => self.handle_data(id, reader.string()?)?,
            message::CHANNEL_EXTENDED_DATA => {
                // No extended data from a client has a meaning (RFC 4254 section 5.2).
                reader.u32()?;
                let used = reader.string()?.len();
                channel.inbound.spend(used)?;
                if !channel.is_released {
                    self.open_window(id, used);
                }
            }
            message::CHANNEL_EOF => self.end_inbound(id, End::Eof),
            message::CHANNEL_CLOSE => self.handle_close(id),
            message::CHANNEL_REQUEST => self.handle_channel_request(id, reader)?,
            // Answers to requests that the server does not make.
            _ => {}
        }
        Ok(())
    }

    fn handle_data(&mut self, id: u32, data: &[u8]) -> Result<()> {
        let Some(channel) = self.channels.by_id.get_mut(&id) else { return Ok(()) };
        channel.inbound.spend(data.len())?;
        if channel.is_released || channel.inbound.end != End::Open {
            return Ok(());
        }
        match channel.kind {
            Kind::Forwarded => {
                channel.inbound.push(data);
                if std::mem::take(&mut channel.inbound.reader_waits) {
                    self.events.push_back(Event::Readable(ChannelId(id)));
                }
            }
            Kind::Session => {
                // Typed input counts as used at once.
                self.events.push_back(Event::Typed { channel: ChannelId(id), data: data.to_vec() });
                self.open_window(id, data.len());
            }
        }
        Ok(())
    }

    fn end_inbound(&mut self, id: u32, end: End) {
        let Some(channel) = self.channels.by_id.get_mut(&id) else { return };
        if channel.inbound.end == End::Open {
            channel.inbound.end = end;
        }
        if std::mem::take(&mut channel.inbound.reader_waits) {
            self.events.push_back(Event::Readable(ChannelId(id)));
        }
    }

    fn handle_close(&mut self, id: u32) {
        self.end_inbound(id, End::Broken);
        let Some(channel) = self.channels.by_id.get_mut(&id) else { return };
        channel.has_received_close = true;
        let is_session = channel.kind == Kind::Session;
        if std::mem::take(&mut channel.writer_waits) {
            self.events.push_back(Event::Writable(ChannelId(id)));
        }
        if is_session {
            self.events.push_back(Event::SessionClosed(ChannelId(id)));
        }
        if !channel.has_sent_close {
            self.send_close(id);
        }
        self.channels.forget_if_over(id);
    }

    fn handle_channel_request(&mut self, id: u32, mut reader: Reader<'_>) -> Result<()> {
        let (name, wants_reply) = (reader.text()?, reader.bool()?);
        let is_session =
            self.channels.by_id.get(&id).is_some_and(|found| found.kind == Kind::Session && !found.is_released);
        let request = match name {
            _ if !is_session => None,
            "pty-req" => Some(SessionRequest::Terminal),
            "shell" => Some(SessionRequest::Shell),
            "exec" | "subsystem" => Some(SessionRequest::Command),
            "signal" => Some(SessionRequest::Signal(reader.text()?.to_owned())),
            "window-change" => None,
            _ => wants_reply.then_some(SessionRequest::Other),
        };
        match request {
            Some(request) => {
                self.events.push_back(Event::Session { channel: ChannelId(id), request, wants_reply });
            }
            // Probes of clients, such as `winadj@putty.projects.tartarus.org`, by which PuTTY sizes its windows: only
            // the answer matters.
            None if wants_reply => self.answer_session(ChannelId(id), name == "window-change"),
            None => {}
        }
        Ok(())
    }
}
