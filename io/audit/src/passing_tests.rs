//! Tests of publishing between machines.

use sallyport_api::AuditOrder;
use uuid::Uuid;

use super::*;
use crate::tests::{Lab, event};

/// A machine with a log of its own.
struct Machine {
    lab: Lab,
    log: AuditLog,
    out: Outbox,
}

impl Machine {
    fn new(number: u8) -> Self {
        let lab = Lab::new();
        let log = lab.open();
        let out = Outbox::open(&log, Uuid::from_bytes([number; 16]), |_| format!("eu-{number}")).unwrap();
        Self { lab, log, out }
    }

    /// The machine after a restart, with its stored state.
    fn again(self) -> Self {
        let Self { lab, log, out } = self;
        let node = out.node();
        drop(out);
        log.close().unwrap();
        let log = lab.open();
        log.flush().unwrap();
        let out = Outbox::open(&log, Uuid::from_bytes([99; 16]), |_| "eu-again".to_owned()).unwrap();
        assert_eq!(out.node(), node, "a log keeps its id");
        Self { lab, log, out }
    }

    fn record(&self, numbers: std::ops::Range<u64>) {
        numbers.for_each(|number| self.log.record(event(number)));
        self.log.flush().unwrap();
    }

    /// All batches that are to be published.
    fn batches(&self) -> Vec<Vec<u8>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.out.next().unwrap() {
            assert_eq!(self.out.next().unwrap(), Some(batch.clone()), "the same until it is out");
            self.out.mark_published(&batch).unwrap();
            batches.push(batch.bytes);
        }
        assert_eq!(self.out.behind(), 0);
        batches
    }

    fn all(&self) -> Vec<AuditEvent> {
        self.log.flush().unwrap();
        let filter = AuditFilter { order: AuditOrder::Oldest, limit: 10_000, ..AuditFilter::default() };
        self.log.read(&filter).unwrap().events
    }

    /// Sources and events, in the order of this log.
    fn summary(&self) -> Vec<String> {
        let summary = |event: AuditEvent| {
            let what = match (event.admin, event.gap) {
                (Some(admin), _) => admin.target.unwrap_or_default().replace("socket-", ""),
                (None, Some(gap)) => format!("gap {} {:?}", gap.reason, gap.events),
                (None, None) => String::new(),
            };
            format!("{} {what}", event.node.map_or_else(|| "own".to_owned(), |node| node.name))
        };
        self.all().into_iter().map(summary).collect()
    }
}

fn at(seq: u64) -> StreamPlace {
    StreamPlace { created: 1, seq }
}

#[test]
fn every_event_of_every_machine_comes_once_and_in_order() {
    let (one, two, control) = (Machine::new(1), Machine::new(2), Machine::new(3));
    let inbox = Inbox::open(&control.log, control.out.node()).unwrap();
    control.record(0..1);
    one.record(0..3);
    let mut batches = one.batches();
    assert!(one.batches().is_empty(), "nothing twice");
    two.record(10..12);
    batches.extend(two.batches());
    one.record(3..5);
    batches.extend(one.batches());
    // Its own events come back too.
    batches.extend(control.batches());
    for (number, batch) in (1..).zip(&batches) {
        inbox.take(batch, at(number)).unwrap();
        // The bus may deliver batches twice, and old ones again.
        assert_eq!(inbox.take(batch, at(number)).unwrap(), 0);
        assert_eq!(inbox.take(&batches[0], at(number)).unwrap(), 0);
    }
    assert_eq!(inbox.place(), at(batches.len() as u64));
    assert_eq!(control.summary(), ["own 0", "eu-1 0", "eu-1 1", "eu-1 2", "eu-2 10", "eu-2 11", "eu-1 3", "eu-1 4"]);
    let found = control.log.verify().unwrap();
    assert!(found.is_good && found.gaps == 0, "{found:?}");
    // The number and the hash of an event identify it in the log of its source.
    let (here, there) = (control.all(), one.all());
    let node = here.last().unwrap().node.clone().unwrap();
    assert_eq!((node.seq, node.number, &node.hash), (5, 5, &there.last().unwrap().hash));
    // Events of other machines are not published again.
    assert!(control.batches().is_empty());
}

