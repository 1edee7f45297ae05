//! The probing of next hops beside a router.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use sallyport_cli::output::note;
use sallyport_packet_model::follow::Leg;
use sallyport_xdp::{Router, XdpError, kernel::gateways};

/// How often neighbours are looked at: the least time for which the kernel trusts one, as Linux has it.
const PROBE_EVERY: Duration = Duration::from_secs(15);

/// A thread that has the kernel probe next hops, until this is dropped.
#[derive(Debug)]
pub(super) struct Prober {
    has_routes_changed: Arc<AtomicBool>,
    /// Its end ends the thread.
    _running: Sender<()>,
}

impl Prober {
    /// Begins, with all gateways.
    pub(super) fn start(router: &Router) -> std::io::Result<Self> {
        let has_routes_changed = Arc::new(AtomicBool::new(true));
        let (running, ended) = channel();
        let (router, has_changed) = (router.clone(), has_routes_changed.clone());
        thread::Builder::new().name("prober".to_owned()).spawn(move || probe(&router, &has_changed, &ended))?;
        Ok(Self { has_routes_changed, _running: running })
    }

    /// Has the gateways listed anew.
    pub(super) fn record_routes(&self) {
        self.has_routes_changed.store(true, Ordering::Relaxed);
    }
}

fn probe(router: &Router, has_routes_changed: &AtomicBool, ended: &Receiver<()>) {
    let (mut known, mut was_said) = (HashSet::new(), false);
    loop {
        let probed = probe_once(router, has_routes_changed, &mut known);
        match &probed {
            // The process ends soon.
            Err(XdpError::NotUp) => return,
            Err(error) if !was_said => note(&error.to_string()),
            _ => {}
        }
        was_said = probed.is_err();
        if ended.recv_timeout(PROBE_EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn probe_once(router: &Router, has_routes_changed: &AtomicBool, known: &mut HashSet<Leg>) -> Result<(), XdpError> {
    if has_routes_changed.swap(false, Ordering::Relaxed) {
        *known = gateways().inspect_err(|_| has_routes_changed.store(true, Ordering::Relaxed))?;
    }
    router.probe(known, true)
}
