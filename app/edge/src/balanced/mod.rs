//! Serves behind the balancer of the region. The companion `sallyport-packet` puts the virtual addresses on this
//! machine, and takes packets of balancers and of other edges out of their encapsulation.
//!
//! May use `util`.

mod decapsulation;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_bus::{Fleet, Orders, ServedBalancers, ServedEgress};
use sallyport_model::{EdgeId, Encapsulation, RegionName};
use sallyport_net::Shutdown;
use sallyport_quic::ServerNumber;
use tokio::sync::watch;

use self::decapsulation::Decapsulation;
use crate::util::service_addresses::device_of;

/// How often everything is looked at without a change, and tried again after a failure.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often it is tried in a row before balancers send no more.
const MAX_FAILURES: u32 = 3;
/// The time between these.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long balancers have, before the edge stops, to hear that the edge wants no new flows.
const LEAVE_TIME: Duration = Duration::from_secs(3);

/// How an edge serves behind a balancer.
#[derive(Debug, Clone)]
pub struct BalancedSettings {
    /// The edge.
    pub edge: EdgeId,
    /// Its region, which is its site.
    pub region: RegionName,
    /// The address to which balancers send.
    pub address: IpAddr,
    /// The device of that address; `None`: it is found.
    pub device: Option<String>,
    /// The balancers of sites.
    pub served: ServedBalancers,
    /// The egress addresses, whose packets come by balancers too.
    pub egress: ServedEgress,
    /// The edges that are there.
    pub fleet: Fleet,
    /// Which server number the edge has.
    pub orders: Orders,
    /// Where connection ids of QUIC get the number from.
    pub server: ServerNumber,
    /// The companion that loads the programs of the kernel; `None`: it is not installed.
    pub program: Option<PathBuf>,
    /// The folder of bpffs for its state; `None`: its own.
    pub pins: Option<PathBuf>,
    /// The SYNs a second above which SYN cookies answer; `None`: they never do.
    pub syn_cookies: Option<u32>,
    /// Whether a former process has made all stand, so that balancers send on meanwhile.
    pub is_takeover: bool,
}

/// What is to stand at this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    encapsulation: Encapsulation,
    /// The virtual addresses, and the egress addresses of which the edge has slices.
    addresses: BTreeSet<IpAddr>,
    /// The balancers of the site, and those of sites to which packets for the egress addresses come.
    balancers: BTreeSet<IpAddr>,
    /// The other edges of the site.
    mates: BTreeSet<IpAddr>,
}

/// An edge behind a balancer.
pub(crate) struct Balanced {
    settings: BalancedSettings,
    /// Why balancers must not send yet, in one sentence; `None`: all stands.
    fault: watch::Sender<Option<String>>,
    /// Whether the edge leaves.
    leaves: watch::Sender<bool>,
    /// What stands, for the health.
    known: Mutex<Option<Plan>>,
}

impl Balanced {
    pub(crate) fn new(settings: BalancedSettings) -> Arc<Self> {
        let fault = (!settings.is_takeover).then(|| "the edge has just started".to_owned());
        Arc::new(Self {
            settings,
            fault: watch::Sender::new(fault),
            leaves: watch::Sender::new(false),
            known: Mutex::default(),
        })
    }

    /// Why balancers must not send yet; `None`: all stands.
    pub(crate) fn fault(&self) -> watch::Receiver<Option<String>> {
        self.fault.subscribe()
    }

    /// Whether the edge leaves.
    pub(crate) fn leaves(&self) -> watch::Receiver<bool> {
        self.leaves.subscribe()
    }

    /// Tells balancers that the edge wants no new flows, and gives them time.
    pub(crate) async fn leave(&self, within: Duration) {
        let is_known = self.known.lock().is_some();
        if !self.leaves.send_replace(true) && is_known {
            tokio::time::sleep(LEAVE_TIME.min(within)).await;
        }
    }

    /// Lines of `/healthz`, which is public.
    pub(crate) fn notes(&self) -> String {
        if self.fault.borrow().is_some() { "balancer: not ready for packets\n".to_owned() } else { String::new() }
    }

