//! Tasks of which there are few.

use std::{future::Future, pin::Pin};

use tokio::task::JoinHandle;

/// Runs this in the background. For what a connection or a request waits for `tokio::spawn` is better: this one has the future in a
/// box. But tokio has some 2 KB of code for each type of future that is spawned, once for each of its schedulers, and those in
/// boxes are one type (docs/adr/0047-twenty-five-mebibytes-reached.md).
pub fn spawn_boxed<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let boxed: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(boxed)
}
