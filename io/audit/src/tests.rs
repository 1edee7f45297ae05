//! Tests of the whole log: writing, reading, damage, truncation, size limits, handover.

use std::{
    fs::OpenOptions,
    io::{Read as _, Write as _},
    net::{TcpListener, UdpSocket},
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Instant, SystemTime},
};

use sallyport_api::{AuditAdmin, AuditKind, AuditLogin, AuditOrder};
use sallyport_model::AccountId;
use time::OffsetDateTime;

use super::*;

const KEY: [u8; 32] = [7; 32];

pub(crate) fn config() -> AuditConfig {
    AuditConfig { key: KEY, keep: Duration::from_secs(3_600), max_bytes: 1 << 30, syslog: None, otlp: None }
}

fn organisation(id: u8) -> AccountId {
    AccountId::from_random([id; 16])
}

pub(crate) fn event(number: u64) -> AuditEvent {
    let admin = AuditAdmin {
        changed: Vec::new(),
        actor: "ann@example.com".to_owned(),
        account: None,
        action: "socket.create".to_owned(),
        target: Some(format!("socket-{number}")),
        outcome: "done".to_owned(),
        reason: None,
        request_id: format!("request-{number}"),
        client: None,
    };
    AuditEvent::admin(OffsetDateTime::now_utc(), Some(organisation(1)), admin)
}

pub(crate) struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("audit")
    }

    pub(crate) fn open(&self) -> AuditLog {
        AuditLog::open(&self.path(), config()).unwrap()
    }

    /// A closed log with this many events.
    fn with(events: u64) -> Self {
        let lab = Self::new();
        let log = lab.open();
        (1..=events).for_each(|number| log.record(event(number)));
        log.close().unwrap();
        lab
    }

    fn file(&self) -> PathBuf {
        segment::list(&self.path()).unwrap().pop().unwrap().path
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.file()).unwrap().lines().map(str::to_owned).collect()
    }

    fn set(&self, lines: &[String]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.file(), text).unwrap();
    }

    fn verify(&self) -> AuditVerification {
        verify(&self.path(), &KEY).unwrap()
    }

    /// The problems found after this change to the lines of a log of ten events.
    fn damaged(change: impl FnOnce(&mut Vec<String>)) -> Vec<String> {
        let lab = Self::with(10);
        assert!(lab.verify().is_good);
        let mut lines = lab.lines();
        change(&mut lines);
        lab.set(&lines);
        let found = lab.verify();
        assert!(!found.is_good && !found.problems.is_empty(), "{found:?}");
        found.problems.into_iter().map(|problem| problem.what).collect()
    }

    fn all(log: &AuditLog) -> Vec<AuditEvent> {
        let filter = AuditFilter { order: AuditOrder::Oldest, limit: 100_000, ..AuditFilter::default() };
        log.flush().unwrap();
        log.read(&filter).unwrap().events
    }
}

fn reasons(events: &[AuditEvent]) -> Vec<&str> {
    events.iter().filter_map(|event| event.gap.as_ref()).map(|gap| gap.reason.as_str()).collect()
}

#[test]
fn what_is_written_is_read_back_in_order_and_good() {
    let lab = Lab::with(10);
    let found = lab.verify();
    assert_eq!((found.is_good, found.events, found.first, found.last, found.gaps), (true, 10, 1, 10, 0), "{found:?}");
    let mode = fs::metadata(lab.file()).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, lab.file().file_name().unwrap().to_str().unwrap()), (0o600, "0000000001.jsonl"));
    let log = lab.open();
    log.record(event(11));
    let events = Lab::all(&log);
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
    for (line, event) in lab.lines().iter().zip(&events) {
        assert_eq!(*line, serde_json::to_string(event).unwrap(), "an event is read with the bytes of its line");
    }
    assert!(log.verify().unwrap().is_good && reasons(&events).is_empty());
    assert_eq!(found.hash, events[9].hash);
}

