//! Buffers log lines on their way to standard error. A thread writes the gathered lines, so that a busy edge needs no
//! system call for each logged request.

use std::{
    io::{self, Write},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Bound on waiting bytes. Beyond it a logging thread waits: no line is lost.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Time that lines gather before they are written: a busy log wakes its thread a hundred times a second, not once a
/// line.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// Bytes from which on lines are written without further delay.
const ENOUGH_BYTES: usize = 64 * 1024;

/// Collects log lines.
#[derive(Debug, Clone, Default)]
pub struct LogBuffer {
    shared: Arc<BufferState>,
}

#[derive(Debug, Default)]
struct BufferState {
    waiting: Mutex<Waiting>,
    more: Condvar,
    room: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    is_over: bool,
}

/// Owner of the writing thread: on drop, writes the waiting lines and ends the thread.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<BufferState>,
    thread: Option<thread::JoinHandle<()>>,
}

impl BufferState {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl LogBuffer {
    /// Creates a buffer, and the thread that writes it to `to`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(mut to: impl Write + Send + 'static) -> io::Result<(Self, LogWriter)> {
        let buffer = Self::default();
        let shared = buffer.shared.clone();
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            let mut lines = Vec::new();
            loop {
                let mut waiting = shared.lock();
                while waiting.bytes.is_empty() && !waiting.is_over {
                    shared.more.wait(&mut waiting);
                }
                if waiting.bytes.is_empty() {
                    return;
                }
                let is_short = |waiting: &mut Waiting| waiting.bytes.len() < ENOUGH_BYTES && !waiting.is_over;
                shared.more.wait_while_for(&mut waiting, is_short, GATHER_TIME);
                std::mem::swap(&mut lines, &mut waiting.bytes);
                drop(waiting);
                shared.room.notify_all();
                // A failure of writing the log cannot be reported.
                drop(to.write_all(&lines));
                lines.clear();
            }
        })?;
        Ok((buffer.clone(), LogWriter { shared: buffer.shared, thread: Some(thread) }))
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
    type Writer = &'a Self;
    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &LogBuffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.shared.lock();
        while waiting.bytes.len() >= MAX_WAITING_BYTES && !waiting.is_over {
            self.shared.room.wait(&mut waiting);
        }
        let before = waiting.bytes.len();
        waiting.bytes.extend_from_slice(line);
        let now = waiting.bytes.len();
        drop(waiting);
        if before == 0 || (before < ENOUGH_BYTES && now >= ENOUGH_BYTES) {
            self.shared.more.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.more.notify_one();
        self.shared.room.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow writer.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            thread::sleep(std::time::Duration::from_millis(1));
            let mut taken = self.0.lock();
            taken.0.extend_from_slice(bytes);
            taken.1 += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_arrives_in_order_and_many_at_once() {
        let slow = Slow::default();
        let (buffer, writer) = LogBuffer::start(slow.clone()).unwrap();
        let line = "x".repeat(1_000);
        for number in 0..5_000 {
            writeln!(&buffer, "{number} {line}").unwrap();
        }
        drop(writer);
        let taken = slow.0.lock();
        let text = String::from_utf8(taken.0.clone()).unwrap();
        let numbers: Vec<usize> = text.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert!(numbers.iter().copied().eq(0..5_000), "{} lines", numbers.len());
        assert!(taken.1 < 2_500, "{} writes for 5,000 lines", taken.1);
    }
}
