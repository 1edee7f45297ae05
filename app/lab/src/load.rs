//! A client that goes on whatever happens, and counts what failed.
//!
//! It does what a browser does and wrk does not: it asks for all addresses of a name, tries the next one when one is silent
//! or refuses, and sends a request again when the connection that it had kept was closed before anything of it was sent.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use sallyport_net::{Trust, client_config, connect_tls};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{error::LabError, measure::ms, service::ORIGIN_HEADER};

/// The most connections.
pub const MAX_CONNECTIONS: u16 = 10_000;
/// How many different failures are told in words.
pub(crate) const MAX_TOLD: usize = 8;
/// How often it is told how it goes.
const TICK: Duration = Duration::from_millis(100);
/// How many failures are told one by one each time; the rest is counted.
const MAX_FAILURES_PER_TICK: usize = 1_000;
/// What a long transfer asks for: more than comes in days.
const TRANSFER_PATH: &str = "/bytes/1000000000000";
/// How much of it is taken in a second.
const TRANSFER_BYTES_PER_SECOND: u64 = 1 << 20;
/// What the kernel may keep of it: what was cut off is noticed behind what came before.
const TRANSFER_BUFFER_BYTES: usize = 65_536;
/// How long it waits until it begins again once it was cut off.
const TRANSFER_PAUSE: Duration = Duration::from_millis(200);

/// What is to be asked for.
#[derive(Debug, Clone)]
pub struct LoadWish {
    /// Where: `https://HOST/PATH`.
    pub url: Uri,
    /// By so many connections.
    pub connections: u16,
    /// For how long.
    pub time: Duration,
    /// And no more than so many requests.
    pub requests: Option<u64>,
    /// Requests in a second, all connections together; as many as go without it.
    pub rate: Option<u32>,
    /// How long a request may take, its connection included; and how long nothing may come of a transfer.
    pub patience: Duration,
    /// Long transfers besides: each takes a mebibyte a second, and begins again when it is cut off.
    pub transfers: u16,
    /// The root certificate to trust.
    pub ca: PathBuf,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests that were made.
    pub requests: u64,
    /// Those answered with a status below 400, to their end.
    pub ok: u64,
    /// Those that found nobody to take them.
    pub unreachable: u64,
    /// Those that were cut off once they had been sent.
    pub cut: u64,
    /// Those that took too long.
    pub late: u64,
    /// Those answered with a status of 400 or more, by status.
    pub refused: BTreeMap<u16, u64>,
    /// Connections that were made.
    pub connections: u64,
    /// Who answered, by `x-origin`.
    pub by_origin: BTreeMap<String, u64>,
    /// Half of the good answers came within this, in microseconds.
    pub median_us: u64,
    /// 99 of 100 good answers came within this, in microseconds.
    pub p99_us: u64,
    /// The longest time in which no good answer came, in milliseconds.
    pub longest_gap_ms: u64,
    /// From the first failed request to the end of the last one, in milliseconds.
    pub failing_ms: u64,
    /// Good answers' bytes.
    pub bytes: u64,
    /// Failures in words, each once.
    pub told: Vec<String>,
    /// Long transfers that were begun.
    pub transfers: u64,
    /// Those that were cut off.
    pub transfers_cut: u64,
    /// What came by them, in bytes.
    pub transfer_bytes: u64,
}

impl LoadReport {
    /// How many requests failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.requests - self.ok
    }
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// How long ago it began, in milliseconds.
    pub began_ms_ago: u64,
    /// How long ago it failed, in milliseconds.
    pub ended_ms_ago: u64,
    /// Why.
    pub why: String,
}

/// What came since the last one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Good answers.
    pub good: u64,
    /// The longest time without any, in milliseconds.
    pub gap_ms: u64,
    /// How long ago every connection had asked what it was given a good answer to since then, and every transfer got
    /// something, in milliseconds; none while one of them never did.
    pub all_good_ms: Option<u64>,
    /// Requests that failed.
    pub failed: Vec<Failed>,
    /// How many more did.
    pub more_failed: u64,
    /// Transfers that were begun.
    pub transfers: u64,
    /// Why transfers were cut off.
    pub cut: Vec<String>,
    /// What came by transfers, in bytes.
    pub transfer_bytes: u64,
}

