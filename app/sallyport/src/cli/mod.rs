//! The command line: its commands, and what runs each.
//! Uses `command`, `roles`, `context`, `args`, `runtime` and `failure`.

pub(crate) mod complete;
mod help;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use sallyport_cli::{
    completion::CompletionArgs,
    files,
    manual::ManualArgs,
    usage::{self, misused},
};
use time::UtcOffset;

use self::help::HelpArgs;
use crate::{
    args::argv,
    command::{
        self,
        account::AccountCommand,
        anycast::AnycastCommand,
        audit::AuditArgs,
        authority::AuthorityCommand,
        balancer::BalancerCommand,
        catchment::CatchmentCommand,
        certificate::CertificateCommand,
        client::{ClientCommand, SshConfigArgs},
        companion::{CompanionArgs, KUBE, LAB, PACKET},
        connect::ConnectCommand,
        data::{BackupArgs, MigrateArgs, RekeyArgs, RestoreArgs},
        doctor::DoctorArgs,
        domain::DomainCommand,
        edge::EdgeCommand,
        egress::EgressCommand,
        flow::FlowCommand,
        hash_match::MatchCommand,
        inspect::InspectCommand,
        invitation::InvitationCommand,
        link::LinkCommand,
        login::LoginArgs,
        login_session::LoginSessionCommand,
        member::MemberCommand,
        network::NetworkCommand,
        organisation::OrganisationCommand,
        person::PersonCommand,
        ping::PingArgs,
        policy::PolicyCommand,
        prefixes::PrefixesCommand,
        provider::ProviderCommand,
        run::RunArgs,
        service_token::ServiceTokenCommand,
        socket::SocketCommand,
        ssh_ca::SshCaCommand,
        ssh_key::SshKeyCommand,
        token::TokenCommand,
        trust::TrustCommand,
        tunnel::TunnelCommand,
        zone::ZoneCommand,
    },
    context::{Context, Global},
    failure::{self, Failure},
    output::{Format, Output},
    roles,
    runtime::telemetry::{LogFormat, Telemetry},
};

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line cannot be used as it is
  3  not logged in, or not allowed
  4  not found
  5  refused: it conflicts with what is there, or is not valid
  6  the other side cannot be reached or cannot be trusted

Flags may be written with underscores too (--socket_id).
More: `sallyport help COMMAND`, and `sallyport help TOPIC` about names, policies, run, scripts and transports.";

