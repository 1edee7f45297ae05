//! How much of clients' uploads over HTTP/2 is held in memory, and its bounds.
//!
//! The windows of HTTP/2 let each client send megabytes ahead of an origin that does not read. For one client that is
//! what makes uploads fast; for hundreds it would be all memory there is. So what has come and was not taken is counted,
//! and past a bound those connections that hold more than a little are not read from until their origins have caught up.
//! One that stays so does not answer pings either, and ends.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_net::pass_writes;
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::Sleep,
};

use crate::limits::party;

/// How much of all uploads is held at once, in bytes; beyond it each connection has [`MAX_SPARED_BYTES`].
const MAX_UPLOAD_BYTES_HELD: usize = 256 * 1024 * 1024;
/// How much of the uploads of one address is held at once, in bytes.
const MAX_UPLOAD_BYTES_HELD_PER_ADDRESS: usize = 32 * 1024 * 1024;
/// What each connection may hold whatever the others do, in bytes: who sends little is not held up by who sends much.
const MAX_SPARED_BYTES: usize = 64 * 1024;
/// How long a connection waits before it is looked at again.
const PAUSE: Duration = Duration::from_millis(50);
/// What an HTTP/2 client says first, in bytes (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;
/// The length of a frame's header, in bytes (RFC 9113 section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
/// The type of DATA frames (RFC 9113 section 6.1).
const DATA: u8 = 0;

/// What all connections hold.
#[derive(Debug)]
pub(crate) struct UploadBudget {
    max: usize,
    max_per_party: usize,
    total: AtomicUsize,
    by_party: Mutex<HashMap<IpAddr, Arc<AtomicUsize>>>,
}

impl Default for UploadBudget {
    fn default() -> Self {
        Self::new(MAX_UPLOAD_BYTES_HELD, MAX_UPLOAD_BYTES_HELD_PER_ADDRESS)
    }
}

impl UploadBudget {
    fn new(max: usize, max_per_party: usize) -> Self {
        Self { max, max_per_party, total: AtomicUsize::new(0), by_party: Mutex::default() }
    }

