//! `sallyport network policy`: reads the file of a policy, and says which rule decides.

use std::{
    fs::File,
    io::Read as _,
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_network::{
    address,
    nft::compile,
    policy::{Decision, Document, Flow, ICMP, ICMPV6, Policy, Service, ServiceError, TCP, TextError, UDP},
};
use serde::Serialize;

use super::{
    NetworkArg,
    apply::{self, ApplyArgs, RmArgs, ShowArgs},
    counted,
    stored::{self, SetArgs, UnsetArgs},
};
use crate::{
    command::policy::TestResult,
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output,
};

/// The most bytes of a file.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// How many names a failure lists.
const MAX_LISTED: usize = 8;

const TEST_EXAMPLES: &str = "Examples:
  sallyport network policy test policy.toml web-1 db tcp/5432
  sallyport network policy test policy.toml 198.51.100.7 web-1 tcp/443 --expect allow
  sallyport network policy test policy.toml 10.20.0.9 db icmp --in tap1
  sallyport network policy test --network shop web-1 db tcp/5432";

/// What can be done with the policy of a network.
#[derive(Debug, Subcommand)]
pub(crate) enum NetworkPolicyCommand {
    /// Set the policy of a network
    Set(SetArgs),
    /// Print the policy of a network
    Get(NetworkArg),
    /// Remove the policy of a network, whose machines may then all talk to each other
    Unset(UnsetArgs),
    /// Check a file
    Check(CheckArgs),
    /// Say whether a flow may begin, and which rule of a file or a network decides
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Enforce a file on this machine, and end the flows that it does not allow; for root
    Apply(ApplyArgs),
    /// Show what this machine enforces, and how often each rule has decided; for root
    Show(ShowArgs),
    /// Enforce nothing any more; for root
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file
    file: PathBuf,
    /// Print the rules of nftables that it becomes
    #[arg(long)]
    nft: bool,
}

/// Options of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The file, unless --network is there; who begins the flow and who answers, each an endpoint or any address; the
    /// protocol, with the port of the destination: tcp/443, udp/53, icmp
    #[arg(value_names = ["FILE", "FROM", "TO", "PROTOCOL[/PORT]"], num_args = 3..=4, required = true)]
    words: Vec<String>,
    /// The network whose machines and policy decide, in place of a file
    #[arg(long, value_name = "NETWORK", add = ArgValueCompleter::new(candidates::networks))]
    network: Option<String>,
    /// The device of this machine that the packet comes in by
    #[arg(long = "in", value_name = "DEVICE")]
    incoming: Option<String>,
    /// The expected answer; the command fails on another one
    #[arg(long, value_enum, value_name = "ANSWER")]
    expect: Option<TestResult>,
}

/// What a file has.
#[derive(Debug, Serialize)]
struct CheckView {
    network: String,
    endpoints: usize,
    rules: usize,
    /// The most rules of nftables that the first packet of a flow meets.
    depth: usize,
}

/// The answer of a test.
#[derive(Debug, Serialize)]
struct TestView {
    from: IpAddr,
    to: IpAddr,
    service: String,
    allowed: bool,
    /// The rule that decides, if one does.
    rule: Option<String>,
    /// What decides, in words.
    by: String,
}

/// Runs the command.
pub(super) async fn run(context: &Context, command: NetworkPolicyCommand) -> anyhow::Result<()> {
    match command {
        NetworkPolicyCommand::Set(args) => stored::set(context, &args).await,
        NetworkPolicyCommand::Get(args) => stored::get(context, &args).await,
        NetworkPolicyCommand::Unset(args) => stored::unset(context, &args).await,
        NetworkPolicyCommand::Check(args) => check(context, &args),
        NetworkPolicyCommand::Test(args) => test(context, &args).await,
        NetworkPolicyCommand::Apply(args) => apply::apply(context, &args).await,
        NetworkPolicyCommand::Show(args) => apply::show(context, &args).await,
        NetworkPolicyCommand::Rm(args) => apply::rm(context, &args).await,
    }
}

