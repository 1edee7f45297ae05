//! The command line: what can be asked for, and who does it.

use std::process::ExitCode;

use clap::{
    ArgAction, Args, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::engine::ArgValueCompleter;
use time::UtcOffset;

use crate::{
    argv, command,
    command::{
        account::AccountCommand,
        audit::AuditArgs,
        authority::AuthorityCommand,
        client::{ClientCommand, SshConfigArgs},
        connect::ConnectArgs,
        data::{BackupArgs, MigrateArgs, RekeyArgs, RestoreArgs},
        doctor::DoctorArgs,
        edge::EdgeCommand,
        flow::FlowCommand,
        invitation::InvitationCommand,
        lab::LabCommand,
        login::LoginArgs,
        login_session::LoginSessionCommand,
        member::MemberCommand,
        organisation::OrganisationCommand,
        person::PersonCommand,
        policy::PolicyCommand,
        provider::ProviderCommand,
        run::RunArgs,
        service_token::ServiceTokenCommand,
        socket::SocketCommand,
        ssh_ca::SshCaCommand,
        ssh_key::SshKeyCommand,
        token::TokenCommand,
        trust::TrustCommand,
        tunnel::TunnelCommand,
    },
    complete,
    context::Context,
    control_role, edge_role, failure,
    failure::{Failure, Kind},
    help::{self, HelpArgs},
    memory,
    network::ProxyChoice,
    output::{Color, Form, Format, Output},
    telemetry::{LogFormat, Telemetry},
    up,
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

/// Gives a private service a public door
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

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The address of the API, such as https://api.example.com; a local `sallyport up` is found by itself
    #[arg(long, global = true, value_name = "URL", env = "SALLYPORT_API")]
    pub(crate) api: Option<String>,
    /// The root certificate to trust, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_CA")]
    pub(crate) ca: Option<std::path::PathBuf>,
    /// An API token, instead of a login; better in SALLYPORT_TOKEN: other users of the machine can see flags
    #[arg(long, global = true, value_name = "TOKEN", env = "SALLYPORT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The organisation to act for, by name or id, instead of your own or the one chosen with `organisation use`
    #[arg(long, global = true, alias = "organization", value_name = "NAME", env = "SALLYPORT_ORGANISATION")]
    #[arg(add = ArgValueCompleter::new(complete::organisations))]
    pub(crate) organisation: Option<String>,
    /// The proxy on the way to the API and the edge: http://[USER:PASSWORD@]HOST:PORT, socks5://..., or none [default: the one
    /// in HTTPS_PROXY or ALL_PROXY, but not for what NO_PROXY lists]
    #[arg(long, global = true, value_name = "URL", env = "SALLYPORT_PROXY", hide_env_values = true)]
    pub(crate) proxy: Option<ProxyChoice>,
    /// How data is printed
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(help = "How data is printed: table, wide (a table with all its columns), json or yaml")]
    pub(crate) output: Form,
    /// When to use colours: auto, always or never (NO_COLOR is respected)
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Color,
    /// Say more about what happens, on the standard error; twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Sallyport on this machine: control and edge in one process
    Up(up::UpArgs),
    /// Run control: accounts, sockets, policies and edges, without clients of its own
    Control(control_role::ControlArgs),
    /// Run an edge of an installation, or look after its edges
    Edge(EdgeCommand),
    /// Show what runs here, whether the API and the edge answer, who is logged in, and what comes next
    Status,
    /// Check what could be wrong, in the order in which to mend it
    Doctor(DoctorArgs),
    /// Make an account, or show it
    #[command(subcommand)]
    Account(AccountCommand),
    /// Log in; the password is asked for, or comes with SALLYPORT_PASSWORD
    Login(LoginArgs),
    /// Forget the login
    Logout,
    /// Give a service near you a public name until this command is stopped
    Connect(ConnectArgs),
    /// Serve the services of a file until this command is stopped
    Run(RunArgs),
    /// Public names that stay
    #[command(subcommand)]
    Socket(SocketCommand),
    /// The connections that carry a socket's requests to its origins
    #[command(subcommand)]
    Tunnel(TunnelCommand),
    /// Named rules about who may come in, and when, from where and for what
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Keys with which stock ssh clients log in
    #[command(subcommand)]
    SshKey(SshKeyCommand),
    /// Identity providers: who vouches for persons that come to sockets
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Persons who log in with a password, at your provider of kind local
    #[command(subcommand)]
    Person(PersonCommand),
    /// Persons who have logged in to sockets
    #[command(subcommand)]
    LoginSession(LoginSessionCommand),
    /// Enter sockets that ask who comes, with programs that cannot log in
    #[command(subcommand)]
    Client(ClientCommand),
    /// Print what lets a stock ssh reach hosts behind sockets, for ~/.ssh/config
    SshConfig(SshConfigArgs),
    /// Your authority for ssh keys: what hosts behind your sockets trust
    #[command(subcommand)]
    SshCa(SshCaCommand),
    /// Organisations: for whom you act
    #[command(subcommand, alias = "organization")]
    Organisation(OrganisationCommand),
    /// Who belongs to the organisation, and what they may do
    #[command(subcommand)]
    Member(MemberCommand),
    /// Invitations into organisations
    #[command(subcommand)]
    Invitation(InvitationCommand),
    /// API tokens, for programs that cannot type a password
    #[command(subcommand)]
    Token(TokenCommand),
    /// Tokens with which machines come to sockets that ask who comes
    #[command(subcommand)]
    ServiceToken(ServiceTokenCommand),
    /// Who connected to what, and when; who changed what
    Audit(AuditArgs),
    /// The connections that run now
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
    /// Make a data directory of a backup
    Restore(RestoreArgs),
    /// A laboratory: a network of edges, controls and clients in namespaces of this machine, and faults to try on it
    Lab(LabCommand),
    /// Let all programs of this machine trust a Sallyport's certificates
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Print the script that lets a shell complete commands
    Completion(command::completion::CompletionArgs),
    /// Print the version
    Version,
    /// Say what a command does, or something about a topic: names, policies, run, scripts, transports
    Help(HelpArgs),
}

