//! Exports traces to an OpenTelemetry collector, by OTLP over HTTP (protobuf bodies, `POST <endpoint>/v1/traces`).
//!
//! The exporter batches in a thread of its own and sends through hyper on the program's runtime. So a slow or
//! unavailable collector costs only spans, and delays no requests.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::{
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, registry::LookupSpan};

/// Timeout of sending one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest accepted answer of a collector.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The collector's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// It is not a plain HTTP address.
    #[error("{0:?} is not a collector's address: use http://HOST:PORT, for example http://127.0.0.1:4318")]
    Endpoint(String),
    /// The exporter refused its configuration.
    #[error("the trace exporter cannot start: {0}")]
    Exporter(String),
}

/// Keeps the exporter alive; [`Traces::flush`] sends queued spans.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Starts exporting to the collector at `endpoint` (`http://host:port`). `ratio` is the share of traces to export,
    /// from 0 to
    /// 1. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// The endpoint is not a plain HTTP address.
    pub fn start(endpoint: &str, service_version: &'static str, ratio: f64) -> Result<Self, OtlpError> {
        let uri: http::Uri = endpoint.parse().map_err(|_| OtlpError::Endpoint(endpoint.to_owned()))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(OtlpError::Endpoint(endpoint.to_owned()));
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(HyperOnRuntime { runtime: tokio::runtime::Handle::current() })
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| OtlpError::Exporter(error.to_string()))?;
        let resource = Resource::builder()
            .with_service_name("sallyport")
            .with_attribute(opentelemetry::KeyValue::new("service.version", service_version))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            // A parent comes from a client, and must not decide about the export.
            .with_sampler(Sampler::TraceIdRatioBased(ratio.clamp(0.0, 1.0)))
            .build();
        Ok(Self { provider })
    }

    /// The layer that exports `tracing` spans.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer().with_tracer(self.provider.tracer("sallyport"))
    }

    /// Sends queued spans and stops. Blocks for at most a few seconds: call it where blocking is allowed.
    pub fn flush(self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(%error, "the last traces could not be sent to the collector");
        }
    }
}

/// Makes the span a child of a valid `traceparent` in these fields (W3C Trace Context, section 3.2), and replaces the
/// field by the span for the next hop. Call before the span is entered. Without an export the fields stay unchanged.
pub fn continue_trace(span: &tracing::Span, fields: &mut http::HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let propagator = TraceContextPropagator::new();
    // Several parents count as none (section 3.2.1).
    let is_alone = fields.get_all(TRACEPARENT).iter().count() == 1;
    let parent = propagator.extract_with_context(&opentelemetry::Context::new(), &Fields(fields));
    let has_parent = is_alone && parent.span().span_context().is_valid();
    if has_parent && span.set_parent(parent).is_err() {
        return;
    }
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return;
    }
    fields.remove(TRACEPARENT);
    fields.remove(TRACESTATE);
    propagator.inject_context(&context, &mut FieldsMut(fields));
}

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

struct Fields<'a>(&'a http::HeaderMap);

impl Extractor for Fields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

struct FieldsMut<'a>(&'a mut http::HeaderMap);

impl Injector for FieldsMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = http::HeaderName::from_bytes(key.as_bytes());
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::try_from(value))
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}

/// Sends on the runtime from any thread: the exporter's own thread has none.
struct HyperOnRuntime {
    runtime: tokio::runtime::Handle,
}

impl fmt::Debug for HyperOnRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HyperOnRuntime")
    }
}

#[async_trait]
impl HttpClient for HyperOnRuntime {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        // The timer must be created on the runtime too, hence inside the task.
        self.runtime.spawn(async { tokio::time::timeout(EXPORT_TIMEOUT, send(request)).await }).await??
    }
}

/// One request on a connection of its own: a batch every few seconds needs no pool.
async fn send(request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
    let (mut parts, body) = request.into_parts();
    let authority = parts.uri.authority().ok_or("the collector's address has no host")?.clone();
    let stream = tokio::net::TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    parts.headers.insert(http::header::HOST, authority.as_str().parse()?);
    parts.uri = parts.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    let answer = sender.send_request(http::Request::from_parts(parts, Full::new(body))).await?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
    driver.abort();
    Ok(http::Response::from_parts(parts, body))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_span_reaches_the_collector_as_protobuf_over_http() {
        let collector = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", collector.local_addr().unwrap());
        let taken = tokio::spawn(async move {
            let (mut stream, _) = collector.accept().await.unwrap();
            let mut request = vec![0; 64 * 1024];
            let mut length = 0;
            while !request[..length].windows(12).any(|window| window == b"named-for-it") {
                let n = stream.read(&mut request[length..]).await.unwrap();
                assert!(n > 0, "the exporter closed the connection early");
                length += n;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            request.truncate(length);
            request
        });
        let traces = Traces::start(&endpoint, "0.0.0", 1.0).unwrap();
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(subscriber, || tracing::info_span!("named-for-it").in_scope(|| ()));
        tokio::task::spawn_blocking(move || traces.flush()).await.unwrap();
        let request =
            tokio::time::timeout(Duration::from_secs(20), taken).await.expect("a request within 20 s").unwrap();
        let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn continued(fields: &[(&'static str, &'static str)]) -> http::HeaderMap {
        let mut map = http::HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        continue_trace(&tracing::info_span!("a request"), &mut map);
        map
    }

    #[tokio::test]
    async fn a_span_continues_the_trace_of_a_valid_parent_alone() {
        let untouched = continued(&[(TRACEPARENT, PARENT)]);
        assert_eq!(untouched[TRACEPARENT], PARENT, "without traces it goes on as it came");
        let traces = Traces::start("http://127.0.0.1:9", "0.0.0", 1.0).unwrap();
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(subscriber, || {
            let fields = continued(&[(TRACEPARENT, PARENT), (TRACESTATE, "vendor=1")]);
            let ours = fields[TRACEPARENT].to_str().unwrap();
            assert!(ours.starts_with(&PARENT[..36]) && ours.len() == PARENT.len(), "the same trace: {ours}");
            assert_ne!(ours, PARENT, "another span");
            assert_eq!(fields[TRACESTATE], "vendor=1");
            let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
            for bad in
                [&[][..], &[(TRACEPARENT, zero), (TRACESTATE, "a=1")], &[(TRACEPARENT, PARENT), (TRACEPARENT, zero)]]
            {
                let fields = continued(bad);
                let ours = fields[TRACEPARENT].to_str().unwrap();
                assert!(!ours.starts_with(&PARENT[..36]) && !ours.starts_with(&zero[..36]), "{ours}");
                assert_eq!((fields.get_all(TRACEPARENT).iter().count(), fields.get(TRACESTATE)), (1, None));
            }
        });
    }

    #[tokio::test]
    async fn an_address_that_is_not_plain_http_is_refused_with_an_example() {
        for bad in ["", "127.0.0.1:4318", "https://127.0.0.1:4318", "http://", "no spaces allowed"] {
            let error = Traces::start(bad, "0.0.0", 1.0).unwrap_err().to_string();
            assert!(error.contains("use http://HOST:PORT"), "{bad:?}: {error}");
        }
    }
}
