//! Background tasks.

use std::{future::Future, pin::Pin};

use tokio::task::JoinHandle;

/// Runs a future in the background, in a box. Use it for tasks of which there are few.
///
/// tokio compiles some 2 KB of code for each type of future that is spawned. Boxed futures have one type
/// (docs/adr/0047-twenty-five-mebibytes-reached.md). For the path of connections and requests `tokio::spawn` is better.
pub fn spawn_boxed<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let boxed: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(boxed)
}
