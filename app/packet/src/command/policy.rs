//! `packet policy`: checks a file, and says which rule decides.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Subcommand};
use sallyport_cli::{
    failure::Failure,
    output::{Output, pairs, table},
};
use sallyport_packet_model::{
    filter::{Action, Facts, FlowState, Timeouts, policy_rules},
    parse::Flow,
};
use sallyport_xdp::{Router, policy::CompiledPolicy};
use serde::Serialize;

use crate::config::{Names, PolicyFile, StateWord, protocol};

/// Examples of the help.
const TEST_EXAMPLES: &str = "Examples:
  sallyport packet policy test policy.toml 198.51.100.7 10.0.0.80 tcp/443
  sallyport packet policy test policy.toml 10.0.0.80 198.51.100.7 tcp/40000 --state established
  sallyport packet policy test policy.toml 2001:db8::7 2001:db8:1::80 icmpv6 --in eth1";

/// What is asked of a policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a file
    Check {
        /// The file
        file: PathBuf,
        /// Print the rules of nftables that it becomes
        #[arg(long)]
        nft: bool,
    },
    /// Say which rule decides about a packet
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Show how many packets each rule has decided about, in XDP
    Show {
        /// The file of the policy that the router has
        file: PathBuf,
    },
}

impl PolicyCommand {
    /// Whether a file alone has the answer, so that nobody needs root.
    pub(super) fn is_of_file(&self) -> bool {
        !matches!(self, Self::Show { .. })
    }
}

/// The arguments of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The file
    file: PathBuf,
    /// The source
    source: IpAddr,
    /// The destination; behind a forwarded port, the one inside
    destination: IpAddr,
    /// The protocol, with the port of the destination: tcp/443, udp/53, icmp
    #[arg(default_value = "icmp", value_name = "PROTOCOL[/PORT]", value_parser = service)]
    service: (u8, u16),
    /// The port of the source
    #[arg(long, value_name = "PORT", default_value_t = 40_000)]
    source_port: u16,
    /// The state of the flow
    #[arg(long, value_enum, default_value = "new")]
    state: StateWord,
    /// The device that it comes in by
    #[arg(long = "in", value_name = "DEVICE")]
    incoming: Option<String>,
    /// The device that it leaves by
    #[arg(long = "out", value_name = "DEVICE")]
    outgoing: Option<String>,
}

/// The protocol and the port of words such as `tcp/443`.
fn service(word: &str) -> Result<(u8, u16), String> {
    let (name, port) = word.split_once('/').unwrap_or((word, "0"));
    let port = port.parse().map_err(|_| format!("{port:?} is no port"))?;
    Ok((protocol(name)?, port))
}

#[derive(Debug, Serialize)]
struct CheckView {
    rules: usize,
    default: &'static str,
}

#[derive(Debug, Serialize)]
struct TestView {
    action: &'static str,
    /// The rule that decides; none if the default does.
    rule: Option<String>,
    /// The rules before it, and why they do not match.
    others: Vec<(String, String)>,
}

#[derive(Debug, Serialize)]
struct HitsView {
    rule: String,
    packets: u64,
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "accept",
        Action::Drop => "drop",
        Action::Reject => "reject",
    }
}

/// Runs a command.
pub(super) fn run(output: Output, router: &Router, command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::Check { file, nft } => check(output, &file, nft),
        PolicyCommand::Test(args) => test(output, &args),
        PolicyCommand::Show { file } => show(output, router, &file),
    }
}

fn check(output: Output, file: &std::path::Path, nft: bool) -> anyhow::Result<()> {
    let mut names = Names::default();
    let policy = PolicyFile::read(file)?.to_policy(|name| Ok(names.index(name)))?;
    CompiledPolicy::new(&policy, &Timeouts::default()).map_err(|error| Failure::usage(error.to_string()))?;
    if nft {
        sallyport_cli::output::line(policy_rules(&policy, None, |index| names.name(index)).trim_end())?;
        return Ok(());
    }
    let view = CheckView { rules: policy.rules().len(), default: action(policy.default_action()) };
    output.data(&view, |view| {
        let rules = if view.rules == 1 { "1 rule".to_owned() } else { format!("{} rules", view.rules) };
        format!("{rules}, then {}: the file is right", view.default)
    })
}

fn test(output: Output, args: &TestArgs) -> anyhow::Result<()> {
    if args.source.is_ipv4() != args.destination.is_ipv4() {
        return Err(Failure::usage("the source and the destination are of two families of IP").into());
    }
    let mut names = Names::default();
    let policy = PolicyFile::read(&args.file)?.to_policy(|name| Ok(names.index(name)))?;
    let (protocol, port) = args.service;
    let has_ports = matches!(protocol, 6 | 17);
    let facts = Facts {
        flow: Flow {
            source: args.source,
            destination: args.destination,
            protocol,
            source_port: if has_ports { args.source_port } else { 0 },
            destination_port: port,
        },
        has_ports,
        state: FlowState::from(args.state),
        incoming: args.incoming.as_deref().map(|name| names.index(name)),
        outgoing: args.outgoing.as_deref().map(|name| names.index(name)),
    };
    let decision = policy.decide(&facts);
    let others = policy.mismatches(&facts).map(|(rule, why)| (rule.name.clone(), why.to_string()));
    let view = TestView {
        action: action(decision.action),
        rule: decision.rule.map(|place| policy.rules()[place].name.clone()),
        others: others.collect(),
    };
    output.data(&view, |view| {
        let rule = view.rule.clone().unwrap_or_else(|| "none: the default decides".to_owned());
        let mut text = pairs(&[("verdict", view.action.to_owned()), ("rule", rule)]);
        for (name, why) in &view.others {
            text.push_str(&format!("\nnot {name}: {why}"));
        }
        text
    })
}

fn show(output: Output, router: &Router, file: &std::path::Path) -> anyhow::Result<()> {
    let mut names = Names::default();
    let read = PolicyFile::read(file)?;
    let policy = read.to_policy(|name| Ok(names.index(name)))?;
    let (hits, default) = router.policy_hits()?;
    if router.policy_digest() != Some(read.digest()) || hits.len() != policy.rules().len() {
        let (has, file) = (hits.len(), file.display());
        let said = format!("the router has a policy of {has} rules, which is not that of {file}");
        return Err(Failure::usage(said).next("name the file that the router came up with, or run `router up`").into());
    }
    let rules = policy.rules().iter().map(|rule| rule.name.clone()).zip(hits);
    let all = rules.chain([("default".to_owned(), default)]);
    let views: Vec<_> = all.map(|(rule, packets)| HitsView { rule, packets }).collect();
    output.list(&views, "the policy has no rules", |views| {
        table(["RULE", "PACKETS"], views.iter().map(|view| [view.rule.clone(), view.packets.to_string()]))
    })
}
