//! The life of an edge, from its first connection to the end of its shutdown.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sallyport_bus::RouteChange;
use sallyport_net::{Certificates, Listening, Shutdown};

use crate::{
    access,
    edge::Edge,
    lifecycle::phase::{MAX_LINGER, Phase, ShutdownReport},
    listener::{accept, handshake::ConnectionRouter, ports::Ports, redirect},
};

/// How often ended connections to origins are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long tunnels have, at a shutdown, to end their streams after the last request.
const MAX_TUNNEL_CLOSE: Duration = Duration::from_secs(2);
/// How long the last frames to connectors may take to leave.
const MAX_FLUSH: Duration = Duration::from_secs(1);
/// How long connections have to end after they were cut off.
const MAX_CUT: Duration = Duration::from_secs(1);

impl Edge {
    /// Serves clients and tunnels until the shutdown, then lets running work finish, and returns. To be called once.
    ///
    /// # Errors
    /// A listener has no address, cannot be registered with the reactor, or has failed. Errors of one connection end
    /// only that connection.
    pub async fn serve(
        self: &Arc<Self>,
        listening: Listening,
        certificates: Arc<Certificates>,
        shutdown: Shutdown,
    ) -> anyhow::Result<ShutdownReport> {
        let router = ConnectionRouter::new(certificates, self.state.config.trusted_proxies.clone());
        let changes = self.state.routes.subscribe();
        let address = listening.tls.local_addr()?;
        let ip = address.ip();
        self.state.sockets.shared().dialer.listens_on(address.port());
        let ports = Ports::new(self.clone(), router.clone(), ip, listening.own.clone(), shutdown.clone())
            .follow(self.state.routes.subscribe());
        let ports = async {
            ports.await;
            Ok(())
        };
        let shards = &self.state.config.shards;
        let clients = {
            let (edge, router) = (self.clone(), router.clone());
            let take = move |stream, peer| accept::take_tls(&edge, &router, stream, peer);
            accept::accept_in_shard(shards, listening.tls, shutdown.clone(), take)
        };
        let plain = async {
            match listening.redirect {
                Some(listener) => {
                    let take = |stream, peer| redirect::take_plain(self, stream, peer);
                    accept::accept(listener, shutdown.clone(), take).await;
                }
                None => shutdown.wait().await,
            }
            Ok(())
        };
        let geo = async {
            if let Some(geo) = &self.state.config.geo {
                geo.clone().follow().await;
            }
        };
        let ssh_listener = self.ssh.get().and_then(|ssh| ssh.listener.lock().take());
        let ssh = async {
            match ssh_listener {
                Some(listener) => {
                    let edge = self.clone();
                    let take = move |stream, peer| accept::take_ssh(&edge, &router, stream, peer);
                    accept::accept_in_shard(shards, listener, shutdown.clone(), take).await
                }
                None => {
                    shutdown.wait().await;
                    Ok(())
                }
            }
        };
        let upkeep = async {
            let judged = access::follow(&self.access);
            let drain_order = self.follow_drain_order(&shutdown);
            let mesh = async {
                if let Some(mesh) = self.mesh.get() {
                    mesh.run().await;
                }
            };
            let steering = async {
                if let Some(steering) = self.steering.get() {
                    steering.run(&self.mesh).await;
                }
            };
            let anycast = async {
                if let Some(anycast) = self.anycast.get() {
                    anycast.run(address, &shutdown).await;
                }
            };
            let balanced = async {
                if let Some(balanced) = self.balanced.get() {
                    balanced.run(address, &shutdown).await;
                }
            };
            let networks = async {
                if let Some(networks) = self.networks.get() {
                    networks.run().await;
                }
            };
            let egress = async {
                if let Some(egress) = self.state.sockets.shared().dialer.egress() {
                    egress.run(&self.state.is_shutting_down).await;
                }
            };
            tokio::join!(
                anycast,
                balanced,
                egress,
                networks,
                steering,
                self.gate.follow(&self.tunnels, changes),
                self.follow_ssh(),
                self.sweep(),
                geo,
                judged,
                drain_order,
                self.measurements.run(&self.mesh),
                mesh
            )
        };
        let mut upkeep = pin!(upkeep);
        let is_kept_up = tokio::select! {
            served = async { tokio::try_join!(clients, plain, ports, ssh) } => served.map(|_| true)?,
            _ = &mut upkeep => false,
        };
        // Running work keeps its access checks until its end.
        let mut shut_down = pin!(self.shut_down());
        tokio::select! {
            report = &mut shut_down => Ok(report),
            _ = upkeep, if is_kept_up => Ok(shut_down.await),
        }
    }

