//! Events, each said once for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{ObjectKey, Refusal, source::cut};

/// How long an Event is not repeated for the same object, reason and message.
pub const EVENT_QUIET: Duration = Duration::from_mins(10);

/// How many Events are remembered; the oldest are forgotten first.
pub const MAX_REMEMBERED_EVENTS: usize = 10_000;

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// As wanted.
    Normal,
    /// Somebody should look.
    Warning,
}

impl EventType {
    /// The type as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An Event about an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The object.
    pub object: ObjectKey,
    /// Its type.
    pub event_type: EventType,
    /// Why, in one word.
    pub reason: String,
    /// What happened and what to do, for people.
    pub message: String,
}

impl Event {
    /// An Event with a message that fits.
    #[must_use]
    pub fn new(object: ObjectKey, event_type: EventType, reason: &str, message: &str) -> Self {
        Self { object, event_type, reason: reason.to_owned(), message: cut(message) }
    }

    /// The Event for a refusal.
    #[must_use]
    pub fn refused(refusal: &Refusal) -> Self {
        Self::new(refusal.object.clone(), EventType::Warning, refusal.reason, &refusal.sentence())
    }

    /// The Event for a note.
    #[must_use]
    pub fn noted(note: &Refusal) -> Self {
        Self::new(note.object.clone(), EventType::Normal, note.reason, &note.sentence())
    }
}

/// The Events that were said lately.
#[derive(Debug, Clone, Default)]
pub struct EventLog {
    said: BTreeMap<Event, Duration>,
    order: BTreeSet<(Duration, Event)>,
}

impl EventLog {
    /// Whether the Event is to be sent now, and remembers it if so. `now` is the time since any beginning.
    pub fn admit(&mut self, event: &Event, now: Duration) -> bool {
        while let Some((at, _)) = self.order.first()
            && now.saturating_sub(*at) >= EVENT_QUIET
        {
            self.forget_oldest();
        }
        if self.said.contains_key(event) {
            return false;
        }
        while self.said.len() >= MAX_REMEMBERED_EVENTS {
            self.forget_oldest();
        }
        self.said.insert(event.clone(), now);
        self.order.insert((now, event.clone()));
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, event)) = self.order.pop_first() {
            self.said.remove(&event);
        }
    }

    /// Forgets what was said about an object, so that it is said again: its refusals are gone, or it is.
    pub fn forget(&mut self, object: &ObjectKey) {
        self.said.retain(|event, _| event.object != *object);
        self.order.retain(|(_, event)| event.object != *object);
    }

    /// How many Events are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.said.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.said.is_empty()
    }
}
