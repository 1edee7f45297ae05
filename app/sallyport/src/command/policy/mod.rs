//! `sallyport policy`: named access rules.
//!
//! May use what `command` may use.

pub(crate) mod rule;

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreatePolicy, Policy, PolicyPlace, PolicyTest, TestPolicy, UpdatePolicy};
use sallyport_client::{ApiClient, ClientError, PolicyRef, SocketRef};
use sallyport_model::{PersonEmail, PolicyName, ProviderName};
use sallyport_policy::{Effect, Moment};
use serde_json::json;

use self::rule::DocumentArgs;
use crate::{
    args::port,
    command::options::{
        confirm::YesArg,
        labels::{ChangedLabelsArgs, LabelSelectorArgs, LabelsArgs},
    },
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Make a policy, which has no effect before it is attached
    Create(CreateArgs),
    /// List the policies
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Show a policy with its rules
    Show(ShowArgs),
    /// Change a policy: all rules from a file, or one rule more by options
    Edit(EditArgs),
    /// Delete a policy that is attached to nothing
    #[command(alias = "delete")]
    Rm(RmArgs),
    /// Attach a policy to a socket, or to all sockets
    Attach(PlaceArgs),
    /// Detach a policy from a socket, or from all sockets
    Detach(PlaceArgs),
    /// Test a policy, a file or a socket with a request, and show which rule decides
    Test(TestArgs),
}

/// Options of `policy create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name: lower-case letters, digits and hyphens
    #[arg(value_name = "NAME")]
    name: PolicyName,
    #[command(flatten)]
    document: DocumentArgs,
    #[command(flatten)]
    labels: LabelsArgs,
}

/// Options of `policy ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    labels: LabelSelectorArgs,
}

/// Names a policy.
#[derive(Debug, Args)]
pub(crate) struct NameArg {
    /// The policy, by name or id
    #[arg(value_name = "POLICY")]
    #[arg(add = ArgValueCompleter::new(candidates::policies))]
    policy: PolicyRef,
}

/// Options of `policy rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    name: NameArg,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `policy show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    name: NameArg,
    /// Print only the rules, in the form that `policy edit -f` reads
    #[arg(long)]
    rules: bool,
}

/// Options of `policy edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    name: NameArg,
    /// The new name
    #[arg(long, value_name = "NAME")]
    rename: Option<PolicyName>,
    /// Change the policy even when a socket would become unusable
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    document: DocumentArgs,
    #[command(flatten)]
    labels: ChangedLabelsArgs,
}

/// Options of `policy attach` and `policy detach`.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    name: NameArg,
    /// The socket: its name, its public name such as wandering-shape-7752, or its id
    #[arg(value_name = "SOCKET", required_unless_present = "all", conflicts_with = "all")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: Option<SocketRef>,
    /// All sockets, future ones included
    #[arg(long)]
    all: bool,
    /// Go on even when a socket would be open to everybody, or become unusable
    #[arg(long)]
    force: bool,
}

/// Options of `policy test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The policy, by name or id
    #[arg(value_name = "POLICY")]
    #[arg(add = ArgValueCompleter::new(candidates::policies))]
    policy: Option<PolicyRef>,
    /// A file with rules to test instead of a stored policy; - for the standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "policy")]
    file: Option<PathBuf>,
    /// Test all policies and lists of this socket instead
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["policy", "file"])]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: Option<SocketRef>,
    /// The e-mail address of the login [default: no login]
    #[arg(long, value_name = "EMAIL")]
    email: Option<PersonEmail>,
    /// A group of the person, commas included; may be given several times
    #[arg(long, value_name = "GROUP", requires = "email")]
    group: Vec<String>,
    /// The identity provider of the login
    #[arg(long, value_name = "NAME", requires = "email")]
    provider: Option<ProviderName>,
    /// The service token of a machine, by name
    #[arg(long, value_name = "NAME", conflicts_with = "email")]
    service_token: Option<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Its country, in two letters
    #[arg(long, value_name = "COUNTRY")]
    country: Option<String>,
    /// The number of its autonomous system
    #[arg(long, value_name = "NUMBER")]
    asn: Option<u32>,
    /// The time, such as 2027-03-01T08:00:00+01:00 [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Moment>,
    /// The HTTP method [default: GET]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// The path, as a client sends it [default: /]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The public port of the request [default: that of the socket, or 443]
    #[arg(long, value_name = "PORT", value_parser = port::parse, allow_negative_numbers = true)]
    port: Option<u16>,
    /// The expected decision; the command fails on another one
    #[arg(long, value_enum, value_name = "ANSWER")]
    expect: Option<TestResult>,
}

