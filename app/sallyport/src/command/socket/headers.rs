//! Options for changes of header fields.

use std::str::FromStr;

use clap::Args;
use sallyport_api::{Socket, UpdateSocket};
use sallyport_model::{HeaderChanges, HeaderField, HeaderRules, HostHeader};

use super::settings::OFF;

/// Changes of header fields.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Header fields (http and https)")]
pub(crate) struct HeaderArgs {
    /// The Host header for the service: a host such as localhost:3000, origin for the dialed address, or off for the
    /// public name
    #[arg(long, value_name = "HOST")]
    host_header: Option<HostOrOff>,
    /// Set a header field of every request, replacing the client's; may be given several times. off: none
    #[arg(long, value_name = "NAME: VALUE")]
    request_header: Option<Vec<FieldOrOff>>,
    /// Remove a header field from every request; may be given several times. off: none
    #[arg(long, value_name = "NAME")]
    remove_request_header: Option<Vec<String>>,
    /// Set a header field of every response, replacing the service's; may be given several times. off: none
    #[arg(long, value_name = "NAME: VALUE")]
    response_header: Option<Vec<FieldOrOff>>,
    /// Remove a header field from every response; may be given several times. off: none
    #[arg(long, value_name = "NAME")]
    remove_response_header: Option<Vec<String>>,
}

/// A host, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostOrOff(Option<HostHeader>);

impl FromStr for HostOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self(None));
        }
        text.parse().map(|host| Self(Some(host))).map_err(|error: sallyport_model::HostHeaderError| error.to_string())
    }
}

/// A header field, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldOrOff(Option<HeaderField>);

impl FromStr for FieldOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self(None));
        }
        let wrong = "expected a name, a colon and a value, such as 'X-Env: staging', or off";
        let (name, value) = text.split_once(':').ok_or_else(|| wrong.to_owned())?;
        let field = HeaderField { name: name.to_owned(), value: value.trim_matches([' ', '\t']).to_owned() };
        checked(HeaderChanges { set: vec![field.clone()], remove: Vec::new() })?;
        Ok(Self(Some(field)))
    }
}

/// Refuses what the server would refuse, before any request.
fn checked(request: HeaderChanges) -> Result<(), String> {
    let rules = HeaderRules { request, response: HeaderChanges::default() };
    rules.check().map_err(|error| error.to_string())
}

impl HeaderArgs {
    /// Whether the change depends on the present rules.
    pub(crate) fn needs_current(&self) -> bool {
        self.request_header.is_some()
            || self.remove_request_header.is_some()
            || self.response_header.is_some()
            || self.remove_response_header.is_some()
    }

    /// Applies the changes to the present rules.
    pub(crate) fn change(self, now: HeaderRules, update: &mut UpdateSocket) {
        let needs_current = self.needs_current();
        update.host_header = self.host_header.map(|host| host.0);
        if needs_current {
            let changes = |set, remove, now: HeaderChanges| HeaderChanges {
                set: listed(set).unwrap_or(now.set),
                remove: names(remove).unwrap_or(now.remove),
            };
            update.headers = Some(Some(HeaderRules {
                request: changes(self.request_header, self.remove_request_header, now.request),
                response: changes(self.response_header, self.remove_response_header, now.response),
            }));
        }
    }
}

/// The list; empty for `off`.
fn listed(fields: Option<Vec<FieldOrOff>>) -> Option<Vec<HeaderField>> {
    fields.map(|fields| fields.into_iter().filter_map(|field| field.0).collect())
}

fn names(names: Option<Vec<String>>) -> Option<Vec<String>> {
    names.map(|names| names.into_iter().filter(|name| name != OFF).collect())
}

/// The rules, for people.
pub(crate) fn show(socket: &Socket) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(host) = &socket.host_header {
        rows.push(("host header", host.to_string()));
    }
    let HeaderRules { request, response } = &socket.headers;
    let set = |fields: &[HeaderField]| fields.iter().map(|field| format!("{}: {}", field.name, field.value)).collect();
    let lists: [(_, Vec<String>); 4] = [
        ("request header", set(&request.set)),
        ("removed there", request.remove.clone()),
        ("response header", set(&response.set)),
        ("removed there", response.remove.clone()),
    ];
    rows.extend(lists.into_iter().flat_map(|(title, list)| list.into_iter().map(move |one| (title, one))));
    rows
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        headers: HeaderArgs,
    }

    fn changed(words: &[&str], now: HeaderRules) -> UpdateSocket {
        let words = std::iter::once("x").chain(words.iter().copied());
        let mut update = UpdateSocket::default();
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).headers.change(now, &mut update);
        update
    }

    #[test]
    fn a_list_takes_the_place_of_the_one_that_there_is_and_the_others_stay() {
        assert!(changed(&[], HeaderRules::default()).is_empty());
        let first = [
            "--host-header",
            "localhost:3000",
            "--request-header",
            "X-A: b: c, d",
            "--request-header",
            "X-B:",
            "--remove-response-header",
            "Server",
        ];
        let update = changed(&first, HeaderRules::default());
        assert_eq!(update.host_header, Some(Some("localhost:3000".parse().unwrap())));
        let rules = update.headers.flatten().unwrap();
        let field = |name: &str, value: &str| HeaderField { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(rules.request.set, [field("X-A", "b: c, d"), field("X-B", "")]);
        assert_eq!(rules.response.remove, ["Server"]);
        let update = changed(&["--request-header", "off", "--host-header", "off"], rules);
        let rules = update.headers.flatten().unwrap();
        assert!(rules.request.is_empty() && update.host_header == Some(None));
        assert_eq!(rules.response.remove, ["Server"]);
    }

    #[test]
    fn errors_name_the_expected_value() {
        for (words, says) in [
            (["--request-header", "X-A"], "expected a name, a colon and a value"),
            (["--request-header", "Host: a"], "a setting of its own"),
            (["--response-header", "Content-Length: 1"], "the framing of the body"),
            (["--request-header", "X-Auth-Email: a"], "the source of a request"),
            (["--request-header", "X A: b"], "is no name of a header field"),
            (["--request-header", "X-A: b\r\nX-B: c"], "is not one line"),
            (["--host-header", "http://a"], "is no host"),
        ] {
            let error = Line::try_parse_from(["x"].into_iter().chain(words)).err().unwrap().to_string();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
