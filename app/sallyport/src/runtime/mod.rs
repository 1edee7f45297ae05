//! What the process itself has: logs and traces, the allocator, threads for connections, metrics of the process.
//! Uses no other room.

pub(crate) mod memory;
pub(crate) mod process_metrics;
pub(crate) mod telemetry;
pub(crate) mod threads;