    /// How many bytes are held now.
    pub(crate) fn held(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The count of one connection from this address.
    pub(crate) fn meter(self: &Arc<Self>, address: IpAddr) -> Arc<UploadMeter> {
        let party = party(address);
        let mut by_party = self.by_party.lock().unwrap_or_else(PoisonError::into_inner);
        let of_party = by_party.entry(party).or_default().clone();
        drop(by_party);
        let (held, uploads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(UploadMeter { budget: self.clone(), party, of_party, held, uploads })
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct UploadMeter {
    budget: Arc<UploadBudget>,
    party: IpAddr,
    of_party: Arc<AtomicUsize>,
    held: AtomicUsize,
    uploads: AtomicUsize,
}

impl UploadMeter {
    fn may_read(&self) -> bool {
        self.held.load(Ordering::Relaxed) < MAX_SPARED_BYTES
            || (self.of_party.load(Ordering::Relaxed) < self.budget.max_per_party
                && self.budget.held() < self.budget.max)
    }

    fn received(&self, bytes: usize) {
        for count in [&self.held, &*self.of_party, &self.budget.total] {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// So much was taken on its way to an origin.
    fn taken(&self, bytes: usize) {
        let left = |held: usize| Some(held.saturating_sub(bytes));
        let before = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).unwrap_or_default();
        let taken = before.min(bytes);
        self.of_party.fetch_sub(taken, Ordering::Relaxed);
        self.budget.total.fetch_sub(taken, Ordering::Relaxed);
    }

    /// One more upload runs on this connection.
    pub(crate) fn begin(self: &Arc<Self>) -> MeteredUpload {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        MeteredUpload(self.clone())
    }
}

impl Drop for UploadMeter {
    fn drop(&mut self) {
        self.taken(usize::MAX);
        let mut by_party = self.budget.by_party.lock().unwrap_or_else(PoisonError::into_inner);
        // One is in the map and one is ours.
        if Arc::strong_count(&self.of_party) == 2 {
            by_party.remove(&self.party);
        }
    }
}

/// An upload that runs.
#[derive(Debug)]
pub(crate) struct MeteredUpload(Arc<UploadMeter>);

impl MeteredUpload {
    /// So much of it was taken.
    pub(crate) fn taken(&self, bytes: usize) {
        self.0.taken(bytes);
    }
}

impl Drop for MeteredUpload {
    fn drop(&mut self) {
        // What was given up was not taken and is gone all the same: with the last upload the count begins anew.
        if self.0.uploads.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.taken(usize::MAX);
        }
    }
}

/// An HTTP/2 connection whose uploads are counted as they come.
pub(crate) struct MeteredIo<S> {
    inner: S,
    meter: Arc<UploadMeter>,
    frames: DataFrames,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> MeteredIo<S> {
    /// Counts what comes by this connection.
    pub(crate) fn new(inner: S, meter: Arc<UploadMeter>) -> Self {
        Self { inner, meter, frames: DataFrames::default(), pause: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.meter.may_read() {
            ready!(this.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE))).as_mut().poll(cx));
            this.pause = None;
        }
        this.pause = None;
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let data = this.frames.data_in(&buf.filled()[before..]);
        if data > 0 {
            this.meter.received(data);
        }
        Poll::Ready(Ok(()))
    }
}

pass_writes!(MeteredIo<S>, inner, S);

/// Finds what is DATA in the bytes of a client.
#[derive(Debug)]
struct DataFrames {
    preface_left: usize,
    header: [u8; FRAME_HEADER_BYTES],
    header_got: usize,
    payload_left: usize,
}

impl Default for DataFrames {
    fn default() -> Self {
        Self { preface_left: PREFACE_BYTES, header: [0; FRAME_HEADER_BYTES], header_got: 0, payload_left: 0 }
    }
}

impl DataFrames {
    /// How many of these bytes, which follow those before, are payload of DATA frames.
    fn data_in(&mut self, mut bytes: &[u8]) -> usize {
        let preface = self.preface_left.min(bytes.len());
        self.preface_left -= preface;
        bytes = &bytes[preface..];
        let mut data = 0;
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let part = self.payload_left.min(bytes.len());
                self.payload_left -= part;
                bytes = &bytes[part..];
                if self.header[3] == DATA {
                    data += part;
                }
                continue;
            }
            let part = (FRAME_HEADER_BYTES - self.header_got).min(bytes.len());
            self.header[self.header_got..self.header_got + part].copy_from_slice(&bytes[..part]);
            self.header_got += part;
            bytes = &bytes[part..];
            if self.header_got == FRAME_HEADER_BYTES {
                self.header_got = 0;
                let [a, b, c, ..] = self.header;
                self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![a, b, c, kind, 0, 0, 0, 0, 1];
        frame.resize(FRAME_HEADER_BYTES + payload, DATA);
        frame
    }

    #[test]
    fn data_is_found_however_the_bytes_are_cut() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for (kind, payload) in [(4, 12), (DATA, 1_000), (1, 300), (DATA, 0), (DATA, 16_384), (8, 4), (DATA, 1)] {
            bytes.extend(frame(kind, payload));
        }
        for cut in [1, 2, 7, 9, 100, 65_536] {
            let mut frames = DataFrames::default();
            let found: usize = bytes.chunks(cut).map(|chunk| frames.data_in(chunk)).sum();
            assert_eq!(found, 1_000 + 16_384 + 1, "in pieces of {cut}");
        }
    }

    #[tokio::test]
    async fn who_holds_much_waits_and_who_holds_little_does_not() {
        let budget = Arc::new(UploadBudget::new(1_000_000, 200_000));
        let address = "192.0.2.1".parse().unwrap();
        let greedy = budget.meter(address);
        let upload = greedy.begin();
        let (mut client, io) = tokio::io::duplex(1 << 20);
        let mut io = MeteredIo::new(io, greedy);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        for _ in 0..40 {
            client.write_all(&frame(DATA, 16_384)).await.unwrap();
        }
        let mut scrap = vec![0; 16_384];
        let read_on = async |io: &mut MeteredIo<_>, scrap: &mut [u8]| {
            while let Ok(read) = tokio::time::timeout(Duration::from_secs(1), io.read(scrap)).await {
                assert_ne!(read.unwrap(), 0);
            }
        };
        read_on(&mut io, &mut scrap).await;
        assert!((200_000..200_000 + 16_384).contains(&budget.held()), "{}", budget.held());

        let modest = budget.meter(address);
        assert!(modest.may_read() && budget.meter("192.0.2.2".parse().unwrap()).may_read());
        modest.received(MAX_SPARED_BYTES);
        assert!(!modest.may_read(), "of the same address");
        drop(modest);

        upload.taken(100_000);
        read_on(&mut io, &mut scrap).await;
        assert!((200_000..200_000 + 16_384).contains(&budget.held()), "it goes on: {}", budget.held());
        drop(upload);
        assert_eq!(budget.held(), 0, "what was given up is gone");
        drop(io);
        assert!(budget.by_party.lock().unwrap().is_empty());
    }
}
