//! Has the edges of a site share flows: rules of the kernel that follow which edges serve.

use std::{net::IpAddr, sync::Arc, time::Duration};

use sallyport_anycast::flows::{FlowsError, SiteEdge, SiteFlows, removal};
use tokio::{sync::watch, time::MissedTickBehavior};

use super::metrics::AnycastMetrics;

/// How often the edge looks which edges serve.
const PERIOD: Duration = Duration::from_millis(500);

/// The other edges of the site that serve now.
pub type SiteEdges = Arc<dyn Fn() -> Vec<SiteEdge> + Send + Sync>;

/// How an edge shares flows with the edges of its site.
#[derive(Clone)]
pub struct FlowSettings {
    /// The device in the network of the site.
    pub device: String,
    /// This edge.
    pub own: SiteEdge,
    /// The other edges.
    pub others: SiteEdges,
}

/// Keeps the rules in step with the service addresses of this edge and the edges of the site.
pub(super) async fn follow(settings: &FlowSettings, served: watch::Receiver<Vec<IpAddr>>, metrics: &AnycastMetrics) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut applied: Option<String> = None;
    let mut is_failing = false;
    loop {
        ticks.tick().await;
        let others = (settings.others)();
        let edges = others.len() as u64 + 1;
        let wanted = script(settings, others, served.borrow().clone()).unwrap_or_else(|error| {
            record_failure(&mut is_failing, metrics, &error.to_string());
            removal()
        });
        if applied.as_ref() == Some(&wanted) {
            continue;
        }
        match sallyport_nft::apply(&wanted).await {
            Ok(()) => {
                metrics.set_flow_edges(if wanted == removal() { 0 } else { edges });
                applied = Some(wanted);
                is_failing = false;
            }
            Err(error) => record_failure(&mut is_failing, metrics, &error.to_string()),
        }
    }
}

/// Counts and logs the first of several failures in a row.
fn record_failure(is_failing: &mut bool, metrics: &AnycastMetrics, error: &str) {
    if !std::mem::replace(is_failing, true) {
        metrics.failed("flows");
        tracing::warn!(error, "the edges of the site do not share flows as they should");
    }
}

/// Removes the rules at the end of the process.
pub(super) async fn remove() {
    if let Err(error) = sallyport_nft::apply(&removal()).await {
        tracing::warn!(%error, "the rules that share flows stay");
    }
}

/// The rules: none while this edge announces nothing, or is alone.
fn script(settings: &FlowSettings, others: Vec<SiteEdge>, services: Vec<IpAddr>) -> Result<String, FlowsError> {
    let edges = [settings.own.clone()].into_iter().chain(others).collect();
    let flows = SiteFlows { device: settings.device.clone(), own: settings.own.id, services, edges };
    Ok(flows.script()?.unwrap_or_else(removal))
}
