//! The requests and flows of a socket that ended lately: a bounded ring in memory.
//!
//! Writers never wait: an entry that finds the ring locked, or that comes too fast, is omitted and counted.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use http::Method;
use parking_lot::Mutex;
use sallyport_bus::{EndedFlow, EndedHttp};
use sallyport_http::RequestId;
use sallyport_model::{OriginRef, SocketRoute};
use sallyport_wire::LogBudget;

/// How many entries a socket has, and how much memory they take, in bytes.
const MAX_ENTRIES: usize = 256;
const MAX_SOCKET_BYTES: usize = 128 * 1024;
/// How much memory the entries of all sockets take, in bytes.
const MAX_ALL_BYTES: usize = 32 * 1024 * 1024;
/// The longest path in an entry, in bytes.
const MAX_PATH_BYTES: usize = 256;

/// The state that the rings of all sockets share.
#[derive(Debug)]
pub(crate) struct EndedShared {
    bytes: AtomicUsize,
    /// The number of the last entry. Starts from the clock, so that a later process has greater numbers.
    number: AtomicU64,
}

impl EndedShared {
    pub(crate) fn new() -> Arc<Self> {
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let number = u64::try_from(ms).unwrap_or_default() << 20;
        Arc::new(Self { bytes: AtomicUsize::new(0), number: AtomicU64::new(number) })
    }
}

/// The id of an entry.
#[derive(Debug)]
pub(crate) enum EntryId {
    /// A request.
    Request(RequestId),
    /// A flow.
    Flow(Box<str>),
}

/// A request or flow that has ended.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    pub(crate) duration_us: u64,
    pub(crate) first_byte_us: Option<u64>,
    pub(crate) client: SocketAddr,
    pub(crate) origin: Option<OriginRef>,
    pub(crate) identity: Option<Box<str>>,
    pub(crate) rule: Option<Box<str>>,
    pub(crate) bytes: (u64, u64),
    pub(crate) verdict: &'static str,
    /// Method, path and status of a request.
    pub(crate) http: Option<(Method, Box<str>, u16)>,
}

/// The path, cut to [`MAX_PATH_BYTES`].
pub(crate) fn kept_path(path: &str) -> Box<str> {
    path[..path.floor_char_boundary(MAX_PATH_BYTES)].into()
}

#[derive(Debug)]
struct KeptEntry {
    number: u64,
    ended_ms: i64,
    omitted_before: u32,
    entry: Entry,
}

impl KeptEntry {
    fn bytes(&self) -> usize {
        let Entry { id, identity, rule, http, .. } = &self.entry;
        let id = if let EntryId::Flow(id) = id { id.len() } else { 0 };
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let path = http.as_ref().map_or(0, |(_, path, _)| path.len());
        size_of::<Self>() + id + text(identity) + text(rule) + path
    }

    fn to_ended_flow(&self, route: &SocketRoute) -> EndedFlow {
        let Entry { id, duration_us, first_byte_us, client, origin, identity, rule, bytes, verdict, http } =
            &self.entry;
        let http = http.as_ref().map(|(method, path, status)| EndedHttp {
            method: method.as_str().to_owned(),
            path: path.to_string(),
            status: *status,
        });
        EndedFlow {
            number: self.number,
            id: match id {
                EntryId::Request(id) => id.as_str().to_owned(),
                EntryId::Flow(id) => id.to_string(),
            },
            socket: route.id,
            socket_name: route.name.clone(),
            transport: route.socket_type,
            tunnel: origin.and_then(OriginRef::tunnel),
            direct_origin: origin.and_then(OriginRef::direct),
            identity: identity.as_deref().map(str::to_owned),
            rule: rule.as_deref().map(str::to_owned),
            client: *client,
            ended_ms: self.ended_ms,
            duration_us: *duration_us,
            first_byte_us: *first_byte_us,
            bytes_in: bytes.0,
            bytes_out: bytes.1,
            verdict: (*verdict).to_owned(),
            http,
            omitted_before: self.omitted_before,
        }
    }
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<KeptEntry>,
    bytes: usize,
    budget: LogBudget,
}