#[test]
fn a_line_that_is_removed_changed_moved_or_put_in_shows() {
    assert_eq!(Lab::damaged(|lines| drop(lines.remove(4))), ["event 5 is missing before this one"]);
    assert_eq!(Lab::damaged(|lines| drop(lines.drain(4..7))), ["events 5 to 7 are missing before this one"]);
    let changed = |lines: &mut Vec<String>| lines[4] = lines[4].replace("ann@example.com", "eve@example.com");
    assert_eq!(Lab::damaged(changed), ["event 5 was changed"]);
    let swapped = Lab::damaged(|lines| lines.swap(4, 5));
    assert_eq!(swapped[0], "event 5 is missing before this one");
    let twice = Lab::damaged(|lines| lines.insert(5, lines[4].clone()));
    assert_eq!(twice, ["event 5 is in the place of event 6: it was inserted or moved"]);
    assert_eq!(Lab::damaged(|lines| lines.insert(3, "hello".to_owned()))[0], "the line is not an event");
    assert_eq!(Lab::damaged(|lines| drop(lines.remove(0))), ["event 1 is missing before this one"]);
    assert_eq!(Lab::damaged(|lines| lines.truncate(7)), ["the end is missing: events 8 to 10"]);
    assert_eq!(Lab::damaged(Vec::clear), ["the end is missing: events 1 to 10"]);
}

#[test]
fn a_line_that_was_written_anew_with_a_hash_of_its_own_shows() {
    let forge = |lines: &mut Vec<String>, at: usize| {
        let mut event: AuditEvent = serde_json::from_str(&lines[at]).unwrap();
        event.admin.as_mut().unwrap().actor = "eve@example.com".to_owned();
        let (seq, prev) = (event.seq, line::unhex(&event.prev).unwrap());
        lines[at] = line::chain(event, seq, &prev).unwrap().line.trim_end().to_owned();
    };
    assert_eq!(Lab::damaged(|lines| forge(lines, 4)), ["event 6 does not follow the one before it"]);
    assert_eq!(Lab::damaged(|lines| forge(lines, 9)), ["event 10 was replaced"]);
}

#[test]
fn a_log_truncated_together_with_its_head_is_reported_on_opening() {
    let lab = Lab::with(10);
    let lines = lab.lines();
    lab.set(&lines[..7]);
    fs::remove_file(lab.path().join("head")).unwrap();
    assert_eq!(lab.verify().problems[0].place, "head");
    let log = lab.open();
    assert_eq!(reasons(&Lab::all(&log)), ["no-head"]);

    let lab = Lab::with(10);
    let head = fs::read_to_string(lab.path().join("head")).unwrap();
    fs::write(lab.path().join("head"), head.replace("\"seq\":10", "\"seq\":7")).unwrap();
    assert!(!lab.verify().is_good, "a forged head is not accepted");
    assert_eq!(reasons(&Lab::all(&lab.open())), ["no-head"]);
    assert!(!verify(&lab.path(), &[8; 32]).unwrap().is_good, "nor is one with another key");
}

#[test]
fn a_loss_stays_visible_when_the_log_goes_on() {
    let lab = Lab::with(10);
    let lines = lab.lines();
    lab.set(&lines[..7]);
    let log = lab.open();
    log.record(event(11));
    let events = Lab::all(&log);
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 11, 12]);
    assert_eq!(reasons(&events), ["missing"]);
    assert_eq!(events[7].gap.as_ref().unwrap().events, Some(3));
    let found = log.verify().unwrap();
    let what: Vec<_> = found.problems.iter().map(|problem| problem.what.as_str()).collect();
    assert_eq!((what, found.gaps), (vec!["events 8 to 10 are missing before this one"], 1));

    // Everything is gone.
    fs::remove_file(&segment::list(&lab.path()).unwrap()[0].path).unwrap();
    fs::remove_file(&segment::list(&lab.path()).unwrap()[0].path).unwrap();
    log.close().unwrap();
    let log = lab.open();
    assert_eq!(reasons(&Lab::all(&log)), ["missing"]);
    assert!(!log.verify().unwrap().is_good);
}

#[test]
fn after_a_crash_a_half_line_is_removed_and_reported() {
    let lab = Lab::with(10);
    OpenOptions::new().append(true).open(lab.file()).unwrap().write_all(b"{\"seq\":11,\"at\":\"20").unwrap();
    let log = lab.open();
    log.record(event(11));
    let events = Lab::all(&log);
    assert_eq!((events.len(), reasons(&events)), (12, vec!["half-line"]));
    assert_eq!(events[10].gap.as_ref().unwrap().bytes, Some(18));
    let found = log.verify().unwrap();
    assert!(found.is_good && found.gaps == 1, "{found:?}");
}