/// The whole program.
pub(crate) fn main() -> ExitCode {
    let args = argv::fold_underscores(std::env::args_os());
    let (asks_for_json, names_organisation) = (asks_for_json(&args), names_organisation(&args));
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return misused(&error, asks_for_json),
    };
    let form = cli.global.output;
    let output = Output::new(form.format(), cli.global.color).wide(form == Form::Wide);
    // An empty variable is as none; an empty flag is a mistake of a script that must not act for another organisation.
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
        Command::Completion(args) => return command::completion::run(&args),
        Command::Version => return command::version::run(&output),
        Command::Help(args) => return help::run(&output, &args),
        _ => {}
    }
    // The zone of the machine can only be asked for while there is one thread.
    let offset = UtcOffset::current_local_offset().unwrap_or(UtcOffset::UTC);
    allow_many_files();
    if carries_traffic(&cli.command) {
        // Where the system refuses the thread, memory goes back later.
        let _ = memory::give_back_unused();
    }
    make_room_for_files(if is_daemon(&cli.command) { DAEMON_FILES } else { CONNECTOR_FILES });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(dispatch(cli, output, offset));
    // What still waits for a terminal or a name server must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Raises the soft bound on open files to the hard one. The soft bound is low only for programs that use select(2); an
/// edge and a connector need a descriptor for each connection.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::debug!(%error, "the bound on open files stays as it is");
    }
}

/// How many descriptors a server, and any other command, has room for before the kernel makes more: eight bytes each.
const DAEMON_FILES: i32 = 65_536;
const CONNECTOR_FILES: i32 = 4_096;

/// Has the kernel make room for so many descriptors while there is one thread. It doubles the table of a process that has
/// several only after a grace period of RCU, for which the thread that wants a descriptor stands still: 5 to 20 ms,
/// at 64 descriptors, at 128, and so on.
fn make_room_for_files(count: i32) {
    use rustix::process::{Resource, getrlimit};
    let bound = getrlimit(Resource::Nofile).current.and_then(|bound| i32::try_from(bound).ok());
    let last = bound.map_or(count, |bound| bound.min(count)) - 1;
    // Where it cannot, the room grows when it is needed.
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last));
}

/// Whether a command serves others for as long as it is let.
fn is_daemon(command: &Command) -> bool {
    matches!(command, Command::Up(_) | Command::Control(_) | Command::Edge(EdgeCommand { command: None, .. }))
}

