//! The layout of what the data path reads in BPF maps: the one place of these numbers. `packet/bpf/layout.h` mirrors
//! it.
//!
//! Every map is an array of `u32` in the machine's byte order. An array of zeros is an empty table.
//!
//! | array | cells | a cell |
//! | --- | --- | --- |
//! | `fib4_first` | [`FIB4_FIRST_CELLS`] | an entry, by the upper 24 bits of the address; the last cell is the default route |
//! | `fib4_second` | blocks of [`FIB4_BLOCK_CELLS`] | an entry, by block and the lower 8 bits of the address |
//! | `fib6_first` | [`FIB6_FIRST_CELLS`] | an entry, by the upper 16 bits of the address; the last cell is the default route |
//! | `fib6_nodes` | nodes of [`FIB6_NODE_CELLS`] | see below |
//! | `next_hops` | records of [`NEXT_HOP_CELLS`] | see below |
//! | `group_slots` | groups of [`GROUP_SLOTS`] | the number of a next hop |
//! | `pool_slots` | tables of [`POOL_SLOTS`](crate::balance::POOL_SLOTS) | the first edge of a slot, and the second in the upper half |
//! | `slice_owners` | [`SLICES`] | the number of a server plus 1, by the upper bits of a port |
//!
//! **An entry** is 0 if there is no route. With [`ENTRY_NODE`], its other bits are the number of a block or a node.
//! Otherwise the bits from [`ENTRY_LENGTH_SHIFT`] on are the length of the prefix plus 1, and the bits below are the
//! number of a next hop. After a lookup ends with 0, the default cell decides.
//!
//! **A node of IPv6** is: cell [`NODE_DEPTH`], the bits before the node's four bits; cell [`NODE_FALLBACK`], the entry
//! of addresses whose first bits are not those of the node; cells [`NODE_PREFIX`] to +3, these bits, the upper word
//! first; two cells of 0; cells from [`NODE_ENTRIES`] on, 16 entries by the address's next four bits. A lookup
//! compares the first bits at each node, because the trie leaves out nodes with one way. It reads at most
//! [`FIB6_MAX_STEPS`] nodes.
//!
//! **A next hop** is: cell [`HOP_KIND`]; cell [`HOP_INTERFACE`], the interface, or the number of a group; cells
//! [`HOP_GATEWAY`] to +3, the gateway as words in host order (IPv4 in the first); cell [`HOP_FAMILY`], the family of the
//! gateway: 0, 4 or 6; one cell of 0. Without a gateway the neighbour is the destination itself. A group with the
//! number `g` has the slots from `g * GROUP_SLOTS` on; the upper [`GROUP_SLOT_BITS`] bits of the flow's hash choose.
//!
//! The version of a next hop is odd while its cells change, and greater after every change. A program reads it before
//! and after the other cells. If it is odd or has changed, the kernel gets the packet: it has the route too.
//!
//! **Counters** have one cell of 64 bits for each reason: see `DropReason::number` and `PassReason::number` in the room
//! `forward`.

/// Cells of the first array of IPv4, with the default route in the last.
pub const FIB4_FIRST_CELLS: usize = (1 << 24) + 1;
/// The default route in the first array of IPv4.
pub const FIB4_DEFAULT: usize = 1 << 24;
/// Cells of one block of the second array of IPv4.
pub const FIB4_BLOCK_CELLS: usize = 256;
/// Bits of an IPv6 address that the first array decides.
pub const FIB6_FIRST_BITS: u8 = 16;
/// Cells of the first array of IPv6, with the default route in the last.
pub const FIB6_FIRST_CELLS: usize = (1 << FIB6_FIRST_BITS) + 1;
/// The default route in the first array of IPv6.
pub const FIB6_DEFAULT: usize = 1 << FIB6_FIRST_BITS;
/// Bits of an IPv6 address that one node decides.
pub const FIB6_STRIDE: u8 = 4;
/// Cells of a node of IPv6.
pub const FIB6_NODE_CELLS: usize = 24;
/// The most nodes on the way of a lookup.
pub const FIB6_MAX_STEPS: usize = 28;
/// Cell of a node: its depth in bits.
pub const NODE_DEPTH: usize = 0;
/// Cell of a node: the entry of addresses that are not below it.
pub const NODE_FALLBACK: usize = 1;
/// First cell of a node's prefix.
pub const NODE_PREFIX: usize = 2;
/// First cell of a node's entries.
pub const NODE_ENTRIES: usize = 8;

/// The bit of an entry that points to a block or a node.
pub const ENTRY_NODE: u32 = 1 << 31;
/// Where an entry has the length of its prefix plus 1, in 8 bits.
pub const ENTRY_LENGTH_SHIFT: u32 = 23;
/// The number of an entry's next hop.
pub const ENTRY_HOP_MASK: u32 = (1 << ENTRY_LENGTH_SHIFT) - 1;

/// Cells of a next hop.
pub const NEXT_HOP_CELLS: usize = 8;
/// Cell of a next hop: its kind.
pub const HOP_KIND: usize = 0;
/// Cell of a next hop: its interface or group.
pub const HOP_INTERFACE: usize = 1;
/// First cell of a gateway.
pub const HOP_GATEWAY: usize = 2;
/// Cell of a next hop: the family of its gateway.
pub const HOP_FAMILY: usize = 6;
/// Cell of a next hop: its version.
pub const HOP_VERSION: usize = 7;

/// No next hop: the route counts as absent.
pub const KIND_NONE: u32 = 0;
/// A neighbour on an interface.
pub const KIND_FORWARD: u32 = 1;
/// This machine.
pub const KIND_LOCAL: u32 = 2;
/// Packets vanish.
pub const KIND_BLACK_HOLE: u32 = 3;
/// The kernel answers that this is forbidden.
pub const KIND_PROHIBIT: u32 = 4;
/// The kernel answers that there is no way.
pub const KIND_UNREACHABLE: u32 = 5;
/// A group of next hops.
pub const KIND_GROUP: u32 = 6;

/// Bits of a flow's hash that choose a slot of a group.
pub const GROUP_SLOT_BITS: u32 = 8;
/// Slots of a group.
pub const GROUP_SLOTS: usize = 1 << GROUP_SLOT_BITS;

/// Counters of one interface: one for each reason.
pub const REASON_COUNTERS: usize = 128;

/// Ports that are tried for a new mapping of the NAT.
pub const NAT_PORT_TRIES: u32 = 64;
/// Ports of one slice.
pub const SLICE_PORTS: u16 = 2_048;
/// Slices of all ports.
pub const SLICES: usize = 32;
