//! `--behind-balancer`: the edge serves at the virtual addresses of its region.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use sallyport_bus::{BalancedEdge, Bus, EdgeCard, EdgeState as Serving};
use sallyport_cli::program;
use sallyport_edge::{BalancedSettings, Edge};
use sallyport_quic::ServerNumber;
use tokio::sync::watch;

use super::EdgeState;
use crate::args::anycast::interface;

/// The companion.
const PROGRAM: &str = "sallyport-packet";
/// The greatest rate of SYNs that the companion takes.
const MAX_SYN_RATE: i64 = 100_000_000;
/// The value of the option without an address.
const FOUND: &str = "found";

/// Options of an edge behind a balancer.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Balancer")]
pub(crate) struct BehindArgs {
    /// Serve behind the balancer of the region (`sallyport balancer set`), at its virtual addresses too. The value is
    /// the address to which balancers send [default: the first of --advertise]
    #[arg(
        long, value_name = "ADDR", env = "SALLYPORT_BEHIND_BALANCER", num_args = 0..=1, require_equals = true,
        default_missing_value = FOUND, value_parser = place
    )]
    behind_balancer: Option<BehindAddress>,
    /// The device at which packets of balancers come [default: the one with the address of --behind-balancer]
    #[arg(long, value_name = "DEVICE", env = "SALLYPORT_BALANCER_DEVICE", requires = "behind_balancer")]
    #[arg(value_parser = interface)]
    balancer_device: Option<String>,
    /// The folder of bpffs for what sallyport-packet keeps there [default: its own]
    #[arg(long, value_name = "FOLDER", env = "SALLYPORT_BALANCER_PINS", requires = "behind_balancer")]
    balancer_pins: Option<PathBuf>,
    /// Answer SYNs above so many a second by SYN cookies, before they reach the kernel; it sets net.ipv4.tcp_syncookies
    /// to 2
    #[arg(long, value_name = "RATE", env = "SALLYPORT_SYN_COOKIES", requires = "behind_balancer")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_SYN_RATE))]
    syn_cookies: Option<u32>,
}

/// The address to which balancers send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BehindAddress {
    /// The first of the edge's own.
    Found,
    /// This one.
    At(IpAddr),
}

fn place(text: &str) -> Result<BehindAddress, String> {
    if text == FOUND {
        return Ok(BehindAddress::Found);
    }
    let address: IpAddr = text.parse().map_err(|_| "expected an address of this machine, or nothing".to_owned())?;
    match address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        true => Err(format!("balancers cannot send to {address}: name an address of this machine in their network")),
        false => Ok(BehindAddress::At(address)),
    }
}

impl BehindArgs {
    /// Whether the edge is behind a balancer.
    pub(super) fn is_set(&self) -> bool {
        self.behind_balancer.is_some()
    }

    /// The address to which balancers send, of these own ones.
    fn address(&self, own: &[SocketAddr]) -> Option<IpAddr> {
        match self.behind_balancer? {
            BehindAddress::At(address) => Some(address),
            BehindAddress::Found => own.first().map(SocketAddr::ip),
        }
    }
}

/// What is around the edge.
pub(super) struct Place<'a> {
    pub(super) state: &'a EdgeState,
    pub(super) bus: &'a Bus,
    /// The port that redirects plain HTTP.
    pub(super) redirect: Option<u16>,
    /// The port of QUIC.
    pub(super) quic_port: Option<u16>,
    /// Whether a former process had the ports.
    pub(super) is_takeover: bool,
}

/// Has the edge serve behind the balancer, and keeps that in the edge's entry.
pub(super) fn serve(
    args: &BehindArgs,
    place: Place<'_>,
    (edge, listens): (&Arc<Edge>, SocketAddr),
    server: ServerNumber,
    card: &watch::Sender<EdgeCard>,
) {
    let Some(address) = args.address(&card.borrow().addresses) else {
        tracing::warn!("no address of this machine is known: name one with --behind-balancer=ADDR");
        return;
    };
    let Place { state, bus, redirect, quic_port, is_takeover } = place;
    edge.serve_behind_balancer(BalancedSettings {
        edge: state.id,
        region: state.region.clone(),
        address,
        device: args.balancer_device.clone(),
        served: bus.balancers.clone(),
        egress: bus.egress.clone(),
        fleet: bus.fleet.clone(),
        orders: bus.orders.clone(),
        server,
        program: program::find(PROGRAM),
        pins: args.balancer_pins.clone(),
        syn_cookies: args.syn_cookies,
        is_takeover,
    });
    let tcp = std::iter::once(listens.port()).chain(redirect).collect();
    let entry = BalancedEdge { address, tcp, udp: quic_port.into_iter().collect(), fault: None };
    if let Some((fault, leaves)) = edge.balanced() {
        tokio::spawn(keep(entry, fault, leaves, card.clone()));
    }
}

/// Keeps in the edge's entry whether balancers may send.
async fn keep(
    entry: BalancedEdge,
    mut fault: watch::Receiver<Option<String>>,
    mut leaves: watch::Receiver<bool>,
    card: watch::Sender<EdgeCard>,
) {
    loop {
        let known = Some(BalancedEdge { fault: fault.borrow_and_update().clone(), ..entry.clone() });
        let is_leaving = *leaves.borrow_and_update();
        card.send_if_modified(|card| {
            let was = (card.balanced.clone(), card.state);
            card.balanced.clone_from(&known);
            if is_leaving {
                card.state = Serving::Draining;
            }
            was != (card.balanced.clone(), card.state)
        });
        tokio::select! {
            // The senders end with the edge.
            changed = fault.changed() => if changed.is_err() { return },
            Ok(()) = leaves.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        behind: BehindArgs,
        rest: Option<String>,
    }

    #[test]
    fn the_address_is_given_or_the_first_own_one() {
        let own = ["192.0.2.7:443".parse().unwrap(), "[2001:db8::7]:443".parse().unwrap()];
        let of = |line: &[&str]| Line::try_parse_from([&["edge"], line].concat()).unwrap().behind;
        assert!(!of(&[]).is_set());
        assert_eq!(of(&["--behind-balancer"]).address(&own), Some("192.0.2.7".parse().unwrap()));
        assert_eq!(of(&["--behind-balancer", "drain"]).address(&own), Some("192.0.2.7".parse().unwrap()));
        assert_eq!(of(&["--behind-balancer=10.0.0.7"]).address(&own), Some("10.0.0.7".parse().unwrap()));
        assert_eq!(of(&["--behind-balancer"]).address(&[]), None);
        for bad in [
            &["--behind-balancer=x"][..],
            &["--behind-balancer=127.0.0.1"],
            &["--behind-balancer=0.0.0.0"],
            &["--balancer-device", "eth0"],
            &["--syn-cookies", "100"],
            &["--behind-balancer", "--syn-cookies", "0"],
            &["--behind-balancer", "--balancer-device", "a/b"],
        ] {
            assert!(Line::try_parse_from([&["edge"], bad].concat()).is_err(), "{bad:?}");
        }
    }
}
