//! The writing thread.

use std::{
    fs,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::{Duration, Instant, SystemTime},
};

use sallyport_api::{AuditEvent, AuditGap};
use time::OffsetDateTime;

use crate::{
    AuditConfig, LogState, MAX_LINE_BYTES,
    export::SyslogCarrier,
    line,
    otlp::OtlpCarrier,
    recover::{Recovered, lines},
    segment::{self, MAX_SEGMENT_BYTES, Medium, Opener, Segment},
    shipping::Shipping,
    spool::{self, Spool},
};

/// The longest time between a write and its sync to disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Interval of reading the spools of former holders.
const TAKE_IN_EVERY: Duration = Duration::from_secs(5);
/// Interval of removing old files.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// Age at which a new file is started.
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The most lines of one write.
const MAX_BATCH_EVENTS: usize = 512;

/// A message to the writer.
pub(crate) enum Message {
    Event(Box<AuditEvent>),
    /// Events of other machines; answered with the number of the last one once they are on disk.
    Take(Vec<AuditEvent>, SyncSender<Option<u64>>),
    Flush(SyncSender<()>),
    HandOver(SyncSender<()>),
    Close(SyncSender<()>),
}

/// The target of events.
enum Mode {
    Log,
    /// Another process has the log.
    Spool(Option<Spool>),
    Closed,
}

struct Current {
    segment: Segment,
    medium: Box<dyn Medium>,
    length: u64,
    opened: Instant,
}