/// The ring of one socket.
#[derive(Debug)]
pub(crate) struct Ended {
    shared: Arc<EndedShared>,
    ring: Mutex<Ring>,
    /// How many entries found the ring locked.
    passed_over: AtomicU32,
}

impl Ended {
    pub(crate) fn new(shared: Arc<EndedShared>, now: Instant) -> Self {
        let ring = Ring { entries: VecDeque::new(), bytes: 0, budget: LogBudget::new(now) };
        Self { shared, ring: Mutex::new(ring), passed_over: AtomicU32::new(0) }
    }

    /// Adds the entry, unless entries come too fast.
    pub(crate) fn keep(&self, now: Instant, entry: impl FnOnce() -> Entry) {
        let Some(mut ring) = self.ring.try_lock() else {
            self.passed_over.fetch_add(1, Relaxed);
            return;
        };
        let Some(omitted) = ring.budget.take(now) else { return };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let kept = KeptEntry {
            number: self.shared.number.fetch_add(1, Relaxed) + 1,
            ended_ms: i64::try_from(at.as_millis()).unwrap_or(i64::MAX),
            omitted_before: omitted.saturating_add(self.passed_over.swap(0, Relaxed)),
            entry: entry(),
        };
        let bytes = kept.bytes();
        let others = self.shared.bytes.fetch_add(bytes, Relaxed);
        let (mut freed, max) = (0, MAX_SOCKET_BYTES.saturating_sub(bytes));
        while ring.entries.len() >= MAX_ENTRIES || ring.bytes > max || others + bytes > MAX_ALL_BYTES + freed {
            let Some(oldest) = ring.entries.pop_front() else { break };
            freed += oldest.bytes();
            ring.bytes -= oldest.bytes();
        }
        self.shared.bytes.fetch_sub(freed, Relaxed);
        if others + bytes > MAX_ALL_BYTES + freed {
            // The memory belongs to the rings of other sockets.
            self.shared.bytes.fetch_sub(bytes, Relaxed);
            self.passed_over.fetch_add(kept.omitted_before.saturating_add(1), Relaxed);
            return;
        }
        ring.bytes += bytes;
        ring.entries.push_back(kept);
    }

