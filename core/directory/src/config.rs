//! How what control knows comes to edges, change by change, and stays there.
//!
//! A bucket is between them: entries with keys, and a revision for each write, which only grows. Controls keep it as their store is
//! ([`Keeper`] decides what is written), edges keep a copy of it ([`Replica`] decides what is known).
//!
//! The rule that both together keep, entry by entry:
//!
//! - **Never back.** A write names the revision that it replaces, which was known before the store was read, and the bucket takes it
//!   in place of that one alone. So no control, however slow, brings an older state of the store back, and revisions of an entry
//!   come in the order of its changes.
//! - **Never past one.** An edge takes entries in the order of their revisions. One that comes out of order may mean that another
//!   was missed: then all is read anew ([`OutOfOrder`]). So once all has been read, everything is known that the bucket has up to the
//!   revision that the edge has come to: what is older there has changed again since, and that comes.
//! - **Never less by mistake.** What is not in the bucket is forgotten only when all of the bucket was read, and control has said that
//!   all it knows is there: a bucket that was lost takes nothing from anybody.
//! - **Never for long.** Whoever was away, or starts with what is on its disk, reads all of it anew; and control compares all with its
//!   store now and then, so that what nobody told comes too.

use std::collections::{BTreeMap, BTreeSet};

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said<V> {
    /// It is so.
    Put(V),
    /// It is no more.
    Gone,
    /// It is not understood: what is known stays, as half of what was meant would be worse.
    Unclear,
}

/// Entries come out of the order of their revisions: they are to be read anew, from [`Replica::handle_begin`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {came} came behind entry {latest}: all are read anew")]
pub struct OutOfOrder {
    /// The revision that was known.
    pub latest: u64,
    /// The one that came.
    pub came: u64,
}

/// What an edge knows of the bucket.
#[derive(Debug)]
pub struct Replica<K, V> {
    known: BTreeMap<K, V>,
    latest: u64,
    /// What has come since the bucket is read; none when all of it was.
    seen: Option<BTreeSet<K>>,
    /// Whether control has said that all it knows is there.
    is_whole: bool,
}

impl<K: Ord + Clone, V: PartialEq> Replica<K, V> {
    /// What was on disk.
    #[must_use]
    pub fn new(known: BTreeMap<K, V>) -> Self {
        Self { known, latest: 0, seen: Some(BTreeSet::new()), is_whole: false }
    }

    /// The bucket is read, and followed from then on: nothing has come yet.
    pub fn handle_begin(&mut self) {
        (self.latest, self.seen, self.is_whole) = (0, Some(BTreeSet::new()), false);
    }

    /// An entry came. Says whether what is known is otherwise now.
    ///
    /// # Errors
    /// It came out of order; it is not taken over.
    pub fn handle_entry(&mut self, key: K, revision: u64, said: Said<V>) -> Result<bool, OutOfOrder> {
        self.handle_revision(revision)?;
        if let Some(seen) = &mut self.seen {
            seen.insert(key.clone());
        }
        Ok(match said {
            Said::Put(value) if self.known.get(&key) == Some(&value) => false,
            Said::Put(value) => {
                self.known.insert(key, value);
                true
            }
            Said::Gone => self.known.remove(&key).is_some(),
            Said::Unclear => false,
        })
    }

    /// An entry came that says whether all that control knows is there.
    ///
    /// # Errors
    /// As [`Self::handle_entry`].
    pub fn handle_whole(&mut self, revision: u64, is_whole: bool) -> Result<(), OutOfOrder> {
        self.handle_revision(revision)?;
        self.is_whole = is_whole;
        Ok(())
    }

    /// An entry came that means nothing here.
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

    /// An entry has come behind which there was nothing more, so that none was missed that was replaced while all were read. May be
    /// said again. Gives what is forgotten for it; `None`: that was done before, or control has yet to say that all is there.
    pub fn handle_listed(&mut self) -> Option<Vec<K>> {
        let seen = if self.is_whole { self.seen.take()? } else { return None };
        let gone: Vec<_> = self.known.keys().filter(|key| !seen.contains(key)).cloned().collect();
        self.known.retain(|key, _| seen.contains(key));
        Some(gone)
    }

    /// Whether it knows all that control has published, as long as it follows.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.seen.is_none()
    }

    /// The revision that it has come to.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.latest
    }

    /// What it knows.
    #[must_use]
    pub fn known(&self) -> &BTreeMap<K, V> {
        &self.known
    }
}

/// What the bucket has under a key, as far as a control knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept<T> {
    /// The revision of the last write.
    pub revision: u64,
    /// What it said; `None`: that it is gone.
    pub value: Option<Vec<u8>>,
    /// When it was written.
    pub written_at: T,
}

/// What is to be done so that an entry is as in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    /// Nothing.
    Nothing,
    /// To be written in place of this revision; 0: of none.
    Put(u64),
    /// To be marked as gone in place of this revision.
    Remove(u64),
}

/// What a control knows of the bucket. `T` is what the bucket's times are.
#[derive(Debug, Default)]
pub struct Keeper<T> {
    kept: BTreeMap<String, Kept<T>>,
    /// The revisions that this control has written and not read back yet.
    ours: BTreeSet<u64>,
}

