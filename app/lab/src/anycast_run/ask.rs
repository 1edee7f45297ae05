//! Requests to one address of a name: each on a connection of its own, or over and over on connections that stay.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use sallyport_net::{Trust, client_config, connect_tls};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    error::LabError,
    load::{MAX_CONNECTIONS, MAX_TOLD, percentile},
    service::ORIGIN_HEADER,
};

/// How many requests a second there may be.
pub const MAX_ASK_RATE: u32 = 1_000;
/// The pause between two requests of a connection that stays.
const FLOW_PAUSE: Duration = Duration::from_millis(200);

/// What to ask, and how.
#[derive(Debug, Clone)]
pub struct AskOptions {
    /// `https://HOST/PATH`.
    pub url: Uri,
    /// The address to which all requests go.
    pub address: IpAddr,
    /// Requests a second, each on a new connection.
    pub rate: u32,
    /// For how long.
    pub time: Duration,
    /// How many requests at most.
    pub requests: Option<u64>,
    /// How long each may take.
    pub patience: Duration,
    /// How many connections that stay, in place of new ones.
    pub flows: u16,
    /// The root certificate to trust.
    pub ca: std::path::PathBuf,
}

/// What became of the requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Requests.
    pub requests: u64,
    /// Requests without a good answer.
    pub failed: u64,
    /// Requests that were sent a second time, since their first connection broke.
    pub again: u64,
    /// From the start of the first failed request to the start of the last one, in milliseconds.
    pub failing_ms: u64,
    /// The longest time without a good answer, in milliseconds.
    pub longest_gap_ms: u64,
    /// Good answers by origin.
    pub by_origin: BTreeMap<String, u64>,
    /// The median time of a good answer with its connection, in microseconds.
    pub median_us: u64,
    /// Connections that were to stay.
    pub flows: u64,
    /// Those of them that broke.
    pub broken: u64,
    /// Why requests failed, each once.
    pub told: Vec<String>,
}

/// One request.
struct One {
    began: Instant,
    ended: Instant,
    is_again: bool,
    /// The origin, or why there was no good answer.
    outcome: Result<String, String>,
}

struct Target {
    host: String,
    address: String,
    port: u16,
    path: String,
    tls: Arc<rustls::ClientConfig>,
    patience: Duration,
}

/// Sends requests until the time is over or `stop` resolves, and waits for their answers.
///
/// # Errors
/// The options cannot be used: no host, or a bad root certificate.
pub async fn run(options: AskOptions, stop: impl Future<Output = ()>) -> Result<Asked, LabError> {
    let host = options.url.host().ok_or_else(|| LabError::Unfit(format!("{} has no host", options.url)))?;
    let tls = client_config(&Trust::Ca(options.ca.clone()), &[b"http/1.1"]);
    let target = Arc::new(Target {
        host: host.to_owned(),
        address: options.address.to_string(),
        port: options.url.port_u16().unwrap_or(443),
        path: options.url.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        tls: tls.map_err(|error| LabError::Unfit(error.to_string()))?,
        patience: options.patience,
    });
    let (stop_all, stopping) = watch::channel(false);
    let asked = async {
        match options.flows {
            0 => new_connections(target, &options, stopping).await,
            _ => flows(target, &options, stopping).await,
        }
    };
    tokio::pin!(asked, stop);
    loop {
        tokio::select! {
            asked = &mut asked => return Ok(asked),
            () = &mut stop, if !*stop_all.borrow() => drop(stop_all.send_replace(true)),
        }
    }
}

async fn new_connections(target: Arc<Target>, options: &AskOptions, mut stopping: watch::Receiver<bool>) -> Asked {
    let pause = Duration::from_secs(1) / options.rate.clamp(1, MAX_ASK_RATE);
    let (begins, mut all, mut done) = (Instant::now(), JoinSet::new(), Vec::new());
    let mut number = 0_u32;
    while u64::from(number) < options.requests.unwrap_or(u64::MAX) && pause * number < options.time {
        if is_stopped_until(begins + pause * number, &mut stopping).await {
            break;
        }
        number += 1;
        let target = target.clone();
        all.spawn(async move { target.ask_once().await });
        while let Some(one) = all.try_join_next() {
            done.extend(one);
        }
    }
    while let Some(one) = all.join_next().await {
        done.extend(one);
    }
    report(done)
}

/// Waits until then. Returns whether the requests are to stop.
async fn is_stopped_until(then: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep_until(then.into()) => false,
        _ = stopping.wait_for(|stop| *stop) => true,
    }
}

