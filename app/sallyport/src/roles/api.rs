//! Control as part of a server: the API and the login behind the edge, readiness, and the takeover.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt as _;
use sallyport_control::Control;
use sallyport_edge::{ApiService, Readiness};
use sallyport_net::Shutdown;
use tower_service::Service as _;
use tracing::{info, warn};

/// When a process that took over reads the sockets again, from its start: running API requests of the former process
/// may still change them until its shutdown ends.
const RELOADS_AFTER_TAKEOVER: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(35)];
/// The service for requests to `api.<domain>`, `login.<domain>` and `desk.<domain>`, which are calls within this process.
pub(crate) fn api_service(control: &Control) -> ApiService {
    let public = control.public_router();
    Arc::new(move |mut request, client| {
        let mut router = public.clone();
        request.extensions_mut().insert(client);
        Box::pin(async move {
            let Ok(answer) = router.call(request).await;
            answer.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    })
}

/// `/readyz` checks control too.
pub(super) fn readiness(control: &Control) -> Readiness {
    let control = control.clone();
    Arc::new(move || {
        let control = control.clone();
        Box::pin(async move { control.check().await })
    })
}

/// Answers requests that follow the audit log once the shutdown begins, so that no follower holds it up.
pub(super) fn stop_waiting_at(shutdown: Shutdown, control: &Control) {
    let control = control.clone();
    tokio::spawn(async move {
        shutdown.wait().await;
        control.stop_waiting();
    });
}

/// The public address of the API.
pub(crate) fn api_url(domain: &str, port: u16) -> String {
    own_url("api", domain, port)
}

/// The public address of the desk.
pub(crate) fn desk_url(domain: &str, port: u16) -> String {
    own_url("desk", domain, port)
}

fn own_url(label: &str, domain: &str, port: u16) -> String {
    if port == 443 { format!("https://{label}.{domain}") } else { format!("https://{label}.{domain}:{port}") }
}

/// Reads what the former process has changed after this one had read the sockets.
pub(crate) async fn reload_after_takeover(control: Control) {
    let began = tokio::time::Instant::now();
    for after in RELOADS_AFTER_TAKEOVER {
        tokio::time::sleep_until(began + after).await;
        match control.reload().await {
            Ok(0) => {}
            Ok(differed) => info!(differed, "the former process had changed sockets"),
            Err(error) => warn!(error = format!("{error:#}"), "what the former process changed is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_https_port_is_not_spelled_out() {
        assert_eq!(api_url("example.com", 443), "https://api.example.com");
        assert_eq!(api_url("localhost", 8443), "https://api.localhost:8443");
        assert_eq!(desk_url("localhost", 8443), "https://desk.localhost:8443");
    }
}
