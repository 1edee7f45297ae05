//! Private services on the command line: a port, an address or a URL, and the paths that they serve.

use std::{fmt, str::FromStr};

use clap::{ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};
use sallyport_model::{OriginAddr, PathPrefix, PathRoute, SocketType};

use crate::{args::port, failure::Failure};

/// The expected forms of a service, for errors.
const EXPECTED: &str =
    "expected a port from 1 to 65535, or an address such as localhost:8000 or https://127.0.0.1:4443";

/// A service on the command line: `8000`, `localhost:8000`, `[::1]:8000`, `https://127.0.0.1:4443`,
/// `tcp://db.internal:5432`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    /// Its type, if there is a scheme.
    pub(crate) scheme: Option<SocketType>,
    /// Its host, if there is one.
    pub(crate) host: Option<String>,
    /// Its port.
    pub(crate) port: u16,
    /// The path in the URL, under which its paths are.
    pub(crate) path: Option<PathPrefix>,
}

impl From<u16> for ServiceAddress {
    fn from(port: u16) -> Self {
        Self { scheme: None, host: None, port, path: None }
    }
}

impl FromStr for ServiceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return port::parse(text).map(Self::from);
        }
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some((scheme, rest)) => {
                let known = scheme.to_ascii_lowercase().parse::<SocketType>();
                let wrong = "expected http://, https://, tcp://, tls:// or udp:// before the host";
                (Some(known.map_err(|_| wrong.to_owned())?), rest)
            }
        };
        if rest.contains(['?', '#']) {
            return Err("leave out what follows ? or #: a service is a host and a port, and a path at most".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            let how = "leave out the user name: to send one to the service, add --request-header 'Authorization: ...'";
            return Err(how.to_owned());
        }
        let path = match path {
            "" | "/" => None,
            path => Some(path.parse::<PathPrefix>().map_err(|error| error.to_string())?),
        };
        if path.is_some() && scheme.is_some_and(|scheme| !scheme.is_http()) {
            return Err("leave out the path: only http and https services have paths".to_owned());
        }
        let usual = match scheme {
            Some(SocketType::Http) => ":80",
            Some(SocketType::Https) => ":443",
            _ => "",
        };
        let is_portless = authority.starts_with('[') && authority.ends_with(']') || !authority.contains(':');
        if is_portless && usual.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        let address = if is_portless { format!("{authority}{usual}") } else { authority.to_owned() };
        let OriginAddr { host, port } =
            address.parse().map_err(
                |error: sallyport_model::OriginAddrError| {
                    if authority.is_empty() { EXPECTED.to_owned() } else { error.to_string() }
                },
            )?;
        Ok(Self { scheme, host: Some(host), port, path })
    }
}

/// The service, as an argument or an option.
#[derive(Debug, Clone)]
pub(crate) struct ServiceArg(pub(crate) ServiceAddress);

#[derive(Args)]
#[group(id = "service_port", required = true, multiple = false)]
struct ServiceWords {
    /// The port or address of the service: 8000, localhost:8000, [::1]:8000 or https://127.0.0.1:4443
    #[arg(id = "port_of_service", value_name = "SERVICE", value_parser = ServiceAddress::from_str)]
    #[arg(allow_negative_numbers = true, help_heading = None::<&str>)]
    word: Option<ServiceAddress>,
    /// The port of the service, as an option
    #[arg(id = "port", long, value_name = "PORT", value_parser = port::parse, allow_negative_numbers = true)]
    option: Option<u16>,
    /// The address of the service, as an option: localhost:8000, https://127.0.0.1:4443
    #[arg(id = "address", long, value_name = "SERVICE", value_parser = ServiceAddress::from_str)]
    address: Option<ServiceAddress>,
}

impl FromArgMatches for ServiceArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = ServiceWords::from_arg_matches(matches)?;
        let service = given.word.or(given.address).or(given.option.map(ServiceAddress::from));
        service.map(Self).ok_or_else(|| clap::Error::raw(ErrorKind::MissingRequiredArgument, "which service?"))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ServiceArg {
    fn augment_args(command: Command) -> Command {
        ServiceWords::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ServiceWords::augment_args_for_update(command)
    }
}

/// The replacement of an origin's path prefix.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RewriteArgs {
    /// Strip the prefix of --path from requests to the service: /api/x becomes /x
    #[arg(long, conflicts_with = "rewrite_path")]
    pub(crate) strip_path: bool,
    /// Replace the prefix of --path in requests to the service: with /v2, /api/x becomes /v2/x
    #[arg(long, value_name = "PATH")]
    pub(crate) rewrite_path: Option<PathPrefix>,
}

