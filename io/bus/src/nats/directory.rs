//! The directory of tunnels over the bus: each edge writes its own entries, and every machine reads all of them.

use std::time::{Duration, Instant};

use async_nats::jetstream::{
    context::PublishError,
    kv::{Operation, Store},
    publish::PublishAck,
};
use sallyport_directory::{Ask, BEAT, DirectoryWrite, EdgeCard, Holder, Lease, Reader, TunnelEntry};
use sallyport_model::{EdgeId, TunnelId};
use tokio::{
    sync::{broadcast, watch},
    task::JoinSet,
};
use tracing::{debug, info, warn};

use super::{
    DIRECTORY_BUCKET, Nats, OPEN_AGAIN,
    buckets::{BucketEntry, BucketWatch},
};
use crate::{Directory, Fleet};

/// Consecutive failed writes after which the bucket is opened again.
const MAX_FAILURES: usize = 3;
/// The longest pause of the loop, which also detects staleness.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Timeout of a listing.
const LIST_TIME: Duration = Duration::from_secs(2);
/// The longest silence of an edge that takes over, well below the [`sallyport_directory::TERM`] of its predecessor's
/// last beat.
const MAX_SILENT: Duration = Duration::from_millis(2_500);
/// Interval at which such an edge checks the tunnels it holds.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Timeout of the message that announces the end of this edge.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The role of this machine in the directory.
#[derive(Debug, Clone)]
pub enum DirectoryRole {
    /// An edge: publishes the tunnels of its own directory.
    Edge {
        /// The edge's description of itself.
        card: watch::Receiver<EdgeCard>,
        /// Number of the edge's run, greater than those of all earlier runs.
        epoch: u64,
        /// The edge's own tunnels.
        own: Directory,
        /// The edge takes over from a process that has just stopped publishing. The edge stays silent until it holds
        /// the same tunnels as its predecessor, or for a few seconds at most, so that no tunnel seems to be gone in
        /// between.
        takes_over: bool,
        /// Becomes true when the edge stops.
        ends: watch::Receiver<bool>,
    },
    /// A control: receives the tunnels of all edges.
    Control {
        /// A unique name, under which the control receives its own message.
        name: String,
        /// Receives the tunnels of all edges.
        all: Directory,
    },
}

struct Part {
    fleet: Fleet,
    reader: Reader,
    /// Receives the tunnels of all edges.
    all: Option<Directory>,
    edge: Option<Own>,
    /// The key of the control's own message, its proof that the bus delivers.
    echo: Option<String>,
    refused: u64,
}

struct Own {
    id: EdgeId,
    card: watch::Receiver<EdgeCard>,
    holder: Holder,
    directory: Directory,
    ends: watch::Receiver<bool>,
    /// End of the silence, unless the edge holds its predecessor's tunnels earlier.
    silent_until: Option<Instant>,
}

impl Own {
    /// Whether the edge still has to be silent.
    fn is_silent(&mut self, reader: &Reader, is_complete: bool, now: Instant) -> bool {
        let Some(until) = self.silent_until else { return false };
        let has_all = || reader.known(self.id).all(|tunnel| self.directory.get(tunnel).is_some());
        if now >= until || (is_complete && has_all()) {
            self.silent_until = None;
        }
        self.silent_until.is_some()
    }
}

/// Takes part in the directory and fills `fleet`. Runs until dropped, or until the edge has announced its end.
pub async fn follow_directory(nats: Nats, role: DirectoryRole, fleet: Fleet) {
    let now = Instant::now();
    let (all, edge, echo) = match role {
        DirectoryRole::Edge { card, epoch, own, takes_over, ends } => {
            let silent_until = takes_over.then_some(now + MAX_SILENT);
            let current = card.borrow().clone();
            let own = Own {
                id: current.edge,
                card,
                holder: Holder::new(current, epoch, now),
                directory: own,
                ends,
                silent_until,
            };
            (None, Some(own), None)
        }
        DirectoryRole::Control { name, all } => (Some(all), None, Some(format!("control.{name}"))),
    };
    let (to_mind, to_fill) = (fleet.clone(), all.clone());
    let part = Part { fleet, reader: Reader::new(now), all, edge, echo, refused: 0 };
    match to_fill {
        Some(all) => tokio::select! {
            () = part.run(nats) => {}
            () = to_mind.follow_orders(&all) => {}
        },
        None => part.run(nats).await,
    }
}

