//! The small web service of each origin.
//!
//! `/bytes/N` answers with N bytes, `/slow/MS` after this many milliseconds. `/peak` answers with the most requests of
//! any second so far, and is not counted itself. Any other path answers with the origin's name, method and path, and
//! the number of received bytes. Every answer has `x-origin`.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::error::LabError;

/// The header field with the name of the origin.
pub const ORIGIN_HEADER: &str = "x-origin";
/// The longest wait of `/slow`.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// The path of the most requests of any second.
const PEAK_PATH: &str = "/peak";
const CHUNK: &[u8] = &[b'x'; 65_536];

/// Serves until killed. Prints `ready` when it listens.
///
/// # Errors
/// It cannot listen at the address.
pub async fn run(called: &str, listen: SocketAddr) -> Result<(), LabError> {
    let listener = TcpListener::bind(listen).await.map_err(LabError::io(format!("listen on {listen}")))?;
    let called = HeaderValue::from_str(called).map_err(|_| LabError::Unfit(format!("{called:?} is no name")))?;
    let (peak, began) = (Arc::<Mutex<Peak>>::default(), Instant::now());
    println!("ready");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, some of which will be closed.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        drop(stream.set_nodelay(true));
        let (called, peak) = (called.clone(), peak.clone());
        tokio::spawn(async move {
            let serve = service_fn(move |request: Request<Incoming>| {
                let most = match request.uri().path() {
                    PEAK_PATH => Some(peak.lock().most),
                    _ => {
                        peak.lock().record(began.elapsed());
                        None
                    }
                };
                answer(called.clone(), request, most)
            });
            // A client that leaves is no failure.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await);
        });
    }
}

/// Over how many milliseconds requests are counted.
const PEAK_MS: usize = 1_000;

/// The most requests of any second, at whichever millisecond that began.
#[derive(Debug)]
struct Peak {
    /// The requests of each of the last milliseconds, as a ring.
    counts: [u32; PEAK_MS],
    /// Their sum.
    sum: u32,
    /// The last millisecond.
    at: u128,
    most: u32,
}

impl Default for Peak {
    fn default() -> Self {
        Self { counts: [0; PEAK_MS], sum: 0, at: 0, most: 0 }
    }
}

impl Peak {
    /// Counts a request at this time since any fixed moment.
    fn record(&mut self, now: Duration) {
        let now = now.as_millis().max(self.at);
        let first = (self.at + 1).max(now.saturating_sub(PEAK_MS as u128 - 1));
        for millisecond in first..=now {
            self.sum -= std::mem::take(self.count(millisecond));
        }
        self.at = now;
        *self.count(now) += 1;
        self.sum += 1;
        self.most = self.most.max(self.sum);
    }

    fn count(&mut self, millisecond: u128) -> &mut u32 {
        &mut self.counts[(millisecond % PEAK_MS as u128) as usize]
    }
}

type Answer = Response<Either<Full<Bytes>, Filler>>;

/// Answers a request; one for the peak with this number.
async fn answer(called: HeaderValue, mut request: Request<Incoming>, peak: Option<u32>) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    let number = |prefix: &str| path.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
    let mut taken = 0;
    while let Some(Ok(frame)) = request.body_mut().frame().await {
        taken += frame.data_ref().map_or(0, Bytes::len);
    }
    if let Some(milliseconds) = number("/slow/") {
        tokio::time::sleep(Duration::from_millis(milliseconds).min(MAX_WAIT)).await;
    }
    let body = match (peak, number("/bytes/")) {
        (Some(most), _) => Either::Left(Full::from(format!("{most}\n"))),
        (None, Some(left)) => Either::Right(Filler { left }),
        (None, None) => {
            let name = called.to_str().unwrap_or_default();
            Either::Left(Full::from(format!("{name} {} {path} {taken}\n", request.method())))
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(ORIGIN_HEADER, called);
    Ok(response)
}

/// A body of this many bytes.
#[derive(Debug)]
struct Filler {
    left: u64,
}

impl Body for Filler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(CHUNK.len());
        self.left -= length as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&CHUNK[..length])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_any_second() {
        let mut peak = Peak::default();
        for millisecond in [0, 600, 999, 1_000, 1_599, 1_600] {
            peak.record(Duration::from_millis(millisecond));
        }
        assert_eq!(peak.most, 4, "from 600 to 1,599");
        for millisecond in [5_000, 5_000, 5_000, 5_000, 5_999, 6_000] {
            peak.record(Duration::from_millis(millisecond));
        }
        assert_eq!(peak.most, 5);
        peak.record(Duration::from_secs(1_000_000));
        assert_eq!((peak.most, peak.sum), (5, 1));
    }
}
