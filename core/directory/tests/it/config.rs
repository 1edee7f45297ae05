//! Two controls with one store, a bucket, and edges with disks, in random schedules. Messages are late, duplicated,
//! reordered or lost, writes seem to fail, all processes lose the bus and restart, and the bucket is lost.
//! `DIRECTORY_SEED=N` repeats one schedule.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sallyport_directory::config::{EntryContent, Keeper, Mend, Replica, StoredEntry};

use crate::{simulation::each_schedule, world::Dice};

const KEYS: u64 = 5;
const META: &str = "meta";
/// Steps of every process after all faults have ended: far more than needed.
const STEPS_TO_HEAL: usize = 400;

type Value = u8;

fn key(number: u64) -> String {
    format!("key.{number}")
}

/// A bucket entry. The state is that of the store as the writer had read it: the first state of a key is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    revision: u64,
    value: Option<Value>,
    state: usize,
}

#[derive(Default)]
struct Bucket {
    revision: u64,
    entries: BTreeMap<String, Written>,
}

impl Bucket {
    fn write(&mut self, key: &str, value: Option<Value>, state: usize, replaces: u64) -> Option<u64> {
        let there = self.entries.get(key);
        if there.map_or(0, |there| there.revision) != replaces {
            return None;
        }
        let is_newer = there.is_none_or(|there| there.state <= state);
        assert!(is_newer, "{key} was {there:?} and is to be as it was in state {state}");
        self.revision += 1;
        self.entries.insert(key.to_owned(), Written { revision: self.revision, value, state });
        Some(self.revision)
    }

    /// The next entry after this revision, without entries that were replaced since.
    fn after(&self, revision: u64) -> Option<(String, Written)> {
        let behind = self.entries.iter().filter(|(_, entry)| entry.revision > revision);
        behind.min_by_key(|(_, entry)| entry.revision).map(|(key, entry)| (key.clone(), *entry))
    }
}

/// The successive states of each key.
#[derive(Default)]
struct Store {
    states: BTreeMap<String, Vec<Option<Value>>>,
}

impl Store {
    fn now(&self, key: &str) -> (Option<Value>, usize) {
        self.states.get(key).map_or((None, 0), |states| (states.last().copied().flatten(), states.len()))
    }

    fn all(&self) -> BTreeMap<String, Value> {
        self.states.keys().filter_map(|key| Some((key.clone(), self.now(key).0?))).collect()
    }
}

/// The current step of a control.
enum Task {
    Read { key: String },
    Write { key: String, mend: Mend, value: Option<Value>, state: usize },
    ReadBack { key: String },
}

#[derive(Default)]
struct Control {
    has_bus: bool,
    keeper: Keeper<u64>,
    position: u64,
    listed_to: u64,
    hints: VecDeque<String>,
    task: Option<Task>,
    is_to_reconcile: bool,
    /// The result of a comparison, followed by the completeness mark.
    mending: Option<VecDeque<String>>,
}

impl Control {
    fn begin(&mut self, bucket: &Bucket) {
        *self = Self { has_bus: true, listed_to: bucket.revision, is_to_reconcile: true, ..Self::default() };
    }

    fn read(&mut self, bucket: &Bucket) {
        if let Some((key, entry)) = bucket.after(self.position) {
            self.position = entry.revision;
            self.keeper.handle_entry(&key, kept(entry));
        }
    }

    fn step(&mut self, store: &Store, bucket: &mut Bucket, dice: &mut Dice, failing: u64) {
        if !self.has_bus {
            return;
        }
        let is_listed = bucket.after(self.position).is_none_or(|(_, entry)| entry.revision > self.listed_to);
        if !is_listed || dice.percent(40) {
            return self.read(bucket);
        }
        self.task = match self.task.take() {
            None => self.next(store, bucket),
            Some(Task::Read { key }) => {
                // The basis is taken before the store is read; nothing else happens at this control in between.
                let basis = self.keeper.basis(&key);
                let (value, state) = if key == META { (Some(1), 1) } else { store.now(&key) };
                match self.keeper.mend(&key, basis, value.map(|value| vec![value]).as_deref()) {
                    Mend::Nothing => None,
                    mend => Some(Task::Write { key, mend, value, state }),
                }
            }
            Some(Task::Write { key, mend, value, state }) => {
                let (is_done, is_live) = (!dice.percent(failing), !dice.percent(failing));
                let replaces = match mend {
                    Mend::Put(revision) | Mend::Remove(revision) => revision,
                    Mend::Nothing => unreachable!(),
                };
                let written = is_done.then(|| bucket.write(&key, value, state, replaces));
                match written.filter(|_| is_live) {
                    None => return self.begin(bucket),
                    Some(None) => Some(Task::ReadBack { key }),
                    Some(Some(revision)) => {
                        match value {
                            Some(_) => self.keeper.handle_put(&key, kept(Written { revision, value, state })),
                            None => self.keeper.handle_removed(&key, replaces, 0),
                        }
                        None
                    }
                }
            }
            Some(Task::ReadBack { key }) => {
                match bucket.entries.get(&key) {
                    Some(entry) => drop(self.keeper.handle_entry(&key, kept(*entry))),
                    None => self.keeper.handle_nothing(&key),
                }
                Some(Task::Read { key })
            }
        };
    }

