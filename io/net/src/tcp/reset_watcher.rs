//! Detects a reset of a TCP connection whose peer had ended its direction.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{net::TcpStream, time::Sleep};

/// Delay before a connection is watched. Most connections end earlier, and the second descriptor costs four system
/// calls.
const WATCH_AFTER: Duration = Duration::from_millis(20);

type Watch = Pin<Box<dyn Future<Output = io::Error> + Send>>;

/// Waits for a reset. After the end a read gives nothing new, and a write needs data, so only an event of the kernel is
/// left. A second descriptor of the connection waits for that event.
#[derive(Default)]
pub struct ResetWatcher {
    /// Time before the watch begins.
    wait: Option<Pin<Box<Sleep>>>,
    watch: Option<Watch>,
}

impl fmt::Debug for ResetWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResetWatcher").field("is_watching", &self.watch.is_some()).finish()
    }
}

impl ResetWatcher {
    /// Ready when the connection was reset; pending for ever when it ends in order. Call it with one connection only.
    pub fn poll(&mut self, stream: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.watch.is_none() {
            let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(WATCH_AFTER)));
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
            // Without a spare descriptor the reset is noticed at the next write.
            self.watch = Some(watch(stream).unwrap_or_else(|_| Box::pin(std::future::pending())));
        }
        match &mut self.watch {
            Some(watch) => {
                let error = ready!(watch.as_mut().poll(cx));
                self.watch = None;
                Poll::Ready(error)
            }
            None => Poll::Pending,
        }
    }
}

#[cfg(unix)]
fn watch(stream: &TcpStream) -> io::Result<Watch> {
    let second: std::net::TcpStream = socket2::SockRef::from(stream).try_clone()?.into();
    let second = TcpStream::from_std(second)?;
    Ok(Box::pin(async move {
        match second.ready(tokio::io::Interest::ERROR).await {
            Ok(_) => io::Error::new(io::ErrorKind::ConnectionReset, "the peer reset the connection"),
            Err(error) => error,
        }
    }))
}

#[cfg(not(unix))]
fn watch(_stream: &TcpStream) -> io::Result<Watch> {
    Ok(Box::pin(std::future::pending()))
}