/// Gives a private service a public name
#[derive(Debug, Parser)]
#[command(name = "sallyport", version, about, after_help = AFTER_HELP)]
#[command(disable_help_subcommand = true)]
#[command(arg_required_else_help = true, subcommand_required = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Sallyport on this machine: control and edge in one process
    Up(roles::up::UpArgs),
    /// Run control: accounts, sockets, policies and edges, without clients of its own
    Control(roles::control::ControlArgs),
    /// Run an edge of an installation, or manage its edges
    Edge(EdgeCommand),
    /// Where clients land, what that costs, and what to change
    #[command(subcommand)]
    Catchment(CatchmentCommand),
    /// Show what runs here, whether the API and the edge answer, the login, and the next step
    Status,
    /// Find faults, in the order in which to repair them
    Doctor(DoctorArgs),
    /// Measure the way to a host, by echo requests that nobody can fool, or by TCP connects
    Ping(PingArgs),
    /// Look into live TCP connections of this machine: buffers, windows, and what limits them
    #[command(subcommand)]
    Inspect(InspectCommand),
    /// Count, compare and draw the addresses in files of clouds and registries
    #[command(subcommand)]
    Prefixes(PrefixesCommand),
    /// Find the nearest known hash of each given one
    #[command(subcommand)]
    Match(MatchCommand),
    /// The links of this machine
    #[command(subcommand)]
    Link(LinkCommand),
    /// Create an account, or show it
    #[command(subcommand)]
    Account(AccountCommand),
    /// Log in, with a password from the terminal or from SALLYPORT_PASSWORD
    Login(LoginArgs),
    /// Forget the login
    Logout,
    /// Give a service near you a public name until this command is stopped
    Connect(ConnectCommand),
    /// Serve the services of a file until this command is stopped
    Run(RunArgs),
    /// Public names that stay
    #[command(subcommand)]
    Socket(SocketCommand),
    /// The connections that carry a socket's requests to its origins
    #[command(subcommand)]
    Tunnel(TunnelCommand),
    /// Domains of yours, which lead to your sockets
    #[command(subcommand)]
    Domain(DomainCommand),
    /// Zones that the name server of your edges answers for
    #[command(subcommand)]
    Zone(ZoneCommand),
    /// Prefixes that edges announce by BGP
    #[command(subcommand)]
    Anycast(AnycastCommand),
    /// Addresses that edges share, and from which they dial direct origins
    #[command(subcommand)]
    Egress(EgressCommand),
    /// Virtual addresses that the edges of a site share
    #[command(subcommand)]
    Balancer(BalancerCommand),
    /// Certificates for names: ordered by the server, or imported
    #[command(subcommand)]
    Cert(CertificateCommand),
    /// Named access rules: who, when, from where, for what
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Networks of machines, and what may talk to what there
    #[command(subcommand)]
    Network(NetworkCommand),
    /// Keys with which stock ssh clients log in
    #[command(subcommand)]
    SshKey(SshKeyCommand),
    /// Identity providers for logins to sockets
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Persons with a password, at your provider of kind local
    #[command(subcommand)]
    Person(PersonCommand),
    /// Logins to your sockets
    #[command(subcommand)]
    LoginSession(LoginSessionCommand),
    /// Access sockets with a login from programs that cannot log in
    #[command(subcommand)]
    Client(ClientCommand),
    /// Print the lines for ~/.ssh/config with which a stock ssh reaches hosts behind sockets
    SshConfig(SshConfigArgs),
    /// Your authority for ssh keys, which hosts behind your sockets trust
    #[command(subcommand)]
    SshCa(SshCaCommand),
    /// Organisations to act for
    #[command(subcommand, alias = "organization")]
    Organisation(OrganisationCommand),
    /// Members of the organisation and their roles
    #[command(subcommand)]
    Member(MemberCommand),
    /// Invitations into organisations
    #[command(subcommand)]
    Invitation(InvitationCommand),
    /// API tokens, for programs that cannot type a password
    #[command(subcommand)]
    Token(TokenCommand),
    /// Tokens for machines, for sockets with a login
    #[command(subcommand)]
    ServiceToken(ServiceTokenCommand),
    /// The audit log: connections, logins and changes
    Audit(AuditArgs),
    /// Open connections
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Move the data of a `sallyport up` from its data directory to PostgreSQL
    Migrate(MigrateArgs),
    /// Seal the keys of an installation in PostgreSQL with a new key
    Rekey(RekeyArgs),
    /// The certificate authorities of an installation
    #[command(subcommand)]
    Authority(AuthorityCommand),
    /// Copy the database and the keys of a `sallyport up` that may be running
    Backup(BackupArgs),
    /// Create a data directory from a backup
    Restore(RestoreArgs),
    /// A laboratory: a network of edges, controls and clients in namespaces of this machine, and faults to try on it
    Lab(CompanionArgs),
    /// The controller for Kubernetes: Services with an annotation get public names
    Kube(CompanionArgs),
    /// The packet path: a router in XDP, whose routes are those of the kernel
    Packet(CompanionArgs),
    /// Have all programs of this machine trust a Sallyport's certificates
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Print the completion script of a shell
    #[command(after_help = "\
  bash  source <(sallyport completion bash)      in ~/.bashrc
  zsh   source <(sallyport completion zsh)       in ~/.zshrc, after compinit
  fish  sallyport completion fish | source       in ~/.config/fish/config.fish")]
    Completion(CompletionArgs),
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Man(ManualArgs),
    /// Print the version
    Version,
    /// Explain a command, or a topic: domains, names, policies, run, scripts, transports
    Help(HelpArgs),
}

/// The whole program.
pub(crate) fn main() -> ExitCode {
    let args = argv::fold_underscores(std::env::args_os());
    let (asks_for_json, names_organisation) = (usage::asks_for_json(&args), names_organisation(&args));
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return misused(&error, asks_for_json, "sallyport --help"),
    };
    // Of a companion's options only this one is parsed here, for the error if the program cannot be started.
    let mut output = cli.global.printing.to_output();
    if asks_for_json && matches!(cli.command, Command::Lab(_) | Command::Kube(_) | Command::Packet(_)) {
        output.format = Format::Json;
    }
    // An empty variable counts as absent. An empty flag is a fault of a script, which must not act for another
    // organisation.
    if names_organisation && cli.global.organisation.as_deref() == Some("") {
        let failure = Failure::usage("--organisation is empty").next("give a name or an id, or leave it out");
        output.failure(&failure);
        return ExitCode::from(failure.kind.exit_code());
    }
    let has_token = cli.global.token.as_ref().is_some_and(|token| !token.is_empty());
    let describe = if has_token { failure::describe_with_token } else { failure::describe };
    match run(cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match describe(&error) {
            None => ExitCode::SUCCESS,
            Some(failure) => {
                output.failure(&failure);
                ExitCode::from(failure.kind.exit_code())
            }
        },
    }
}

