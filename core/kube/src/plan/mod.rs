//! What is to be done in the API so that the sockets are as wanted.

mod backoff;
mod fields;
mod memory;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sallyport_model::{DisplayName, SocketId};

pub use backoff::{Backoff, Failure};
pub use fields::Field;
pub use memory::{Memory, SWEEP_AFTER};

use crate::{
    ANNOTATION_PREFIX, Exposure, ExposureKey, LABEL_CLUSTER, LABEL_INSTALLATION, ObjectKey, Settings, SocketSpec,
    expose::with_word,
};

/// The most actions of one plan; the rest follows in the next one.
pub const MAX_ACTIONS: usize = 10_000;

/// A socket that the API lists with the label of this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSocket {
    /// Its id.
    pub id: SocketId,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// How it is.
    pub spec: SocketSpec,
    /// Whether a tunnel that is up belongs to another installation, as far as is known.
    pub is_served_elsewhere: bool,
}

/// What was seen for this plan.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The objects that exist, whatever they ask for.
    pub objects: &'a BTreeSet<ObjectKey>,
    /// Whether that is all of them: every watch has listed its kind.
    pub is_objects_complete: bool,
    /// Whether the listing of sockets came to its end.
    pub is_sockets_complete: bool,
}

/// Something to do in the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Delete a socket.
    Delete {
        /// What it was for, if its labels say so.
        key: Option<ExposureKey>,
        /// The socket.
        id: SocketId,
    },
    /// Change a socket.
    Update {
        /// What it is for.
        key: ExposureKey,
        /// The socket.
        id: SocketId,
        /// What changes.
        fields: BTreeSet<Field>,
        /// The policies to attach.
        attach: Vec<String>,
        /// The policies to detach: the program has attached them before.
        detach: Vec<String>,
        /// How it is to be; only `fields` of it are sent.
        spec: Box<SocketSpec>,
        /// Its labels, all of them.
        labels: BTreeMap<String, String>,
    },
    /// Make a socket.
    Create {
        /// What it is for.
        key: ExposureKey,
        /// How it is to be.
        spec: Box<SocketSpec>,
        /// Its labels.
        labels: BTreeMap<String, String>,
    },
}

impl Action {
    /// What it is about.
    #[must_use]
    pub fn key(&self) -> Option<&ExposureKey> {
        match self {
            Self::Delete { key, .. } => key.as_ref(),
            Self::Update { key, .. } | Self::Create { key, .. } => Some(key),
        }
    }
}

/// A socket that the plan leaves alone, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// What it is for.
    pub key: ExposureKey,
    /// The socket.
    pub id: SocketId,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// What is to be done: deletions first, so that names, domains and the quota are free; then changes, then new sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The actions, in this order.
    pub actions: Vec<Action>,
    /// What stays as it is though it is not as wanted.
    pub blocked: Vec<Blocked>,
    /// The sockets that the wanted ones have come to.
    pub adopted: BTreeMap<ExposureKey, SocketId>,
    /// The objects that have sockets of this program, or get some. An object that asks for none and is not among them
    /// may lose its finalizer, once all sockets are known.
    pub busy: BTreeSet<ObjectKey>,
    /// When a sweep is due, if one is waiting, on the clock of `now`.
    pub sweep_at: Option<Duration>,
}

/// The plan that makes the owned sockets the desired ones. `now` is the time since any beginning, always the same one.
#[must_use]
pub fn plan(
    settings: &Settings,
    desired: &[Exposure],
    owned: &[OwnedSocket],
    seen: Seen<'_>,
    memory: &mut Memory,
    now: Duration,
) -> Plan {
    let mut planner = Planner { settings, seen, plan: Plan::default(), updates: Vec::new(), creates: Vec::new() };
    let mut by_key = planner.sorted(owned);
    let wanted: BTreeMap<&ExposureKey, &Exposure> = desired.iter().map(|one| (&one.key, one)).rev().collect();
    for (key, exposure) in &wanted {
        planner.want(exposure, by_key.remove(*key).unwrap_or_default(), memory);
    }
    memory.keep_names(|key| wanted.contains_key(key));
    let mut absent = BTreeSet::new();
    for (key, sockets) in &by_key {
        for socket in sockets {
            planner.unwant(key, socket, memory, &mut absent, now);
        }
    }
    if seen.is_objects_complete && seen.is_sockets_complete {
        memory.keep(&absent);
    }
    planner.done()
}

struct Planner<'a> {
    settings: &'a Settings,
    seen: Seen<'a>,
    plan: Plan,
    updates: Vec<Action>,
    creates: Vec<Action>,
}

type ByKey<'a> = BTreeMap<ExposureKey, Vec<&'a OwnedSocket>>;

