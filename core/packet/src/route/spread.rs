//! The slots of a group, shared by weight. When a member goes, few slots of the others change.

use super::Member;
use crate::layout::GROUP_SLOTS;

/// The member of each slot: Maglev's way to fill a table (NSDI 2016, section 3.4), with weights. The result depends on
/// the members alone, not on their order.
pub(super) fn slots(members: &[Member]) -> Box<[u32]> {
    const FREE: u32 = u32::MAX;
    let mut members: Vec<Member> = members.iter().copied().filter(|member| member.weight != 0).collect();
    members.sort_by_key(|member| member.next_hop);
    let greatest = members.iter().map(|member| u64::from(member.weight)).max().unwrap_or(1);
    // An odd step visits every slot, because the number of slots is a power of two.
    let mut turns: Vec<_> = members
        .iter()
        .map(|member| {
            let hash = (u64::from(member.next_hop) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let start = (hash >> 32) as usize % GROUP_SLOTS;
            (start, ((hash >> 48) as usize % GROUP_SLOTS) | 1, 0u64)
        })
        .collect();
    let mut slots = vec![FREE; GROUP_SLOTS].into_boxed_slice();
    let mut taken = 0;
    // The heaviest member takes a slot in every round.
    for round in 1..=GROUP_SLOTS as u64 {
        for (member, (next, step, target)) in members.iter().zip(&mut turns) {
            if round * u64::from(member.weight) < *target {
                continue;
            }
            *target += greatest;
            while slots[*next] != FREE {
                *next = (*next + *step) % GROUP_SLOTS;
            }
            slots[*next] = member.next_hop;
            taken += 1;
            if taken == GROUP_SLOTS {
                return slots;
            }
        }
    }
    slots
}
