//! Plans of steering: showing them, and looking at what others would be.

use sallyport_api::{PlanSample, PlanSampleOrigin, PlannedEdge, PlannedOrigin, PlannedShare, PreviewPlan, SocketPlan};
use sallyport_model::{AccountId, EdgeId, MAX_ORIGIN_RPS, OriginRef, Socket, SocketId, SocketRoute};
use sallyport_steer::{
    Amount,
    plan::{Leaf, PlanView, WhatIf, explain},
};

use crate::{clock::date, problem::ApiError, state::App};

/// The most requests per second of an edge in a preview.
const MAX_DEMAND_RPS: f64 = 100_000_000.0;
/// The most origins and regions at sockets with limits: of an organisation, and of the installation. Reports of edges
/// have to fit into one message.
const MAX_LIMITED_PER_ORGANISATION: usize = 400;
const MAX_LIMITED: usize = 1_500;
/// Thousandths of a request.
const PER_REQUEST: f64 = 1_000.0;

impl App {
    /// The plan of a socket.
    pub(crate) async fn plan(&self, socket: &Socket, has_history: bool) -> Result<SocketPlan, ApiError> {
        let view = {
            let (planner, now) = self.steering.planner();
            planner.view(socket.id, now)
        };
        let view = view.ok_or_else(no_plan)?;
        let mut plan = self.plan_to_api(socket, &view, false).await?;
        if has_history {
            plan.history = self.steering.samples(socket.id).iter().map(sample).collect();
        }
        Ok(plan)
    }

    /// The plan of a socket with other numbers, without any effect.
    pub(crate) async fn preview_plan(&self, socket: &Socket, preview: PreviewPlan) -> Result<SocketPlan, ApiError> {
        let what_if = self.what_if(socket, &preview)?;
        let view = {
            let (mut planner, now) = self.steering.planner();
            planner.preview(socket.id, &what_if, now)
        };
        self.plan_to_api(socket, &view.ok_or_else(no_plan)?, true).await
    }

    /// Refuses another limit where a plan would have too many places. Every origin of a socket with limits is one.
    pub(crate) fn check_room_for_limits(&self, account: AccountId, socket: Option<SocketId>) -> Result<(), ApiError> {
        let places = |route: &SocketRoute| {
            let regions = route.settings.regions.values().filter(|group| !group.capacity.is_empty());
            route.capacities().count() + regions.count()
        };
        let routes = self.routes.all();
        let limited = routes.iter().filter(|route| route.has_capacities() || Some(route.id) == socket);
        let (mut own, mut all) = (0, 0);
        for route in limited {
            all += places(route);
            own += if route.account == account { places(route) } else { 0 };
        }
        if own < MAX_LIMITED_PER_ORGANISATION && all < MAX_LIMITED {
            return Ok(());
        }
        let detail = format!(
            "an organisation can have {MAX_LIMITED_PER_ORGANISATION} origins and regions at sockets with limits, and an \
             installation {MAX_LIMITED}: remove limits that are not needed"
        );
        Err(ApiError::new(http::StatusCode::CONFLICT, "limit-reached", detail))
    }

    fn what_if(&self, socket: &Socket, preview: &PreviewPlan) -> Result<WhatIf, ApiError> {
        let mut what_if = WhatIf::default();
        let edges: Vec<(EdgeId, _)> = {
            let (planner, _) = self.steering.planner();
            planner.edges().map(|(id, info)| (id, info.name.clone())).collect()
        };
        for (name, rps) in &preview.demand {
            let edge = edges.iter().find(|(_, known)| known == name);
            let (edge, _) = edge.ok_or_else(|| {
                ApiError::field("demand", format!("there is no edge {name}: `sallyport socket plan` shows the edges"))
            })?;
            what_if.demands.insert((socket.id, *edge), amount("demand", *rps, 0.0, MAX_DEMAND_RPS)?);
        }
        let route = self.routes.get(socket.id);
        for (text, rps) in &preview.max_rps {
            let origin = text.parse::<OriginRef>().ok();
            let is_known = |origin: &OriginRef| route.as_ref().is_some_and(|route| route.weight(*origin).is_some());
            let origin = origin.filter(is_known);
            let origin = origin.ok_or_else(|| {
                let detail = format!("{text} is no origin of the socket: `sallyport socket plan` shows their ids");
                ApiError::field("max_rps", detail)
            })?;
            let most = rps.map(|rps| amount("max_rps", rps, 0.0, f64::from(MAX_ORIGIN_RPS))).transpose()?;
            what_if.capacities.insert(Leaf { socket: socket.id, origin }, most);
        }
        Ok(what_if)
    }