pub(crate) struct Writer {
    shared: Arc<LogState>,
    config: AuditConfig,
    opener: Opener,
    /// The exports.
    shippings: Vec<Shipping>,
    mode: Mode,
    current: Option<Current>,
    gaps: Vec<AuditGap>,
    /// Lost events that a gap in the log has recorded.
    recorded_lost: u64,
    is_failing: bool,
    is_dirty: bool,
    looked: Instant,
    taken_in: Option<Instant>,
    tidied: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<LogState>, config: AuditConfig, opener: Opener, recovered: Recovered) -> Self {
        let counters = &shared.counters;
        let syslog = config.syslog.clone().and_then(|target| {
            let carrier = SyslogCarrier::new(target, counters.export_lost.clone());
            Shipping::start(carrier, shared.clone(), counters.export_lost.clone(), counters.export_behind.clone())
        });
        let otlp = config.otlp.clone().and_then(|target| {
            let (lost, carrier) = (counters.otlp.lost.clone(), OtlpCarrier::new(target, counters.otlp.clone()));
            Shipping::start(carrier, shared.clone(), lost, counters.otlp_behind.clone())
        });
        let shippings = syslog.into_iter().chain(otlp).collect();
        let current = recovered.last.and_then(|(segment, length)| {
            let medium = opener(&segment.path).ok()?;
            Some(Current { segment, medium, length, opened: Instant::now() })
        });
        Self {
            shared,
            config,
            opener,
            shippings,
            mode: Mode::Log,
            current,
            gaps: recovered.gaps,
            recorded_lost: 0,
            is_failing: false,
            is_dirty: true,
            looked: Instant::now(),
            taken_in: None,
            tidied: None,
        }
    }

    /// Writes until all senders are dropped.
    pub(crate) fn run(mut self, receiver: &Receiver<Message>) {
        self.record_gaps();
        loop {
            self.look_after();
            let mut batch = Vec::new();
            let mut asked = None;
            match receiver.recv_timeout(SYNC_EVERY) {
                Ok(Message::Event(event)) => batch.push(*event),
                Ok(other) => asked = Some(other),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while asked.is_none() && !batch.is_empty() && batch.len() < MAX_BATCH_EVENTS {
                match receiver.try_recv() {
                    Ok(Message::Event(event)) => batch.push(*event),
                    Ok(other) => asked = Some(other),
                    Err(_) => break,
                }
            }
            self.take(batch);
            if let Some(asked) = asked {
                self.answer(asked);
            }
        }
        self.end();
    }

    fn answer(&mut self, asked: Message) {
        let done = match asked {
            Message::Event(event) => return self.take(vec![*event]),
            Message::Take(events, done) => {
                let _ = done.try_send(self.take_in(&events));
                return;
            }
            Message::Flush(done) => {
                self.record_gaps();
                self.sync();
                done
            }
            Message::HandOver(done) => {
                self.end();
                self.mode = Mode::Spool(None);
                done
            }
            Message::Close(done) => {
                self.end();
                self.mode = Mode::Closed;
                done
            }
        };
        // The caller may have stopped waiting.
        let _ = done.try_send(());
    }

    fn take(&mut self, events: Vec<AuditEvent>) {
        if events.is_empty() {
            return;
        }
        match &mut self.mode {
            Mode::Log => {
                self.record_gaps();
                self.append(events);
            }
            Mode::Closed => self.lose(events.len() as u64),
            Mode::Spool(spool) => {
                let count = events.len() as u64;
                if let Err(error) = spool::append(spool, &self.shared.dir, &events) {
                    tracing::warn!(%error, "cannot write events to the spool for the next process");
                    self.lose(count);
                }
            }
        }
    }

    /// Writes all of these or none; the caller tries again.
    fn take_in(&mut self, events: &[AuditEvent]) -> Option<u64> {
        if !matches!(self.mode, Mode::Log) {
            return None;
        }
        self.record_gaps();
        let is_written = self.write(events);
        self.sync();
        is_written.then(|| self.shared.head().seq)
    }

    fn lose(&self, events: u64) {
        self.shared.counters.lost.inc_by(events);
    }

    /// Records missing events before the next ones.
    fn record_gaps(&mut self) {
        if !matches!(self.mode, Mode::Log) {
            return;
        }
        let lost = self.shared.counters.lost.get();
        if lost > self.recorded_lost {
            let reason = if self.is_failing { "write-error" } else { "overflow" };
            let gap = AuditGap { reason: reason.to_owned(), events: Some(lost - self.recorded_lost), bytes: None };
            if self.write(&[AuditEvent::gap(OffsetDateTime::now_utc(), None, gap)]) {
                self.recorded_lost = lost;
            }
        }
        while let Some(gap) = self.gaps.first().cloned() {
            if !self.write(&[AuditEvent::gap(OffsetDateTime::now_utc(), None, gap)]) {
                return;
            }
            self.gaps.remove(0);
        }
    }

    fn append(&mut self, events: Vec<AuditEvent>) {
        let count = events.len() as u64;
        // Lost events must be recorded first: nothing may follow without it.
        let is_recorded = self.shared.counters.lost.get() == self.recorded_lost && self.gaps.is_empty();
        if is_recorded && self.write(&events) {
            return;
        }
        self.lose(count);
    }

    /// Writes the events as the next lines; all or none.
    fn write(&mut self, events: &[AuditEvent]) -> bool {
        let head = self.shared.head().clone();
        let (mut seq, mut hash) = (head.seq, head.hash);
        let mut batch = String::new();
        let mut count = 0;
        for event in events {
            let Some(sealed) = line::chain(event.clone(), seq + 1, &hash) else { return false };
            if sealed.line.len() > MAX_LINE_BYTES {
                self.shared.counters.lost.inc();
                continue;
            }
            (seq, hash) = (seq + 1, sealed.hash);
            count += 1;
            batch.push_str(&sealed.line);
        }
        if let Err(error) = self.write_bytes(head.seq + 1, batch.as_bytes()) {
            if !self.is_failing {
                tracing::warn!(%error, "the audit log cannot be written: events are lost until it is writable");
            }
            self.is_failing = true;
            return false;
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("the audit log is writable again");
        }
        {
            let mut head = self.shared.head();
            (head.seq, head.hash) = (seq, hash);
        }
        self.is_dirty = true;
        let counters = &self.shared.counters;
        counters.written.inc_by(count);
        counters.bytes.inc_by(i64::try_from(batch.len()).unwrap_or(i64::MAX));
        self.shared.last.send_replace(seq);
        true
    }

    fn write_bytes(&mut self, first: u64, bytes: &[u8]) -> std::io::Result<()> {
        let max_length = MAX_SEGMENT_BYTES.min(self.config.max_bytes / 4);
        let is_full = self.current.as_ref().is_some_and(|current| {
            current.length > 0
                && (current.length + bytes.len() as u64 > max_length || current.opened.elapsed() > MAX_SEGMENT_AGE)
        });
        if is_full {
            self.sync();
            self.current = None;
            self.tidied = None;
        }
        let current = match &mut self.current {
            Some(current) => current,
            none => {
                let segment = Segment::of(&self.shared.dir, first);
                let medium = (self.opener)(&segment.path)?;
                let length = segment.standing().map_or(0, |(length, _)| length);
                none.insert(Current { segment, medium, length, opened: Instant::now() })
            }
        };
        let written = current.medium.append(bytes);
        if written.is_err() {
            // A partial write must not remain before the next lines.
            if current.medium.cut(current.length).is_err() {
                self.current = None;
            }
            return written;
        }
        current.length += bytes.len() as u64;
        Ok(())
    }

    /// Syncs written lines to disk, and then writes the head.
    fn sync(&mut self) {
        if !self.is_dirty {
            return;
        }
        let synced = self.current.as_mut().map_or(Ok(()), |current| current.medium.sync());
        let head = self.shared.head().clone();
        match synced.and_then(|()| head.write(&self.shared.dir, &self.config.key)) {
            Ok(()) => {
                self.is_dirty = false;
                self.shared.synced.send_replace(head.seq);
                self.shippings.iter().for_each(Shipping::notify);
            }
            Err(error) => tracing::warn!(%error, "cannot sync the audit log to disk: trying again"),
        }
    }

    /// Runs the due maintenance.
    fn look_after(&mut self) {
        if !matches!(self.mode, Mode::Log) {
            return;
        }
        if self.looked.elapsed() >= SYNC_EVERY {
            self.looked = Instant::now();
            self.record_gaps();
            self.sync();
        }
        if self.taken_in.is_none_or(|taken_in| taken_in.elapsed() >= TAKE_IN_EVERY) {
            self.taken_in = Some(Instant::now());
            self.take_in_spools();
        }
        if self.tidied.is_none_or(|tidied| tidied.elapsed() >= TIDY_EVERY) {
            self.tidied = Some(Instant::now());
            if let Err(error) = self.tidy() {
                tracing::warn!(%error, "cannot remove old files of the audit log: trying again later");
            }
        }
    }

    /// Reads the spools of former holders.
    fn take_in_spools(&mut self) {
        for left in spool::ended(&self.shared.dir) {
            let (events, is_whole) = left.read();
            if !is_whole {
                self.gaps.push(AuditGap { reason: "spool".to_owned(), events: None, bytes: None });
            }
            self.record_gaps();
            let mut is_written = true;
            for batch in events.chunks(MAX_BATCH_EVENTS) {
                is_written &= is_written && self.write(batch);
            }
            if !is_written {
                return;
            }
            self.sync();
            left.remove();
        }
    }

    /// Removes files by age and by the size of the log.
    fn tidy(&mut self) -> Result<(), crate::AuditError> {
        let now = SystemTime::now();
        let is_over = |written: SystemTime| now.duration_since(written).is_ok_and(|age| age > self.config.keep);
        let segments = segment::list(&self.shared.dir)?;
        let standing: Vec<_> = segments.iter().map(|segment| segment.standing().unwrap_or((0, now))).collect();
        let mut total: u64 = standing.iter().map(|(length, _)| length).sum();
        let mut remove = 0;
        for (segment, (length, written)) in segments.iter().zip(&standing) {
            let is_current = self.current.as_ref().is_some_and(|current| current.segment == *segment);
            if !is_over(*written) && (total <= self.config.max_bytes || is_current) {
                break;
            }
            total -= length;
            remove += 1;
        }
        self.shared.counters.bytes.set(i64::try_from(total).unwrap_or(i64::MAX));
        if remove == 0 {
            return Ok(());
        }
        if remove == segments.len() {
            self.current = None;
        }
        let mut head = self.shared.head().clone();
        (head.first, head.first_prev) = match segments.get(remove) {
            None => (head.seq + 1, head.hash),
            Some(next) => {
                let bytes = next.read()?;
                let link = lines(&bytes).0.next().and_then(|line| line::read(line).ok());
                // A damaged file stays as evidence.
                let Some(link) = link else { return Ok(()) };
                (link.seq, link.prev)
            }
        };
        // The new beginning is recorded first: otherwise a crash would make the removal look like a loss.
        head.write(&self.shared.dir, &self.config.key).map_err(crate::AuditError::at(&self.shared.dir))?;
        {
            let mut shared = self.shared.head();
            (shared.first, shared.first_prev) = (head.first, head.first_prev);
        }
        for segment in &segments[..remove] {
            fs::remove_file(&segment.path).map_err(crate::AuditError::at(&segment.path))?;
        }
        tracing::info!(files = remove, first = head.first, "old events were removed from the audit log");
        Ok(())
    }

    /// Writes the last events and stops the exports.
    fn end(&mut self) {
        if matches!(self.mode, Mode::Log) {
            self.take_in_spools();
            self.record_gaps();
            self.sync();
            self.current = None;
            self.shippings.drain(..).for_each(|shipping| shipping.end());
        }
    }
}
