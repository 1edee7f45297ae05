//! Replication of the configuration from control to the edges, change by change.
//!
//! A bucket is in between: entries with keys, and a growing revision for each write. Controls keep the bucket equal to
//! their store ([`Keeper`] decides what to write), and edges keep a copy ([`Replica`] decides what is known).
//!
//! The guarantees for each entry:
//!
//! - **Never back.** A write names the revision that it replaces, which was known before the store was read, and the
//!   bucket accepts it only in place of that revision. So no control, however slow, restores an older state, and the
//!   revisions of an entry follow the order of its changes.
//! - **Never past one.** An edge accepts entries in the order of their revisions. An entry out of order may mean that
//!   another was missed: then everything is read again ([`OutOfOrder`]). So after a complete read the edge knows
//!   everything up to its current revision; an entry that was replaced in the meantime follows with its later revision.
//! - **Never less by mistake.** An entry that is not in the bucket is removed only after the whole bucket was read and
//!   control has marked it as complete. So the loss of the bucket removes nothing from any edge.
//! - **Never for long.** An edge that was offline, or starts from its disk, reads everything again. Control compares
//!   the bucket with its store now and then, so that changes without a notification are published too.

use std::collections::{BTreeMap, BTreeSet};

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryContent<V> {
    /// The value.
    Put(V),
    /// The entry was removed.
    Gone,
    /// The entry was not understood: the known value stays, because half of the intended state would be worse.
    Unclear,
}

/// An entry came out of order: everything is to be read again, from [`Replica::handle_begin`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {came} came after entry {latest}: all entries are read again")]
pub struct OutOfOrder {
    /// The latest known revision.
    pub latest: u64,
    /// The revision of the entry.
    pub came: u64,
}

/// An edge's copy of the bucket.
#[derive(Debug)]
pub struct Replica<K, V> {
    known: BTreeMap<K, V>,
    latest: u64,
    /// Keys received during the current reading; `None` once the bucket was read completely.
    seen: Option<BTreeSet<K>>,
    /// Whether control has marked the bucket as complete.
    is_whole: bool,
}

impl<K: Ord + Clone, V: PartialEq> Replica<K, V> {
    /// Starts from the entries on disk.
    #[must_use]
    pub fn new(known: BTreeMap<K, V>) -> Self {
        Self { known, latest: 0, seen: Some(BTreeSet::new()), is_whole: false }
    }

    /// Starts a reading of the bucket.
    pub fn handle_begin(&mut self) {
        (self.latest, self.seen, self.is_whole) = (0, Some(BTreeSet::new()), false);
    }

    /// Handles an entry. Returns whether the known state changed.
    ///
    /// # Errors
    /// The entry is out of order and was not applied.
    pub fn handle_entry(&mut self, key: K, revision: u64, content: EntryContent<V>) -> Result<bool, OutOfOrder> {
        self.handle_revision(revision)?;
        if let Some(seen) = &mut self.seen {
            seen.insert(key.clone());
        }
        Ok(match content {
            EntryContent::Put(value) if self.known.get(&key) == Some(&value) => false,
            EntryContent::Put(value) => {
                self.known.insert(key, value);
                true
            }
            EntryContent::Gone => self.known.remove(&key).is_some(),
            EntryContent::Unclear => false,
        })
    }

    /// Handles the entry that marks the bucket as complete.
    ///
    /// # Errors
    /// As [`Self::handle_entry`].
    pub fn handle_whole(&mut self, revision: u64, is_whole: bool) -> Result<(), OutOfOrder> {
        self.handle_revision(revision)?;
        self.is_whole = is_whole;
        Ok(())
    }

    /// Handles an entry without a meaning here.
    ///
    /// # Errors
    /// As [`Self::handle_entry`].
    pub fn handle_revision(&mut self, revision: u64) -> Result<(), OutOfOrder> {
        if revision <= self.latest {
            return Err(OutOfOrder { latest: self.latest, came: revision });
        }
        self.latest = revision;
        Ok(())
    }