impl Planner<'_> {
    /// The sockets of this cluster by what they are for. Those without the cluster's label are not looked at.
    fn sorted<'a>(&self, owned: &'a [OwnedSocket]) -> ByKey<'a> {
        let mut by_key = ByKey::new();
        for socket in owned {
            // A socket whose labels are not whole was changed by hand; nothing says what it is for.
            if let Some(key) = ExposureKey::of_labels(&socket.labels, &self.settings.cluster) {
                by_key.entry(key).or_default().push(socket);
            }
        }
        for sockets in by_key.values_mut() {
            sockets.sort_by_key(|socket| (self.is_foreign(socket), socket.id));
        }
        by_key
    }

    fn is_foreign(&self, socket: &OwnedSocket) -> bool {
        let theirs = socket.labels.get(LABEL_INSTALLATION);
        matches!((&self.settings.installation, theirs), (Some(own), Some(theirs)) if own != theirs)
    }

    fn want(&mut self, exposure: &Exposure, sockets: Vec<&OwnedSocket>, memory: &Memory) {
        let key = &exposure.key;
        let Some((socket, rest)) = sockets.split_first() else {
            if !exposure.is_held && self.seen.is_sockets_complete {
                self.create(exposure, memory);
            }
            return;
        };
        if self.is_foreign(socket) && socket.is_served_elsewhere {
            let remedy = "give every cluster of the account a name of its own by --cluster, or end the other one";
            self.block(key, socket, "ClusterNameInUse", "another cluster of the same name serves the socket", remedy);
            return;
        }
        self.plan.adopted.insert(key.clone(), socket.id);
        self.plan.busy.insert(key.object.clone());
        if exposure.is_held {
            return;
        }
        for extra in rest {
            if !self.is_foreign(extra) {
                self.delete(Some(key.clone()), extra);
            }
        }
        if fields::needs_another(&exposure.spec, &socket.spec) {
            self.plan.adopted.remove(key);
            self.delete(Some(key.clone()), socket);
            self.create(exposure, memory);
            return;
        }
        let mut spec = exposure.spec.clone();
        let second = self.second_name(&spec);
        // A socket that has its second name keeps it, whoever had the first one.
        if socket.spec.name == second || (socket.spec.name != spec.name && memory.is_name_taken(key)) {
            spec.name = second;
        }
        let mut changed = fields::differing(&spec, &socket.spec);
        let (attach, detach) = fields::policies(&spec, socket);
        if !(attach.is_empty() && detach.is_empty()) {
            changed.insert(Field::Policies);
        }
        let labels = merged(exposure, socket);
        if labels != socket.labels {
            changed.insert(Field::Labels);
        }
        if !changed.is_empty() {
            self.updates.push(Action::Update {
                key: key.clone(),
                id: socket.id,
                fields: changed,
                attach,
                detach,
                spec: Box::new(spec),
                labels,
            });
        }
    }

    fn unwant(
        &mut self,
        key: &ExposureKey,
        socket: &OwnedSocket,
        memory: &mut Memory,
        absent: &mut BTreeSet<SocketId>,
        now: Duration,
    ) {
        if self.seen.objects.contains(&key.object) {
            if self.is_foreign(socket) && socket.is_served_elsewhere {
                return;
            }
            self.delete(Some(key.clone()), socket);
            return;
        }
        if !(self.seen.is_objects_complete && self.seen.is_sockets_complete) {
            return;
        }
        if self.is_foreign(socket) {
            let remedy = format!("if nothing will ask for it again, remove it: sallyport socket delete {}", socket.id);
            self.block(key, socket, "OtherInstallation", "an earlier installation of the cluster left it", &remedy);
            return;
        }
        absent.insert(socket.id);
        let due = memory.sweep_at(socket.id, now);
        if now >= due {
            self.delete(Some(key.clone()), socket);
        } else {
            self.plan.sweep_at = Some(self.plan.sweep_at.map_or(due, |at| at.min(due)));
        }
    }

    fn block(&mut self, key: &ExposureKey, socket: &OwnedSocket, reason: &'static str, message: &str, remedy: &str) {
        self.plan.blocked.push(Blocked {
            key: key.clone(),
            id: socket.id,
            reason,
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        });
    }

    fn delete(&mut self, key: Option<ExposureKey>, socket: &OwnedSocket) {
        if socket.labels.get(LABEL_CLUSTER).map(String::as_str) == Some(self.settings.cluster.as_str()) {
            self.plan.busy.extend(key.as_ref().map(|key| key.object.clone()));
            self.plan.actions.push(Action::Delete { key, id: socket.id });
        }
    }

    fn create(&mut self, exposure: &Exposure, memory: &Memory) {
        let mut spec = exposure.spec.clone();
        if memory.is_name_taken(&exposure.key) {
            spec.name = self.second_name(&spec);
        }
        self.plan.busy.insert(exposure.key.object.clone());
        self.creates.push(Action::Create {
            key: exposure.key.clone(),
            spec: Box::new(spec),
            labels: exposure.labels.clone(),
        });
    }

    /// The name of a socket whose first name somebody else has.
    fn second_name(&self, spec: &SocketSpec) -> DisplayName {
        with_word(&spec.name, &format!("({})", self.settings.cluster))
    }

    fn done(mut self) -> Plan {
        self.plan.actions.append(&mut self.updates);
        self.plan.actions.append(&mut self.creates);
        self.plan.actions.truncate(MAX_ACTIONS);
        self.plan
    }
}

/// The wanted labels, and those that people have added.
fn merged(exposure: &Exposure, socket: &OwnedSocket) -> BTreeMap<String, String> {
    let mut labels = socket.labels.clone();
    labels.retain(|key, _| !key.starts_with(ANNOTATION_PREFIX));
    labels.extend(exposure.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    labels
}
