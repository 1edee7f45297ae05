//! Packets that go out: what is sent, by which path.

use std::time::Instant;

use super::{Association, ENTRY_BYTES, Event, MAX_IN_FLIGHT_BYTES, Transmit};
use crate::{
    packet::{Ack, Data, Frame, HEADER_BYTES, Header, PathId, Side, TAG_BYTES},
    path::{Content, Path, PathState, Piece},
    schedule::{Candidate, Choice, choose},
};

/// Bytes of a question of the connector by a path that has not answered yet: the edge may answer such a packet several
/// times before it knows the address.
const QUESTION_BYTES: usize = 256;

/// A packet that is being written.
struct Draft {
    path: PathId,
    bytes: Vec<u8>,
    /// Bytes of frames that the packet can hold.
    room: usize,
    content: Content,
    asks_for_ack: bool,
    is_probe: bool,
}

impl Draft {
    /// Bytes that are left.
    fn left(&self) -> usize {
        (HEADER_BYTES + self.room).saturating_sub(self.bytes.len())
    }

    fn write(&mut self, frame: &Frame) {
        frame.write(&mut self.bytes);
        self.asks_for_ack |= frame.asks_for_ack();
    }

    fn write_piece(&mut self, piece: Piece) {
        piece.data.write(&mut self.bytes);
        self.asks_for_ack = true;
        self.content.pieces.push(piece);
    }
}

