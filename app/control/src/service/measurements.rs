//! Measurements of the catchment by pings from an anycast address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use http::StatusCode;
use sallyport_api::{
    MAX_MEASUREMENT_RATE, Measurement, MeasurementPage, MeasurementState, MeasuringEdge, StartMeasurement,
};
use sallyport_bus::{
    Answer, Answered, Ask, CatchmentAnswer, CatchmentAsk, MAX_ASKED_TARGETS, MeasurementKey, MeasurementProgress,
    OpenMeasurement, TargetResult,
};
use sallyport_catchment::{Prefix, Row, Source};
use sallyport_model::{EdgeId, RegionName};
use sallyport_ping::is_one_host;
use sallyport_store::{MAX_PING_TARGETS, StoredMeasurement};

use crate::{
    clock::date,
    config::{LONE_NAME, LONE_REGION},
    problem::ApiError,
    security::random,
    state::App,
};

/// The most requests a second, unless the request gives another number.
const DEFAULT_RATE: u32 = 500;
/// How long replies may be on their way, in seconds.
const DEFAULT_WAIT_SECONDS: u32 = 3;
const MAX_WAIT_SECONDS: u32 = 30;
/// How often edges are asked how far they are.
const POLL: Duration = Duration::from_millis(500);
/// How much longer than planned a measurement may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// An edge that takes part.
struct Party {
    edge: Option<EdgeId>,
    site: RegionName,
    shown: MeasuringEdge,
    can_catch: bool,
    is_lost: bool,
}

/// A measurement that runs.
struct Run {
    app: App,
    measurement: Measurement,
    started_at: i64,
    targets: Vec<IpAddr>,
    open: OpenMeasurement,
    wait: Duration,
    parties: Vec<Party>,
}

impl App {
    /// Starts a measurement. It goes on by itself.
    pub(crate) async fn start_measurement(&self, start: &StartMeasurement) -> Result<Measurement, ApiError> {
        let address: IpAddr = start.address.parse().map_err(|_| ApiError::field("address", "this is no IP address"))?;
        let address = address.to_canonical();
        if !is_one_host(address) {
            return Err(ApiError::field("address", format!("{address} is not the address of one host")));
        }
        let rate = start.rate.unwrap_or(DEFAULT_RATE);
        if !(1..=MAX_MEASUREMENT_RATE).contains(&rate) {
            let detail = format!("expected a whole number from 1 to {MAX_MEASUREMENT_RATE}");
            return Err(ApiError::field("rate", detail));
        }
        let wait = start.wait_seconds.unwrap_or(DEFAULT_WAIT_SECONDS);
        if !(1..=MAX_WAIT_SECONDS).contains(&wait) {
            let detail = format!("expected a whole number from 1 to {MAX_WAIT_SECONDS}");
            return Err(ApiError::field("wait_seconds", detail));
        }
        let (targets, opted_out) = self.targets_for(address).await?;
        let started_at = self.clock.now().unix_seconds;
        let id = uuid::Builder::from_random_bytes(random::bytes().map_err(ApiError::internal)?).into_uuid().to_string();
        let key = MeasurementKey(random::bytes().map_err(ApiError::internal)?);
        let identifier = u16::from_be_bytes(random::bytes().map_err(ApiError::internal)?);
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        let measurement = Measurement {
            id: id.clone(),
            address: address.to_string(),
            state: MeasurementState::Running,
            why: None,
            started_at: date(started_at),
            from: start.from.clone(),
            targets: count(targets.len()),
            opted_out: count(opted_out),
            landed: 0,
            split: 0,
            edges: Vec::new(),
        };
        let open = OpenMeasurement { id, key, identifier, address, rate, measures_round_trips: !start.landings_only };
        let wait = Duration::from_secs(wait.into());
        let run = Run { app: self.clone(), measurement, started_at, targets, open, wait, parties: Vec::new() };
        if let Some(other) = self.store.begin_measurement(&run.stored()?).await? {
            let detail = format!("the measurement {other} runs: wait for its end");
            return Err(ApiError::new(StatusCode::CONFLICT, "measurement-runs", detail));
        }
        let measurement = run.measurement.clone();
        tokio::spawn(run.run());
        Ok(measurement)
    }