#[test]
fn lines_that_reached_the_disk_after_the_head_are_kept() {
    let lab = Lab::with(10);
    let head = fs::read(lab.path().join("head")).unwrap();
    let log = lab.open();
    log.record(event(11));
    log.close().unwrap();
    fs::write(lab.path().join("head"), head).unwrap();
    assert!(lab.verify().is_good, "a process that crashed, or runs");
    let log = lab.open();
    assert!(log.verify().unwrap().is_good);
    assert_eq!(Lab::all(&log).len(), 11);
}

#[test]
fn a_damaged_last_line_is_kept_and_reported() {
    let lab = Lab::with(10);
    let mut lines = lab.lines();
    lines[9] = lines[9].replace("socket-10", "socket-99");
    lab.set(&lines);
    let log = lab.open();
    assert_eq!(reasons(&Lab::all(&log)), ["damaged", "missing"]);
    assert!(!log.verify().unwrap().is_good);
    assert!(fs::read_to_string(lab.path().join("0000000001.jsonl")).unwrap().contains("socket-99"));
}

#[test]
fn filters_pages_and_both_orders() {
    let lab = Lab::new();
    let log = lab.open();
    for number in 1..=30_u64 {
        log.record(event(number));
        let login = AuditLogin {
            identity: "Bob@example.com".to_owned(),
            provider: "dex".to_owned(),
            outcome: if number == 3 { "refused" } else { "done" }.to_owned(),
            reason: None,
            client: None,
        };
        log.record(AuditEvent::login(OffsetDateTime::now_utc(), Some(organisation(2)), login));
    }
    log.flush().unwrap();
    let count = |filter: AuditFilter| log.read(&filter).unwrap().events.len();
    let all = || AuditFilter { limit: 1_000, ..AuditFilter::default() };
    assert_eq!(count(all()), 60);
    assert_eq!(count(AuditFilter { organisation: Some(organisation(1)), ..all() }), 30);
    assert_eq!(count(AuditFilter { organisation: Some(organisation(3)), ..all() }), 0);
    assert_eq!(count(AuditFilter { kind: Some(AuditKind::Login), ..all() }), 30);
    assert_eq!(count(AuditFilter { identity: Some("bob@EXAMPLE.com".to_owned()), ..all() }), 30);
    assert_eq!(count(AuditFilter { verdict: Some("refused".to_owned()), ..all() }), 1);
    assert_eq!(count(AuditFilter { socket: vec!["socket-7".to_owned()], ..all() }), 1);
    let now = OffsetDateTime::now_utc() + Duration::from_secs(5);
    assert_eq!(count(AuditFilter { since: Some(now), ..all() }), 0);
    assert_eq!(count(AuditFilter { until: Some(now), ..all() }), 60);
    for order in [AuditOrder::Newest, AuditOrder::Oldest] {
        let mut filter = AuditFilter { order, limit: 7, organisation: Some(organisation(1)), ..AuditFilter::default() };
        let mut seen = Vec::new();
        loop {
            let page = log.read(&filter).unwrap();
            seen.extend(page.events.iter().map(|event| event.seq));
            filter.after = Some(page.position);
            if !page.has_more {
                break;
            }
        }
        let mut expected: Vec<u64> = (0..30).map(|number| number * 2 + 1).collect();
        if order == AuditOrder::Newest {
            expected.reverse();
        }
        assert_eq!(seen, expected);
    }
}