#[test]
fn nothing_is_lost_or_doubled_by_an_end_of_either() {
    let (mut one, control) = (Machine::new(1), Machine::new(3));
    let inbox = Inbox::open(&control.log, control.out.node()).unwrap();
    one.record(0..3);
    // The batch is read, but not published when the machine stops.
    assert!(one.out.next().unwrap().is_some());
    one = one.again();
    let first = one.batches();
    inbox.take(&first[0], at(1)).unwrap();
    one.record(3..4);
    one = one.again();
    let second = one.batches();
    inbox.take(&second[0], at(2)).unwrap();
    drop(inbox);
    // The control stops before it has stored its position.
    std::fs::remove_file(control.lab.path().join("inbox")).unwrap();
    let control = control.again();
    let inbox = Inbox::open(&control.log, control.out.node()).unwrap();
    assert_eq!(inbox.place(), StreamPlace::default(), "it reads all again");
    for batch in first.iter().chain(&second) {
        assert_eq!(inbox.take(batch, at(1)).unwrap(), 0);
    }
    assert_eq!(control.summary(), ["eu-again 0", "eu-again 1", "eu-again 2", "eu-again 3"]);
}

#[test]
fn events_dropped_by_the_stream_are_reported() {
    let (one, control) = (Machine::new(1), Machine::new(3));
    let inbox = Inbox::open(&control.log, control.out.node()).unwrap();
    one.record(0..300);
    // Earlier events of a new machine are no loss.
    let batches = one.batches();
    assert!(batches.len() >= 2, "batches have a bound");
    inbox.take(&batches[1], at(2)).unwrap();
    assert!(control.summary()[0].starts_with("eu-1 "), "{:?}", control.summary()[0]);
    let before = control.summary().len();
    one.record(300..310);
    let _dropped = one.batches();
    one.record(310..311);
    assert_eq!(inbox.take(&one.batches()[0], at(4)).unwrap(), 1);
    assert_eq!(control.summary()[before..], ["eu-1 gap stream Some(10)", "eu-1 310"]);
    let found = control.log.verify().unwrap();
    assert!(found.is_good && found.gaps == 1, "{found:?}");
    // Batches of a later schema or damaged ones are skipped, and counted as missing with the next one.
    one.record(311..312);
    let later = String::from_utf8(one.batches().remove(0)).unwrap().replacen("\"schema\":1", "\"schema\":2", 1);
    assert_eq!(inbox.take(later.as_bytes(), at(5)).unwrap(), 0);
    assert_eq!(inbox.take(b"nonsense", at(6)).unwrap(), 0);
    one.record(312..313);
    inbox.take(&one.batches()[0], at(7)).unwrap();
    assert_eq!(control.summary()[before + 2..], ["eu-1 gap stream Some(1)", "eu-1 312"]);
}

#[test]
fn a_log_that_was_lost_is_another_log() {
    let mut one = Machine::new(1);
    one.record(0..3);
    assert_eq!(one.batches().len(), 1);
    one.log.close().unwrap();
    let keep = std::fs::read(one.lab.path().join("outbox")).unwrap();
    std::fs::remove_dir_all(one.lab.path()).unwrap();
    one.log = one.lab.open();
    std::fs::write(one.lab.path().join("outbox"), keep).unwrap();
    let out = Outbox::open(&one.log, Uuid::from_bytes([7; 16]), |_| "eu-1".to_owned()).unwrap();
    assert_eq!(out.node(), Uuid::from_bytes([7; 16]));
}

#[test]
fn files_that_end_and_begin_meanwhile_are_read_through() {
    let lab = Lab::new();
    let config = AuditConfig { max_bytes: 16 * 1024, ..super::tests::config() };
    let log = AuditLog::open(&lab.path(), config).unwrap();
    let mut tail = crate::tail::Tail::behind(&lab.path(), 0);
    let mut seen = Vec::new();
    for round in 0..40 {
        (0..5).for_each(|number| log.record(event(round * 5 + number)));
        log.flush().unwrap();
        let until = log.shared.head().seq;
        loop {
            let lines = tail.next(until, 3, 1 << 20).unwrap();
            if lines.is_empty() {
                break;
            }
            seen.extend(lines.into_iter().map(|line| line.seq));
        }
        assert_eq!(tail.after(), until);
    }
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    assert!(std::fs::read_dir(lab.path()).unwrap().count() > 4, "there were several files");
}