impl RewriteArgs {
    /// The replacement; `of_address` is the path in the address of the service.
    ///
    /// # Errors
    /// Both are given.
    pub(crate) fn replacement(&self, of_address: Option<&PathPrefix>) -> Result<Option<PathPrefix>, Failure> {
        let given = if self.strip_path { Some(PathPrefix::root()) } else { self.rewrite_path.clone() };
        if given.is_some() && of_address.is_some() {
            return Err(Failure::usage("the path of the service's address stands in the place of --path already")
                .next("leave out --strip-path and --rewrite-path, or the path of the address"));
        }
        Ok(given.or_else(|| of_address.cloned()))
    }
}

/// A path of the name, with its service if that is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathArg {
    /// The prefix of its paths.
    pub(crate) prefix: PathPrefix,
    /// The service; `None` for the one of the command.
    pub(crate) service: Option<ServiceAddress>,
}

impl FromStr for PathArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (prefix, service) = match text.split_once('=') {
            None => (text, None),
            Some((prefix, service)) => (prefix, Some(service.parse()?)),
        };
        Ok(Self {
            prefix: prefix.parse().map_err(|error: sallyport_model::PathPrefixError| error.to_string())?,
            service,
        })
    }
}

/// The paths of a name and their services.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Paths")]
pub(crate) struct PathsArgs {
    /// Another service under the same name, for a path and all paths beneath it: --path /api=8000; may be given several
    /// times. Without =SERVICE: the path of the service itself [default: /]
    #[arg(long = "path", value_name = "PATH[=SERVICE]", value_parser = PathArg::from_str)]
    paths: Vec<PathArg>,
    #[command(flatten)]
    rewrite: RewriteArgs,
}

impl PathsArgs {
    /// The paths of the service with this address, and the other services with theirs.
    ///
    /// # Errors
    /// Two have the same path.
    pub(crate) fn read(&self, of: &ServiceAddress) -> Result<(PathRoute, Vec<(PathRoute, ServiceAddress)>), Failure> {
        let mut own = None;
        let mut others = Vec::new();
        for path in &self.paths {
            match &path.service {
                None if own.is_some() => {
                    return Err(Failure::usage("one service has one --path of its own")
                        .next("say which service has the other one: --path /api=8000"));
                }
                None => own = Some(path.prefix.clone()),
                Some(service) => others.push((path.prefix.clone(), service.clone())),
            }
        }
        let own = own.unwrap_or_default();
        let mut prefixes: Vec<_> = others.iter().map(|(prefix, _)| prefix).chain([&own]).collect();
        prefixes.sort_unstable();
        if let Some(twice) = prefixes.windows(2).find(|pair| pair[0] == pair[1]) {
            let which = format!("two services have the path {}", twice[0]);
            return Err(Failure::usage(which).next("give each a --path of its own"));
        }
        let route = |prefix: PathPrefix, service: &ServiceAddress, rewrite: &RewriteArgs| {
            let rewrite = if prefix.is_root() && service.path.is_none() && rewrite.strip_path {
                None
            } else {
                rewrite.replacement(service.path.as_ref())?
            };
            Ok::<_, Failure>(PathRoute { prefix, rewrite })
        };
        // `--rewrite-path` applies only to the service itself.
        let of_others = RewriteArgs { rewrite_path: None, ..self.rewrite.clone() };
        let own = route(own, of, &self.rewrite)?;
        let others = others.into_iter().map(|(prefix, service)| Ok((route(prefix, &service, &of_others)?, service)));
        Ok((own, others.collect::<Result<_, Failure>>()?))
    }
}

