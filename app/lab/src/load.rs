//! A client that keeps sending requests through faults, and counts failures.
//!
//! Like a browser and unlike wrk, it resolves all addresses of a name, and tries the next one if one is silent or
//! refuses. It sends a request again if a kept connection was closed before anything was sent.

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

use crate::{capacity::ms, error::LabError, service::ORIGIN_HEADER};

/// How many connections there may be.
pub const MAX_CONNECTIONS: u16 = 10_000;
/// How many different failures are listed.
pub(crate) const MAX_TOLD: usize = 8;
/// The interval of reports.
const TICK: Duration = Duration::from_millis(100);
/// How many failures a report lists; further ones are counted.
const MAX_FAILURES_PER_TICK: usize = 1_000;
/// The path of a long transfer: more bytes than arrive in days.
const TRANSFER_PATH: &str = "/bytes/1000000000000";
/// How many bytes of it are read in a second.
const TRANSFER_BYTES_PER_SECOND: u64 = 1 << 20;
/// The kernel's buffer for it: a small one, so that a cut shows soon.
const TRANSFER_BUFFER_BYTES: usize = 65_536;
/// The pause before a cut transfer begins again.
const TRANSFER_PAUSE: Duration = Duration::from_millis(200);

/// The options of a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// `https://HOST/PATH`.
    pub url: Uri,
    /// How many connections.
    pub connections: u16,
    /// For how long.
    pub time: Duration,
    /// How many requests at most.
    pub requests: Option<u64>,
    /// Requests a second, over all connections; as many as possible without it.
    pub rate: Option<u32>,
    /// How long a request may take with its connect, and how long a transfer may be silent.
    pub timeout: Duration,
    /// How many long transfers: each takes a mebibyte a second, and begins again after a cut.
    pub transfers: u16,
    /// The root certificate to trust.
    pub ca: PathBuf,
}

/// The report of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests.
    pub requests: u64,
    /// Requests with a complete answer of a status below 400.
    pub ok: u64,
    /// Requests without a connection.
    pub unreachable: u64,
    /// Requests that were cut after they were sent.
    pub cut: u64,
    /// Those that took too long.
    pub late: u64,
    /// Requests with a status of 400 or more, by status.
    pub refused: BTreeMap<u16, u64>,
    /// Connections.
    pub connections: u64,
    /// Answers by `x-origin`.
    pub by_origin: BTreeMap<String, u64>,
    /// The median time of good answers, in microseconds.
    pub median_us: u64,
    /// The 99th percentile of good answers, in microseconds.
    pub p99_us: u64,
    /// The longest time without a good answer, in milliseconds.
    pub longest_gap_ms: u64,
    /// From the first failed request to the end of the last one, in milliseconds.
    pub failing_ms: u64,
    /// Bytes of good answers.
    pub bytes: u64,
    /// Failures in words, each once.
    pub told: Vec<String>,
    /// Long transfers that began.
    pub transfers: u64,
    /// Transfers that were cut.
    pub transfers_cut: u64,
    /// Bytes of transfers.
    pub transfer_bytes: u64,
}

impl LoadReport {
    /// How many requests failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.requests - self.ok
    }
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// When it began, in milliseconds ago.
    pub began_ms_ago: u64,
    /// When it failed, in milliseconds ago.
    pub ended_ms_ago: u64,
    /// Why.
    pub why: String,
}

/// What happened since the last report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Good answers.
    pub good: u64,
    /// The longest time without a good answer, in milliseconds.
    pub gap_ms: u64,
    /// Since when every connection has had a good answer to a later request, and every transfer some bytes, in
    /// milliseconds ago; `None` while one has not.
    pub all_good_ms: Option<u64>,
    /// Requests that failed.
    pub failed: Vec<Failed>,
    /// How many more failed.
    pub more_failed: u64,
    /// Transfers that began.
    pub transfers: u64,
    /// Why transfers were cut off.
    pub cut: Vec<String>,
    /// Bytes of transfers.
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
    /// By connection, then by transfer: when the last good one began.
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

    /// What happened since the last call.
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

