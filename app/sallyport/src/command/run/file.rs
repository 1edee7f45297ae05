//! The file of `sallyport run`, which describes services with the options of `connect` and `tunnel connect`.
//!
//! A table of the file becomes the arguments of a command line, and clap parses them. So keys, defaults and errors are
//! those of the commands.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use sallyport_api::{CreateSocket, Secret};
use sallyport_cli::usage::sentence;
use sallyport_client::{SocketRef, TunnelRef};
use sallyport_connector::MAX_SERVICES;
use sallyport_model::{DisplayName, OriginAddr, PathRoute, SocketType};
use sallyport_net::Trust;
use sallyport_policy::{AccessList, Rule};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::content::{FileContent, Look, NamedDigest, ORIGIN_CA, SERVICE, digest, folded};
use crate::{
    command::{
        connect, display_name,
        hold::{OriginArgs, TransportArgs},
        socket::request::SocketRequest,
        tunnel,
    },
    failure::{self, Failure, Kind},
};

/// The keys of a service with an existing socket.
const LASTING: [&str; 3] = ["socket-id", "tunnel-id", "tunnel-credential"];
/// The keys that may change without a new tunnel.
const OF_ORIGIN: [&str; 7] =
    ["port", "address", "host", ORIGIN_CA, "origin-pin", "origin-server-name", "connect-timeout"];
/// Global options, which apply to all services.
const OF_ALL: [&str; 6] = ["api", "ca", "token", "proxy", "output", "color"];
/// Keys that only the file's owner may read.
const SECRETS: [&str; 2] = ["password", "tunnel-credential"];

/// Options of `tunnel connect`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct LastingLine {
    #[command(flatten)]
    args: tunnel::ConnectArgs,
}

/// Options of `connect`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct TemporaryLine {
    #[command(flatten)]
    args: connect::ConnectArgs,
}

/// The keys above the services.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct TransportLine {
    #[command(flatten)]
    way: TransportArgs,
}

/// The content of the file.
#[derive(Debug)]
pub(super) struct ServiceFile {
    /// The connection to the edge.
    pub(super) way: TransportArgs,
    /// The same, as options.
    pub(super) way_words: Vec<String>,
    /// The services in order; names are unique.
    pub(super) services: Vec<ServiceSpec>,
}

/// One service of the file.
#[derive(Debug)]
pub(super) struct ServiceSpec {
    /// The name of the service.
    pub(super) name: String,
    /// Its place, for failures.
    pub(super) place: FilePlace,
    /// The options of the tunnel and its socket.
    pub(super) tunnel_words: Vec<String>,
    /// The options of the service itself.
    pub(super) origin_words: Vec<String>,
    /// The digest of its authority, if it names one.
    pub(super) authority: NamedDigest,
    /// What to open.
    pub(super) plan: Plan,
}

/// What to open for a service.
#[derive(Debug)]
pub(super) enum Plan {
    /// A tunnel of an existing socket.
    Lasting {
        /// The socket.
        socket: SocketRef,
        /// The tunnel; a new one if absent.
        tunnel: Option<TunnelRef>,
        /// Its credential, with which no login is needed.
        credential: Option<Secret>,
        /// The type of the service, if the API is not asked.
        socket_type: Option<SocketType>,
        /// The paths of a tunnel that is made.
        path: Box<PathRoute>,
        /// The service.
        origin: Box<OriginArgs>,
    },
    /// The socket of the service's name, or a temporary one, with the services of its other paths.
    Requested(Box<SocketRequest>),
}

impl Plan {
    /// The addresses of its services.
    pub(super) fn addresses(&self) -> Vec<OriginAddr> {
        match self {
            Self::Lasting { origin, .. } => vec![origin.address()],
            Self::Requested(request) => request.addresses(),
        }
    }
}

/// A place in a file.
#[derive(Debug, Clone)]
pub(super) struct FilePlace {
    file: PathBuf,
    line: usize,
    service: Option<String>,
}

impl FilePlace {
    /// Adds this place to a failure.
    pub(super) fn failure(&self, failure: Failure) -> Failure {
        let service = self.service.as_ref().map(|name| format!("service {name:?}: ")).unwrap_or_default();
        let message = format!("{}:{}: {service}{}", self.file.display(), self.line, failure.message);
        Failure { message, ..failure }
    }