impl<T: Copy> Keeper<T> {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self { kept: BTreeMap::new(), ours: BTreeSet::new() }
    }

    /// An entry was read, in the order of revisions or by itself. Says whether it is new, and was written by somebody else.
    pub fn handle_entry(&mut self, key: &str, entry: Kept<T>) -> bool {
        let is_ours = self.ours.remove(&entry.revision);
        if self.kept.get(key).is_some_and(|kept| kept.revision >= entry.revision) {
            return false;
        }
        self.kept.insert(key.to_owned(), entry);
        !is_ours
    }

    /// There is no entry of this key, not even one that says that it is gone.
    pub fn handle_nothing(&mut self, key: &str) {
        self.kept.remove(key);
    }

    /// The revision that a write of this key has to replace: to be taken *before* the store is read.
    #[must_use]
    pub fn basis(&self, key: &str) -> u64 {
        self.kept.get(key).map_or(0, |kept| kept.revision)
    }

    /// What is to be done when the store has this, which was read after [`Self::basis`] was taken.
    #[must_use]
    pub fn mend(&self, key: &str, basis: u64, stored: Option<&[u8]>) -> Mend {
        let kept = self.kept.get(key).and_then(|kept| kept.value.as_deref());
        match stored {
            _ if kept == stored => Mend::Nothing,
            Some(_) => Mend::Put(basis),
            None => Mend::Remove(basis),
        }
    }

    /// It was written.
    pub fn handle_put(&mut self, key: &str, entry: Kept<T>) {
        self.ours.insert(entry.revision);
        self.kept.insert(key.to_owned(), entry);
    }

    /// It was marked as gone, in place of this revision. The mark has a revision of its own, which comes by reading; what was
    /// written before is late from now on.
    pub fn handle_removed(&mut self, key: &str, replaced: u64, now: T) {
        self.kept.insert(key.to_owned(), Kept { revision: replaced, value: None, written_at: now });
    }

    /// The keys of which the bucket has something that the store has not, a right that ended say, and then those of which it has
    /// something else.
    #[must_use]
    pub fn differing<'a>(&'a self, stored: &'a BTreeMap<String, Vec<u8>>) -> Vec<&'a str> {
        let kept = |key: &str| self.kept.get(key).and_then(|kept| kept.value.as_ref());
        let other = stored.iter().filter(|(key, value)| kept(key) != Some(value)).map(|(key, _)| key.as_str());
        let gone = self.kept.iter().filter(|(key, kept)| kept.value.is_some() && !stored.contains_key(*key));
        gone.map(|(key, _)| key.as_str()).chain(other).collect()
    }

    /// What is known of this key.
    #[must_use]
    pub fn kept(&self, key: &str) -> Option<&Kept<T>> {
        self.kept.get(key)
    }

    /// The marks of what is gone: their keys, revisions and times.
    pub fn marks(&self) -> impl Iterator<Item = (&str, u64, T)> {
        let marks = self.kept.iter().filter(|(_, kept)| kept.value.is_none());
        marks.map(|(key, kept)| (key.as_str(), kept.revision, kept.written_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: u64, value: &str) -> Kept<u64> {
        Kept { revision, value: Some(value.into()), written_at: 0 }
    }

    #[test]
    fn what_is_not_there_is_forgotten_when_all_is_there_and_not_before() {
        let mut replica = Replica::new(BTreeMap::from([("old", 1), ("same", 2)]));
        replica.handle_begin();
        assert_eq!(replica.handle_entry("same", 4, Said::Put(2)), Ok(false));
        assert_eq!(replica.handle_listed(), None, "control may have yet to fill it");
        assert!(!replica.is_present() && replica.known().len() == 2);
        assert_eq!(replica.handle_entry("new", 5, Said::Put(3)), Ok(true));
        replica.handle_whole(6, true).unwrap();
        assert_eq!(replica.handle_listed(), Some(vec!["old"]));
        assert!(replica.is_present() && replica.handle_listed().is_none());
        assert_eq!(replica.handle_entry("new", 7, Said::Gone), Ok(true));
        assert_eq!(replica.handle_entry("new", 8, Said::Gone), Ok(false));
        assert_eq!(replica.handle_entry("same", 9, Said::Unclear), Ok(false));
        assert_eq!(replica.known(), &BTreeMap::from([("same", 2)]));
    }

    #[test]
    fn what_comes_out_of_order_is_not_taken_over() {
        let mut replica = Replica::new(BTreeMap::new());
        replica.handle_entry("a", 7, Said::Put(1)).unwrap();
        for late in [7, 6] {
            let error = replica.handle_entry("a", late, Said::Put(0)).unwrap_err();
            assert_eq!(error, OutOfOrder { latest: 7, came: late });
        }
        assert_eq!((replica.known()["a"], replica.revision()), (1, 7));
        replica.handle_begin();
        assert_eq!(replica.handle_entry("a", 2, Said::Put(5)), Ok(true), "the bucket was lost, and made anew");
    }

    #[test]
    fn an_echo_of_what_was_removed_does_not_come_to_life_again() {
        let mut keeper = Keeper::new();
        assert_eq!(keeper.mend("a", keeper.basis("a"), Some(b"1")), Mend::Put(0));
        keeper.handle_put("a", put(1, "1"));
        assert_eq!(keeper.mend("a", keeper.basis("a"), None), Mend::Remove(1));
        keeper.handle_removed("a", 1, 0);
        assert!(!keeper.handle_entry("a", put(1, "1")), "our own, which is gone");
        // The same again: not taken for there already.
        assert_eq!(keeper.mend("a", keeper.basis("a"), Some(b"1")), Mend::Put(1));
        assert!(keeper.handle_entry("a", Kept { revision: 2, value: None, written_at: 0 }), "the mark, or another's");
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