    /// What is to stand now; `None`: the region has no balancer.
    fn plan(&self) -> Option<Plan> {
        let settings = &self.settings;
        let balancer = settings.served.of(&settings.region)?;
        let cards = settings.fleet.edges().into_iter().map(|edge| edge.card);
        let mates = cards.filter(|card| card.edge != settings.edge && card.region == settings.region);
        let mates = mates.filter_map(|card| card.balanced.as_ref().map(|balanced| balanced.address));
        let mut plan = Plan {
            encapsulation: balancer.encapsulation,
            addresses: balancer.addresses.iter().copied().collect(),
            balancers: balancer.balancers.iter().copied().collect(),
            mates: mates.collect(),
        };
        self.add_egress(&mut plan);
        Some(plan)
    }

    /// Adds the egress addresses of which the edge has slices, in whatever state: flows go on while a slice moves.
    fn add_egress(&self, plan: &mut Plan) {
        let settings = &self.settings;
        let egress = settings.egress.get();
        let is_leased = |address: IpAddr| {
            egress.leases.iter().any(|lease| lease.address == address && lease.machine == settings.edge)
        };
        for egress in egress.addresses.iter().filter(|egress| is_leased(egress.address)) {
            plan.addresses.insert(egress.address);
            if let Some(site) = egress.site.as_ref().and_then(|site| settings.served.of(site)) {
                plan.balancers.extend(site.balancers);
            }
        }
    }

    /// Follows the balancer until the shutdown. What stands then stays: packets of running flows still come.
    pub(crate) async fn run(&self, listens: SocketAddr, shutdown: &Shutdown) {
        tokio::select! {
            () = self.follow(listens) => {}
            () = shutdown.wait() => {}
        }
    }

    async fn follow(&self, listens: SocketAddr) {
        let settings = &self.settings;
        let (mut served, mut edges, mut orders) =
            (settings.served.subscribe(), settings.fleet.subscribe(), settings.orders.subscribe());
        let mut egress = settings.egress.subscribe();
        let mut decapsulation = Decapsulation::new(settings);
        let mut failures = 0;
        loop {
            settings.server.set(settings.orders.get(settings.edge).map_or(0, |orders| orders.server));
            let stands = self.stand(listens, &mut decapsulation).await;
            let fault = stands.err();
            failures = if fault.is_some() { failures + 1 } else { 0 };
            // What stood before stands still, mostly: flows must not break for one failure.
            if self.plan().is_some() && self.fault.borrow().is_none() && (1..MAX_FAILURES).contains(&failures) {
                tracing::debug!(?fault, "tried again soon");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
            let was = self.fault.send_replace(fault.clone());
            match &fault {
                Some(fault) if was.as_ref() != Some(fault) => {
                    tracing::warn!(%fault, "balancers send no flows to this edge");
                }
                None if was.is_some() => tracing::info!(address = %settings.address, "ready behind the balancer"),
                _ => {}
            }
            tokio::select! {
                _ = served.changed() => {}
                _ = edges.changed() => {}
                _ = orders.changed() => {}
                _ = egress.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Makes what is to stand stand. An error says why it does not, in one sentence.
    async fn stand(&self, listens: SocketAddr, decapsulation: &mut Decapsulation) -> Result<(), String> {
        let settings = &self.settings;
        let plan = self.plan();
        *self.known.lock() = plan.clone();
        let Some(mut plan) = plan else {
            decapsulation.take_down().await;
            let region = &settings.region;
            return Err(format!("the region {region} has no balancer: `sallyport balancer set {region}` gives it one"));
        };
        if !listens.ip().is_unspecified() {
            let port = listens.port();
            return Err(format!("the edge listens at {} alone: start it with --listen :{port}", listens.ip()));
        }
        let device = match &settings.device {
            Some(device) => device.clone(),
            None => device_of(settings.address)
                .await?
                .ok_or_else(|| format!("no device of this machine has the address {}", settings.address))?,
        };
        // An egress address at a device of its own gets its packets by routing, and cannot be shared.
        for address in settings.egress.get().addresses.iter().map(|egress| egress.address) {
            if plan.addresses.contains(&address) && device_of(address).await?.is_some() {
                plan.addresses.remove(&address);
            }
        }
        decapsulation.bring_up(&plan, &device).await
    }
}