/// A decision in `policy test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestResult {
    /// The answer is yes
    Allow,
    /// The answer is no
    Deny,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: PolicyCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        PolicyCommand::Create(args) => create(context, &client, args).await,
        PolicyCommand::Ls(args) => {
            let empty = "no policies yet: `sallyport policy create NAME --email-domain example.com` makes one";
            context
                .output
                .list(&client.policies_with(&args.labels.labels).await?, empty, |all| list(&context.output, all))
        }
        PolicyCommand::Show(args) => {
            let policy = find(&client, &args.name.policy).await?;
            if args.rules {
                let rules = serde_json::to_value(&policy.document)?;
                return context.output.data(&rules, |_| pretty(&policy));
            }
            context.output.data(&policy, show)
        }
        PolicyCommand::Edit(args) => edit(context, &client, args).await,
        PolicyCommand::Rm(RmArgs { name: args, yes }) => {
            yes.confirm(&format!("Delete the policy {} with its rules?", args.policy))?;
            let about = |error| failure::about(error, &args.policy);
            client.delete_policy(&args.policy).await.map_err(about)?;
            let gone = json!({ "deleted": args.policy.to_string() });
            context.output.data(&gone, |_| format!("deleted {}", args.policy))
        }
        PolicyCommand::Attach(args) => {
            let (policy, place) = place(args);
            let changed = client.attach_policy(&policy, &place).await;
            context.output.data(&changed.map_err(|error| misplaced(error, &policy, &place))?, show)
        }
        PolicyCommand::Detach(args) => {
            let (policy, place) = place(args);
            let changed = client.detach_policy(&policy, &place).await;
            context.output.data(&changed.map_err(|error| misplaced(error, &policy, &place))?, show)
        }
        PolicyCommand::Test(args) => test(context, &client, args).await,
    }
}

/// Names the policy or the socket that does not exist.
fn misplaced(error: ClientError, policy: &PolicyRef, place: &PolicyPlace) -> anyhow::Error {
    let socket = place.socket.as_ref().map(|socket| socket as &dyn std::fmt::Display);
    failure::about_both(error, ("policy", policy), socket)
}

async fn find(client: &ApiClient, policy: &PolicyRef) -> anyhow::Result<Policy> {
    client.policy(policy).await.map_err(|error| failure::about(error, policy))
}

fn place(args: PlaceArgs) -> (PolicyRef, PolicyPlace) {
    let socket = args.socket.map(|socket| socket.to_string());
    (args.name.policy, PolicyPlace { socket, everywhere: args.all, force: args.force })
}

async fn create(context: &Context, client: &ApiClient, args: CreateArgs) -> anyhow::Result<()> {
    let DocumentArgs { file, rule } = args.document;
    let document = match file {
        Some(_) if rule.is_given() => return Err(both_given().into()),
        Some(file) => rule::read(&file)?,
        None => rule.add_to(None)?,
    };
    let policy = CreatePolicy { name: args.name, document, labels: args.labels.get()? };
    let policy = client.create_policy(&policy).await?;
    context.output.data(&policy, show)?;
    context
        .output
        .hint(&format!("next: sallyport policy attach {} SOCKET; until then the policy has no effect", policy.name));
    Ok(())
}

async fn edit(context: &Context, client: &ApiClient, args: EditArgs) -> anyhow::Result<()> {
    let policy = args.name.policy;
    let DocumentArgs { file, rule } = args.document;
    let document = match file {
        Some(_) if rule.is_given() => return Err(both_given().into()),
        Some(file) => Some(rule::read(&file)?),
        None => match rule.add_to(Some(find(client, &policy).await?.document)) {
            Ok(document) => Some(document),
            Err(_) if args.rename.is_some() || !args.labels.is_empty() => None,
            Err(_) => {
                return Err(Failure::usage("nothing to change").next("see `sallyport policy edit --help`").into());
            }
        },
    };
    let labels = match args.labels.is_empty() {
        true => None,
        false => args.labels.change(&find(client, &policy).await?.labels)?.map(Some),
    };
    let update = UpdatePolicy { name: args.rename, document, labels, force: args.force };
    let changed = client.update_policy(&policy, &update).await.map_err(|error| failure::about(error, &policy))?;
    context.output.data(&changed, show)
}