/// How a request failed.
enum Failure {
    Unreachable(String),
    Cut(String),
    Late,
    Refused(u16),
}

#[derive(Default)]
struct Tally {
    report: LoadReport,
    times_us: Vec<u32>,
    last_good: Option<Instant>,
    gap: Duration,
    failing: Option<(Instant, Instant)>,
    tick: Tick,
    tick_failures: Vec<(Instant, Instant, String)>,
    tick_gap: Duration,
    /// By connections, and behind them by transfers: when what was last good had begun.
    good_began: Vec<Option<Instant>>,
}

impl Tally {
    fn of(parts: usize) -> Self {
        Self { good_began: vec![None; parts], ..Self::default() }
    }

    fn good(&mut self, number: usize, began: Instant, bytes: u64, origin: Option<String>) {
        let now = Instant::now();
        self.tick.good += 1;
        self.good_at(number, began);
        self.report.ok += 1;
        self.report.bytes += bytes;
        if let Some(origin) = origin {
            *self.report.by_origin.entry(origin).or_default() += 1;
        }
        self.times_us.push(u32::try_from(now.duration_since(began).as_micros()).unwrap_or(u32::MAX));
        if let Some(last) = self.last_good {
            self.gap = self.gap.max(now.duration_since(last));
            self.tick_gap = self.tick_gap.max(now.duration_since(last));
        }
        self.last_good = Some(now);
    }

    fn good_at(&mut self, number: usize, began: Instant) {
        if let Some(part) = self.good_began.get_mut(number) {
            *part = Some(began);
        }
    }

    fn transferred(&mut self, number: usize, bytes: u64) {
        self.report.transfer_bytes += bytes;
        self.tick.transfer_bytes += bytes;
        self.good_at(number, Instant::now());
    }

    fn transfer_begins(&mut self) {
        self.report.transfers += 1;
        self.tick.transfers += 1;
    }

    fn transfer_ends(&mut self, why: String) {
        self.report.transfers_cut += 1;
        self.tick.cut.push(why);
    }

    /// What came since it was last asked.
    fn tick(&mut self) -> Tick {
        let now = Instant::now();
        let mut tick = std::mem::take(&mut self.tick);
        let waits = self.last_good.map_or(Duration::ZERO, |last| now.duration_since(last));
        tick.gap_ms = ms(std::mem::take(&mut self.tick_gap).max(waits));
        let oldest = self.good_began.iter().copied().min().flatten();
        tick.all_good_ms = oldest.map(|oldest| ms(now.duration_since(oldest)));
        let failures = std::mem::take(&mut self.tick_failures);
        let ago = |then: Instant| ms(now.duration_since(then));
        let failed = |(began, ended, why)| Failed { began_ms_ago: ago(began), ended_ms_ago: ago(ended), why };
        tick.failed = failures.into_iter().map(failed).collect();
        tick
    }

    fn bad(&mut self, began: Instant, failure: Failure) {
        let words = match failure {
            Failure::Unreachable(why) => {
                self.report.unreachable += 1;
                why
            }
            Failure::Cut(why) => {
                self.report.cut += 1;
                why
            }
            Failure::Late => {
                self.report.late += 1;
                "no answer in time".to_owned()
            }
            Failure::Refused(status) => {
                *self.report.refused.entry(status).or_default() += 1;
                format!("status {status}")
            }
        };
        if self.report.told.len() < MAX_TOLD && !self.report.told.contains(&words) {
            self.report.told.push(words.clone());
        }
        let now = Instant::now();
        let first = self.failing.map_or(began, |(first, _)| first);
        self.failing = Some((first, now));
        if self.tick_failures.len() < MAX_FAILURES_PER_TICK {
            self.tick_failures.push((began, now, words));
        } else {
            self.tick.more_failed += 1;
        }
    }