fn run(cli: Cli, output: Output) -> anyhow::Result<()> {
    match cli.command {
        Command::SshConfig(args) => return command::client::ssh_config(&args),
        Command::Completion(args) => return args.print("sallyport"),
        Command::Man(args) => {
            let mut root = Cli::command();
            root.build();
            // The pages of the companions are theirs.
            return args.write(&root, &[LAB.name, KUBE.name]);
        }
        Command::Version => return command::version::run(&output),
        Command::Match(command) => return command::hash_match::run(&output, command),
        Command::Prefixes(command) => return command::prefixes::run(&output, command),
        Command::Help(args) => return help::run(&output, &args),
        Command::Lab(args) => return LAB.run(&cli.global, &args),
        Command::Kube(args) => return KUBE.run(&cli.global, &args),
        Command::Packet(args) => return PACKET.run(&cli.global, &args),
        _ => {}
    }
    // The time zone can only be read while there is one thread.
    let offset = UtcOffset::current_local_offset().unwrap_or(UtcOffset::UTC);
    files::allow_many();
    if carries_traffic(&cli.command) {
        // Without that thread, memory returns to the system later.
        #[cfg(feature = "jemalloc")]
        let _ = crate::runtime::memory::give_back_unused();
    }
    files::make_room(if is_daemon(&cli.command) { DAEMON_FILES } else { CONNECTOR_FILES });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(dispatch(cli, output, offset));
    // Blocked reads of a terminal or a resolver must not delay the end.
    runtime.shutdown_background();
    result
}

/// For how many file descriptors the table is prepared, in a server and in other commands.
const DAEMON_FILES: i32 = 65_536;
const CONNECTOR_FILES: i32 = 4_096;

/// Whether a command serves until it is stopped.
fn is_daemon(command: &Command) -> bool {
    matches!(command, Command::Up(_) | Command::Control(_) | Command::Edge(EdgeCommand { command: None, .. }))
}

/// Whether traffic of clients passes through the command. Its settings must not be inherited by programs that a command
/// starts.
fn carries_traffic(command: &Command) -> bool {
    let connects =
        matches!(command, Command::Connect(_) | Command::Run(_) | Command::Tunnel(TunnelCommand::Connect(_)));
    connects || is_daemon(command)
}

async fn dispatch(cli: Cli, output: Output, offset: UtcOffset) -> anyhow::Result<()> {
    let verbose = cli.global.verbose;
    let mut _log = None;
    if !is_daemon(&cli.command) {
        let telemetry = Telemetry {
            verbose,
            default_level: tracing::Level::WARN,
            format: if output.format == Format::Json { LogFormat::Json } else { LogFormat::Text },
            otlp_endpoint: None,
            otlp_ratio: 0.0,
        };
        _log = Some(telemetry.start()?);
    }
    let context = Context::new(cli.global, output, offset);
    match cli.command {
        Command::Up(args) => roles::up::run(args, verbose).await,
        Command::Control(args) => roles::control::run(args, verbose).await,
        Command::Edge(EdgeCommand { command: Some(command), .. }) => command::edge::run(&context, command).await,
        Command::Edge(EdgeCommand { run, .. }) => roles::edge::run(run, verbose).await,
        Command::Catchment(command) => command::catchment::run(&context, command).await,
        Command::Status => command::status::run(&context).await,
        Command::Doctor(args) => command::doctor::run(&context, args).await,
        Command::Ping(args) => command::ping::run(&context, args).await,
        Command::Inspect(command) => command::inspect::run(&context, command).await,
        Command::Link(command) => command::link::run(&context, command).await,
        Command::Account(command) => command::account::run(&context, command).await,
        Command::Login(args) => command::login::login(&context, args).await,
        Command::Logout => command::login::logout(&context).await,
        Command::Connect(args) => command::connect::run(&context, args).await,
        Command::Run(args) => command::run::run(&context, args).await,
        Command::Socket(command) => command::socket::run(&context, command).await,
        Command::Tunnel(command) => command::tunnel::run(&context, command).await,
        Command::Domain(command) => command::domain::run(&context, command).await,
        Command::Anycast(command) => command::anycast::run(&context, command).await,
        Command::Egress(command) => command::egress::run(&context, command).await,
        Command::Balancer(command) => command::balancer::run(&context, command).await,
        Command::Zone(command) => command::zone::run(&context, command).await,
        Command::Cert(command) => command::certificate::run(&context, command).await,
        Command::Policy(command) => command::policy::run(&context, command).await,
        Command::Network(command) => command::network::run(&context, command).await,
        Command::SshKey(command) => command::ssh_key::run(&context, command).await,
        Command::Provider(command) => command::provider::run(&context, command).await,
        Command::Person(command) => command::person::run(&context, command).await,
        Command::LoginSession(command) => command::login_session::run(&context, command).await,
        Command::Client(command) => command::client::run(&context, command).await,
        Command::SshCa(command) => command::ssh_ca::run(&context, command).await,
        Command::Organisation(command) => command::organisation::run(&context, command).await,
        Command::Member(command) => command::member::run(&context, command).await,
        Command::Invitation(command) => command::invitation::run(&context, command).await,
        Command::Token(command) => command::token::run(&context, command).await,
        Command::ServiceToken(command) => command::service_token::run(&context, command).await,
        Command::Audit(args) => command::audit::run(&context, args).await,
        Command::Flow(command) => command::flow::run(&context, command).await,
        Command::Migrate(args) => command::data::migrate(&context, args).await,
        Command::Authority(command) => command::authority::run(&context, command).await,
        Command::Rekey(args) => command::data::rekey(&context, args).await,
        Command::Backup(args) => command::data::backup(&context, args).await,
        Command::Restore(args) => command::data::restore(&context, args).await,
        Command::Trust(command) => command::trust::run(&context, &command),
        Command::SshConfig(_)
        | Command::Completion(_)
        | Command::Man(_)
        | Command::Version
        | Command::Prefixes(_)
        | Command::Match(_)
        | Command::Help(_)
        | Command::Lab(_)
        | Command::Kube(_)
        | Command::Packet(_) => Ok(()),
    }
}