    /// Reports that the last existing entry was delivered, so that none was missed that was replaced during the
    /// reading. May be repeated. Returns the removed keys; `None` if that happened before, or the bucket is not marked
    /// as complete.
    pub fn handle_listed(&mut self) -> Option<Vec<K>> {
        let seen = if self.is_whole { self.seen.take()? } else { return None };
        let gone: Vec<_> = self.known.keys().filter(|key| !seen.contains(key)).cloned().collect();
        self.known.retain(|key, _| seen.contains(key));
        Some(gone)
    }

    /// Whether everything that control has published is known, as long as the replica follows.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.seen.is_none()
    }

    /// The latest known revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.latest
    }

    /// The known entries.
    #[must_use]
    pub fn known(&self) -> &BTreeMap<K, V> {
        &self.known
    }
}

/// An entry of the bucket, as known to a control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry<T> {
    /// The revision of the last write.
    pub revision: u64,
    /// The value; `None`: removed.
    pub value: Option<Vec<u8>>,
    /// Time of the write.
    pub written_at: T,
}

/// The write that makes an entry equal to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    /// No write.
    Nothing,
    /// Write in place of this revision; 0: no entry.
    Put(u64),
    /// Mark as removed in place of this revision.
    Remove(u64),
}

/// A control's knowledge of the bucket. `T` is the type of the bucket's times.
#[derive(Debug, Default)]
pub struct Keeper<T> {
    kept: BTreeMap<String, StoredEntry<T>>,
    /// Revisions that this control has written and not read back yet.
    ours: BTreeSet<u64>,
}