    fn next(&mut self, store: &Store, bucket: &Bucket) -> Option<Task> {
        if let Some(mending) = &mut self.mending {
            let key = mending.pop_front().unwrap_or_else(|| {
                self.mending = None;
                META.to_owned()
            });
            return Some(Task::Read { key });
        }
        if self.is_to_reconcile && bucket.after(self.position).is_none() {
            self.is_to_reconcile = false;
            let stored = store.all().into_iter().map(|(key, value)| (key, vec![value])).collect();
            let differing = self.keeper.differing(&stored).into_iter().filter(|key| *key != META);
            self.mending = Some(differing.map(str::to_owned).collect());
            return None;
        }
        self.hints.pop_front().map(|key| Task::Read { key })
    }
}

fn kept(entry: Written) -> StoredEntry<u64> {
    StoredEntry { revision: entry.revision, value: entry.value.map(|value| vec![value]), written_at: 0 }
}

#[derive(Clone)]
struct Message {
    number: u64,
    key: String,
    entry: Written,
    /// Whether nothing was behind it when it was sent.
    is_last: bool,
}

struct Edge {
    replica: Replica<String, Value>,
    /// The states of the known entries, and of those on disk.
    states: BTreeMap<String, usize>,
    disk: (BTreeMap<String, Value>, BTreeMap<String, usize>),
    has_bus: bool,
    /// Messages in transit.
    inbox: VecDeque<Message>,
    /// The numbers of the next sent and the next expected message. A message with another number was lost, duplicated
    /// or reordered, and the bus client requests a redelivery.
    sends: u64,
    expects: u64,
    /// The revision of the last expected message.
    came_to: u64,
    /// An old message.
    old: Option<Message>,
    /// The last revision that was put into the inbox.
    position: u64,
    is_complete: bool,
    was_present: bool,
}

impl Edge {
    fn new() -> Self {
        Self {
            replica: Replica::new(BTreeMap::new()),
            states: BTreeMap::new(),
            disk: Default::default(),
            has_bus: false,
            inbox: VecDeque::new(),
            sends: 0,
            expects: 0,
            came_to: 0,
            old: None,
            position: 0,
            is_complete: false,
            was_present: false,
        }
    }

    fn begin(&mut self, bucket: &Bucket) {
        self.replica.handle_begin();
        self.inbox.clear();
        (self.has_bus, self.position, self.came_to) = (true, 0, 0);
        (self.sends, self.expects, self.old) = (0, 0, None);
        self.is_complete = bucket.entries.is_empty();
    }

    fn restart(&mut self) {
        let disk = self.disk.clone();
        *self = Self { replica: Replica::new(disk.0.clone()), states: disk.1.clone(), disk, ..Self::new() };
    }

    fn send_again(&mut self) {
        self.inbox.clear();
        (self.sends, self.position) = (self.expects, self.came_to);
    }

    fn take(&mut self, bucket: &Bucket, store: &Store) {
        let Some(Message { number, key, entry, is_last }) = self.inbox.pop_front() else {
            // A heartbeat reveals missing messages.
            return self.send_again();
        };
        if number != self.expects {
            return if number > self.expects {
                self.send_again()
            };
        }
        (self.expects, self.came_to) = (number + 1, entry.revision);
        self.old.get_or_insert_with(|| Message { number, key: key.clone(), entry, is_last });
        let write = if key == META {
            self.replica.handle_whole(entry.revision, entry.value.is_some())
        } else {
            let content = entry.value.map_or(EntryContent::Gone, EntryContent::Put);
            let write = self.replica.handle_entry(key.clone(), entry.revision, content);
            if write.is_ok() {
                let before = self.states.insert(key.clone(), entry.state).unwrap_or(0);
                assert!(before <= entry.state, "{key} was in state {before}, and is to be in {}", entry.state);
            }
            write.map(drop)
        };
        if write.is_err() {
            return self.begin(bucket);
        }
        self.is_complete |= is_last;
        if self.is_complete
            && let Some(gone) = self.replica.handle_listed()
        {
            for key in gone {
                let state = self.states.remove(&key).unwrap_or(0);
                let since = store.states.get(&key).map(|states| &states[state.saturating_sub(1)..]);
                assert!(since.is_some_and(|since| since.contains(&None)), "{key} was forgotten, and was never removed");
            }
        }
        self.was_present |= self.replica.is_present();
        self.misses_nothing(bucket);
    }

    /// Everything in the bucket up to the current revision is known.
    fn misses_nothing(&self, bucket: &Bucket) {
        if !self.replica.is_present() {
            return;
        }
        for (key, entry) in bucket.entries.iter().filter(|(key, _)| *key != META) {
            if entry.revision <= self.replica.revision() {
                assert_eq!(self.replica.known().get(key), entry.value.as_ref(), "{key} at {}", entry.revision);
            }
        }
    }