    /// Adds at most `limit` entries to `found`, by their numbers: the first ones after `after`, or the newest ones
    /// without it.
    pub(crate) fn find(
        &self,
        route: &SocketRoute,
        after: Option<u64>,
        limit: usize,
        found: &mut BTreeMap<u64, EndedFlow>,
    ) {
        let ring = self.ring.lock();
        match after {
            None => {
                for kept in ring.entries.iter().rev() {
                    if found.len() >= limit {
                        if found.first_key_value().is_none_or(|(first, _)| kept.number < *first) {
                            return;
                        }
                        found.pop_first();
                    }
                    found.insert(kept.number, kept.to_ended_flow(route));
                }
            }
            Some(after) => {
                let from = ring.entries.partition_point(|kept| kept.number <= after);
                for kept in ring.entries.iter().skip(from) {
                    if found.len() >= limit {
                        if found.last_key_value().is_none_or(|(last, _)| kept.number > *last) {
                            return;
                        }
                        found.pop_last();
                    }
                    found.insert(kept.number, kept.to_ended_flow(route));
                }
            }
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let bytes = self.ring.get_mut().bytes;
        self.shared.bytes.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_model::{AccountId, OriginProtocol, SocketId, SocketSettings, SocketType};

    use super::*;

    fn route() -> SocketRoute {
        SocketRoute {
            id: SocketId::from_random([1; 16]),
            account: AccountId::from_random([2; 16]),
            name: "calm-bay-1000".parse().unwrap(),
            socket_type: SocketType::Http,
            origin_protocol: OriginProtocol::Auto,
            basic_auth: None,
            port: None,
            settings: SocketSettings::default(),
            policies: Vec::new(),
            client_authority: None,
            tunnels: Vec::new(),
            origins: Vec::new(),
            domains: Vec::new(),
        }
    }

    fn entry(number: u64) -> Entry {
        Entry {
            id: EntryId::Flow(number.to_string().into()),
            duration_us: number,
            first_byte_us: None,
            client: "192.0.2.1:1".parse().unwrap(),
            origin: None,
            identity: None,
            rule: None,
            bytes: (0, 0),
            verdict: "complete",
            http: Some((Method::GET, kept_path(&"ü".repeat(1_000)), 200)),
        }
    }

    fn ids(rings: &[&Ended], after: Option<u64>, limit: usize) -> (Vec<String>, u64) {
        let mut found = BTreeMap::new();
        rings.iter().for_each(|ring| ring.find(&route(), after, limit, &mut found));
        let last = found.last_key_value().map_or(0, |(number, _)| *number);
        (found.into_values().map(|entry| entry.id).collect(), last)
    }

    #[test]
    fn the_newest_stay_and_are_found_in_order_over_several_sockets() {
        let shared = EndedShared::new();
        let now = Instant::now();
        let (one, two) = (Ended::new(shared.clone(), now), Ended::new(shared.clone(), now));
        // At a rate that can be read.
        let at = |number: u64| now + Duration::from_secs(number);
        for number in 0..1_000 {
            let ring = if number % 2 == 0 { &one } else { &two };
            ring.keep(at(number), || entry(number));
        }
        let rings = [&one, &two];
        let (newest, _) = ids(&rings, None, 3);
        assert_eq!(newest, ["997", "998", "999"]);
        let mut after = 0;
        let mut all = Vec::new();
        loop {
            let (page, last) = ids(&rings, Some(after), 7);
            if page.is_empty() {
                break;
            }
            all.extend(page);
            after = last;
        }
        assert!(all.len() > 100 && all.len() <= 2 * MAX_ENTRIES, "{}", all.len());
        let first: usize = all[0].parse().unwrap();
        assert_eq!(all, (first..1_000).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(shared.bytes.load(Relaxed) <= 2 * MAX_SOCKET_BYTES);
        drop((one, two));
        assert_eq!(shared.bytes.load(Relaxed), 0, "dropped rings take no memory");
    }

    #[test]
    fn entries_beyond_the_rate_are_omitted_and_counted() {
        let now = Instant::now();
        let ring = Ended::new(EndedShared::new(), now);
        (0..10_000).for_each(|number| ring.keep(now, || entry(number)));
        ring.keep(now + Duration::from_secs(60), || entry(10_000));
        let mut found = BTreeMap::new();
        ring.find(&route(), None, 10_000, &mut found);
        let left_out: u64 = found.values().map(|entry| u64::from(entry.omitted_before)).sum();
        assert!(left_out > 9_000, "{left_out}");
        assert_eq!(left_out + found.len() as u64, 10_001);
    }

    #[test]
    fn all_sockets_together_have_a_bound() {
        let shared = EndedShared::new();
        shared.bytes.store(MAX_ALL_BYTES - 1_000, Relaxed);
        let now = Instant::now();
        let ring = Ended::new(shared.clone(), now);
        (0..20).for_each(|number| ring.keep(now, || entry(number)));
        assert_eq!(ids(&[&ring], None, 100).0.last().map(String::as_str), Some("19"), "its own oldest make way");
        assert!(shared.bytes.load(Relaxed) <= MAX_ALL_BYTES);
        let other = Ended::new(shared.clone(), now);
        shared.bytes.store(MAX_ALL_BYTES, Relaxed);
        other.keep(now, || entry(1));
        assert!(ids(&[&other], None, 100).0.is_empty());
        shared.bytes.store(MAX_SOCKET_BYTES, Relaxed);
    }
}