impl<T: Copy> Keeper<T> {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { kept: BTreeMap::new(), ours: BTreeSet::new() }
    }

    /// Handles an entry that was read, in the order of revisions or by itself. Returns whether it is new and written by
    /// another control.
    pub fn handle_entry(&mut self, key: &str, entry: StoredEntry<T>) -> bool {
        let is_ours = self.ours.remove(&entry.revision);
        if self.kept.get(key).is_some_and(|kept| kept.revision >= entry.revision) {
            return false;
        }
        self.kept.insert(key.to_owned(), entry);
        !is_ours
    }

    /// Records that the bucket has no entry of this key, not even a removed one.
    pub fn handle_nothing(&mut self, key: &str) {
        self.kept.remove(key);
    }

    /// The revision that a write of this key has to replace. Take it *before* reading the store.
    #[must_use]
    pub fn basis(&self, key: &str) -> u64 {
        self.kept.get(key).map_or(0, |kept| kept.revision)
    }

    /// The write that is needed for this value of the store, which was read after [`Self::basis`].
    #[must_use]
    pub fn mend(&self, key: &str, basis: u64, stored: Option<&[u8]>) -> Mend {
        let kept = self.kept.get(key).and_then(|kept| kept.value.as_deref());
        match stored {
            _ if kept == stored => Mend::Nothing,
            Some(_) => Mend::Put(basis),
            None => Mend::Remove(basis),
        }
    }

    /// Records a successful write.
    pub fn handle_put(&mut self, key: &str, entry: StoredEntry<T>) {
        self.ours.insert(entry.revision);
        self.kept.insert(key.to_owned(), entry);
    }

    /// Records a successful removal in place of this revision. The mark has a revision of its own, which arrives by
    /// reading; earlier writes are late from now on.
    pub fn handle_removed(&mut self, key: &str, replaced: u64, now: T) {
        self.kept.insert(key.to_owned(), StoredEntry { revision: replaced, value: None, written_at: now });
    }

    /// The keys that differ from the store: first those that the store does not have, such as a revoked right, then
    /// those with another value.
    #[must_use]
    pub fn differing<'a>(&'a self, stored: &'a BTreeMap<String, Vec<u8>>) -> Vec<&'a str> {
        let kept = |key: &str| self.kept.get(key).and_then(|kept| kept.value.as_ref());
        let other = stored.iter().filter(|(key, value)| kept(key) != Some(value)).map(|(key, _)| key.as_str());
        let gone = self.kept.iter().filter(|(key, kept)| kept.value.is_some() && !stored.contains_key(*key));
        gone.map(|(key, _)| key.as_str()).chain(other).collect()
    }

    /// The known entry of this key.
    #[must_use]
    pub fn kept(&self, key: &str) -> Option<&StoredEntry<T>> {
        self.kept.get(key)
    }

    /// The marks of removed entries: keys, revisions and times.
    pub fn marks(&self) -> impl Iterator<Item = (&str, u64, T)> {
        let marks = self.kept.iter().filter(|(_, kept)| kept.value.is_none());
        marks.map(|(key, kept)| (key.as_str(), kept.revision, kept.written_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: u64, value: &str) -> StoredEntry<u64> {
        StoredEntry { revision, value: Some(value.into()), written_at: 0 }
    }

    #[test]
    fn what_is_not_there_is_forgotten_when_all_is_there_and_not_before() {
        let mut replica = Replica::new(BTreeMap::from([("old", 1), ("same", 2)]));
        replica.handle_begin();
        assert_eq!(replica.handle_entry("same", 4, EntryContent::Put(2)), Ok(false));
        assert_eq!(replica.handle_listed(), None, "the bucket is not marked as complete");
        assert!(!replica.is_present() && replica.known().len() == 2);
        assert_eq!(replica.handle_entry("new", 5, EntryContent::Put(3)), Ok(true));
        replica.handle_whole(6, true).unwrap();
        assert_eq!(replica.handle_listed(), Some(vec!["old"]));
        assert!(replica.is_present() && replica.handle_listed().is_none());
        assert_eq!(replica.handle_entry("new", 7, EntryContent::Gone), Ok(true));
        assert_eq!(replica.handle_entry("new", 8, EntryContent::Gone), Ok(false));
        assert_eq!(replica.handle_entry("same", 9, EntryContent::Unclear), Ok(false));
        assert_eq!(replica.known(), &BTreeMap::from([("same", 2)]));
    }

    #[test]
    fn what_comes_out_of_order_is_not_taken_over() {
        let mut replica = Replica::new(BTreeMap::new());
        replica.handle_entry("a", 7, EntryContent::Put(1)).unwrap();
        for late in [7, 6] {
            let error = replica.handle_entry("a", late, EntryContent::Put(0)).unwrap_err();
            assert_eq!(error, OutOfOrder { latest: 7, came: late });
        }
        assert_eq!((replica.known()["a"], replica.revision()), (1, 7));
        replica.handle_begin();
        assert_eq!(
            replica.handle_entry("a", 2, EntryContent::Put(5)),
            Ok(true),
            "the bucket was lost and created again"
        );
    }

    #[test]
    fn an_echo_of_what_was_removed_does_not_come_to_life_again() {
        let mut keeper = Keeper::new();
        assert_eq!(keeper.mend("a", keeper.basis("a"), Some(b"1")), Mend::Put(0));
        keeper.handle_put("a", put(1, "1"));
        assert_eq!(keeper.mend("a", keeper.basis("a"), None), Mend::Remove(1));
        keeper.handle_removed("a", 1, 0);
        assert!(!keeper.handle_entry("a", put(1, "1")), "our own write, which was replaced");
        // Written again: not assumed to be there.
        assert_eq!(keeper.mend("a", keeper.basis("a"), Some(b"1")), Mend::Put(1));
        assert!(
            keeper.handle_entry("a", StoredEntry { revision: 2, value: None, written_at: 0 }),
            "the mark of another control"
        );
        assert_eq!(keeper.marks().collect::<Vec<_>>(), [("a", 2, 0)]);
        assert_eq!(keeper.mend("a", keeper.basis("a"), Some(b"1")), Mend::Put(2));
    }

    #[test]
    fn what_differs_is_found_on_both_sides() {
        let mut keeper = Keeper::new();
        for (key, revision) in [("same", 1), ("other", 2), ("extra", 3)] {
            assert!(keeper.handle_entry(key, put(revision, "1")));
        }
        let stored = [("same", "1"), ("other", "2"), ("new", "1")];
        let stored = stored.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        assert_eq!(keeper.differing(&stored), ["extra", "new", "other"]);
    }
}