    /// Adds this place to an error.
    pub(super) fn error(&self, error: anyhow::Error) -> anyhow::Error {
        match failure::describe(&error) {
            Some(failure) => self.failure(failure).into(),
            None => error,
        }
    }
}

/// A key with its value.
struct Entry<'a> {
    key: String,
    value: &'a Spanned<DeValue<'a>>,
}

/// The commands as clap knows them, built once for all services.
struct CommandLines {
    lasting: Command,
    temporary: Command,
    way: Command,
}

impl CommandLines {
    fn new() -> Self {
        // A credential in the environment cannot be that of every service.
        let lasting = LastingLine::command().mut_arg("tunnel_credential", |arg| arg.env(None::<&str>));
        Self { lasting, temporary: TemporaryLine::command(), way: TransportLine::command() }
    }
}

impl ServiceFile {
    /// Checks what was read from this path.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn of(path: &Path, look: &Look) -> anyhow::Result<Self> {
        // All errors count as errors of the file.
        Self::judge(path, look).map_err(|error| match failure::describe(&error) {
            Some(failure) => Failure { kind: Kind::Usage, ..failure }.into(),
            None => error,
        })
    }

    fn judge(path: &Path, look: &Look) -> anyhow::Result<Self> {
        let FileContent { text, is_readable_by_all } = look.content.as_ref().map_err(Clone::clone)?;
        let place = |at: usize, service: Option<String>| {
            let line = 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
            FilePlace { file: path.to_owned(), line, service }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            place(at, None).failure(Failure::usage(error.message().lines().collect::<Vec<_>>().join(": ")))
        })?;
        let mut lines = CommandLines::new();
        let (tables, above): (Vec<_>, Vec<_>) =
            table.get_ref().iter().partition(|(key, _)| &**key.get_ref() == SERVICE);
        let (way, way_words) = read_way(&mut lines, &above, &place)?;
        let Some((_, services)) = tables.first() else {
            return Err(place(0, None).failure(no_service()).into());
        };
        let DeValue::Array(services) = services.get_ref() else {
            return Err(place(services.span().start, None).failure(no_service()).into());
        };
        if services.is_empty() {
            return Err(place(0, None).failure(no_service()).into());
        }
        if services.len() > MAX_SERVICES {
            let many = format!("a connector has at most {MAX_SERVICES} services, and these are {}", services.len());
            return Err(place(0, None).failure(Failure::usage(many).next("share them out to several files")).into());
        }
        let mut specs: Vec<ServiceSpec> = Vec::with_capacity(services.len());
        let mut named: HashMap<String, usize> = HashMap::new();
        for (index, service) in services.iter().enumerate() {
            let start = service.span().start;
            let DeValue::Table(table) = service.get_ref() else {
                return Err(place(start, None).failure(no_service()).into());
            };
            let entries = table.iter().map(|(key, value)| Entry { key: folded(key.get_ref()), value }).collect();
            let spec = read_service(&mut lines, entries, (index + 1, start), &place)?;
            if *is_readable_by_all && let Some(secret) = spec.secret() {
                return Err(spec.place.failure(readable(secret, path)).into());
            }
            // Names that differ only in case are the same socket.
            let key = spec.name.parse().map_or_else(|_| spec.name.clone(), |name: DisplayName| name.key());
            if let Some(former) = named.insert(key, spec.place.line) {
                let taken = format!("the service of line {former} has the same name");
                return Err(spec.place.failure(Failure::usage(taken).next("give each a `name` of its own")).into());
            }
            specs.push(spec);
        }
        let count = specs.iter().map(ServiceSpec::count).sum::<usize>();
        if count > MAX_SERVICES {
            let many =
                format!("a connector has at most {MAX_SERVICES} services, and these are {count} with their paths");
            return Err(place(0, None).failure(Failure::usage(many).next("share them out to several files")).into());
        }
        Ok(Self { way, way_words, services: specs })
    }
}

impl ServiceSpec {
    /// How many services it has, by its paths.
    fn count(&self) -> usize {
        match &self.plan {
            Plan::Requested(request) => 1 + request.others.len(),
            Plan::Lasting { .. } => 1,
        }
    }