    /// Disconnects ssh clients of removed tunnels or keys, as the routes change.
    async fn follow_ssh(&self) {
        let Some(ssh) = self.ssh.get() else { return };
        let (mut changes, mut logins) = (self.state.routes.subscribe(), ssh.tunnels.login_changes());
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    None => return,
                    Some(RouteChange::Changed(route)) => ssh.tunnels.look_at(Some(route.id)),
                    Some(RouteChange::Removed(socket)) => ssh.tunnels.look_at(Some(socket)),
                    Some(RouteChange::Missed) => ssh.tunnels.look_at(None),
                },
                Ok(()) = logins.changed() => ssh.tunnels.look_at_logins(),
            }
        }
    }

    /// Removes ended connections to origins, for as long as the edge serves.
    async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            for pool in self.state.sockets.all() {
                pool.origins().iter().for_each(|origin| origin.sweep(now));
            }
        }
    }

    /// Resolves when nothing runs. A handshake may still bring a request, so handshakes are awaited first: what a
    /// handshake brings is counted before the handshake ends. No new handshakes come, because accepting has stopped.
    async fn quiet(&self) {
        self.handshakes.none_left().await;
        self.state.running.none_left().await;
    }

    /// Ends running work: first by closing kept-alive connections, at last by force.
    async fn shut_down(&self) -> ShutdownReport {
        let began = Instant::now();
        let ran = self.state.running.count();
        // From here on each response closes its connection. Tunnels still serve these requests.
        self.state.is_shutting_down.store(true, Ordering::Relaxed);
        self.state.phase.all(Phase::Lingering);
        let linger = MAX_LINGER.min(self.state.config.shutdown_grace);
        let _ = tokio::time::timeout(linger, self.quiet()).await;
        self.state.phase.all(Phase::Closing);
        self.tunnels.go_away("the edge is shutting down");
        if let Some(networks) = self.networks.get() {
            networks.go_away("the edge is shutting down");
        }
        let ssh_over = self.ssh.get().map(|ssh| {
            let (server, grace) = (ssh.server.clone(), self.state.config.shutdown_grace);
            tokio::spawn(async move { server.shutdown("the edge is shutting down", grace).await })
        });
        let rest = || self.state.config.shutdown_grace.saturating_sub(began.elapsed());
        let _ = tokio::time::timeout(rest(), self.state.running.none_left()).await;
        let cut = self.state.running.count();
        if let Some(steering) = self.steering.get() {
            steering.leave();
        }
        for pool in self.state.sockets.all() {
            pool.origins().iter().for_each(|origin| origin.leave());
        }
        let _ = tokio::time::timeout(MAX_TUNNEL_CLOSE.min(rest()), self.tunnels.drained()).await;
        // Without this wait the process could end before the connectors learn that the edge goes away.
        let _ = tokio::time::timeout(MAX_FLUSH, self.tunnels.flushed()).await;
        self.state.phase.all(Phase::Cut);
        // A connection that is cut off resets its client and is recorded, before the process ends.
        let _ = tokio::time::timeout(MAX_CUT, self.state.running.none_left()).await;
        if let Some(over) = ssh_over {
            let _ = tokio::time::timeout(rest(), over).await;
        }
        ShutdownReport { finished: ran.saturating_sub(cut), cut }
    }
}