impl Association {
    /// The next packet to send. The driver sends it by the link of its path, to the address of the path.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.is_closed {
            return self.farewell(now);
        }
        let draft = self.draft_control(now).or_else(|| self.draft_data(now))?;
        let sent = self.finish(draft, now);
        self.announce_room();
        sent
    }

    fn announce_room(&mut self) {
        if self.was_refused && self.has_room() {
            self.was_refused = false;
            self.record_event(Event::Room);
        }
    }

    fn farewell(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            let path = self.closing.as_mut()?.pop_first()?;
            if self.paths.get(&path).is_some_and(Path::may_send) {
                let mut draft = self.draft(path)?;
                draft.write(&Frame::Close);
                return self.finish(draft, now);
            }
        }
    }

    fn draft(&self, id: PathId) -> Option<Draft> {
        let path = self.paths.get(&id)?;
        let room = path.packet_bytes().checked_sub(HEADER_BYTES + TAG_BYTES)?;
        let mut bytes = Vec::with_capacity(path.packet_bytes());
        Header { association: self.remote, path: id, number: path.sent.next_number() }.write(&mut bytes);
        Some(Draft { path: id, bytes, room, content: Content::default(), asks_for_ack: false, is_probe: false })
    }

    /// Seals a packet and records it. A path whose numbers are used up ends.
    fn finish(&mut self, draft: Draft, now: Instant) -> Option<Transmit> {
        let Draft { path: id, mut bytes, content, asks_for_ack, is_probe, .. } = draft;
        let header = Header::parse(&bytes)?;
        if self.sealer.seal(&header, &mut bytes).is_err() {
            self.requeue(vec![content], now);
            self.remove_path(id, now);
            return None;
        }
        let path = self.paths.get_mut(&id)?;
        path.record_sent(bytes.len(), asks_for_ack.then_some(content), is_probe, now);
        Some(Transmit { path: id, bytes, is_probe })
    }

    /// Acknowledgements, questions, answers and statuses that are due.
    fn draft_control(&mut self, now: Instant) -> Option<Draft> {
        let is_due = |path: &&Path| {
            path.response.is_some() || path.has_ping(now) || path.received.ack_at().is_some_and(|at| at <= now)
        };
        if let Some(id) = self.paths.values().filter(|path| path.may_send()).find(is_due).map(|path| path.id) {
            return self.draft_due(id, now);
        }
        if !self.status_due.is_empty() {
            let able = self.paths.values().filter(|path| path.may_send());
            let best = able.min_by_key(|path| (rank(path.state), path.delay()));
            let mut draft = self.draft(best?.id)?;
            self.write_statuses(&mut draft);
            return Some(draft);
        }
        let mut able = self.paths.values_mut().filter(|path| path.may_probe_mtu());
        let probe = able.find_map(|path| path.mtu.poll_probe(now).map(|size| (path.id, usize::from(size))));
        let (id, size) = probe?;
        let mut draft = self.draft(id)?;
        draft.is_probe = true;
        draft.write(&Frame::Ping);
        draft.bytes.resize(size - TAG_BYTES, 0);
        Some(draft)
    }

    /// What one path has to say.
    fn draft_due(&mut self, id: PathId, now: Instant) -> Option<Draft> {
        let mut draft = self.draft(id)?;
        let path = self.paths.get_mut(&id)?;
        if let Some(response) = path.response.take() {
            draft.write(&Frame::PathResponse(response));
        }
        let mut is_long = false;
        if path.has_ping(now) {
            draft.write(&Frame::Ping);
            if let Some(challenge) = path.validation.challenge() {
                draft.write(&Frame::PathChallenge(challenge));
                draft.content.has_challenge = true;
            }
            is_long = self.side == Side::Connector && path.state != PathState::Active;
        }
        write_ack(&mut draft, path, now);
        self.write_statuses(&mut draft);
        if is_long {
            let padding = QUESTION_BYTES.saturating_sub(draft.bytes.len() + TAG_BYTES).min(draft.left());
            draft.bytes.resize(draft.bytes.len() + padding, 0);
        }
        Some(draft)
    }

    fn write_statuses(&mut self, draft: &mut Draft) {
        while draft.left() >= Frame::PATH_STATUS_BYTES {
            let Some(id) = self.status_due.pop_first() else { return };
            let status = self.paths.get(&id).map(Path::status).or_else(|| self.farewells.get(&id).copied());
            if let Some(status) = status {
                draft.write(&Frame::PathStatus(status));
                draft.content.statuses.push(id);
            }
        }
    }

    /// A packet with datagrams, by the path by which they arrive first.
    fn draft_data(&mut self, now: Instant) -> Option<Draft> {
        self.pace_at = None;
        while self.again.first_key_value().is_some_and(|(_, piece)| piece.expires_at.is_some_and(|at| at <= now)) {
            self.again.pop_first();
            self.counts.expired += 1;
        }
        let candidates = self.candidates(now);
        let choice = match self.again.is_empty() {
            true => None,
            false => choose(&candidates, 1, now),
        };
        if let Some(Choice { path, .. }) = choice {
            let mut draft = self.draft(path)?;
            let next_bytes = self.again.first_key_value().map_or(0, |(_, piece)| piece.data.bytes.len());
            self.write_ack_too(&mut draft, next_bytes, now);
            self.write_again(&mut draft);
            return Some(draft);
        }
        let Some(Choice { path, skip_bytes }) = choose(&candidates, self.queue_bytes as u64, now) else {
            self.wait(&candidates, now);
            return None;
        };
        let mut draft = self.draft(path)?;
        self.write_queue(&mut draft, skip_bytes as usize, now);
        Some(draft)
    }

    fn candidates(&self, now: Instant) -> Vec<Candidate<PathId>> {
        let able = || self.paths.values().filter(|path| path.may_send_datagrams() && rank(path.state) < UNUSABLE);
        let best = able().map(|path| rank(path.state)).min().unwrap_or(UNUSABLE);
        let has_room = self.paths.values().map(|path| path.sent.in_flight).sum::<u64>() < MAX_IN_FLIGHT_BYTES;
        let usable = able().filter(|path| has_room && rank(path.state) == best);
        let seen = usable.map(|path| {
            let settings = path.effective();
            let free_at = path.free_at();
            Candidate {
                path: path.id,
                tier: u8::from(settings.is_standby) + 2 * u8::from(settings.is_metered),
                is_ready: free_at.is_some_and(|at| at <= now),
                free_at: free_at.unwrap_or_else(|| now + path.until_window()),
                delay: path.delay(),
                rate: path.rate(),
            }
        });
        seen.collect()
    }

    /// Nothing can be sent now: notes until when, and which paths could have carried more.
    fn wait(&mut self, candidates: &[Candidate<PathId>], now: Instant) {
        let is_waiting = !(self.queue.is_empty() && self.again.is_empty());
        for candidate in candidates {
            let Some(path) = self.paths.get_mut(&candidate.path) else { continue };
            if candidate.is_ready {
                path.mark_app_limited();
            } else if is_waiting && path.free_at().is_some() {
                let at = candidate.free_at.max(now);
                self.pace_at = Some(self.pace_at.map_or(at, |before| before.min(at)));
            }
        }
    }

    /// Acknowledges as well, if a part of `next_bytes` fits besides, or has to be split anyway.
    fn write_ack_too(&mut self, draft: &mut Draft, next_bytes: usize, now: Instant) {
        let left = draft.left();
        let next_bytes = next_bytes + Data::OVERHEAD;
        let fits = |path: &&mut Path| {
            let bytes = path.received.ack_bytes();
            bytes + next_bytes <= left || (next_bytes > left && bytes * 2 <= left)
        };
        let path = self.paths.get_mut(&draft.path).filter(|path| path.received.ack_at().is_some());
        if let Some(path) = path.filter(fits) {
            write_ack(draft, path, now);
        }
    }

    /// Writes lost pieces as long as they fit; the first one is split if it has to be.
    fn write_again(&mut self, draft: &mut Draft) {
        while let Some((key, mut piece)) = self.again.pop_first() {
            let room = draft.left().saturating_sub(Data::OVERHEAD);
            if piece.data.bytes.len() > room {
                if !draft.content.pieces.is_empty() || room == 0 {
                    self.again.insert(key, piece);
                    return;
                }
                let head = piece.split_to(room);
                self.again.insert((piece.data.sequence, piece.data.offset), piece);
                piece = head;
            }
            self.counts.retransmissions += 1;
            draft.write_piece(piece);
        }
    }

    /// Writes datagrams of the queue, from the place that lies `skip` bytes behind its head.
    fn write_queue(&mut self, draft: &mut Draft, skip: usize, now: Instant) {
        let mut at = 0;
        let mut skipped = 0;
        while at + 1 < self.queue.len() {
            skipped += self.queue[at].data.bytes.len() + ENTRY_BYTES;
            if skipped > skip {
                break;
            }
            at += 1;
        }
        while let Some(front) = self.queue.get_mut(at) {
            let room = draft.left().saturating_sub(Data::OVERHEAD);
            let is_first = draft.content.pieces.is_empty();
            let mut piece = if front.data.bytes.len() <= room && (is_first || draft.left() >= Data::OVERHEAD) {
                let Some(piece) = self.queue.remove(at) else { return };
                self.queue_bytes -= piece.data.bytes.len() + ENTRY_BYTES;
                piece
            } else if is_first && room > 0 {
                self.queue_bytes -= room;
                front.split_to(room)
            } else {
                return;
            };
            piece.expires_at = Some(now + self.config.reorder_wait);
            draft.write_piece(piece);
        }
    }
}

/// Paths that answer come first; with none, those that were not heard yet. From this rank on, none carries datagrams.
const UNUSABLE: u8 = 2;

fn rank(state: PathState) -> u8 {
    match state {
        PathState::Active => 0,
        PathState::Opening => 1,
        PathState::Suspected => UNUSABLE,
        PathState::Unavailable => UNUSABLE + 1,
    }
}

fn write_ack(draft: &mut Draft, path: &mut Path, now: Instant) {
    if let Some((ranges, delay)) = path.received.take_ack(Ack::ranges_in(draft.left()), now) {
        let delay_micros = u32::try_from(delay.as_micros()).unwrap_or(u32::MAX);
        draft.write(&Frame::Ack(Ack { path: path.id, delay_micros, ranges }));
    }
}
