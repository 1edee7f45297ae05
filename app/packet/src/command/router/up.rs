//! `packet router up`: the router, with its NAT and its policy.

use std::path::{Path, PathBuf};

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::{Output, note},
};
use sallyport_packet_model::{
    filter::{POLICY_TABLE, Timeouts, policy_removal, policy_rules},
    nat::{NAT_TABLE, nft_removal, nft_rules},
};
use sallyport_xdp::{
    Change, Router, Urpf, XdpError,
    kernel::{Device, forwards, gateways},
    nat::{NatEngine, NatSetup},
    policy::CompiledPolicy,
};
use serde::Serialize;

use crate::{
    command::{device_of, kernel, name_of},
    config::{Check, Config, Lookup, PolicyFile, PortConfig, shared_ports},
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet router up --dev eth1,eth2
  sallyport packet router up --dev eth1,eth2 --urpf strict
  sallyport packet router up --config router.toml";

/// The arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The ports, with native XDP; their VLANs come along
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', required_unless_present = "config")]
    dev: Vec<String>,
    /// The file of the router
    #[arg(long, value_name = "FILE", conflicts_with = "dev")]
    config: Option<PathBuf>,
    /// Where routes are looked up
    #[arg(long, value_enum)]
    lookup: Option<Lookup>,
    /// Drop packets whose source has no way back: by any device, or by the one that they came from
    #[arg(long, value_enum, default_value = "off", conflicts_with = "config")]
    urpf: Check,
}

/// What has changed.
#[derive(Debug, Serialize)]
pub(super) struct UpView {
    pub(super) attached: Vec<String>,
    pub(super) replaced: Vec<String>,
    pub(super) detached: Vec<String>,
    /// What the router had and has no more: its policy, its NAT.
    pub(super) removed: Vec<&'static str>,
}

impl UpArgs {
    /// The file of the router.
    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The file, or what the options say.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(file) => Config::read(file)?,
            None => {
                let ports = self.dev.iter().map(|dev| PortConfig { dev: dev.trim().to_owned(), urpf: self.urpf });
                Config { ports: ports.collect(), ..Config::default() }
            }
        };
        config.lookup = self.lookup.unwrap_or(config.lookup);
        if config.ports.is_empty() {
            let next = match &self.config {
                Some(file) => format!("put a section [[port]] with `dev` into {} for each port", file.display()),
                None => "name two or more ports by --dev a,b".to_owned(),
            };
            return Err(Failure::usage("the router has no port").next(next));
        }
        config.limits.sizes()?;
        Ok(config)
    }
}

/// The ports of a file. Devices that stand for VLANs are marked as such.
pub(super) fn ports_of(config: &Config, devices: &mut [Device]) -> anyhow::Result<Vec<(Device, Urpf)>> {
    for vlan in &config.vlans {
        if !(1..=4094).contains(&vlan.id) {
            return Err(Failure::usage(format!("VLAN {} of {} is not from 1 to 4094", vlan.id, vlan.dev)).into());
        }
        let port = device_of(devices, &vlan.port)?.index;
        let device = devices.iter_mut().find(|device| device.name == vlan.dev);
        device.ok_or_else(|| XdpError::NoDevice(vlan.dev.clone()))?.vlan = Some((port, vlan.id));
    }
    let mut ports: Vec<(Device, Urpf)> = Vec::new();
    for port in &config.ports {
        let device = device_of(devices, &port.dev)?;
        if ports.iter().any(|(other, _)| other.index == device.index) {
            return Err(Failure::usage(format!("the port {} is named twice", port.dev)).into());
        }
        ports.push((device.clone(), port.urpf.into()));
    }
    Ok(ports)
}

/// Brings the router up.
pub(super) async fn up(output: Output, router: &Router, args: UpArgs) -> anyhow::Result<()> {
    let config = args.config()?;
    if config.lookup == Lookup::Fib {
        let failure = Failure::usage("the lookup fib needs a process that follows the kernel's routes");
        return Err(failure.next("`sallyport packet router run` is that process").into());
    }
    if router.is_followed() {
        let failure = Failure::new(Kind::Refused, "a process follows this router: `router run` changes the router");
        return Err(failure.next("end that process first, and start it again with the change").into());
    }
    let (_, mut devices) = kernel().await?;
    let ports = ports_of(&config, &mut devices)?;
    let _change = router.change()?;
    let rules = Rules::of(router, &config, args.file(), &devices)?;
    let change = rules.around(|router| router.up(&ports, &devices)).await?;
    say(output, change, rules.removed())?;
    // The router forwards without, too.
    gateways().and_then(|gateways| router.probe(&gateways, false)).unwrap_or_else(|error| note(&error.to_string()));
    say_if_off(output, &ports);
    output.hint("the programs stay in the kernel; `sallyport packet router down` removes them");
    Ok(())
}

/// Says which ports do not forward, as `sysctl` has it.
pub(crate) fn say_if_off(output: Output, ports: &[(Device, Urpf)]) {
    let devices: Vec<_> = ports.iter().map(|(device, _)| device).collect();
    if let Some(said) = off(&devices) {
        output.hint(&said);
    }
}