    async fn plan_to_api(&self, socket: &Socket, view: &PlanView, is_preview: bool) -> Result<SocketPlan, ApiError> {
        let mut names = std::collections::BTreeMap::new();
        for origin in &view.origins {
            names.insert(origin.origin, self.origin_name(socket, origin.origin).await?);
        }
        let name = |origin: OriginRef| names.get(&origin).cloned().unwrap_or_else(|| origin.to_string());
        let origins = view.origins.iter().map(|origin| PlannedOrigin {
            origin: origin.origin.to_string(),
            name: name(origin.origin),
            region: origin.region.clone(),
            max_rps: origin.capacity.map(rps),
            is_learned: origin.is_learned,
            max_connections: origin.max_connections,
            shared: origin.shared.clone(),
            planned_rps: rps(origin.planned),
            rps: rps(origin.load),
            open: origin.open,
            latency_ms: origin.latency_us.map(rps),
        });
        let edges = view.edges.iter().map(|edge| PlannedEdge {
            edge: edge.name.clone(),
            region: edge.region.clone(),
            is_heard: edge.is_heard,
            rps: rps(edge.demand),
            refused_rps: rps(edge.shed),
            shares: edge
                .shares
                .iter()
                .map(|share| PlannedShare {
                    origin: share.origin.to_string(),
                    planned_rps: rps(share.planned),
                    rps: rps(share.load),
                    quota_rps: share.quota.map(rps),
                    round_trip_ms: share.rtt_us.map(rps),
                })
                .collect(),
        });
        Ok(SocketPlan {
            socket_id: view.socket,
            is_preview,
            words: explain(view, &name),
            origins: origins.collect(),
            edges: edges.collect(),
            history: Vec::new(),
        })
    }

    /// What an origin is called: the name of its tunnel or of its machine, or its address.
    async fn origin_name(&self, socket: &Socket, origin: OriginRef) -> Result<String, ApiError> {
        Ok(match origin {
            OriginRef::Tunnel(id) => {
                let tunnel = self.store.tunnel_of_account(socket.account, id).await?;
                let name = tunnel.and_then(|tunnel| tunnel.name).map(|name| name.to_string());
                let host = || self.directory.get(id).and_then(|presence| presence.host);
                name.or_else(host).unwrap_or_else(|| id.to_string().chars().take(8).collect())
            }
            OriginRef::Direct(id) => {
                let found = self.store.direct_origin(socket.id, id).await?;
                found.map_or_else(|| id.to_string(), |origin| origin.address.to_string())
            }
        })
    }
}

fn no_plan() -> ApiError {
    let detail = "no origin and no region of this socket has a limit, so nothing is planned: set one with `sallyport \
                  tunnel edit --max-rps` or `sallyport socket origin edit --max-rps`";
    ApiError::new(http::StatusCode::NOT_FOUND, "no-plan", detail)
}

/// A rate of a request; an error if it is no number within these bounds.
fn amount(field: &str, value: f64, least: f64, most: f64) -> Result<Amount, ApiError> {
    if !(least..=most).contains(&value) {
        return Err(ApiError::field(field, format!("requests per second must be {least} to {most}")));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the bounds")]
    Ok((value * PER_REQUEST) as Amount)
}

/// Thousandths as a number, with three digits after the point.
#[expect(clippy::cast_precision_loss, reason = "rates and times are far below 2^52")]
fn rps(amount: u64) -> f64 {
    amount as f64 / PER_REQUEST
}

fn sample(sample: &crate::state::steering::PlanSample) -> PlanSample {
    PlanSample {
        at: date(sample.at),
        rps: rps(sample.demand),
        refused_rps: rps(sample.shed),
        origins: sample
            .origins
            .iter()
            .map(|origin| PlanSampleOrigin {
                origin: origin.origin.to_string(),
                max_rps: origin.capacity.map(rps),
                planned_rps: rps(origin.planned),
                rps: rps(origin.load),
                latency_ms: origin.latency_us.map(rps),
            })
            .collect(),
    }
}
