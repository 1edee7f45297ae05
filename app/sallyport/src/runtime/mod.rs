//! The process itself: its logs and traces, allocator, threads for connections, and metrics.
//! Uses no other room.

#[cfg(feature = "jemalloc")]
pub(crate) mod memory;
pub(crate) mod process_metrics;
pub(crate) mod telemetry;
pub(crate) mod threads;