    /// The last measurements. One that was lost with its control has failed.
    pub(crate) async fn measurements(&self) -> Result<MeasurementPage, ApiError> {
        let now = self.clock.now().unix_seconds;
        let stored = self.store.measurements().await?;
        let read = |one: StoredMeasurement| {
            let mut measurement: Measurement = serde_json::from_str(&one.state).ok()?;
            if !one.is_done && one.beat_at + sallyport_store::MEASUREMENT_LOST_SECONDS < now {
                measurement.state = MeasurementState::Failed;
                measurement.why = Some("the control that ran it is gone".to_owned());
            }
            Some(measurement)
        };
        Ok(MeasurementPage { items: stored.into_iter().filter_map(read).collect() })
    }

    /// The addresses to ping for an anycast address, and how many networks were left out: those that the operator has
    /// listed; without any, an address of each network of clients.
    async fn targets_for(&self, address: IpAddr) -> Result<(Vec<IpAddr>, usize), ApiError> {
        let mut targets = self.store.ping_targets().await?;
        if targets.is_empty() {
            let clients = self.store.catchment().await?.into_iter().filter(|row| row.source == Source::Clients);
            let prefixes: BTreeSet<Prefix> = clients.map(|row| row.prefix).collect();
            targets = prefixes.into_iter().map(|prefix| first_host(prefix.first())).collect();
        }
        targets.retain(|target| target.is_ipv4() == address.is_ipv4());
        let opt_outs: BTreeSet<Prefix> = self.store.ping_opt_outs().await?.into_iter().collect();
        let before = targets.len();
        targets.retain(|target| !opt_outs.contains(&Prefix::of(*target)));
        let opted_out = before - targets.len();
        targets.truncate(MAX_PING_TARGETS);
        if targets.is_empty() {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let detail = format!(
                "there is no network of {family} to ping: give addresses with `sallyport catchment measure --targets FILE`"
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "no-targets", detail));
        }
        Ok((targets, opted_out))
    }
}

/// The first address of a network that a host is likely to have.
fn first_host(network: IpAddr) -> IpAddr {
    match network {
        IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits() | 1).into(),
        IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits() | 1).into(),
    }
}

impl Run {
    async fn run(mut self) {
        let outcome = self.measure().await;
        let forged = self.parties.iter().map(|party| party.shown.forged).sum();
        match outcome {
            Ok(()) => {
                self.measurement.state = MeasurementState::Done;
                self.app.metrics.catchment.measured("done", forged);
            }
            Err(why) => {
                tracing::warn!(id = self.measurement.id, why, "a measurement of the catchment has failed");
                self.measurement.state = MeasurementState::Failed;
                self.measurement.why = Some(why);
                self.app.metrics.catchment.measured("failed", forged);
            }
        }
        self.ask_all(CatchmentAsk::Close { id: self.open.id.clone() }).await;
        self.keep().await;
    }

    async fn measure(&mut self) -> Result<(), String> {
        self.open().await;
        let sender = self.choose_sender()?;
        self.measurement.from = Some(sender.1);
        let sender = sender.0;
        for at in (0..self.targets.len()).step_by(MAX_ASKED_TARGETS) {
            let first = u32::try_from(at).unwrap_or(u32::MAX);
            let targets = self.targets.iter().skip(at).take(MAX_ASKED_TARGETS).copied().collect();
            let ask = CatchmentAsk::Targets { id: self.open.id.clone(), first, targets };
            let answered = self.ask_all(ask).await;
            self.take_done(&answered, sender)?;
            self.keep().await;
        }
        let id = self.open.id.clone();
        let ask = |edge| Ask::Catchment(CatchmentAsk::Begin { id: id.clone(), is_sender: edge == sender });
        let answered = self.app.config.asker.ask_each(ask).await.answered;
        self.take_done(&answered, sender)?;
        let rate = f64::from(self.open.rate);
        let deadline = Instant::now() + Duration::from_secs_f64(2.0 * self.targets.len() as f64 / rate) + PATIENCE;
        while self.is_busy().await && Instant::now() < deadline {
            self.keep().await;
            tokio::time::sleep(POLL).await;
        }
        tokio::time::sleep(self.wait).await;
        self.keep().await;
        let rows = self.results().await;
        self.app.store.put_catchment(&rows).await.map_err(|error| error.to_string())?;
        self.app.metrics.catchment.wrote(Source::Ping, rows.len());
        Ok(())
    }

