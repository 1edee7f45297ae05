//! The small web service of each origin.
//!
//! `/bytes/N` answers with N bytes, `/slow/MS` after this many milliseconds. Any other path answers with the origin's
//! name, method and path, and the number of received bytes. Every answer has `x-origin`.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::error::LabError;

/// The header field with the name of the origin.
pub const ORIGIN_HEADER: &str = "x-origin";
/// The longest wait of `/slow`.
const MAX_WAIT: Duration = Duration::from_secs(600);
const CHUNK: &[u8] = &[b'x'; 65_536];

/// Serves until killed. Prints `ready` when it listens.
///
/// # Errors
/// It cannot listen at the address.
pub async fn run(called: &str, listen: SocketAddr) -> Result<(), LabError> {
    let listener = TcpListener::bind(listen).await.map_err(LabError::io(format!("listen on {listen}")))?;
    let called = HeaderValue::from_str(called).map_err(|_| LabError::Unfit(format!("{called:?} is no name")))?;
    println!("ready");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, some of which will be closed.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        drop(stream.set_nodelay(true));
        let called = called.clone();
        tokio::spawn(async move {
            let serve = service_fn(move |request| answer(called.clone(), request));
            // A client that leaves is no failure.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await);
        });
    }
}

type Answer = Response<Either<Full<Bytes>, Filler>>;

async fn answer(called: HeaderValue, mut request: Request<Incoming>) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    let number = |prefix: &str| path.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
    let mut taken = 0;
    while let Some(Ok(frame)) = request.body_mut().frame().await {
        taken += frame.data_ref().map_or(0, Bytes::len);
    }
    if let Some(milliseconds) = number("/slow/") {
        tokio::time::sleep(Duration::from_millis(milliseconds).min(MAX_WAIT)).await;
    }
    let body = match number("/bytes/") {
        Some(left) => Either::Right(Filler { left }),
        None => {
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
