//! Next hops by number, shared by prefixes, and groups of them.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Cells, RouteError, spread};
use crate::layout::{
    ENTRY_HOP_MASK, GROUP_SLOT_BITS, GROUP_SLOTS, HOP_FAMILY, HOP_GATEWAY, HOP_INTERFACE, HOP_KIND, HOP_VERSION,
    KIND_BLACK_HOLE, KIND_FORWARD, KIND_GROUP, KIND_LOCAL, KIND_PROHIBIT, KIND_UNREACHABLE, NEXT_HOP_CELLS,
};

/// Where packets of a route go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// To a neighbour.
    Forward {
        /// Index of the interface.
        interface: u32,
        /// The neighbour; `None` if it is the destination itself.
        gateway: Option<IpAddr>,
    },
    /// To this machine.
    Local,
    /// Nowhere, without an answer.
    BlackHole,
    /// Nowhere; the kernel answers that this is forbidden.
    Prohibit,
    /// Nowhere; the kernel answers that there is no way.
    Unreachable,
    /// To one of a group.
    Group(u32),
}

/// A next hop in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Number of the next hop.
    pub next_hop: u32,
    /// Its share of the flows. 0 is none.
    pub weight: u16,
}

/// The table of next hops. Many prefixes have one number, so one change of it reroutes all of them.
#[derive(Debug, Clone)]
pub struct NextHops<C> {
    records: C,
    slots: C,
    /// What each number is. A number without a next hop is free.
    values: Vec<Option<NextHop>>,
    numbers: HashMap<NextHop, u32>,
    free: Vec<u32>,
    /// No longer used, but a reader may still be there.
    left: Vec<u32>,
    groups: HashMap<u32, Vec<Member>>,
}

impl<C: Cells> NextHops<C> {
    /// An empty table over arrays of zeros.
    #[must_use]
    pub fn new(records: C, slots: C) -> Self {
        let (values, numbers) = (Vec::new(), HashMap::new());
        Self { records, slots, values, numbers, free: Vec::new(), left: Vec::new(), groups: HashMap::new() }
    }

    /// The number of this next hop: an existing one, or a new one.
    ///
    /// # Errors
    /// The table is full, or the group does not exist.
    pub fn number_of(&mut self, next_hop: NextHop) -> Result<u32, RouteError> {
        if let Some(number) = self.numbers.get(&next_hop) {
            return Ok(*number);
        }
        self.create(next_hop)
    }