/// Whether the flag itself is in the command line, and not only its environment variable.
fn names_organisation(args: &[std::ffi::OsString]) -> bool {
    let flags = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str());
    let mut names = flags.map(|arg| arg.split_once('=').map_or(arg, |(name, _)| name));
    names.any(|name| name == "--organisation" || name == "--organization")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_argument_takes_the_place_of_one_that_all_commands_have() {
        fn check(command: &clap::Command, global: &[String]) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                let id = argument.get_id().to_string();
                assert!(!global.contains(&id), "{}: {id}", command.get_name());
            }
            command.get_subcommands().for_each(|command| check(command, global));
        }
        let command = Cli::command();
        let global: Vec<_> = command
            .get_arguments()
            .filter(|argument| argument.is_global_set())
            .map(|argument| argument.get_id().to_string())
            .collect();
        assert!(global.contains(&"token".to_owned()), "{global:?}");
        command.get_subcommands().for_each(|command| check(command, &global));
    }

    #[test]
    fn every_option_of_connect_is_an_annotation_or_is_refused_as_one() {
        use sallyport_kube_model::OptionRule;
        let mut root = Cli::command();
        root.build();
        let connect = root.find_subcommand("connect").unwrap();
        let mut options: Vec<_> = connect.get_arguments().filter_map(clap::Arg::get_long).collect();
        options.retain(|option| *option != "help");
        assert!(options.contains(&"health-check") && options.contains(&"token"), "{options:?}");
        for option in &options {
            assert!(OptionRule::of(option).is_some(), "core/kube/src/annotations/table.rs lacks {option}");
        }
        // `weight` is of `tunnel create`; `label` is of sockets.
        let others = sallyport_kube_model::OPTIONS.iter().map(|rule| rule.name);
        let strange: Vec<_> =
            others.filter(|name| !options.contains(name) && !["weight", "label"].contains(name)).collect();
        assert!(strange.is_empty(), "options that connect does not have: {strange:?}");
    }

    #[test]
    fn the_organisation_flag_is_distinguished_from_its_variable() {
        let names = |line: &str| names_organisation(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(names("sallyport socket ls --organisation "));
        assert!(names("sallyport --organization= socket ls"));
        assert!(!names("sallyport socket ls"));
        assert!(!names("sallyport run -- --organisation"));
    }

    #[test]
    fn what_carries_traffic_takes_short_turns_and_what_starts_other_programs_does_not() {
        let carries = |words: &[&str]| carries_traffic(&Cli::try_parse_from(words).unwrap().command);
        for words in [
            &["sallyport", "up"][..],
            &["sallyport", "connect", "--port", "8080"],
            &["sallyport", "run", "services.toml"],
            &["sallyport", "tunnel", "connect", "app", "--port", "8080"],
        ] {
            assert!(carries(words), "{words:?}");
        }
        for words in [
            &["sallyport", "login", "--email", "a@b.c"][..],
            &["sallyport", "socket", "ls"],
            &["sallyport", "tunnel", "ls", "app"],
        ] {
            assert!(!carries(words), "{words:?}");
        }
    }
}