#[test]
fn the_log_is_kept_within_its_size_and_what_was_removed_is_no_loss() {
    let lab = Lab::new();
    let small = AuditConfig { max_bytes: 40_000, ..config() };
    let log = AuditLog::open(&lab.path(), small.clone()).unwrap();
    for number in 1..=400 {
        log.record(event(number));
        if number % 20 == 0 {
            log.flush().unwrap();
        }
    }
    log.close().unwrap();
    let found = lab.verify();
    assert!(found.is_good && found.first > 1 && found.last == 400, "{found:?}");
    let size: u64 = segment::list(&lab.path()).unwrap().iter().map(|segment| segment.standing().unwrap().0).sum();
    assert!(size <= 60_000, "{size}");
    assert!(lab.verify().is_good);
    let segments = segment::list(&lab.path()).unwrap();
    assert!(segments.len() > 1);
    fs::remove_file(&segments[0].path).unwrap();
    let found = lab.verify();
    assert!(
        found.problems[0].what.contains("missing before this one"),
        "events removed by others are missing: {found:?}"
    );

    // By age, with nothing new written.
    let lab = Lab::with(10);
    let old = SystemTime::now() - Duration::from_secs(7_200);
    OpenOptions::new().append(true).open(lab.file()).unwrap().set_modified(old).unwrap();
    let log = lab.open();
    wait_until(|| segment::list(&lab.path()).unwrap().is_empty());
    log.record(event(11));
    let events = Lab::all(&log);
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [11]);
    let found = log.verify().unwrap();
    assert!(found.is_good && (found.first, found.last) == (11, 11), "{found:?}");
    log.close().unwrap();
    assert!(lab.verify().is_good && reasons(&Lab::all(&lab.open())).is_empty());
}

fn wait_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "the files were not removed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A disk that is full on demand: half of the bytes are written then.
struct FullDisk {
    file: Box<dyn segment::Medium>,
    is_full: Arc<AtomicBool>,
}

impl segment::Medium for FullDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            self.file.append(&bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.cut(length)
    }
}

#[test]
fn a_full_disk_loses_events_and_says_so_when_there_is_space_again() {
    let lab = Lab::new();
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    let opener: segment::Opener =
        Box::new(move |path| Ok(Box::new(FullDisk { file: segment::open(path)?, is_full: full.clone() })));
    let log = AuditLog::open_with(&lab.path(), config(), opener).unwrap();
    log.record(event(1));
    log.flush().unwrap();
    is_full.store(true, Ordering::SeqCst);
    (2..=6).for_each(|number| log.record(event(number)));
    log.flush().unwrap();
    assert_eq!(log.shared.counters.lost.get(), 5);
    assert!(log.verify().unwrap().is_good);
    is_full.store(false, Ordering::SeqCst);
    log.record(event(7));
    let events = Lab::all(&log);
    assert_eq!(reasons(&events), ["write-error"]);
    assert_eq!(events[1].gap.as_ref().unwrap().events, Some(5));
    assert_eq!((events.len(), events[2].seq), (3, 3));
    assert!(log.verify().unwrap().is_good);
}

/// A slow medium.
struct SlowDisk {
    file: Box<dyn segment::Medium>,
    is_held: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
}

impl segment::Medium for SlowDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        while self.is_held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.file.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.cut(length)
    }
}

#[test]
fn a_hanging_disk_delays_no_caller_and_lost_events_are_counted() {
    let lab = Lab::new();
    let (is_held, writes) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (hold, count) = (is_held.clone(), writes.clone());
    let opener: segment::Opener = Box::new(move |path| {
        Ok(Box::new(SlowDisk { file: segment::open(path)?, is_held: hold.clone(), writes: count.clone() }))
    });
    let log = AuditLog::open_with(&lab.path(), config(), opener).unwrap();
    log.record(event(1));
    wait_until(|| writes.load(Ordering::SeqCst) > 0);
    let began = Instant::now();
    let more = MAX_QUEUED_EVENTS as u64 + 100;
    (0..more).for_each(|number| log.record(event(number)));
    assert!(began.elapsed() < Duration::from_secs(5));
    let lost = log.shared.counters.lost.get();
    assert!(lost >= 100, "{lost}");
    is_held.store(false, Ordering::SeqCst);
    log.flush().unwrap();
    log.record(event(0));
    let events = Lab::all(&log);
    assert_eq!(reasons(&events), ["overflow"]);
    let gap = events.iter().find_map(|event| event.gap.as_ref()).unwrap();
    assert_eq!(gap.events, Some(lost));
    assert_eq!(events.len() as u64 + lost, more + 3);
    assert!(log.verify().unwrap().is_good);
}