    async fn ask_all(&self, ask: CatchmentAsk) -> Vec<Answered> {
        self.app.config.asker.ask_all(&Ask::Catchment(ask)).await.answered
    }

    async fn open(&mut self) {
        let answered = self.ask_all(CatchmentAsk::Open(self.open.clone())).await;
        for one in answered {
            let (edge, name, site) = match &one.edge {
                Some(card) => (Some(card.edge), card.name.to_string(), Some(card.region.clone())),
                None => (None, LONE_NAME.to_owned(), LONE_REGION.parse().ok()),
            };
            let Some(site) = site else { continue };
            let (can_catch, why) = match one.answer {
                Answer::Catchment(CatchmentAnswer::Opened { why_not_here }) => (why_not_here.is_none(), why_not_here),
                Answer::Catchment(CatchmentAnswer::Refused(why)) => (false, Some(why)),
                _ => (false, Some("the edge runs another version of the program".to_owned())),
            };
            let shown = MeasuringEdge {
                edge: name,
                site: site.to_string(),
                why,
                sent: 0,
                unsent: 0,
                refused: 0,
                landed: 0,
                timed: 0,
                duplicates: 0,
                forged: 0,
            };
            self.parties.push(Party { edge, site, shown, can_catch, is_lost: false });
        }
        self.parties.sort_by(|one, other| one.shown.edge.cmp(&other.shown.edge));
    }

    /// The edge that sends, and its name.
    fn choose_sender(&self) -> Result<(Option<EdgeId>, String), String> {
        let wanted = self.measurement.from.as_deref();
        if let Some(wanted) = wanted
            && !self.parties.iter().any(|party| party.shown.edge == wanted)
        {
            return Err(format!("no edge {wanted:?} is there"));
        }
        let mut named = self.parties.iter().filter(|party| wanted.is_none_or(|wanted| party.shown.edge == wanted));
        if let Some(party) = named.find(|party| party.can_catch) {
            return Ok((party.edge, party.shown.edge.clone()));
        }
        let why = self.parties.iter().find_map(|party| party.shown.why.clone());
        let why = why.unwrap_or_else(|| "no edge is there".to_owned());
        Err(format!("no edge can send from {}: {why}", self.open.address))
    }

    /// Notes the edges that did not do what they were asked. The sender must.
    fn take_done(&mut self, answered: &[Answered], sender: Option<EdgeId>) -> Result<(), String> {
        for party in self.parties.iter_mut().filter(|party| !party.is_lost) {
            let answer = answered.iter().find(|one| one.edge.as_ref().map(|card| card.edge) == party.edge);
            let why = match answer.map(|one| &one.answer) {
                Some(Answer::Catchment(CatchmentAnswer::Done)) => continue,
                Some(Answer::Catchment(CatchmentAnswer::Refused(why))) => why.clone(),
                _ => "the edge did not respond".to_owned(),
            };
            party.is_lost = true;
            if party.edge == sender {
                return Err(format!("{}: {why}", party.shown.edge));
            }
            party.shown.why = Some(why);
        }
        Ok(())
    }

    /// Asks how far edges are. Returns whether one of them still measures.
    async fn is_busy(&mut self) -> bool {
        let answered = self.ask_all(CatchmentAsk::Progress { id: self.open.id.clone(), from: u32::MAX }).await;
        let mut is_busy = false;
        for one in answered {
            let edge = one.edge.as_ref().map(|card| card.edge);
            let Answer::Catchment(CatchmentAnswer::Progress(progress)) = one.answer else { continue };
            is_busy |= progress.is_busy;
            if let Some(party) = self.parties.iter_mut().find(|party| party.edge == edge) {
                party.shown.take(&progress);
            }
        }
        self.measurement.landed = self.parties.iter().map(|party| party.shown.landed).sum();
        is_busy
    }