    fn step(&mut self, bucket: &Bucket, store: &Store, dice: &mut Dice, bad: u64) {
        if !self.has_bus {
            return;
        }
        if dice.percent(60)
            && let Some((key, entry)) = bucket.after(self.position)
        {
            self.position = entry.revision;
            let is_last = bucket.after(entry.revision).is_none();
            self.inbox.push_back(Message { number: self.sends, key, entry, is_last });
            self.sends += 1;
        }
        if dice.percent(bad) && !self.inbox.is_empty() {
            match dice.below(5) {
                0 => drop(self.inbox.pop_front()),
                1 => self.inbox.push_back(self.inbox[0].clone()),
                2 => self.inbox.make_contiguous().reverse(),
                // A redelivery from too far back.
                3 => {
                    self.inbox.clear();
                    (self.sends, self.position) = (self.expects, self.came_to / 2);
                }
                // An old message in place of the next.
                _ => {
                    self.send_again();
                    self.inbox.extend(self.old.clone().map(|old| Message { number: self.sends, ..old }));
                    self.sends += self.inbox.len() as u64;
                }
            }
        }
        if dice.percent(60) {
            self.take(bucket, store);
        }
    }
}

struct World {
    dice: Dice,
    store: Store,
    bucket: Bucket,
    controls: Vec<Control>,
    edges: Vec<Edge>,
    /// Frequency of faults, in percent.
    bad: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let bad = dice.below(15);
        let controls = (0..2).map(|_| Control::default()).collect();
        let edges = (0..3).map(|_| Edge::new()).collect();
        Self { dice, store: Store::default(), bucket: Bucket::default(), controls, edges, bad }
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.dice.below(count as u64)).unwrap()
    }

    fn commit(&mut self) {
        let (key, value) = (key(self.dice.below(KEYS)), u8::try_from(self.dice.below(3)).unwrap());
        let value = (value > 0).then_some(value);
        if self.store.now(&key).0 == value {
            return;
        }
        self.store.states.entry(key.clone()).or_default().push(value);
        // The control may die before it notifies others.
        let at = self.pick(2);
        if !self.dice.percent(10) {
            self.controls[at].hints.push_back(key);
        }
    }

    fn something_happens(&mut self) {
        let (control, edge) = (self.pick(2), self.pick(3));
        match self.dice.below(40) {
            0..12 => self.commit(),
            12 => self.controls[control] = Control::default(),
            13 | 14 => self.controls[control].begin(&self.bucket),
            15 => self.controls[control].is_to_reconcile = true,
            16 => self.edges[edge].has_bus = false,
            17 | 18 => self.edges[edge].begin(&self.bucket),
            19 => self.edges[edge].restart(),
            20 | 21 => {
                let edge = &mut self.edges[edge];
                edge.disk = (edge.replica.known().clone(), edge.states.clone());
            }
            22 if self.dice.percent(20) => {
                // The bucket is lost, with every connection.
                self.bucket = Bucket::default();
                self.controls.iter_mut().for_each(|control| *control = Control::default());
                self.edges.iter_mut().for_each(|edge| edge.has_bus = false);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        for control in &mut self.controls {
            control.step(&self.store, &mut self.bucket, &mut self.dice, self.bad);
        }
        for edge in &mut self.edges {
            edge.step(&self.bucket, &self.store, &mut self.dice, self.bad);
        }
    }
}

#[test]
fn no_change_is_skipped_and_nothing_goes_back() {
    each_schedule(1, |seed| {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.something_happens();
            (0..world.dice.below(5)).for_each(|_| world.step());
        }
        // All faults have ended: every process has the bus, and controls compare once more.
        world.bad = 0;
        for at in 0..2 {
            if !world.controls[at].has_bus {
                world.controls[at].begin(&world.bucket);
            }
            world.controls[at].is_to_reconcile = true;
        }
        for edge in world.edges.iter_mut().filter(|edge| !edge.has_bus) {
            edge.begin(&world.bucket);
        }
        (0..STEPS_TO_HEAL).for_each(|_| world.step());
        let truth = world.store.all();
        let kept: BTreeMap<_, _> =
            world.bucket.entries.iter().filter_map(|(key, entry)| Some((key.clone(), entry.value?))).collect();
        let kept: BTreeMap<_, _> = kept.into_iter().filter(|(key, _)| key != META).collect();
        assert_eq!(kept, truth, "the bucket");
        for (at, edge) in world.edges.iter().enumerate() {
            assert!(edge.replica.is_present(), "edge {at}");
            assert_eq!(edge.replica.known(), &truth, "edge {at}");
        }
    });
}

#[test]
fn changes_reach_edges_in_the_storm_too() {
    let (mut present, mut known) = (0, BTreeSet::new());
    for seed in 0..50 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.something_happens();
            (0..4).for_each(|_| world.step());
            for edge in &world.edges {
                known.extend(edge.replica.known().values().copied());
            }
        }
        present += world.edges.iter().filter(|edge| edge.was_present).count();
    }
    assert!(present > 75 && known.len() == 2, "{present} of 150 were up to date, and knew {known:?}");
}