#[test]
fn what_the_former_process_records_late_comes_into_the_log_of_the_next() {
    let lab = Lab::new();
    let former = lab.open();
    former.record(event(1));
    former.hand_over().unwrap();
    let next = lab.open();
    next.record(event(2));
    former.record(event(3));
    former.record(event(4));
    former.flush().unwrap();
    next.flush().unwrap();
    assert_eq!(Lab::all(&next).len(), 2, "the former process is still running");
    drop(former);
    wait_until(|| Lab::all(&next).len() == 4);
    let targets: Vec<_> = Lab::all(&next).into_iter().filter_map(|event| event.admin?.target).collect();
    assert_eq!(targets, ["socket-1", "socket-2", "socket-3", "socket-4"]);
    assert!(next.verify().unwrap().is_good);
    next.close().unwrap();
    let left =
        fs::read_dir(lab.path()).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().contains("spool"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_former_process_that_closes_its_log_has_stored_its_last_events() {
    let lab = Lab::new();
    let former = lab.open();
    former.hand_over().unwrap();
    let next = lab.open();
    (0..2_000).for_each(|number| former.record(event(number)));
    former.close().unwrap();
    let spools = || {
        let files = fs::read_dir(lab.path()).unwrap().flatten().map(|entry| entry.path());
        files.filter(|path| path.to_string_lossy().contains("/spool-"))
    };
    let stored: usize = spools().map(|path| fs::read_to_string(path).unwrap().lines().count()).sum();
    assert_eq!(stored, 2_000, "a process may end right after this");
    former.record(event(2_000));
    drop(former);
    wait_until(|| Lab::all(&next).len() == 2_000);
    assert!(next.verify().unwrap().is_good);
}

#[test]
fn a_closed_log_blocks_no_caller() {
    let lab = Lab::new();
    let log = lab.open();
    log.close().unwrap();
    log.record(event(1));
    log.flush().unwrap();
    assert_eq!((log.shared.counters.lost.get(), lab.verify().events), (1, 0));
    assert!(matches!(verify(&lab.dir.path().join("none"), &KEY), Err(AuditError::None(_))));
}

/// Parses a message as defined in RFC 5424 section 6; returns its message part.
fn syslog(message: &[u8]) -> (String, AuditEvent) {
    let text = str::from_utf8(message).unwrap();
    let rest = text.strip_prefix("<110>1 ").expect("priority and version");
    let parts: Vec<&str> = rest.splitn(7, ' ').collect();
    let [at, host, app, process, kind, data, line] = parts[..] else { panic!("{text}") };
    OffsetDateTime::parse(at, &time::format_description::well_known::Rfc3339).unwrap();
    assert!(!host.is_empty() && app == "sallyport" && data == "-", "{text}");
    assert_eq!(process, std::process::id().to_string());
    (kind.to_owned(), serde_json::from_str(line).unwrap())
}

#[test]
fn every_line_goes_to_a_syslog_server_in_its_three_ways() {
    let lab = Lab::new();
    let open = |target: &str, dir: &str| {
        let config = AuditConfig { syslog: Some(target.parse().unwrap()), ..config() };
        AuditLog::open(&lab.dir.path().join(dir), config).unwrap()
    };
    let wait = Some(Duration::from_secs(20));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(wait).unwrap();
    let log = open(&format!("udp://{}", udp.local_addr().unwrap()), "udp");
    log.record(event(1));
    let mut buffer = vec![0; 65_536];
    let length = udp.recv(&mut buffer).unwrap();
    let (kind, sent) = syslog(&buffer[..length]);
    assert_eq!((kind.as_str(), &sent), ("admin", &Lab::all(&log)[0]));

    let path = lab.dir.path().join("log");
    let unix = UnixDatagram::bind(&path).unwrap();
    unix.set_read_timeout(wait).unwrap();
    let log = open(&format!("unix:{}", path.display()), "unix");
    log.record(event(1));
    let length = unix.recv(&mut buffer).unwrap();
    assert_eq!(syslog(&buffer[..length]).1.seq, 1);

    // By TCP, messages have a length prefix; after a restart of the server the export continues.
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = open(&format!("tcp://{}", tcp.local_addr().unwrap()), "tcp");
    log.record(event(1));
    log.record(event(2));
    let (mut stream, _) = tcp.accept().unwrap();
    stream.set_read_timeout(wait).unwrap();
    for seq in 1..=2 {
        assert_eq!(next_message(&mut stream).seq, seq);
    }
    drop(stream);
    tcp.set_nonblocking(true).unwrap();
    wait_until(|| {
        log.record(event(3));
        tcp.accept().is_ok()
    });
    assert!(Lab::all(&log).len() >= 3);
}

/// The next message on a connection to a syslog server.
fn next_message(stream: &mut std::net::TcpStream) -> AuditEvent {
    let mut length = String::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        if byte[0] == b' ' {
            break;
        }
        length.push(char::from(byte[0]));
    }
    let mut message = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut message).unwrap();
    syslog(&message).1
}