/// A sentence about those of these devices that do not forward.
pub(super) fn off(devices: &[&Device]) -> Option<String> {
    let off = devices.iter().filter(|device| forwards(&device.name) == (false, false));
    let names = off.map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!("forwarding is off for {names}: run `sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`")
    })
}

/// Says what has changed.
pub(super) fn say(output: Output, change: Change, removed: Vec<&'static str>) -> anyhow::Result<()> {
    let Change { attached, replaced, detached } = change;
    output.data(&UpView { attached, replaced, detached, removed }, |view| {
        let lines =
            [("forwarding", &view.attached), ("replaced in place", &view.replaced), ("no port", &view.detached)];
        let lines = lines.iter().filter(|(_, names)| !names.is_empty());
        let lines = lines.map(|(word, names)| format!("{}: {word}", names.join(", ")));
        let removed = view.removed.iter().map(|what| format!("the {what} that stood is removed: the file has none"));
        lines.chain(removed).collect::<Vec<_>>().join("\n")
    })
}

/// What a router has beside its ports: NAT and policy, in XDP and in nftables.
pub(super) struct Rules {
    /// The router, with both.
    router: Router,
    tables: [Table; 2],
    /// Whether connection tracking shares its connections with XDP.
    is_shared: bool,
    /// Whether connection tracking took odd segments before; `None` if the router that stands does not share it.
    was_liberal: Option<bool>,
    /// What should be known of the NAT.
    warning: Option<String>,
}

/// A table of nftables.
struct Table {
    /// What the kernel lacks without it.
    what: &'static str,
    /// Its family and name.
    id: (&'static str, &'static str),
    /// The script that sets it; none if the router has no such table.
    rules: Option<String>,
    /// The script that removes it.
    removal: String,
    /// Whether the router that stands has it.
    has_stood: bool,
}

impl Rules {
    /// What the file says.
    pub(super) fn of(
        router: &Router,
        config: &Config,
        file: Option<&Path>,
        devices: &[Device],
    ) -> anyhow::Result<Self> {
        let mut nat = config.nat.as_ref().map(|section| section.to_setup(router.nat_seed())).transpose()?;
        let was_liberal = router.was_liberal();
        let mark = router.policy_mark().or_else(|| router.nat_mark()).unwrap_or_else(random_mark);
        if let Some(nat) = nat.as_mut() {
            nat.mark = mark;
        }
        if let Some(nat) = nat.as_mut().filter(|nat| nat.engine == NatEngine::Conntrack) {
            nat.was_liberal = was_liberal.unwrap_or_else(is_liberal);
        }
        let policy = policy_of(config, file, devices, mark)?;
        let tables = [
            Table {
                what: "policy",
                id: ("inet", POLICY_TABLE),
                rules: policy.as_ref().map(|policy| policy.1.clone()),
                removal: policy_removal(),
                has_stood: router.has_policy(),
            },
            Table {
                what: "NAT",
                id: ("ip", NAT_TABLE),
                rules: nat.as_ref().map(|nat| {
                    let mark = (nat.engine == NatEngine::Xdp).then_some(nat.mark);
                    nft_rules(&nat.config, mark)
                }),
                removal: nft_removal(),
                has_stood: router.nat_engine().is_ok_and(|engine| engine.is_some()),
            },
        ];
        let has_own_ports = |nat: &&NatSetup| nat.engine == NatEngine::Xdp;
        let warning = nat.as_ref().filter(has_own_ports).and_then(|nat| shared_ports::sentence(&nat.config));
        let is_shared = nat.as_ref().is_some_and(|nat| nat.engine == NatEngine::Conntrack);
        let router = router.clone().with_nat(nat).with_policy(policy.map(|policy| policy.0));
        Ok(Self { router, tables, is_shared, was_liberal, warning })
    }

