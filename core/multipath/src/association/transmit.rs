//! Packets that go out: what is sent, by which path.

use std::time::Instant;

use super::{Association, ENTRY_BYTES, Event, Transmit};
use crate::{
    packet::{Ack, Data, Frame, HEADER_BYTES, Header, PathId, TAG_BYTES},
    path::{Content, Path, PathState, Piece},
    schedule::{Candidate, Choice, choose},
};

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
            if self.paths.get(&path).is_some_and(|path| path.state != PathState::Unavailable) {
                let mut draft = self.draft(path)?;
                draft.write(&Frame::Close);
                return self.finish(draft, now);
            }
        }
    }

    fn draft(&self, id: PathId) -> Option<Draft> {
        let path = self.paths.get(&id)?;
        let room = usize::from(path.mtu.current()) - HEADER_BYTES - TAG_BYTES;
        let mut bytes = Vec::with_capacity(path.mtu.current().into());
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

    /// Acknowledgements, questions and statuses that are due.
    fn draft_control(&mut self, now: Instant) -> Option<Draft> {
        let is_there = |path: &&Path| path.state != PathState::Unavailable;
        let is_due = |path: &&Path| path.received.ack_at().is_some_and(|at| at <= now) || path.has_ping(now);
        if let Some(id) = self.paths.values().filter(is_there).find(is_due).map(|path| path.id) {
            let mut draft = self.draft(id)?;
            let path = self.paths.get_mut(&id)?;
            write_ack(&mut draft, path, now);
            if path.has_ping(now) {
                draft.write(&Frame::Ping);
            }
            self.write_statuses(&mut draft);
            return Some(draft);
        }
        if !self.status_due.is_empty() {
            let best = self.paths.values().filter(is_there).min_by_key(|path| (rank(path.state), path.delay()));
            let mut draft = self.draft(best?.id)?;
            self.write_statuses(&mut draft);
            return Some(draft);
        }
        let mut active = self.paths.values_mut().filter(|path| path.state == PathState::Active);
        let probe = active.find_map(|path| path.mtu.poll_probe(now).map(|size| (path.id, usize::from(size))));
        let (id, size) = probe?;
        let mut draft = self.draft(id)?;
        draft.is_probe = true;
        draft.write(&Frame::Ping);
        draft.bytes.resize(size - TAG_BYTES, 0);
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
            self.write_ack_too(&mut draft, now);
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
        let best = self.paths.values().map(|path| rank(path.state)).min().unwrap_or(u8::MAX);
        let usable = self.paths.values().filter(|path| rank(path.state) == best && rank(path.state) < UNUSABLE);
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

    /// Acknowledges as well, if the acknowledgement leaves room for much else.
    fn write_ack_too(&mut self, draft: &mut Draft, now: Instant) {
        if let Some(path) = self.paths.get_mut(&draft.path).filter(|path| path.received.ack_at().is_some()) {
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
    if let Some((ranges, delay)) = path.received.take_ack(now) {
        let delay_micros = u32::try_from(delay.as_micros()).unwrap_or(u32::MAX);
        draft.write(&Frame::Ack(Ack { path: path.id, delay_micros, ranges }));
    }
}