/// Whether a command carries the requests and connections of others.
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
        Command::Up(args) => up::run(args, verbose).await,
        Command::Control(args) => control_role::run(args, verbose).await,
        Command::Edge(EdgeCommand { command: Some(command), .. }) => command::edge::run(&context, command).await,
        Command::Edge(EdgeCommand { run, .. }) => edge_role::run(run, verbose).await,
        Command::Status => command::status::run(&context).await,
        Command::Doctor(args) => command::doctor::run(&context, args).await,
        Command::Account(command) => command::account::run(&context, command).await,
        Command::Login(args) => command::login::login(&context, args).await,
        Command::Logout => command::login::logout(&context).await,
        Command::Connect(args) => command::connect::run(&context, args).await,
        Command::Run(args) => command::run::run(&context, args).await,
        Command::Socket(command) => command::socket::run(&context, command).await,
        Command::Tunnel(command) => command::tunnel::run(&context, command).await,
        Command::Policy(command) => command::policy::run(&context, command).await,
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
        Command::Lab(command) => command::lab::run(&context, command).await,
        Command::Trust(command) => command::trust::run(&context, &command),
        Command::SshConfig(_) | Command::Completion(_) | Command::Version | Command::Help(_) => Ok(()),
    }
}

/// Tells what is wrong with the command line; help that was asked for is no failure.
fn misused(error: &clap::Error, as_json: bool) -> ExitCode {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if as_json && !is_help {
        let next = suggestion(error).unwrap_or_else(|| "see `sallyport --help`".to_owned());
        let failure = Failure::usage(sentence(&error.render().to_string())).next(next);
        Output::new(Format::Json, Color::Never).failure(&failure);
    } else {
        // Nothing can be done when even this cannot be printed.
        drop(error.print());
    }
    if is_help { ExitCode::SUCCESS } else { ExitCode::from(Kind::Usage.exit_code()) }
}

/// The word that was probably meant, where one is near.
fn suggestion(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let near = kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // The nearest is the last.
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    })?;
    Some(format!("did you mean {near}?"))
}

/// The first paragraph of what is wrong, which may name arguments in lines below, as one line.
pub(crate) fn sentence(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let paragraph = lines.collect::<Vec<_>>().join(" ");
    paragraph.trim_start_matches("error: ").to_owned()
}

/// Whether the flag itself stands in the command line, and not only its variable in the environment.
fn names_organisation(args: &[std::ffi::OsString]) -> bool {
    let flags = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str());
    let mut names = flags.map(|arg| arg.split_once('=').map_or(arg, |(name, _)| name));
    names.any(|name| name == "--organisation" || name == "--organization")
}

/// Whether a command line that cannot be parsed asks for JSON all the same.
fn asks_for_json(args: &[std::ffi::OsString]) -> bool {
    args.windows(2).any(|two| (two[0] == "-o" || two[0] == "--output") && two[1] == "json")
        || args.iter().any(|arg| arg == "-ojson" || arg == "-o=json" || arg == "--output=json")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

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
    fn what_is_missing_is_named_in_one_line() {
        let error = Cli::try_parse_from(["sallyport", "account", "create"]).unwrap_err().render().to_string();
        let said = "the following required arguments were not provided: --name <NAME> --email <EMAIL>";
        assert_eq!(sentence(&error), said);
        assert_eq!(sentence("error: unexpected argument '--x' found\n\nUsage: y"), "unexpected argument '--x' found");
    }

    #[test]
    fn json_is_recognised_in_a_line_that_cannot_be_parsed() {
        let asks = |line: &str| asks_for_json(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(asks("sallyport nonsense -o json"));
        assert!(asks("sallyport --output=json nonsense"));
        assert!(!asks("sallyport -o yaml json"));
    }

    #[test]
    fn a_flag_of_the_organisation_is_told_from_its_variable() {
        let names = |line: &str| names_organisation(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(names("sallyport socket ls --organisation "));
        assert!(names("sallyport --organization= socket ls"));
        assert!(!names("sallyport socket ls"));
        assert!(!names("sallyport run -- --organisation"));
    }

    #[test]
    fn what_carries_traffic_is_told_from_what_starts_other_programs() {
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