    fn end(mut self) -> LoadReport {
        let mut report = self.report;
        report.requests =
            report.ok + report.unreachable + report.cut + report.late + report.refused.values().sum::<u64>();
        if let Some(last) = self.last_good {
            self.gap = self.gap.max(last.elapsed());
        }
        report.longest_gap_ms = ms(self.gap);
        report.failing_ms = self.failing.map_or(0, |(first, last)| ms(last.duration_since(first)));
        self.times_us.sort_unstable();
        report.median_us = percentile(&self.times_us, 50).into();
        report.p99_us = percentile(&self.times_us, 99).into();
        report
    }
}

/// The smallest value that so many of a hundred do not exceed; 0 of none.
pub(crate) fn percentile<T: Copy + Default>(sorted: &[T], hundredth: usize) -> T {
    let rank = (sorted.len() * hundredth).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Asks until the time is over, or until `stop` comes to its end: what is under way then is waited for. `tell` is told how it
/// goes some times a second, and ends it by `false`.
///
/// # Errors
/// The wish cannot be done: no host, or a root certificate that cannot be used.
pub async fn run(
    wish: LoadWish,
    mut tell: impl FnMut(&Tick) -> bool,
    stop: impl Future<Output = ()>,
) -> Result<LoadReport, LabError> {
    let unfit = |said: String| LabError::Unfit(said);
    let host = wish.url.host().ok_or_else(|| unfit(format!("{} has no host", wish.url)))?.to_owned();
    if wish.url.scheme_str() != Some("https") {
        return Err(unfit(format!("{} does not begin with https://", wish.url)));
    }
    let tls = client_config(&Trust::Ca(wish.ca.clone()), &[b"http/1.1"]).map_err(|error| unfit(error.to_string()))?;
    let count = wish.connections.clamp(1, MAX_CONNECTIONS);
    let parts = usize::from(count) + usize::from(wish.transfers);
    let tally = Arc::new(Mutex::new(Tally::of(parts)));
    let ends = Instant::now() + wish.time;
    let wish = Arc::new(wish);
    let asked = Arc::new(AtomicU64::new(0));
    let (stop_all, stopping) = watch::channel(false);
    let mut clients = tokio::task::JoinSet::new();
    let mut transfers = tokio::task::JoinSet::new();
    for number in 0..parts {
        let client = Client {
            number,
            host: host.clone(),
            port: wish.url.port_u16().unwrap_or(443),
            tls: tls.clone(),
            sender: None,
            tally: tally.clone(),
        };
        if number < usize::from(count) {
            clients.spawn(client.ask_all(wish.clone(), asked.clone(), ends, stopping.clone()));
        } else {
            transfers.spawn(client.transfer_all(wish.clone()));
        }
    }
    // Transfers last as long as there are requests.
    let all_done = async { while clients.join_next().await.is_some() {} };
    tokio::pin!(all_done, stop);
    let lock = || tally.lock();
    loop {
        tokio::select! {
            () = &mut all_done => break,
            () = &mut stop, if !*stop_all.borrow() => drop(stop_all.send_replace(true)),
            () = tokio::time::sleep(TICK) => {
                let tick = lock().tick();
                if !tell(&tick) {
                    stop_all.send_replace(true);
                }
            }
        }
    }
    drop(transfers);
    let tick = lock().tick();
    tell(&tick);
    let tally = std::mem::take(&mut *lock());
    Ok(tally.end())
}

/// Waits until then, or until all is to stop.
async fn rest(until: Instant, stopping: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = tokio::time::sleep_until(until.into()) => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

struct Client {
    number: usize,
    host: String,
    port: u16,
    tls: Arc<rustls::ClientConfig>,
    sender: Option<SendRequest<Empty<Bytes>>>,
    tally: Arc<Mutex<Tally>>,
}

impl Client {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock()
    }

    async fn ask_all(
        mut self,
        wish: Arc<LoadWish>,
        asked: Arc<AtomicU64>,
        ends: Instant,
        mut stopping: watch::Receiver<bool>,
    ) {
        let count = u32::from(wish.connections.clamp(1, MAX_CONNECTIONS));
        let pause = wish.rate.map(|rate| Duration::from_secs(1) * count / rate.max(1));
        if let Some(pause) = pause {
            let turn = u32::try_from(self.number).unwrap_or(0);
            rest(Instant::now() + pause * turn / count, &mut stopping).await;
        }
        let goes_on = |stopping: &watch::Receiver<bool>| Instant::now() < ends && !*stopping.borrow();
        while goes_on(&stopping) && asked.fetch_add(1, Ordering::Relaxed) < wish.requests.unwrap_or(u64::MAX) {
            let began = Instant::now();
            self.ask_once(&wish, began).await;
            if let Some(pause) = pause {
                rest(began + pause, &mut stopping).await;
            }
        }
    }

    /// One transfer after the other, until this is dropped.
    async fn transfer_all(self, wish: Arc<LoadWish>) {
        loop {
            self.tally().transfer_begins();
            let why = match self.transfer(wish.patience).await {
                Ok(()) => "it came to its end".to_owned(),
                Err(Failure::Late) => "nothing came for too long".to_owned(),
                Err(Failure::Refused(status)) => format!("status {status}"),
                Err(Failure::Cut(why) | Failure::Unreachable(why)) => why,
            };
            self.tally().transfer_ends(why);
            tokio::time::sleep(TRANSFER_PAUSE).await;
        }
    }

    async fn transfer(&self, patience: Duration) -> Result<(), Failure> {
        let in_time = |_| Failure::Late;
        let mut sender = self.connect(patience, Some(TRANSFER_BUFFER_BYTES)).await?;
        let request = Request::get(TRANSFER_PATH).header("host", &self.host).body(Empty::new());
        let request = request.map_err(|error| Failure::Unreachable(error.to_string()))?;
        let cut = |error: hyper::Error| Failure::Cut(error.to_string());
        let answer = tokio::time::timeout(patience, sender.send_request(request)).await.map_err(in_time)?;
        let (head, mut body) = answer.map_err(cut)?.into_parts();
        if head.status.as_u16() >= 400 {
            return Err(Failure::Refused(head.status.as_u16()));
        }
        while let Some(frame) = tokio::time::timeout(patience, body.frame()).await.map_err(in_time)? {
            let bytes = frame.map_err(cut)?.data_ref().map_or(0, |data| data.len() as u64);
            self.tally().transferred(self.number, bytes);
            tokio::time::sleep(Duration::from_micros(bytes * 1_000_000 / TRANSFER_BYTES_PER_SECOND)).await;
        }
        Ok(())
    }

    async fn ask_once(&mut self, wish: &LoadWish, began: Instant) {
        let asked = tokio::time::timeout(wish.patience, self.ask(wish)).await;
        let outcome = asked.unwrap_or(Err(Failure::Late));
        if outcome.is_err() {
            self.sender = None;
        }
        let mut tally = self.tally();
        match outcome {
            Ok((bytes, origin)) => tally.good(self.number, began, bytes, origin),
            Err(failure) => tally.bad(began, failure),
        }
    }

    async fn ask(&mut self, wish: &LoadWish) -> Result<(u64, Option<String>), Failure> {
        loop {
            let kept = match self.sender.take() {
                Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
                None => None,
            };
            let mut sender = match kept {
                Some(sender) => sender,
                None => {
                    let sender = self.connect(wish.patience, None).await?;
                    self.tally().report.connections += 1;
                    sender
                }
            };
            let path = wish.url.path_and_query().map_or("/", |path| path.as_str());
            let request = Request::get(path).header("host", &self.host).body(Empty::new());
            let request = request.map_err(|error| Failure::Unreachable(error.to_string()))?;
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => match error.take_message() {
                    // Nothing of it was sent: the connection was closed while it was idle.
                    Some(_) => continue,
                    None => return Err(Failure::Cut(error.error().to_string())),
                },
            };
            let (head, mut body) = response.into_parts();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| Failure::Cut(format!("in the middle of an answer: {error}")))?;
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            self.sender = Some(sender);
            if head.status.as_u16() >= 400 {
                // The answer was whole: the connection is as good as before, but the client of the caller drops it.
                return Err(Failure::Refused(head.status.as_u16()));
            }
            let origin = head.headers.get(ORIGIN_HEADER).and_then(|name| name.to_str().ok()).map(str::to_owned);
            return Ok((bytes, origin));
        }
    }

    async fn connect(&self, patience: Duration, buffer: Option<usize>) -> Result<SendRequest<Empty<Bytes>>, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Unreachable(error.to_string());
        let stream = connect_tls(&self.host, self.port, &self.host, self.tls.clone(), patience);
        let stream = stream.await.map_err(|error| failed(&error))?;
        if let Some(bytes) = buffer {
            // Only what is told of it is later where the system refuses.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(stream.get_ref().0.get_ref(), bytes);
        }
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn percentiles_are_values_that_were_there() {
        let values: Vec<u32> = (1..=100).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99), percentile(&values, 100)), (50, 99, 100));
        assert_eq!(percentile(&[7_u32], 50), 7);
        assert_eq!(percentile::<u32>(&[], 99), 0);
    }

    #[test]
    fn every_request_is_counted_once() {
        let mut tally = Tally::of(2);
        let began = Instant::now();
        tally.good(0, began, 10, Some("eu".into()));
        tally.good(0, began, 10, None);
        tally.bad(began, Failure::Late);
        tally.bad(began, Failure::Refused(503));
        tally.bad(began, Failure::Refused(503));
        tally.bad(began, Failure::Cut("reset".into()));
        let first = tally.tick();
        assert_eq!((first.good, first.failed.len(), first.more_failed), (2, 4, 0));
        assert_eq!(first.all_good_ms, None, "the other connection has had no good answer");
        tally.good(1, began, 0, None);
        let second = tally.tick();
        assert_eq!((second.good, second.failed.len()), (1, 0), "what was told is not told again");
        assert!(second.all_good_ms.is_some());
        let mut report = tally.end();
        (report.requests, report.ok) = (report.requests - 1, report.ok - 1);
        assert_eq!((report.requests, report.ok, report.failed(), report.bytes), (6, 2, 4, 20));
        assert_eq!(report.told, ["no answer in time", "status 503", "reset"]);
        assert_eq!(report.by_origin, BTreeMap::from([("eu".to_owned(), 1)]));
    }

    #[tokio::test]
    async fn what_cannot_be_asked_is_refused_and_nobody_listening_is_counted() {
        // Bound but not listened on, it refuses, and nobody else can get it meanwhile.
        let held = tokio::net::TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = held.local_addr().unwrap().port();
        let wish = |url: String, ca: PathBuf| LoadWish {
            url: url.parse().unwrap(),
            connections: 1,
            time: Duration::from_secs(60),
            requests: Some(3),
            rate: Some(100),
            patience: Duration::from_secs(5),
            transfers: 0,
            ca,
        };
        let refused =
            run(wish("http://x/".into(), "/nonexistent".into()), |_| true, pending()).await.unwrap_err().to_string();
        assert!(refused.contains("https://"), "{refused}");
        let refused =
            run(wish("https://x/".into(), "/nonexistent".into()), |_| true, pending()).await.unwrap_err().to_string();
        assert!(refused.contains("/nonexistent"), "{refused}");
        let dir = tempfile::tempdir().unwrap();
        let root = sallyport_net::LocalCa::open_or_create(dir.path(), "lab.test").unwrap();
        drop(root);
        let nobody = wish(format!("https://127.0.0.1:{port}/"), dir.path().join("ca.pem"));
        let report = run(nobody.clone(), |_| true, pending()).await.unwrap();
        assert!(report.requests == 3 && report.unreachable == 3, "{report:?}");
        let endless = LoadWish { requests: None, time: Duration::from_secs(86_400), rate: Some(1), ..nobody };
        let stopped = run(endless, |_| true, tokio::time::sleep(Duration::from_millis(50))).await.unwrap();
        assert!(stopped.requests == 1, "it ends when it is stopped, and tells what came: {stopped:?}");
    }
}
