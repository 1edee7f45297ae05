//! Where routes lead, each with one number of the forwarding table.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use super::follower::MAX_KEPT;
use crate::route::{Cells, Fib, Member, NextHop, RouteError};

/// A neighbour on an interface, or the interface alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leg {
    /// Index of the interface.
    pub interface: u32,
    /// The gateway; `None` on a connected network.
    pub gateway: Option<IpAddr>,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Way {
    /// To the kernel: this machine, or what the table has no word for.
    Kernel,
    /// Nowhere, without an answer.
    BlackHole,
    /// Nowhere; the kernel answers that this is forbidden.
    Prohibit,
    /// Nowhere; the kernel answers that there is no way.
    Unreachable,
    /// To neighbours, with their weights.
    Legs(Vec<(Leg, u16)>),
    /// To the kernel's next-hop object of this id.
    Object(u32),
}

/// A next-hop object of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// One next hop: legs, a black hole, or what only the kernel can do.
    Way(Way),
    /// A group of other objects, with their weights.
    Group(Vec<(u32, u16)>),
}

#[derive(Debug)]
struct Target {
    number: u32,
    /// The group of the number, where it has one.
    group: Option<u32>,
    users: usize,
    is_full: bool,
}

/// The numbers of ways. Routes with one way share its number.
#[derive(Debug)]
pub(super) struct Targets {
    kernel: u32,
    targets: HashMap<Way, Target>,
    objects: HashMap<u32, Object>,
    /// The numbers of members of groups: no route has them.
    members: HashMap<Leg, u32>,
    groups: u32,
    next_group: u32,
    free_groups: Vec<u32>,
    /// No longer used, but a reader may still be there.
    left_groups: Vec<u32>,
    failed: HashSet<Leg>,
    down: HashSet<u32>,
    /// Interfaces that this round of listing has seen.
    seen: HashSet<u32>,
    /// Objects that are not kept.
    left_out: usize,
}

impl Targets {
    pub(super) fn new(kernel: u32, groups: u32) -> Self {
        Self {
            kernel,
            targets: HashMap::new(),
            objects: HashMap::new(),
            members: HashMap::new(),
            groups,
            next_group: 0,
            free_groups: Vec::new(),
            left_groups: Vec::new(),
            failed: HashSet::new(),
            down: HashSet::new(),
            seen: HashSet::new(),
            left_out: 0,
        }
    }

    /// Begins a round of listing.
    pub(super) fn begin(&mut self) {
        self.seen.clear();
        self.left_out = 0;
    }

    /// Ends a round of listing: interfaces that it has not seen are gone, and are forgotten.
    pub(super) fn end(&mut self) {
        self.down.retain(|interface| self.seen.contains(interface));
        self.seen.clear();
    }