    /// A new number for this next hop, even if another number has the same one. So that two numbers can change apart.
    ///
    /// # Errors
    /// The table is full, or the group does not exist.
    pub fn create(&mut self, next_hop: NextHop) -> Result<u32, RouteError> {
        self.require_group(next_hop)?;
        let limit = (self.records.count() / NEXT_HOP_CELLS).min(ENTRY_HOP_MASK as usize + 1);
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.values.len() < limit => {
                self.values.push(None);
                u32::try_from(self.values.len() - 1).map_err(|_| RouteError::NextHopsFull)?
            }
            None => return Err(RouteError::NextHopsFull),
        };
        self.write(number, Some(next_hop));
        Ok(number)
    }

    /// Replaces the next hop of a number: all its prefixes go there from now on.
    ///
    /// # Errors
    /// The number is of no next hop, the group does not exist, or the number is in a group, and a group has no groups.
    pub fn replace(&mut self, number: u32, next_hop: NextHop) -> Result<(), RouteError> {
        self.get(number).ok_or(RouteError::UnknownNextHop(number))?;
        self.require_group(next_hop)?;
        if matches!(next_hop, NextHop::Group(_)) && self.memberships(number) != 0 {
            return Err(RouteError::BadMembers);
        }
        self.write(number, Some(next_hop));
        Ok(())
    }

    /// Removes a number that no group has. [`Fib::remove_next_hop`](super::Fib::remove_next_hop) also looks at routes.
    ///
    /// # Errors
    /// The number is of no next hop, or a group has it.
    pub fn remove(&mut self, number: u32) -> Result<(), RouteError> {
        self.get(number).ok_or(RouteError::UnknownNextHop(number))?;
        match self.memberships(number) {
            0 => {
                self.write(number, None);
                self.left.push(number);
                Ok(())
            }
            count => Err(RouteError::InUse(number, count)),
        }
    }

    /// Lets numbers that were removed be used again. The caller has waited until no reader can be there.
    pub fn reuse(&mut self) {
        self.free.append(&mut self.left);
    }

    /// Sets the members of a group. Slots whose member stays are not written.
    ///
    /// # Errors
    /// There is no room for the group, a member does not exist, or the members are none, too many or groups.
    pub fn set_group(&mut self, group: u32, members: &[Member]) -> Result<(), RouteError> {
        if group as usize >= self.slots.count() / GROUP_SLOTS {
            return Err(RouteError::UnknownGroup(group));
        }
        if members.len() > GROUP_SLOTS || members.iter().all(|member| member.weight == 0) {
            return Err(RouteError::BadMembers);
        }
        for member in members {
            match self.get(member.next_hop) {
                None => return Err(RouteError::UnknownNextHop(member.next_hop)),
                Some(NextHop::Group(_)) => return Err(RouteError::BadMembers),
                Some(_) => {}
            }
        }
        for (slot, next_hop) in spread::slots(members).iter().enumerate() {
            let index = group as usize * GROUP_SLOTS + slot;
            if self.slots.get(index) != *next_hop {
                self.slots.set(index, *next_hop);
            }
        }
        self.groups.insert(group, members.to_vec());
        Ok(())
    }

    /// The next hop of a number, as it is: perhaps a group.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<NextHop> {
        self.values.get(number as usize).copied().flatten()
    }

    /// The members of a group.
    #[must_use]
    pub fn members(&self, group: u32) -> &[Member] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The number and the next hop for a flow with this hash: of a group, the member. Reads the arrays, as a program
    /// does.
    #[must_use]
    pub fn resolve(&self, number: u32, hash: u32) -> Option<(u32, NextHop)> {
        match self.record(number)? {
            NextHop::Group(group) => {
                let slot = (hash >> (32 - GROUP_SLOT_BITS)) as usize;
                let member = self.slots.get(group as usize * GROUP_SLOTS + slot);
                let next_hop = self.record(member).filter(|next_hop| !matches!(next_hop, NextHop::Group(_)))?;
                Some((member, next_hop))
            }
            next_hop => Some((number, next_hop)),
        }
    }

    /// Whether a packet by this number can leave by the interface: of a group, by any member.
    #[must_use]
    pub fn has_interface(&self, number: u32, interface: u32) -> bool {
        let leaves_by =
            |number: u32| matches!(self.get(number), Some(NextHop::Forward { interface: way, .. }) if way == interface);
        match self.get(number) {
            Some(NextHop::Group(group)) => {
                self.members(group).iter().any(|member| member.weight != 0 && leaves_by(member.next_hop))
            }
            _ => leaves_by(number),
        }
    }

    fn require_group(&self, next_hop: NextHop) -> Result<(), RouteError> {
        match next_hop {
            NextHop::Group(group) if !self.groups.contains_key(&group) => Err(RouteError::UnknownGroup(group)),
            _ => Ok(()),
        }
    }

    fn memberships(&self, number: u32) -> usize {
        self.groups.values().flatten().filter(|member| member.next_hop == number).count()
    }

    fn write(&mut self, number: u32, next_hop: Option<NextHop>) {
        let Some(value) = self.values.get_mut(number as usize) else { return };
        let former = std::mem::replace(value, next_hop);
        if let Some(former) = former.filter(|former| self.numbers.get(former) == Some(&number)) {
            self.numbers.remove(&former);
        }
        if let Some(next_hop) = next_hop {
            self.numbers.entry(next_hop).or_insert(number);
        }
        let cells = next_hop.map_or([0; NEXT_HOP_CELLS], encode);
        let start = number as usize * NEXT_HOP_CELLS;
        let version = self.records.get(start + HOP_VERSION);
        self.records.set(start + HOP_VERSION, version.wrapping_add(1));
        for (index, cell) in cells.into_iter().enumerate().filter(|(index, _)| *index != HOP_VERSION) {
            self.records.set(start + index, cell);
        }
        self.records.set(start + HOP_VERSION, version.wrapping_add(2));
    }

    fn record(&self, number: u32) -> Option<NextHop> {
        let start = number as usize * NEXT_HOP_CELLS;
        let cell = |index: usize| self.records.get(start + index);
        if cell(HOP_VERSION) % 2 == 1 {
            return None;
        }
        Some(match cell(HOP_KIND) {
            KIND_FORWARD => {
                let gateway = match cell(HOP_FAMILY) {
                    4 => Some(IpAddr::V4(Ipv4Addr::from_bits(cell(HOP_GATEWAY)))),
                    6 => {
                        let bits = (0..4).fold(0, |bits, index| bits << 32 | u128::from(cell(HOP_GATEWAY + index)));
                        Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
                    }
                    _ => None,
                };
                NextHop::Forward { interface: cell(HOP_INTERFACE), gateway }
            }
            KIND_LOCAL => NextHop::Local,
            KIND_BLACK_HOLE => NextHop::BlackHole,
            KIND_PROHIBIT => NextHop::Prohibit,
            KIND_UNREACHABLE => NextHop::Unreachable,
            KIND_GROUP => NextHop::Group(cell(HOP_INTERFACE)),
            _ => return None,
        })
    }
}

fn encode(next_hop: NextHop) -> [u32; NEXT_HOP_CELLS] {
    let mut cells = [0; NEXT_HOP_CELLS];
    (cells[HOP_KIND], cells[HOP_INTERFACE]) = match next_hop {
        NextHop::Forward { interface, .. } => (KIND_FORWARD, interface),
        NextHop::Local => (KIND_LOCAL, 0),
        NextHop::BlackHole => (KIND_BLACK_HOLE, 0),
        NextHop::Prohibit => (KIND_PROHIBIT, 0),
        NextHop::Unreachable => (KIND_UNREACHABLE, 0),
        NextHop::Group(group) => (KIND_GROUP, group),
    };
    match next_hop {
        NextHop::Forward { gateway: Some(IpAddr::V4(gateway)), .. } => {
            (cells[HOP_GATEWAY], cells[HOP_FAMILY]) = (gateway.to_bits(), 4);
        }
        NextHop::Forward { gateway: Some(IpAddr::V6(gateway)), .. } => {
            for (index, shift) in [96, 64, 32, 0].into_iter().enumerate() {
                cells[HOP_GATEWAY + index] = (gateway.to_bits() >> shift & 0xffff_ffff) as u32;
            }
            cells[HOP_FAMILY] = 6;
        }
        _ => {}
    }
    cells
}