    /// The first key that only the file's owner may read.
    fn secret(&self) -> Option<&'static str> {
        let is_said = |key: &str| self.tunnel_words.iter().any(|word| word.starts_with(&format!("--{key}=")));
        SECRETS.into_iter().find(|key| is_said(key))
    }
}

fn no_service() -> Failure {
    Failure::usage("there is no service").next("each is a table [[service]] with the options of `connect` as its keys")
}

fn readable(secret: &str, path: &Path) -> Failure {
    Failure::usage(format!("every user of this machine can read the {secret} that stands here"))
        .next(format!("make it private: `chmod 600 {}`", path.display()))
}

fn read_way(
    lines: &mut CommandLines,
    above: &[(&Spanned<toml::de::DeString<'_>>, &Spanned<DeValue<'_>>)],
    place: &impl Fn(usize, Option<String>) -> FilePlace,
) -> anyhow::Result<(TransportArgs, Vec<String>)> {
    let mut words = Vec::new();
    for (key, value) in above {
        let at = place(key.span().start, None);
        let key = folded(key.get_ref());
        if find(&lines.way, &key).is_none() && (find(&lines.temporary, &key).is_some() || LASTING.contains(&&*key)) {
            let text = format!("{key} is for a service");
            return Err(at.failure(Failure::usage(text).next("put it below a [[service]]")).into());
        }
        refuse_of_all(&key).map_err(|failure| at.failure(failure))?;
        words.extend(word(&lines.way, &key, value.get_ref()).map_err(|failure| at.failure(failure))?);
    }
    let at = place(0, None);
    let matches = lines.way.try_get_matches_from_mut(&words).map_err(|error| at.failure(refused(&error)))?;
    let line = TransportLine::from_arg_matches(&matches).map_err(|error| at.failure(refused(&error)))?;
    line.way.links().map_err(|failure| at.failure(failure))?;
    Ok((line.way, words))
}

fn read_service(
    lines: &mut CommandLines,
    entries: Vec<Entry<'_>>,
    (number, start): (usize, usize),
    place: &impl Fn(usize, Option<String>) -> FilePlace,
) -> anyhow::Result<ServiceSpec> {
    let text_of = |wanted: &str| {
        let value = entries.iter().find(|entry| entry.key == wanted)?.value.get_ref();
        if let DeValue::String(text) = value { Some(text.to_string()) } else { None }
    };
    let is_lasting = entries.iter().any(|entry| LASTING.contains(&&*entry.key));
    let given_name = text_of("name").or_else(|| if is_lasting { text_of("socket-id") } else { None });
    let called = given_name.clone().unwrap_or_else(|| number.to_string());
    let at = |at: usize| place(at, Some(called.clone()));
    let of_key =
        |key: &str| entries.iter().find(|entry| entry.key == key).map_or(start, |entry| entry.value.span().start);
    let has_port = entries.iter().any(|entry| entry.key == "port" || entry.key == "address");
    let refused = |error: &clap::Error| {
        let is_without_port = error.kind() == ErrorKind::MissingRequiredArgument && !has_port;
        let no_port = || {
            Failure::usage("port is missing").next(
                "add the port that the service listens on: port = 8000, or where it is: address = \"localhost:8000\"",
            )
        };
        let is_without_socket = error.kind() == ErrorKind::MissingRequiredArgument
            && is_lasting
            && entries.iter().all(|entry| entry.key != "socket-id");
        let no_socket = || Failure::usage("socket-id is missing").next("name the socket: socket-id = \"shop\"");
        let failure = match (is_without_port, is_without_socket) {
            (true, _) => no_port(),
            (false, true) => no_socket(),
            (false, false) => refused(error),
        };
        at(of_key(blamed(error).unwrap_or_default())).failure(failure)
    };
    let table = at(start);
    let line = if is_lasting { &lines.lasting } else { &lines.temporary };
    let (mut tunnel_words, mut origin_words) = (Vec::new(), Vec::new());
    for Entry { key, value } in &entries {
        let word = words_of_service(&lines.way, line, key, value.get_ref(), is_lasting);
        let word = word.map_err(|failure| at(value.span().start).failure(failure))?;
        if OF_ORIGIN.contains(&&**key) { origin_words.extend(word) } else { tunnel_words.extend(word) }
    }
    let words: Vec<_> = tunnel_words.iter().chain(&origin_words).collect();
    let line = if is_lasting { &mut lines.lasting } else { &mut lines.temporary };
    let matches = line.try_get_matches_from_mut(words).map_err(|error| refused(&error))?;
    let (name, plan) = if is_lasting {
        let line = LastingLine::from_arg_matches(&matches).map_err(|error| refused(&error))?;
        let name = given_name.unwrap_or_else(|| number.to_string());
        display_name(&name).map_err(|failure| at(of_key("name")).failure(failure))?;
        (name, lasting(line.args).map_err(|error| table.error(error))?)
    } else {
        let line = TemporaryLine::from_arg_matches(&matches).map_err(|error| refused(&error))?;
        let request = requested(line.args).map_err(|error| table.error(error))?;
        judge_access(&request.create).map_err(|(key, failure)| at(of_key(key)).failure(failure))?;
        (request.create.name.as_str().to_owned(), Plan::Requested(Box::new(request)))
    };
    let authority = authority(&origin_words).map_err(|failure| at(of_key(ORIGIN_CA)).failure(failure))?;
    Ok(ServiceSpec { place: place(start, Some(name.clone())), name, tunnel_words, origin_words, authority, plan })
}