async fn flows(target: Arc<Target>, options: &AskOptions, stopping: watch::Receiver<bool>) -> Asked {
    let ends = Instant::now() + options.time;
    let mut all = JoinSet::new();
    for _ in 0..options.flows.min(MAX_CONNECTIONS) {
        let (target, stopping) = (target.clone(), stopping.clone());
        all.spawn(async move { target.flow(ends, stopping).await });
    }
    let mut asked = Asked::default();
    while let Some(Ok(outcome)) = all.join_next().await {
        asked.flows += 1;
        match outcome {
            Ok(requests) => asked.requests += requests,
            Err(why) => {
                asked.broken += 1;
                tell(&mut asked.told, why);
            }
        }
    }
    asked
}

impl Target {
    /// A request on a new connection. As browsers do, it is sent once more if the connection breaks, but not if nobody
    /// answers.
    async fn ask_once(&self) -> One {
        let began = Instant::now();
        let mut is_again = false;
        let asked = tokio::time::timeout(self.patience, async {
            match self.ask().await {
                Err(_) => {
                    is_again = true;
                    self.ask().await
                }
                done => done,
            }
        });
        let outcome = asked.await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        One { began, ended: Instant::now(), is_again, outcome }
    }

    async fn ask(&self) -> Result<String, String> {
        self.request(&mut self.connect().await?).await
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, String> {
        // Longer than the whole request may take: silence is no broken connection.
        let stream = connect_tls(&self.address, self.port, &self.host, self.tls.clone(), 2 * self.patience);
        let stream = stream.await.map_err(|error| error.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn request(&self, sender: &mut SendRequest<Empty<Bytes>>) -> Result<String, String> {
        let request = Request::get(&self.path).header("host", &self.host).body(Empty::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        body.collect().await.map_err(|error| error.to_string())?;
        if head.status.as_u16() >= 400 {
            return Err(format!("status {}", head.status.as_u16()));
        }
        let origin = head.headers.get(ORIGIN_HEADER).and_then(|name| name.to_str().ok());
        Ok(origin.unwrap_or_default().to_owned())
    }

    /// Requests on one connection until the end. Returns how many there were, or why the connection broke.
    async fn flow(&self, ends: Instant, mut stopping: watch::Receiver<bool>) -> Result<u64, String> {
        let late = |_| "no answer in time".to_owned();
        let mut sender = tokio::time::timeout(self.patience, self.connect()).await.map_err(late)??;
        let mut requests = 0;
        while Instant::now() < ends {
            tokio::time::timeout(self.patience, self.request(&mut sender)).await.map_err(late)??;
            requests += 1;
            if is_stopped_until(Instant::now() + FLOW_PAUSE, &mut stopping).await {
                break;
            }
        }
        Ok(requests)
    }
}

fn tell(told: &mut Vec<String>, why: String) {
    if told.len() < MAX_TOLD && !told.contains(&why) {
        told.push(why);
    }
}

fn report(mut all: Vec<One>) -> Asked {
    let mut asked = Asked { requests: all.len() as u64, ..Asked::default() };
    all.sort_by_key(|one| one.began);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (mut failing, mut times, mut good) = (None, Vec::new(), Vec::new());
    for one in &all {
        asked.again += u64::from(one.is_again);
        match &one.outcome {
            Ok(origin) => {
                *asked.by_origin.entry(origin.clone()).or_default() += 1;
                times.push(u64::try_from((one.ended - one.began).as_micros()).unwrap_or(u64::MAX));
                good.push(one.ended);
            }
            Err(why) => {
                asked.failed += 1;
                let (first, _) = *failing.get_or_insert((one.began, one.began));
                failing = Some((first, one.began));
                tell(&mut asked.told, why.clone());
            }
        }
    }
    times.sort_unstable();
    good.sort_unstable();
    asked.median_us = percentile(&times, 50);
    asked.failing_ms = failing.map_or(0, |(first, last)| ms(last - first));
    asked.longest_gap_ms = good.windows(2).map(|pair| ms(pair[1] - pair[0])).max().unwrap_or_default();
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_span_from_the_first_to_the_last_and_gaps_are_between_good_answers() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let one = |began: u64, ended: u64, outcome: Result<&str, &str>| One {
            began: at(began),
            ended: at(ended),
            is_again: began == 20,
            outcome: outcome.map(str::to_owned).map_err(str::to_owned),
        };
        let asked = report(vec![
            one(300, 310, Ok("a")),
            one(0, 10, Ok("a")),
            one(20, 40, Ok("b")),
            one(50, 950, Err("late")),
            one(250, 1_150, Err("late")),
        ]);
        assert_eq!((asked.requests, asked.failed, asked.again), (5, 2, 1));
        assert_eq!((asked.failing_ms, asked.longest_gap_ms), (200, 270));
        assert_eq!(asked.by_origin, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
        assert_eq!((asked.told, asked.median_us), (vec!["late".to_owned()], 10_000));
        assert_eq!(report(Vec::new()), Asked::default());
    }
}