/// The result of a write.
type Written = (WrittenEntry, Result<PublishAck, PublishError>);

/// What was written.
enum WrittenEntry {
    /// A tunnel, in this version.
    Tunnel(TunnelId, u64),
    /// A beat of the edge, sent at this time.
    Beat(Instant),
    /// The message that a control waits for.
    Echo,
}

impl Part {
    /// Takes part until the edge has announced its end.
    async fn run(mut self, nats: Nats) {
        let mut was_told = String::new();
        loop {
            let connection = tokio::select! {
                connection = nats.up() => connection,
                () = self.go_stale() => continue,
                () = self.ending() => return,
            };
            let why = tokio::select! {
                () = nats.over(connection) => String::new(),
                ended = self.follow(&nats) => match ended {
                    Ok(()) => return,
                    Err(error) => error,
                },
            };
            if !why.is_empty() && why != was_told {
                warn!(error = why, "cannot follow the directory: keeping the known state, trying again");
            }
            was_told = why;
            self.note_stale();
            tokio::time::sleep(OPEN_AGAIN).await;
        }
    }

    /// Reports the growing age of the known state from time to time.
    async fn go_stale(&self) {
        tokio::time::sleep(MAX_WAIT).await;
        self.note_stale();
    }

    fn note_stale(&self) {
        self.fleet.set_stale(self.reader.stale_since(Instant::now()));
    }

    /// Resolves when the edge stops.
    async fn ending(&self) {
        match &self.edge {
            Some(own) => {
                let mut ends = own.ends.clone();
                let is_over = ends.wait_for(|ends| *ends).await.is_ok();
                if !is_over {
                    std::future::pending::<()>().await;
                }
            }
            None => std::future::pending().await,
        }
    }