/// The digest of the authority that a service names, which must be usable.
fn authority(origin_words: &[String]) -> Result<NamedDigest, Failure> {
    let named = origin_words.iter().find_map(|word| word.strip_prefix("--origin-ca="));
    let Some(path) = named.map(PathBuf::from) else { return Ok(None) };
    let digest = digest(&path);
    sallyport_net::roots(&Trust::Ca(path)).map_err(|error| Failure::usage(format!("{ORIGIN_CA}: {error}")))?;
    Ok(digest)
}

/// Refuses access rules that the server would refuse, except for missing databases, which only the server knows.
fn judge_access(create: &CreateSocket) -> Result<(), (&'static str, Failure)> {
    let Some(access) = &create.access else { return Ok(()) };
    let rules = |key: &'static str, texts: &[String]| {
        let rule = |text: &String| {
            let wrong = |error: sallyport_policy::RuleError| (key, Failure::usage(format!("{key}: {error}")));
            text.parse::<Rule>().map_err(wrong)
        };
        texts.iter().map(rule).collect::<Result<Vec<_>, _>>()
    };
    let list = AccessList { allow: rules("allow", &access.allow)?, deny: rules("deny", &access.deny)? };
    list.compile().map(drop).map_err(|error| ("allow", Failure::usage(error.to_string())))
}

/// The key that clap complains about.
fn blamed(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg.split(' ').next()?.strip_prefix("--"),
        _ => None,
    }
}

fn lasting(args: tunnel::ConnectArgs) -> anyhow::Result<Plan> {
    let tunnel::Connection { socket, tunnel, credential, socket_type, path, origin } = args.read()?;
    if credential.is_some() {
        tunnel.as_ref().map(tunnel::whole_id).transpose()?;
        // The type is known without the API: options that do not fit fail here.
        origin.clone().prepare(socket_type.unwrap_or(SocketType::Http))?;
    }
    let (path, origin) = (Box::new(path), Box::new(origin));
    Ok(Plan::Lasting { socket, tunnel, credential, socket_type, path, origin })
}

fn requested(args: connect::ConnectArgs) -> anyhow::Result<SocketRequest> {
    if args.asks_for_password() {
        return Err(Failure::usage("`run` does not prompt for the password of a protected service")
            .next("add password = \"...\", or set SALLYPORT_SOCKET_PASSWORD")
            .into());
    }
    args.read()
}