    /// Objects that are not kept.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Ways that found no room.
    pub(super) fn full(&self) -> usize {
        self.targets.values().filter(|target| target.is_full).count()
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = u32> {
        self.objects.keys().copied()
    }

    pub(super) fn number(&self, way: &Way) -> u32 {
        self.targets.get(way).map_or(self.kernel, |target| target.number)
    }

    /// Takes a way for one more user.
    pub(super) fn take<C: Cells>(&mut self, fib: &mut Fib<C>, way: &Way) -> u32 {
        if *way == Way::Kernel {
            return self.kernel;
        }
        if let Some(target) = self.targets.get_mut(way) {
            target.users += 1;
            return target.number;
        }
        let made = fib.next_hops_mut().create(NextHop::Local);
        let number = made.unwrap_or(self.kernel);
        self.targets.insert(way.clone(), Target { number, group: None, users: 1, is_full: made.is_err() });
        if made.is_ok() {
            self.write(fib, way);
        }
        number
    }

    /// Lets go of a way. The routes that had it are gone from the table.
    pub(super) fn release<C: Cells>(&mut self, fib: &mut Fib<C>, way: &Way) {
        let Some(target) = self.targets.get_mut(way) else { return };
        target.users -= 1;
        if target.users > 0 {
            return;
        }
        let Some(target) = self.targets.remove(way) else { return };
        if target.number != self.kernel {
            // Neither routes nor groups have the number.
            let _ = fib.remove_next_hop(target.number);
        }
        self.leave_group(fib, target.group);
    }

    fn leave_group<C: Cells>(&mut self, fib: &mut Fib<C>, group: Option<u32>) {
        let Some(group) = group else { return };
        // The group keeps none of its members, so that their numbers can go.
        let _ = fib.next_hops_mut().set_group(group, &[Member { next_hop: self.kernel, weight: 1 }]);
        self.left_groups.push(group);
        self.members.retain(|_, number| fib.remove_next_hop(*number).is_err());
    }

    /// Lets groups that were left be used again, and tries ways again that found no room. Returns those that have a
    /// number now, which their routes do not have yet.
    pub(super) fn reuse<C: Cells>(&mut self, fib: &mut Fib<C>) -> HashSet<Way> {
        self.free_groups.append(&mut self.left_groups);
        let full: Vec<_> =
            self.targets.iter().filter(|(_, target)| target.is_full).map(|(way, _)| way.clone()).collect();
        let mut found = HashSet::new();
        for way in full {
            let Some(target) = self.targets.get_mut(&way) else { continue };
            if target.number == self.kernel {
                let Ok(number) = fib.next_hops_mut().create(NextHop::Local) else { break };
                (target.number, target.is_full) = (number, false);
                found.insert(way.clone());
            }
            self.write(fib, &way);
        }
        found
    }

    /// Sets or removes an object. All its routes go there from now on. Says whether the object is kept, or was removed:
    /// routes of one that is not kept go to the kernel.
    pub(super) fn set_object<C: Cells>(&mut self, fib: &mut Fib<C>, id: u32, object: Option<Object>) -> bool {
        if object.is_some() && self.objects.len() >= MAX_KEPT && !self.objects.contains_key(&id) {
            self.left_out = self.left_out.saturating_add(1);
            return false;
        }
        match object {
            Some(object) => self.objects.insert(id, object),
            None => self.objects.remove(&id),
        };
        let is_of = |object: &Object| matches!(object, Object::Group(members) if members.iter().any(|(m, _)| *m == id));
        let groups = self.objects.iter().filter(|(_, object)| is_of(object)).map(|(id, _)| *id);
        let changed: Vec<_> = groups.chain([id]).map(Way::Object).collect();
        for way in changed {
            if self.targets.contains_key(&way) {
                self.write(fib, &way);
            }
        }
        true
    }

    /// A neighbour answers or does not: groups leave out a member that does not.
    pub(super) fn set_failed<C: Cells>(&mut self, fib: &mut Fib<C>, leg: Leg, is_failed: bool) {
        let has_changed = match is_failed {
            // One beyond the bound keeps its share of groups.
            true => self.failed.len() < MAX_KEPT && self.failed.insert(leg),
            false => self.failed.remove(&leg),
        };
        if has_changed {
            self.rewrite(fib, |other| *other == leg);
        }
    }

    /// An interface is up or not.
    pub(super) fn set_up<C: Cells>(&mut self, fib: &mut Fib<C>, interface: u32, is_up: bool) {
        self.seen.insert(interface);
        let has_changed = if is_up { self.down.remove(&interface) } else { self.down.insert(interface) };
        if has_changed {
            self.rewrite(fib, |leg| leg.interface == interface);
        }
    }

    fn rewrite<C: Cells>(&mut self, fib: &mut Fib<C>, is_meant: impl Fn(&Leg) -> bool) {
        let ways: Vec<_> = self.targets.keys().cloned().collect();
        for way in ways {
            if self.legs_of(&way).iter().any(|(leg, _)| is_meant(leg)) {
                self.write(fib, &way);
            }
        }
    }

    /// The legs of a way; none if the kernel decides.
    fn legs_of(&self, way: &Way) -> Vec<(Leg, u16)> {
        match way {
            Way::Legs(legs) => legs.clone(),
            Way::Object(id) => match self.objects.get(id) {
                Some(Object::Way(Way::Legs(legs))) => legs.clone(),
                Some(Object::Group(members)) => {
                    let mut all = Vec::new();
                    for (member, weight) in members {
                        if let Some(Object::Way(Way::Legs(legs))) = self.objects.get(member) {
                            all.extend(legs.iter().map(|(leg, _)| (*leg, *weight)));
                        }
                    }
                    all
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Writes what the number of a way is now: the only write for all its routes.
    fn write<C: Cells>(&mut self, fib: &mut Fib<C>, way: &Way) {
        let legs = self.legs_of(way);
        let plain = match way {
            Way::Object(id) => match self.objects.get(id) {
                Some(Object::Way(plain)) => plain,
                _ => &Way::Kernel,
            },
            way => way,
        };
        let single = match plain {
            Way::BlackHole => NextHop::BlackHole,
            Way::Prohibit => NextHop::Prohibit,
            Way::Unreachable => NextHop::Unreachable,
            _ => match legs.as_slice() {
                [(leg, _)] if !self.down.contains(&leg.interface) => forward(*leg),
                _ => NextHop::Local,
            },
        };
        let is_full = legs.len() > 1 && self.write_group(fib, way, &legs).is_err();
        let all_down = legs.iter().all(|(leg, _)| self.down.contains(&leg.interface));
        let Some(target) = self.targets.get_mut(way) else { return };
        let (number, group) = (target.number, target.group);
        if number == self.kernel {
            return;
        }
        target.is_full = is_full;
        let wanted = match group {
            Some(group) if legs.len() > 1 && !is_full && !all_down => NextHop::Group(group),
            _ => single,
        };
        if fib.next_hops().get(number) != Some(wanted) {
            let _ = fib.next_hops_mut().replace(number, wanted);
        }
        if legs.len() <= 1 {
            let group = self.targets.get_mut(way).and_then(|target| target.group.take());
            self.leave_group(fib, group);
        }
    }

    fn write_group<C: Cells>(&mut self, fib: &mut Fib<C>, way: &Way, legs: &[(Leg, u16)]) -> Result<(), RouteError> {
        let group = match self.targets.get(way).and_then(|target| target.group) {
            Some(group) => group,
            None => {
                let group = self.free_groups.pop().or_else(|| {
                    let group = Some(self.next_group).filter(|group| *group < self.groups)?;
                    self.next_group += 1;
                    Some(group)
                });
                let group = group.ok_or(RouteError::UnknownGroup(self.groups))?;
                if let Some(target) = self.targets.get_mut(way) {
                    target.group = Some(group);
                }
                group
            }
        };
        let is_up = |leg: &Leg| !self.down.contains(&leg.interface);
        let answers = |leg: &Leg| is_up(leg) && !self.failed.contains(leg);
        // If none answers, all that are up stay: the kernel gets the packets, and asks for the neighbours.
        let any_answers = legs.iter().any(|(leg, _)| answers(leg));
        let stays = |leg: &Leg| if any_answers { answers(leg) } else { is_up(leg) };
        let staying: Vec<_> = legs.iter().copied().filter(|(leg, _)| stays(leg)).collect();
        if staying.is_empty() {
            // The number of the way leads to the kernel.
            return Ok(());
        }
        let mut members = Vec::new();
        for (leg, weight) in &staying {
            let number = match self.members.get(leg) {
                Some(number) => *number,
                None => fib.next_hops_mut().create(forward(*leg))?,
            };
            self.members.insert(*leg, number);
            members.push(Member { next_hop: number, weight: *weight });
        }
        fib.next_hops_mut().set_group(group, &members)
    }
}

fn forward(leg: Leg) -> NextHop {
    NextHop::Forward { interface: leg.interface, gateway: leg.gateway }
}