/// The paths of an origin for people.
pub(crate) struct ShownPath<'a>(pub(crate) &'a PathPrefix, pub(crate) Option<&'a PathPrefix>);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(rewrite) if rewrite != self.0 => write!(f, "{} -> {rewrite}", self.0),
            _ => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ServiceAddress {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_service_is_a_port_an_address_or_a_url() {
        let plain = |scheme, host: Option<&str>, port| ServiceAddress {
            scheme,
            host: host.map(str::to_owned),
            port,
            path: None,
        };
        use SocketType as T;
        for (text, expected) in [
            ("8000", plain(None, None, 8_000)),
            ("localhost:8000", plain(None, Some("localhost"), 8_000)),
            ("192.168.1.5:3000", plain(None, Some("192.168.1.5"), 3_000)),
            ("[::1]:8000", plain(None, Some("::1"), 8_000)),
            ("http://localhost:8000", plain(Some(T::Http), Some("localhost"), 8_000)),
            ("http://localhost:8000/", plain(Some(T::Http), Some("localhost"), 8_000)),
            ("HTTP://Localhost", plain(Some(T::Http), Some("localhost"), 80)),
            ("https://127.0.0.1:4443", plain(Some(T::Https), Some("127.0.0.1"), 4_443)),
            ("https://[::1]", plain(Some(T::Https), Some("::1"), 443)),
            ("tcp://db.internal:5432", plain(Some(T::Tcp), Some("db.internal"), 5_432)),
            ("udp://127.0.0.1:53", plain(Some(T::Udp), Some("127.0.0.1"), 53)),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
        assert_eq!(address("http://localhost:8000/v2").path.unwrap().as_str(), "/v2");
        assert_eq!(address("localhost:8000/v2/").path.unwrap().as_str(), "/v2");
    }

    #[test]
    fn what_is_no_service_gets_one_sentence() {
        for (text, says) in [
            ("", "expected a port"),
            ("0", "expected a port from 1 to 65535"),
            ("70000", "expected a port from 1 to 65535"),
            ("-1", "expected a port"),
            ("abc", "expected a port"),
            ("localhost", "expected a port"),
            ("[::1]", "expected a port"),
            ("localhost:0", "1 to 65535"),
            ("localhost:http", "1 to 65535"),
            ("::1:8000", "needs brackets"),
            ("ftp://localhost", "expected http://"),
            ("tcp://localhost", "expected a port"),
            ("http://", "expected a port"),
            ("http://ann:secret@localhost:8000", "leave out the user name"),
            ("http://localhost:8000/?x=1", "leave out what follows ?"),
            ("http://localhost:8000#x", "leave out what follows ?"),
            ("http://localhost:8000/a//b", "empty segments"),
            ("http://localhost:8000/../x", "a dot"),
            ("tcp://localhost:5432/db", "leave out the path"),
            ("a b:80", "no address"),
        ] {
            let error = text.parse::<ServiceAddress>().unwrap_err();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        paths: PathsArgs,
    }

    fn paths(line: &str, of: &str) -> Result<(PathRoute, Vec<(PathRoute, ServiceAddress)>), Failure> {
        let words = std::iter::once("x").chain(line.split(' ').filter(|word| !word.is_empty()));
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        line.paths.read(&address(of))
    }

    #[test]
    fn services_share_a_name_by_their_paths() {
        let shown = |route: &PathRoute| ShownPath(&route.prefix, route.rewrite.as_ref()).to_string();
        let (own, others) = paths("", "3000").unwrap();
        assert_eq!((shown(&own).as_str(), others.len()), ("/", 0));
        let (own, others) = paths("--path /api=8000 --path /docs=http://10.0.0.7:80/v2 --path /app", "3000").unwrap();
        assert_eq!(shown(&own), "/app");
        let others: Vec<_> = others.iter().map(|(route, service)| (shown(route), service.port)).collect();
        assert_eq!(others, [("/api".to_owned(), 8_000), ("/docs -> /v2".to_owned(), 80)]);
        let (own, others) = paths("--strip-path --path /api=8000", "3000").unwrap();
        assert_eq!((shown(&own), shown(&others[0].0)), ("/".to_owned(), "/api -> /".to_owned()));
        let (own, others) = paths("--rewrite-path /v2 --path /api=8000", "3000").unwrap();
        assert_eq!((shown(&own), shown(&others[0].0)), ("/ -> /v2".to_owned(), "/api".to_owned()));
        assert_eq!(shown(&paths("", "http://localhost:3000/v2").unwrap().0), "/ -> /v2");
        for (line, of, says) in [
            ("--path /api=1 --path /api=2", "3", "two services have the path /api"),
            ("--path /=1", "3", "two services have the path /"),
            ("--path /a --path /b", "3", "one service has one --path"),
            ("--path /a --strip-path", "http://localhost:3/b", "stands in the place of --path already"),
        ] {
            let failure = paths(line, of).unwrap_err();
            assert!(failure.message.contains(says), "{line}: {}", failure.message);
        }
    }
}