/// The arguments for a key of a service.
fn words_of_service(
    way: &Command,
    line: &Command,
    key: &str,
    value: &DeValue<'_>,
    is_lasting: bool,
) -> Result<Vec<String>, Failure> {
    if find(way, key).is_some() {
        return Err(Failure::usage(format!("{key} is for all services: they share one connection to the edge"))
            .next("put it above the first [[service]]"));
    }
    refuse_of_all(key)?;
    if key == "password-stdin" {
        return Err(Failure::usage("the standard input cannot give the passwords of services")
            .next("use password, or set SALLYPORT_SOCKET_PASSWORD"));
    }
    if is_lasting && key == "name" {
        // The socket is named elsewhere; this name is for output and failures.
        let DeValue::String(_) = value else { return Err(Failure::usage("name: expected a text")) };
        return Ok(Vec::new());
    }
    word(line, key, value)
}

fn refuse_of_all(key: &str) -> Result<(), Failure> {
    if OF_ALL.contains(&key) {
        return Err(Failure::usage(format!("{key} is for the whole command"))
            .next(format!("say it on the command line, as --{key}, or in the environment")));
    }
    Ok(())
}

fn find<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(key))
}

/// The arguments for a key and its value: none for a flag that is off, and one for each item of a list.
fn word(line: &Command, key: &str, value: &DeValue<'_>) -> Result<Vec<String>, Failure> {
    let Some(arg) = find(line, key) else {
        let looks_like_one = key.starts_with(|c: char| c.is_ascii_alphabetic())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        // Left to clap, which suggests similar names.
        return if looks_like_one {
            Ok(vec![format!("--{key}")])
        } else {
            Err(Failure::usage(format!("{key:?} is no option")))
        };
    };
    let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
    let wrong = |expected: &str| Err(Failure::usage(format!("{key}: expected {expected}")));
    match value {
        DeValue::Boolean(is_on) if is_flag => Ok(is_on.then(|| format!("--{key}")).into_iter().collect()),
        _ if is_flag => wrong("true or false"),
        DeValue::Array(items) if arg.get_value_delimiter() == Some(',') => {
            let items: Option<Vec<String>> = items.iter().map(|item| scalar(item.get_ref())).collect();
            match items {
                Some(items) => Ok(vec![format!("--{key}={}", items.join(","))]),
                None => wrong("a list of texts"),
            }
        }
        DeValue::Array(items) if matches!(arg.get_action(), ArgAction::Append) => {
            let item = |item: &Spanned<DeValue<'_>>| Some(format!("--{key}={}", scalar(item.get_ref())?));
            items.iter().map(item).collect::<Option<_>>().map_or_else(|| wrong("a list of texts"), Ok)
        }
        DeValue::Array(_) => wrong("one value, and no list"),
        value => match scalar(value) {
            Some(text) => Ok(vec![format!("--{key}={text}")]),
            None => wrong("a text or a number"),
        },
    }
}