    /// Follows until a failure, and returns the reason; `Ok` when the edge has sent its last message.
    async fn follow(&mut self, nats: &Nats) -> Result<(), String> {
        let mut followed = BucketWatch::begin(nats, DIRECTORY_BUCKET).await?;
        let store = followed.store.clone();
        let mut changes = self.edge.as_ref().map(|own| own.directory.subscribe());
        self.take_all_own();
        let mut cards = self.edge.as_ref().map(|own| own.card.clone());
        if let Some(own) = &mut self.edge {
            let card = own.card.borrow().clone();
            own.holder.handle_card(card, Instant::now());
            own.holder.handle_bus_back(Instant::now());
        }
        let (mut writes, mut failures) = (JoinSet::<Written>::new(), 0);
        let mut next_echo = Instant::now();
        loop {
            self.write(nats, &mut writes, followed.is_complete).await?;
            self.update_fleet(&store).await;
            let now = Instant::now();
            if now >= next_echo {
                next_echo = now + BEAT;
                self.write_echo(nats, &mut writes).await?;
            }
            let wake = self.wake(now, next_echo);
            tokio::select! {
                came = followed.next() => self.read(came?),
                change = async {
                    match &mut changes {
                        Some(changes) => changes.recv().await,
                        None => std::future::pending().await,
                    }
                } => self.take_own(change),
                card = changed(&mut cards) => {
                    if let Some(own) = &mut self.edge {
                        own.holder.handle_card(card, Instant::now());
                    }
                }
                Some(written) = writes.join_next() => {
                    let Ok((entry, answer)) = written else { continue };
                    failures = if answer.is_ok() { 0 } else { failures + 1 };
                    self.written(entry, answer.is_ok());
                    if let Err(error) = answer
                        && failures >= MAX_FAILURES
                    {
                        return Err(format!("the bucket {DIRECTORY_BUCKET} accepts no writes: {error}"));
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => {
                    self.reader.handle_timeout(Instant::now());
                    self.note_stale();
                }
                () = self.ending() => {
                    self.announce_end(nats).await;
                    return Ok(());
                }
            }
        }
    }

    fn wake(&self, now: Instant, next_echo: Instant) -> Instant {
        let mut wake = (now + MAX_WAIT).min(next_echo);
        if let Some(own) = &self.edge {
            wake = wake.min(if own.silent_until.is_some() { now + LOOK_AGAIN } else { own.holder.poll_timeout() });
        }
        self.reader.poll_timeout(now).map_or(wake, |ends| wake.min(ends))
    }

    /// Sends the pending writes. The bucket keeps the order of sending.
    async fn write(&mut self, nats: &Nats, writes: &mut JoinSet<Written>, is_complete: bool) -> Result<(), String> {
        let Some(own) = &mut self.edge else { return Ok(()) };
        if own.is_silent(&self.reader, is_complete, Instant::now()) {
            return Ok(());
        }
        while let Some(write) = own.holder.poll_write(Instant::now()) {
            let (key, bytes, entry) = match &write {
                DirectoryWrite::Lease(lease) => {
                    (format!("edge.{}", own.id), lease.to_bytes(), WrittenEntry::Beat(Instant::now()))
                }
                DirectoryWrite::TunnelEntry(entry) => (
                    format!("tunnel.{}.{}", own.id, entry.tunnel),
                    entry.to_bytes(),
                    WrittenEntry::Tunnel(entry.tunnel, entry.version),
                ),
            };
            let bytes = bytes.map_err(|error| error.to_string())?;
            send(nats, &key, bytes, entry, writes).await?;
        }
        Ok(())
    }

    /// Writes the message that a control waits to receive itself.
    async fn write_echo(&mut self, nats: &Nats, writes: &mut JoinSet<Written>) -> Result<(), String> {
        match &self.echo {
            Some(key) => send(nats, key, Vec::new(), WrittenEntry::Echo, writes).await,
            None => Ok(()),
        }
    }

    async fn announce_end(&mut self, nats: &Nats) {
        let Some(own) = &mut self.edge else { return };
        own.silent_until = None;
        own.holder.handle_end(Instant::now());
        let mut writes = JoinSet::new();
        let announced = async {
            self.write(nats, &mut writes, true).await?;
            while writes.join_next().await.is_some() {}
            Ok::<_, String>(())
        };
        if !matches!(tokio::time::timeout(END_TIMEOUT, announced).await, Ok(Ok(()))) {
            debug!("the end of this edge could not be announced: its lease expires");
        }
    }

    fn written(&mut self, entry: WrittenEntry, is_done: bool) {
        let Some(own) = &mut self.edge else { return };
        match entry {
            WrittenEntry::Tunnel(tunnel, version) if is_done => own.holder.handle_written(tunnel, version),
            WrittenEntry::Tunnel(tunnel, version) => own.holder.handle_not_written(tunnel, version, Instant::now()),
            WrittenEntry::Beat(sent) if is_done => self.fleet.record_acknowledged(sent),
            WrittenEntry::Beat(_) | WrittenEntry::Echo => {}
        }
    }

    /// Handles a change of the edge's own tunnels.
    fn take_own(&mut self, change: Result<TunnelId, broadcast::error::RecvError>) {
        match change {
            Ok(tunnel) => {
                let Some(own) = &mut self.edge else { return };
                match own.directory.get(tunnel) {
                    Some(presence) => own.holder.handle_up(presence),
                    None => own.holder.handle_down(tunnel),
                }
            }
            Err(_) => self.take_all_own(),
        }
    }

    fn take_all_own(&mut self) {
        let Some(own) = &mut self.edge else { return };
        let present = own.directory.all();
        let gone: Vec<_> = own.holder.tunnel_ids().filter(|tunnel| own.directory.get(*tunnel).is_none()).collect();
        gone.into_iter().for_each(|tunnel| own.holder.handle_down(tunnel));
        present.into_iter().for_each(|presence| own.holder.handle_up(presence));
    }

    fn read(&mut self, came: BucketEntry) {
        let BucketEntry { entry, is_live } = came;
        let now = Instant::now();
        if self.echo.as_ref() == Some(&entry.key) {
            if is_live {
                self.reader.handle_delivery(now);
            }
            return;
        }
        if entry.operation != Operation::Put {
            return;
        }
        let read = if entry.key.starts_with("edge.") {
            Lease::from_bytes(&entry.value).map(|lease| {
                if is_live {
                    self.fleet.record_seen(lease.card.edge, now);
                }
                self.reader.handle_lease(lease, is_live, now)
            })
        } else if entry.key.starts_with("tunnel.") {
            TunnelEntry::from_bytes(&entry.value).map(|entry| self.reader.handle_tunnel(entry, is_live, now))
        } else {
            return;
        };
        match read {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.refuse(&entry.key, &error),
            Err(error) => self.refuse(&entry.key, &error),
        }
    }

    fn refuse(&mut self, key: &str, error: &dyn std::fmt::Display) {
        // Logged rarely: an edge of another version repeats its entries every second.
        if self.refused.is_multiple_of(1_000) {
            warn!(key, %error, "an entry of the directory is not accepted");
        }
        self.refused += 1;
    }

    /// Applies the changes to the fleet, and requests missing listings.
    async fn update_fleet(&mut self, store: &Store) {
        while let Some(change) = self.reader.poll_change() {
            match &change {
                sallyport_directory::Change::EdgeCame(card) => {
                    info!(edge = %card.name, region = %card.region, "edge joined")
                }
                sallyport_directory::Change::EdgeLeft(edge) => info!(%edge, "edge left"),
                _ => {}
            }
            self.fleet.apply(change, self.all.as_ref());
        }
        self.note_stale();
        while let Some(ask) = self.reader.poll_ask() {
            debug!(edge = %ask.edge, "reading the tunnels of an edge again");
            match list(store, ask).await {
                Ok(listed) => {
                    if let Err(error) = self.reader.handle_listing(ask, listed, Instant::now()) {
                        self.refuse("listing", &error);
                    }
                }
                Err(error) => debug!(error, "cannot read the tunnels of an edge: trying again"),
            }
            while let Some(change) = self.reader.poll_change() {
                self.fleet.apply(change, self.all.as_ref());
            }
        }
    }
}

/// The edge's card, once it changes.
async fn changed(cards: &mut Option<watch::Receiver<EdgeCard>>) -> EdgeCard {
    if let Some(cards) = cards
        && cards.changed().await.is_ok()
    {
        return cards.borrow_and_update().clone();
    }
    std::future::pending().await
}

async fn send(
    nats: &Nats,
    key: &str,
    bytes: Vec<u8>,
    entry: WrittenEntry,
    writes: &mut JoinSet<Written>,
) -> Result<(), String> {
    let sent = nats.jetstream.publish(format!("$KV.{DIRECTORY_BUCKET}.{key}"), bytes.into()).await;
    let answer = sent.map_err(|error| format!("cannot write {key}: {error}"))?;
    writes.spawn(async move { (entry, answer.await) });
    Ok(())
}

/// All entries of the edge in the bucket.
async fn list(store: &Store, ask: Ask) -> Result<Vec<TunnelEntry>, String> {
    let watch = store.watch_with_history(format!("tunnel.{}.>", ask.edge)).await;
    let mut watch = watch.map_err(|error| error.to_string())?;
    let mut listed = Vec::new();
    let ended = async {
        loop {
            let next = std::future::poll_fn(|context| {
                futures_core::Stream::poll_next(std::pin::Pin::new(&mut watch), context)
            });
            let Some(entry) = next.await else { return Ok(()) };
            let entry = entry.map_err(|error| error.to_string())?;
            if entry.operation == Operation::Put
                && let Ok(entry) = TunnelEntry::from_bytes(&entry.value)
            {
                listed.push(entry);
            }
            if entry.delta == 0 {
                return Ok::<_, String>(());
            }
        }
    };
    // Without any entry the listing delivers nothing and ends.
    match tokio::time::timeout(LIST_TIME, ended).await {
        Ok(ended) => ended.map(|()| listed),
        Err(_) if listed.is_empty() => Ok(listed),
        Err(_) => Err("the listing takes too long".to_owned()),
    }
}