#[test]
fn what_is_recorded_while_the_server_is_away_is_sent_when_it_is_back() {
    let lab = Lab::new();
    // An address without a listener.
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = || AuditConfig { syslog: Some(format!("tcp://{place}").parse().unwrap()), ..config() };
    let log = AuditLog::open(&lab.path(), config()).unwrap();
    (0..600).for_each(|number| log.record(event(number)));
    log.flush().unwrap();
    // The program restarts in the meantime: queued lines are not only in memory.
    log.close().unwrap();
    let log = AuditLog::open(&lab.path(), config()).unwrap();
    log.record(event(600));
    let tcp = TcpListener::bind(place).unwrap();
    let (mut stream, _) = tcp.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for seq in 1..=601 {
        assert_eq!(next_message(&mut stream).seq, seq, "in order, and none twice");
    }
    assert_eq!(log.shared.counters.export_lost.get(), 0);
    // Sent lines are not sent again by the next process.
    log.flush().unwrap();
    log.close().unwrap();
    drop(stream);
    let log = AuditLog::open(&lab.path(), config()).unwrap();
    log.record(event(601));
    let (mut stream, _) = tcp.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(next_message(&mut stream).seq, 602);
}

#[test]
fn places_of_syslog_servers_are_read() {
    let read = |text: &str| text.parse::<SyslogTarget>().map(|target| target.to_string());
    assert_eq!(read("udp://logs.example.com").unwrap(), "udp://logs.example.com:514");
    assert_eq!(read("tcp://[::1]:601").unwrap(), "tcp://[::1]:601");
    assert_eq!(read("tcp://[::1]").unwrap(), "tcp://[::1]:514");
    assert_eq!(read("unix:/dev/log").unwrap(), "unix:/dev/log");
    for bad in ["", "udp://", "logs.example.com:514", "http://x:1", "udp://x:y", "udp://x:0", "tcp://::1", "unix:log"] {
        assert_eq!(read(bad), Err(SyslogTargetError), "{bad}");
    }
}

#[test]
fn a_copy_of_a_log_that_is_written_is_a_log() {
    let (lab, elsewhere) = (Lab::new(), tempfile::tempdir().unwrap());
    let to = |name: &str| elsewhere.path().join(name);
    assert_eq!(copy(&lab.path(), &to("none")).unwrap(), None, "there is no log yet");
    let log = lab.open();
    for number in 0..100 {
        log.record(event(number));
    }
    log.flush().unwrap();
    // An incomplete next line, and spools of a successor, are not copied.
    let segment = segment::list(&lab.path()).unwrap().pop().unwrap();
    OpenOptions::new().append(true).open(&segment.path).unwrap().write_all(b"{\"half").unwrap();
    for (name, text) in [("spool-1-2", "{}"), ("head.new", "x"), ("outbox.new", "x"), ("outbox", "{}")] {
        fs::write(lab.path().join(name), text).unwrap();
    }
    let copied = copy(&lab.path(), &to("copy")).unwrap().unwrap();
    let mut names: Vec<_> = fs::read_dir(to("copy")).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [segment.name().as_str(), "head", "outbox"]);
    assert_eq!(copied.files, 3);
    assert_eq!(fs::metadata(to("copy")).unwrap().permissions().mode() & 0o777, 0o700);
    let found = verify(&to("copy"), &KEY).unwrap();
    assert!(found.is_good && found.events == 100, "{found:?}");
    // The copy continues without a gap.
    let again = AuditLog::open(&to("copy"), config()).unwrap();
    again.record(event(100));
    again.flush().unwrap();
    let found = again.verify().unwrap();
    assert!(found.is_good && found.events == 101 && found.gaps == 0, "{found:?}");
    assert!(copy(&lab.path(), &to("copy")).is_err(), "nothing is overwritten");
    log.close().unwrap();
}