    /// The rows of all results.
    async fn results(&mut self) -> Vec<Row> {
        let seen = self.app.clock.now().unix_seconds;
        let mut rows: BTreeMap<(u32, RegionName), Row> = BTreeMap::new();
        for at in 0..self.parties.len() {
            let (edge, site) = (self.parties[at].edge, self.parties[at].site.clone());
            let results = self.results_of(at, edge).await;
            self.parties[at].shown.timed =
                u64::try_from(results.iter().filter(|one| one.us.is_some()).count()).unwrap_or(u64::MAX);
            for one in results {
                let Some(target) = usize::try_from(one.number).ok().and_then(|number| self.targets.get(number)) else {
                    continue;
                };
                let new = || {
                    let (system, country) = self.app.place_of(*target);
                    Row { system, country, ..Row::new(Prefix::of(*target), site.clone(), Source::Ping, seen) }
                };
                let row = rows.entry((one.number, site.clone())).or_insert_with(new);
                row.requests = row.requests.max(u64::from(one.has_landed));
                let time = one.us.map(|us| Duration::from_micros(us.into()));
                row.round_trip = [row.round_trip, time].into_iter().flatten().min();
            }
        }
        let mut landed: BTreeMap<u32, u64> = BTreeMap::new();
        for ((number, _), _) in rows.iter().filter(|(_, row)| row.requests > 0) {
            *landed.entry(*number).or_default() += 1;
        }
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        self.measurement.landed = count(landed.len());
        self.measurement.split = count(landed.values().filter(|sites| **sites > 1).count());
        rows.into_values().collect()
    }

    /// All results of an edge.
    async fn results_of(&mut self, at: usize, edge: Option<EdgeId>) -> Vec<TargetResult> {
        let mut results: Vec<TargetResult> = Vec::new();
        let mut from = 0;
        // Each page has a result at least, or is the last.
        while results.len() < self.targets.len() {
            let ask = Ask::Catchment(CatchmentAsk::Progress { id: self.open.id.clone(), from });
            let answered = match edge {
                Some(edge) => self.app.config.asker.ask_these(&[edge], &ask).await.answered,
                None => self.app.config.asker.ask_all(&ask).await.answered,
            };
            let progress = answered.into_iter().find_map(|one| match one.answer {
                Answer::Catchment(CatchmentAnswer::Progress(progress)) => Some(progress),
                _ => None,
            });
            let Some(progress) = progress else {
                self.parties[at].shown.why.get_or_insert_with(|| "the edge did not give its results".to_owned());
                break;
            };
            self.parties[at].shown.take(&progress);
            let last = progress.results.last().map(|last| last.number);
            results.extend(progress.results);
            match last.and_then(|last| last.checked_add(1)) {
                Some(next) if progress.has_more && next > from => from = next,
                _ => break,
            }
        }
        results
    }

    fn stored(&self) -> Result<StoredMeasurement, ApiError> {
        Ok(StoredMeasurement {
            id: self.measurement.id.clone(),
            started_at: self.started_at,
            beat_at: self.app.clock.now().unix_seconds,
            is_done: self.measurement.state != MeasurementState::Running,
            state: serde_json::to_string(&self.measurement).map_err(ApiError::internal)?,
        })
    }

    /// Writes how far the measurement is.
    async fn keep(&mut self) {
        self.measurement.edges = self.parties.iter().map(|party| party.shown.clone()).collect();
        let Ok(stored) = self.stored() else { return };
        if let Err(error) = self.app.store.put_measurement(&stored).await {
            tracing::debug!(%error, "the state of a measurement cannot be written");
        }
    }
}

/// Takes the counts of an edge.
trait TakeCounts {
    fn take(&mut self, progress: &MeasurementProgress);
}

impl TakeCounts for MeasuringEdge {
    fn take(&mut self, progress: &MeasurementProgress) {
        self.sent = progress.sent;
        self.unsent = progress.unsent;
        self.refused = progress.refused;
        self.landed = progress.counted;
        self.duplicates = progress.duplicates;
        self.forged = progress.forged;
    }
}