fn both_given() -> Failure {
    Failure::usage("the rules come from a file, or one comes from options").next("leave out -f, or the conditions")
}

async fn test(context: &Context, client: &ApiClient, args: TestArgs) -> anyhow::Result<()> {
    if args.policy.is_none() && args.file.is_none() && args.socket.is_none() {
        return Err(Failure::usage("which rules are to be tested?")
            .next("name a policy, a file with -f, or --socket")
            .into());
    }
    let at = args.at.map(|at| time::OffsetDateTime::from_unix_timestamp(at.unix())).transpose()?;
    let question = TestPolicy {
        policy: args.policy.as_ref().map(ToString::to_string),
        document: args.file.as_deref().map(rule::read).transpose()?,
        socket: args.socket.as_ref().map(ToString::to_string),
        email: args.email,
        groups: args.group,
        provider: args.provider,
        service_token: args.service_token,
        address: args.from,
        country: args.country,
        asn: args.asn,
        at,
        method: args.method,
        path: args.path,
        port: args.port,
    };
    let asked = client.test_policy(&question).await;
    let answer = match (&args.policy, &args.socket) {
        (Some(policy), _) => asked.map_err(|error| failure::about(error, policy))?,
        (None, Some(socket)) => asked.map_err(|error| failure::about(error, socket))?,
        (None, None) => asked?,
    };
    context.output.data(&answer, explain)?;
    match args.expect {
        Some(expected) if (expected == TestResult::Allow) != answer.allowed => {
            let found = if answer.allowed { "allowed" } else { "denied" };
            Err(Failure::new(Kind::Failed, format!("it is {found}: {}", answer.by)).into())
        }
        _ => Ok(()),
    }
}

fn explain(answer: &PolicyTest) -> String {
    let verdict = if answer.allowed { "allowed" } else { "denied" };
    let mut rows = vec![("answer", verdict.to_owned()), ("decided by", answer.by.clone())];
    rows.extend(answer.rules.iter().map(|tested| {
        let outcome = tested.unmet.as_ref().map_or("means it".to_owned(), |unmet| format!("{unmet} does not hold"));
        ("rule", format!("policy {:?}, {}: {outcome}", tested.policy, tested.rule))
    }));
    output::pairs(&rows)
}

fn pretty(policy: &Policy) -> String {
    serde_json::to_string_pretty(&policy.document).unwrap_or_default()
}

fn places(policy: &Policy) -> String {
    match (policy.everywhere, policy.sockets.len()) {
        (true, _) => "all sockets".to_owned(),
        (false, 0) => "nothing".to_owned(),
        (false, 1) => "1 socket".to_owned(),
        (false, count) => format!("{count} sockets"),
    }
}

fn show(policy: &Policy) -> String {
    let mut rows =
        vec![("policy", policy.name.to_string()), ("id", policy.id.to_string()), ("attached to", places(policy))];
    rows.extend(policy.sockets.iter().map(|socket| ("socket", socket.to_string())));
    rows.push(("created", utc(policy.created_at)));
    rows.push(("changed", utc(policy.updated_at)));
    format!("{}\n\n{}", output::pairs(&rows), pretty(policy))
}

fn list(output: &Output, policies: &[Policy]) -> String {
    columns::table(
        output,
        [Column::Cut("POLICY"), Column::Plain("RULES"), Column::Cut("ATTACHED TO"), Column::Plain("CHANGED")],
        policies.iter().map(|policy| {
            let count = |wanted| policy.document.rules().filter(|(effect, ..)| *effect == wanted).count();
            let rules = format!("{} allow, {} deny", count(Effect::Allow), count(Effect::Deny));
            [policy.name.to_string(), rules, places(policy), columns::minute(policy.updated_at)]
        }),
    )
}