/// Reads the text of a file.
pub(super) fn read_text(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    let mut text = String::new();
    let opened = File::open(file).and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
    let length = opened.map_err(|error| failure::unreadable(file, &error))?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(Failure::usage(format!("{name} has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// Reads a file.
pub(super) fn read(file: &Path) -> Result<Policy, Failure> {
    let (name, text) = (file.display(), read_text(file)?);
    let document = Document::from_toml(&text).map_err(|error| {
        Failure::usage(match error {
            TextError::Syntax { line: Some(line), message } => format!("{name}, line {line}: {message}"),
            error => format!("{name}: {error}"),
        })
    })?;
    document.into_policy().map_err(|error| Failure::usage(format!("{name}: {error}")))
}

fn check(context: &Context, args: &CheckArgs) -> anyhow::Result<()> {
    let policy = read(&args.file)?;
    let rules = compile(&policy);
    if args.nft {
        return output::line(rules.to_string().trim_end());
    }
    let view = CheckView {
        network: policy.network().to_string(),
        endpoints: policy.endpoints().len(),
        rules: policy.rules().len(),
        depth: rules.depth(),
    };
    context.output.data(&view, |view| {
        let CheckView { network, endpoints, rules, depth } = view;
        let text = "a first packet meets at most this many rules of nftables";
        let (endpoints, rules) = (counted(*endpoints, "endpoint"), counted(*rules, "rule"));
        format!("network {network}: {endpoints}, {rules}; {text}: {depth}")
    })
}

async fn test(context: &Context, args: &TestArgs) -> anyhow::Result<()> {
    let (policy, flow) = match (&args.network, args.words.as_slice()) {
        (Some(network), flow @ [_, _, _]) => {
            (stored::compiled(&context.client(&context.target()?)?, network).await?, flow)
        }
        (None, [file, flow @ ..]) if flow.len() == 3 => (read(Path::new(file))?, flow),
        (Some(_), _) => return Err(Failure::usage("a test takes a file or --network, and not both").into()),
        (None, _) => return Err(Failure::usage("a test begins with a file, or has --network").into()),
    };
    let [from, to, service] = flow else { return Err(Failure::usage("a flow is FROM TO PROTOCOL[/PORT]").into()) };
    let service: Service = service.parse().map_err(|error: ServiceError| Failure::usage(error.to_string()))?;
    let (from, to) = ends(&policy, from, to)?;
    let (protocol, port) = protocol_and_port(&service, from)?;
    let is_spoofed = args.incoming.as_deref().is_some_and(|device| policy.is_spoofed(from, device));
    let decision = policy.decide(&Flow { source: from, destination: to, protocol, port });
    let (allowed, rule, by) = match decision {
        _ if is_spoofed => (false, None, format!("packets of {from} do not come by that device")),
        Decision::Rule(rule) => {
            let by = format!("the rule {}, which says {}", rule.name, rule.action.as_str());
            (decision.is_allowed(), Some(rule.name.to_string()), by)
        }
        Decision::Default => (false, None, "no rule, and what no rule allows is denied".to_owned()),
        Decision::Foreign => (true, None, "nothing here, as neither side is an endpoint of the network".to_owned()),
    };
    let view = TestView { from, to, service: service.to_string(), allowed, rule, by };
    context.output.data(&view, |view| {
        output::pairs(&[
            ("answer", if view.allowed { "allowed" } else { "denied" }.to_owned()),
            ("decided by", view.by.clone()),
            ("flow", format!("{} to {}, {}", view.from, view.to, view.service)),
        ])
    })?;
    match args.expect {
        Some(expected) if (expected == TestResult::Allow) != view.allowed => {
            let found = if view.allowed { "allowed" } else { "denied" };
            Err(Failure::new(Kind::Failed, format!("it is {found}, by {}", view.by)).into())
        }
        _ => Ok(()),
    }
}

/// The protocol number and the port of a flow.
fn protocol_and_port(service: &Service, from: IpAddr) -> Result<(u8, u16), Failure> {
    let (protocol, ports) = match service {
        Service::Icmp => return Ok((if from.is_ipv4() { ICMP } else { ICMPV6 }, 0)),
        Service::Tcp(ports) => (TCP, ports),
        Service::Udp(ports) => (UDP, ports),
    };
    match ports {
        Some(ports) if ports.start() == ports.end() => Ok((protocol, *ports.start())),
        _ => {
            let said = format!("{service} is not one port, and a flow has one");
            Err(Failure::usage(said).next("name it, as in tcp/443"))
        }
    }
}

/// The addresses of both sides, of one family.
fn ends(policy: &Policy, from: &str, to: &str) -> Result<(IpAddr, IpAddr), Failure> {
    let (sources, destinations) = (addresses(policy, from)?, addresses(policy, to)?);
    let pairs = sources.iter().flat_map(|source| destinations.iter().map(move |destination| (*source, *destination)));
    let mut of_one_family = pairs.filter(|(source, destination)| source.is_ipv4() == destination.is_ipv4());
    of_one_family.next().ok_or_else(|| Failure::usage(format!("{from} and {to} have no family of IP in common")))
}

/// The addresses that a word means: its own, or those of an endpoint.
fn addresses(policy: &Policy, word: &str) -> Result<Vec<IpAddr>, Failure> {
    if let Some(endpoint) = policy.endpoint(word) {
        return Ok(endpoint.networks.iter().map(|net| net.addr()).collect());
    }
    if word.contains(['.', ':']) {
        let net = address::prefix(word).map_err(|error| Failure::usage(error.to_string()))?;
        if net.prefix_len() == net.max_prefix_len() {
            return Ok(vec![net.addr()]);
        }
        return Err(Failure::usage(format!("{word} is a network, and a flow has one address on each side")));
    }
    let names: Vec<_> = policy.endpoints().iter().take(MAX_LISTED).map(|endpoint| endpoint.name.as_str()).collect();
    let rest = policy.endpoints().len().saturating_sub(MAX_LISTED);
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    let missing = Failure::new(Kind::NotFound, format!("there is no endpoint {word:?}"));
    Err(missing.next(format!("name an address, or one of {}{rest}", names.join(", "))))
}