/// The smallest value that this many of a hundred do not exceed; 0 of none.
pub(crate) fn percentile<T: Copy + Default>(sorted: &[T], hundredth: usize) -> T {
    let rank = (sorted.len() * hundredth).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Sends requests until the time is over or `stop` resolves; running requests are awaited. Calls `tell` with a report
/// every tenth of a second; `false` ends the load.
///
/// # Errors
/// The options cannot be used: no host, or a bad root certificate.
pub async fn run(
    options: LoadOptions,
    mut tell: impl FnMut(&Tick) -> bool,
    stop: impl Future<Output = ()>,
) -> Result<LoadReport, LabError> {
    let unfit = |text: String| LabError::Unfit(text);
    let host = options.url.host().ok_or_else(|| unfit(format!("{} has no host", options.url)))?.to_owned();
    if options.url.scheme_str() != Some("https") {
        return Err(unfit(format!("{} does not begin with https://", options.url)));
    }
    let tls =
        client_config(&Trust::Ca(options.ca.clone()), &[b"http/1.1"]).map_err(|error| unfit(error.to_string()))?;
    let count = options.connections.clamp(1, MAX_CONNECTIONS);
    let parts = usize::from(count) + usize::from(options.transfers);
    let tally = Arc::new(Mutex::new(Tally::of(parts)));
    let ends = Instant::now() + options.time;
    let options = Arc::new(options);
    let asked = Arc::new(AtomicU64::new(0));
    let (stop_all, stopping) = watch::channel(false);
    let mut clients = tokio::task::JoinSet::new();
    let mut transfers = tokio::task::JoinSet::new();
    for number in 0..parts {
        let client = Client {
            number,
            host: host.clone(),
            port: options.url.port_u16().unwrap_or(443),
            tls: tls.clone(),
            sender: None,
            tally: tally.clone(),
        };
        if number < usize::from(count) {
            clients.spawn(client.ask_all(options.clone(), asked.clone(), ends, stopping.clone()));
        } else {
            transfers.spawn(client.transfer_all(options.clone()));
        }
    }
    // Transfers last as long as the requests.
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

/// Waits until this time, or until the end.
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
        options: Arc<LoadOptions>,
        asked: Arc<AtomicU64>,
        ends: Instant,
        mut stopping: watch::Receiver<bool>,
    ) {
        let count = u32::from(options.connections.clamp(1, MAX_CONNECTIONS));
        let pause = options.rate.map(|rate| Duration::from_secs(1) * count / rate.max(1));
        if let Some(pause) = pause {
            let turn = u32::try_from(self.number).unwrap_or(0);
            rest(Instant::now() + pause * turn / count, &mut stopping).await;
        }
        let goes_on = |stopping: &watch::Receiver<bool>| Instant::now() < ends && !*stopping.borrow();
        while goes_on(&stopping) && asked.fetch_add(1, Ordering::Relaxed) < options.requests.unwrap_or(u64::MAX) {
            let began = Instant::now();
            self.ask_once(&options, began).await;
            if let Some(pause) = pause {
                rest(began + pause, &mut stopping).await;
            }
        }
    }

    /// One transfer after the other, until dropped.
    async fn transfer_all(self, options: Arc<LoadOptions>) {
        loop {
            self.tally().transfer_begins();
            let why = match self.transfer(options.timeout).await {
                Ok(()) => "it came to its end".to_owned(),
                Err(Failure::Late) => "nothing came for too long".to_owned(),
                Err(Failure::Refused(status)) => format!("status {status}"),
                Err(Failure::Cut(why) | Failure::Unreachable(why)) => why,
            };
            self.tally().transfer_ends(why);
            tokio::time::sleep(TRANSFER_PAUSE).await;
        }
    }

    async fn transfer(&self, timeout: Duration) -> Result<(), Failure> {
        let in_time = |_| Failure::Late;
        let mut sender = self.connect(timeout, Some(TRANSFER_BUFFER_BYTES)).await?;
        let request = Request::get(TRANSFER_PATH).header("host", &self.host).body(Empty::new());
        let request = request.map_err(|error| Failure::Unreachable(error.to_string()))?;
        let cut = |error: hyper::Error| Failure::Cut(error.to_string());
        let answer = tokio::time::timeout(timeout, sender.send_request(request)).await.map_err(in_time)?;
        let (head, mut body) = answer.map_err(cut)?.into_parts();
        if head.status.as_u16() >= 400 {
            return Err(Failure::Refused(head.status.as_u16()));
        }
        while let Some(frame) = tokio::time::timeout(timeout, body.frame()).await.map_err(in_time)? {
            let bytes = frame.map_err(cut)?.data_ref().map_or(0, |data| data.len() as u64);
            self.tally().transferred(self.number, bytes);
            tokio::time::sleep(Duration::from_micros(bytes * 1_000_000 / TRANSFER_BYTES_PER_SECOND)).await;
        }
        Ok(())
    }

    async fn ask_once(&mut self, options: &LoadOptions, began: Instant) {
        let asked = tokio::time::timeout(options.timeout, self.ask(options)).await;
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

    async fn ask(&mut self, options: &LoadOptions) -> Result<(u64, Option<String>), Failure> {
        loop {
            let kept = match self.sender.take() {
                Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
                None => None,
            };
            let mut sender = match kept {
                Some(sender) => sender,
                None => {
                    let sender = self.connect(options.timeout, None).await?;
                    self.tally().report.connections += 1;
                    sender
                }
            };
            let path = options.url.path_and_query().map_or("/", |path| path.as_str());
            let request = Request::get(path).header("host", &self.host).body(Empty::new());
            let request = request.map_err(|error| Failure::Unreachable(error.to_string()))?;
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => match error.take_message() {
                    // Nothing was sent: the idle connection had been closed.
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
                // The answer was complete, but the caller's client drops the connection.
                return Err(Failure::Refused(head.status.as_u16()));
            }
            let origin = head.headers.get(ORIGIN_HEADER).and_then(|name| name.to_str().ok()).map(str::to_owned);
            return Ok((bytes, origin));
        }
    }

    async fn connect(&self, timeout: Duration, buffer: Option<usize>) -> Result<SendRequest<Empty<Bytes>>, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Unreachable(error.to_string());
        let stream = connect_tls(&self.host, self.port, &self.host, self.tls.clone(), timeout);
        let stream = stream.await.map_err(|error| failed(&error))?;
        if let Some(bytes) = buffer {
            // If the system refuses, cuts only show later.
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
        assert_eq!(first.all_good_ms, None, "the other connection has had no good response");
        tally.good(1, began, 0, None);
        let second = tally.tick();
        assert_eq!((second.good, second.failed.len()), (1, 0), "what was reported is not reported again");
        assert!(second.all_good_ms.is_some());
        let mut report = tally.end();
        (report.requests, report.ok) = (report.requests - 1, report.ok - 1);
        assert_eq!((report.requests, report.ok, report.failed(), report.bytes), (6, 2, 4, 20));
        assert_eq!(report.told, ["no answer in time", "status 503", "reset"]);
        assert_eq!(report.by_origin, BTreeMap::from([("eu".to_owned(), 1)]));
    }

    #[tokio::test]
    async fn invalid_urls_are_refused_and_refused_connections_are_counted() {
        // Bound but not listening, it refuses connections, and keeps the port.
        let held = tokio::net::TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = held.local_addr().unwrap().port();
        let options = |url: String, ca: PathBuf| LoadOptions {
            url: url.parse().unwrap(),
            connections: 1,
            time: Duration::from_secs(60),
            requests: Some(3),
            rate: Some(100),
            timeout: Duration::from_secs(5),
            transfers: 0,
            ca,
        };
        let refused =
            run(options("http://x/".into(), "/nonexistent".into()), |_| true, pending()).await.unwrap_err().to_string();
        assert!(refused.contains("https://"), "{refused}");
        let refused = run(options("https://x/".into(), "/nonexistent".into()), |_| true, pending())
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("/nonexistent"), "{refused}");
        let dir = tempfile::tempdir().unwrap();
        let root = sallyport_net::LocalCa::open_or_create(dir.path(), "lab.test").unwrap();
        drop(root);
        let unreachable = options(format!("https://127.0.0.1:{port}/"), dir.path().join("ca.pem"));
        let report = run(unreachable.clone(), |_| true, pending()).await.unwrap();
        assert!(report.requests == 3 && report.unreachable == 3, "{report:?}");
        let endless = LoadOptions { requests: None, time: Duration::from_secs(86_400), rate: Some(1), ..unreachable };
        let stopped = run(endless, |_| true, tokio::time::sleep(Duration::from_millis(50))).await.unwrap();
        assert!(stopped.requests == 1, "it ends when it is stopped, and reports its requests: {stopped:?}");
    }
}