/// The value as a command-line argument.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            // With TOML's notations, such as 0x1F. A number that is too large is refused later.
            let value = i64::from_str_radix(number.as_str(), number.radix());
            Some(value.map_or_else(|_| number.to_string(), |value| value.to_string()))
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// The error of clap, in one sentence.
fn refused(error: &clap::Error) -> Failure {
    let failure = Failure::usage(sentence(&error.render().to_string()));
    match error.get(ContextKind::SuggestedArg) {
        Some(similar) => failure.next(format!("a similar option exists: {similar}")),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use sallyport_model::MaxRps;

    use super::*;

    fn parsed(text: &str) -> Result<ServiceFile, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        ServiceFile::of(&path, &Look::at(&path)).map_err(|error| {
            let failure = failure::describe(&error).unwrap();
            let message = failure.message.replace(&format!("{}/", dir.path().display()), "");
            Failure { message, ..failure }
        })
    }

    #[test]
    fn services_have_the_options_of_the_commands() {
        let file = parsed(
            r#"
            keepalive = "5s"
            max_legs = 16

            [[service]]
            name = "shop"
            port = 8000
            allow = ["10.0.0.0/8", "country:CH"]
            no-passthrough = false

            [[service]]
            socket-id = "wandering-shape-7752"
            port = 0x1538
            host = "db.internal"

            [[service]]
            port = 8001
            "#,
        )
        .unwrap();
        assert_eq!(file.way_words, ["--keepalive=5s", "--max-legs=16"]);
        let names: Vec<_> = file.services.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["shop", "wandering-shape-7752", "localhost:8001"]);
        let [shop, database, _] = &file.services[..] else { panic!() };
        let Plan::Requested(request) = &shop.plan else { panic!() };
        let access = request.create.access.clone().unwrap();
        assert_eq!((access.allow.len(), request.origin.address().to_string().as_str()), (2, "localhost:8000"));
        assert!(request.is_named, "its socket stays");
        assert_eq!(database.origin_words, ["--host=db.internal", "--port=5432"]);
        let Plan::Lasting { origin, tunnel: None, credential: None, .. } = &database.plan else { panic!() };
        assert_eq!(origin.address().to_string(), "db.internal:5432");
    }

    #[test]
    fn several_services_stand_under_one_name() {
        let file = parsed(
            r#"
            [[service]]
            name = "shop"
            port = 3000
            path = ["/api=8000", "/docs=http://localhost:9000/v2"]
            request-header = ["X-From: a, b", "X-More: c"]

            [[service]]
            socket-id = "wandering-shape-7752"
            address = "https://127.0.0.1:4443"
            path = "/admin"
            strip-path = true
            "#,
        )
        .unwrap();
        let [shop, admin] = &file.services[..] else { panic!() };
        let Plan::Requested(request) = &shop.plan else { panic!() };
        let services = request.services(SocketType::Http).unwrap();
        let services: Vec<_> = services.iter().map(|one| format!("{} {}", one.path.prefix, one.origin)).collect();
        assert_eq!(services, ["/ http://localhost:3000", "/api http://localhost:8000", "/docs http://localhost:9000"]);
        let headers = request.create.headers.clone().unwrap();
        assert_eq!(headers.request.set.len(), 2);
        assert_eq!(headers.request.set[0].value, "a, b");
        let Plan::Lasting { path, origin, .. } = &admin.plan else { panic!() };
        assert_eq!((path.prefix.as_str(), path.rewrite.as_ref().unwrap().as_str()), ("/admin", "/"));
        assert_eq!(origin.address().to_string(), "127.0.0.1:4443");
    }

    #[test]
    fn services_say_what_they_can_carry() {
        let file = parsed(
            r#"
            [[service]]
            port = 3000
            path = ["/api=8000"]
            max-connections = 9
            max-rps = 200

            [[service]]
            socket-id = "wandering-shape-7752"
            port = 5432
            max_rps = "auto"
            origin-max-connections = 5
            shared-capacity = "db"
            "#,
        )
        .unwrap();
        let [shop, database] = &file.services[..] else { panic!() };
        let Plan::Requested(request) = &shop.plan else { panic!() };
        let services = request.services(SocketType::Http).unwrap();
        let limits = services.iter().map(|service| service.tunnel().capacity.unwrap().max_rps);
        assert!(limits.eq([Some(MaxRps::Declared(200)); 2]));
        assert_eq!(request.create.limits.as_ref().unwrap().max_connections, Some(9), "that is the socket's");
        let Plan::Lasting { origin, .. } = &database.plan else { panic!() };
        let capacity = origin.capacity().get().unwrap().unwrap();
        assert_eq!((capacity.max_rps, capacity.max_connections), (Some(MaxRps::Learned), Some(5)));
        assert!(database.tunnel_words.contains(&"--max-rps=auto".to_owned()), "a new limit is for a new tunnel");
    }

    #[test]
    fn errors_are_one_sentence_with_their_place() {
        let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
        for (text, message) in [
            ("", "services.toml:1: there is no service"),
            ("[service]\nport = 1", "there is no service"),
            ("service = [1]", "there is no service"),
            ("[[service]]\nport = 80 80", "services.toml:2: "),
            ("[[service]]\nport = 70000", "services.toml:2: service \"1\": invalid value '70000' for '--port <PORT>'"),
            ("[[service]]\nname = \"a\"", "services.toml:1: service \"a\": port is missing"),
            (
                "[[service]]\nname = \"a\"\nprot = 1",
                "services.toml:3: service \"a\": unexpected argument '--prot' found",
            ),
            ("[[service]]\n\"\" = 1\nport = 1", "\"\" is no option"),
            ("[[service]]\nport = 1\nallow = [\"10.0.0.0/33\"]", "services.toml:3: service \"1\": allow: "),
            ("[[service]]\nport = 1\n\ndeny = [\"country:Switzerland\"]", "services.toml:4: service \"1\": deny: "),
            ("[[service]]\nport = 1\nmax-rps = 0", "services.toml:3: service \"1\": invalid value '0' for '--max-rps"),
            ("[[service]]\nport = 1\nmax-rps = \"fast\"", "invalid value 'fast' for '--max-rps <RPS|auto>'"),
            ("[[service]]\nport = 1\norigin-max-connections = -1", "'--origin-max-connections <COUNT>'"),
            ("[[service]]\nport = 1\nshared-capacity = \"db\"", "--shared-capacity needs a limit"),
            ("[[service]]\nsocket-id = \"a-b-1000\"\nport = 1\nmax-connections = 5", "unexpected argument '--max-conn"),
            (
                "[[service]]\nsocket-id = \"a-b-1000\"\ntunnel-id = \"web-1\"\nport = 1\nmax-rps = 5",
                "a tunnel that there is has its limits already",
            ),
            ("[[service]]\nport = [1, 2]", "port: expected one value, and no list"),
            ("[[service]]\nport = 1979-05-27", "port: expected a text or a number"),
            ("[[service]]\nport = 1\npassthrough = 1", "passthrough: expected true or false"),
            ("[[service]]\nport = 1\ntype = \"gopher\"", "invalid value 'gopher' for '--type <TYPE>'"),
            ("[[service]]\nport = 1\nkeepalive = \"1s\"", "keepalive is for all services"),
            ("[[service]]\nport = 1\napi = \"https://a\"", "api is for the whole command"),
            ("port = 1\n[[service]]\nport = 1", "services.toml:1: port is for a service"),
            ("keepalive = \"soon\"\n[[service]]\nport = 1", "invalid value 'soon' for '--keepalive <TIME>'"),
            ("[[service]]\nport = 1\nprotected = true\nusername = \"a\"", "does not prompt"),
            ("[[service]]\nport = 1\npassword-stdin = true", "standard input cannot give"),
            ("[[service]]\nport = 1\norigin-server-name = \"a\"", "are for HTTPS services"),
            (
                "[[service]]\nport = 1\n[[service]]\nport = 1",
                "services.toml:3: service \"localhost:1\": the service of line 1",
            ),
            ("[[service]]\nsocket-id = \"http://no-socket\"\nport = 1", "is not a socket"),
            (
                "[[service]]\nname = \"Shop\"\nport = 1\n[[service]]\nname = \"shop\"\nport = 2",
                "service \"shop\": the service of line 1 has the same name",
            ),
            (
                "[[service]]\nsocket-id = \"a-b-1000\"\nport = 1\nallow = \"10.0.0.0/8\"",
                "unexpected argument '--allow'",
            ),
            ("[[service]]\nsocket-id = \"a-b-1000\"\nport = 1\nname = \"a\\u202eb\"", "cannot be a name"),
            ("[[service]]\nname = 1\nport = 1\ntunnel-credential = \"x\"", "name: expected a text"),
            (&format!("[[service]]\ntunnel-id = \"{id}\"\nport = 1"), "socket-id is missing"),
        ] {
            let failure = parsed(text).unwrap_err();
            assert!(failure.message.contains(message), "{text}: {}", failure.message);
            assert_eq!((failure.kind.exit_code(), failure.message.contains('\n')), (2, false), "{text}");
        }
        let similar = parsed("[[service]]\nprot = 1").unwrap_err();
        assert_eq!(similar.next_step.as_deref(), Some("a similar option exists: --port"));
        let many = "[[service]]\nport = 1\n".repeat(MAX_SERVICES + 1);
        assert!(parsed(&many).unwrap_err().message.contains("at most 1024 services"));
    }

    #[test]
    fn secrets_that_everybody_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.toml");
        std::fs::write(&path, "[[service]]\nport = 1\nprotected = true\nusername = \"a\"\npassword = \"abc\"").unwrap();
        for (mode, is_taken) in [(0o644, false), (0o600, true), (0o640, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(ServiceFile::of(&path, &Look::at(&path)).is_ok(), is_taken, "{mode:o}");
        }
        std::fs::write(&path, "[[service]]\nport = 1").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(ServiceFile::of(&path, &Look::at(&path)).is_ok());
    }
}