    /// The router, with NAT and policy.
    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    /// What the router that stands has, and what is not wanted any more.
    pub(super) fn removed(&self) -> Vec<&'static str> {
        let removed = self.tables.iter().filter(|table| table.has_stood && table.rules.is_none());
        removed.map(|table| table.what).collect()
    }

    /// Brings the router up. New rules of nftables stand before, and old ones go after: no packet passes in between,
    /// and a run that is killed leaves none of the two without its rules.
    pub(super) async fn around(&self, up: impl FnOnce(&Router) -> Result<Change, XdpError>) -> anyhow::Result<Change> {
        self.check().await?;
        if let Err(error) = self.set().await {
            self.take_back().await;
            return Err(error.into());
        }
        let change = match up(&self.router) {
            Ok(change) => change,
            Err(error) => {
                self.take_back().await;
                return Err(error.into());
            }
        };
        if !self.is_shared && self.was_liberal == Some(false) {
            be_liberal(false)?;
        }
        for table in self.tables.iter().filter(|table| table.rules.is_none()) {
            // A run that was killed may have left a table, and without `nft` there is none.
            if let Err(error) = sallyport_nft::apply(&table.removal).await
                && table.has_stood
            {
                let said =
                    format!("the router is up, and what the kernel forwards still has the {}: {error}", table.what);
                return Err(Failure::new(Kind::Failed, said).into());
            }
        }
        if let Some(warning) = &self.warning {
            note(warning);
        }
        Ok(change)
    }

    /// Has nftables judge its part, before anything is changed.
    async fn check(&self) -> Result<(), Failure> {
        for table in &self.tables {
            let Some(rules) = &table.rules else { continue };
            sallyport_nft::check(rules).await.map_err(|error| {
                Failure::new(Kind::Failed, format!("the kernel cannot have its part of the {}: {error}", table.what))
                    .next("nothing was changed")
            })?;
        }
        Ok(())
    }

    /// Sets tables again that nftables has lost, as by `nft flush ruleset`. Says which.
    pub(super) async fn restore(&self) -> Result<Vec<&'static str>, Failure> {
        let wanted = self.tables.iter().filter(|table| table.rules.is_some());
        let lost = lost(wanted.map(|table| (table.what, table.id))).await;
        if !lost.is_empty() {
            self.set().await?;
        }
        Ok(lost)
    }

    /// Gives nftables its part.
    async fn set(&self) -> Result<(), Failure> {
        for table in &self.tables {
            let Some(rules) = &table.rules else { continue };
            sallyport_nft::apply(rules).await.map_err(|error| {
                let said = format!("what the kernel forwards would have no {}: {error}", table.what);
                Failure::new(Kind::Failed, said)
            })?;
        }
        if self.is_shared { be_liberal(true) } else { Ok(()) }
    }

    /// After a failure: a router without a table gets none.
    async fn take_back(&self) {
        for table in self.tables.iter().filter(|table| table.rules.is_some() && !table.has_stood) {
            drop(sallyport_nft::apply(&table.removal).await);
        }
        let had_other = self.router.nat().is_some_and(|nat| !nat.was_liberal);
        if self.is_shared && self.was_liberal.is_none() && had_other {
            drop(be_liberal(false));
        }
    }
}

/// What nftables lacks of the router that stands: its policy, its NAT.
pub(super) async fn lost_of(router: &Router) -> Vec<&'static str> {
    let has_nat = router.nat_engine().is_ok_and(|engine| engine.is_some());
    let policy = router.has_policy().then_some(("policy", ("inet", POLICY_TABLE)));
    let nat = has_nat.then_some(("NAT", ("ip", NAT_TABLE)));
    lost(policy.into_iter().chain(nat)).await
}

/// Those of these tables that nftables does not have. Of an nftables that does not answer, none is known to be lost.
async fn lost(wanted: impl Iterator<Item = (&'static str, (&'static str, &'static str))>) -> Vec<&'static str> {
    let mut lost = Vec::new();
    for (what, (family, name)) in wanted {
        if sallyport_nft::tables(family).await.is_ok_and(|tables| !tables.iter().any(|table| table == name)) {
            lost.push(what);
        }
    }
    lost
}

/// The policy of a router, compiled for XDP and for nftables.
fn policy_of(
    config: &Config,
    file: Option<&Path>,
    devices: &[Device],
    mark: [u8; 6],
) -> anyhow::Result<Option<(CompiledPolicy, String)>> {
    let Some(policy) = &config.policy else { return Ok(None) };
    let path = file.and_then(Path::parent).map_or_else(|| policy.clone(), |folder| folder.join(policy));
    let index = |name: &str| match devices.iter().find(|device| device.name == name) {
        Some(device) => Ok(device.index),
        None => Err(Failure::new(Kind::NotFound, XdpError::NoDevice(name.to_owned()).to_string())),
    };
    let policy = PolicyFile::read(&path).map_err(|failure| match (failure.kind, file) {
        (Kind::Failed, Some(file)) => failure.next(format!("`policy` of {} names the file", file.display())),
        _ => failure,
    });
    let file = policy?;
    let policy = file.to_policy(index)?;
    let compiled = CompiledPolicy::new(&policy, &Timeouts::default());
    let compiled = compiled.map_err(|error| Failure::usage(error.to_string()))?;
    let compiled = compiled.with_digest(file.digest()).with_mark(mark);
    Ok(Some((compiled, policy_rules(&policy, Some(mark), |index| name_of(devices, index)))))
}

/// A source of the link that no card has, and that strangers do not know.
fn random_mark() -> [u8; 6] {
    let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
    let [a, b, c, d, e, f, ..] = number.to_ne_bytes();
    // Of one card, and given out by nobody.
    [a & 0xfc | 2, b, c, d, e, f]
}

/// Where connection tracking is told to take segments with odd numbers.
const LIBERAL: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";

/// Has connection tracking take the end of a connection whose middle XDP has forwarded, or not.
pub(super) fn be_liberal(is: bool) -> Result<(), Failure> {
    let failed = |error| Failure::new(Kind::Failed, format!("cannot write {LIBERAL}: {error}"));
    std::fs::write(LIBERAL, if is { "1" } else { "0" }).map_err(failed)
}

/// Whether connection tracking takes such segments.
fn is_liberal() -> bool {
    std::fs::read_to_string(LIBERAL).is_ok_and(|value| value.trim() != "0")
}
