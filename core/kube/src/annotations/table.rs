//! The options of `sallyport connect`, and what an annotation of each may be.

use OptionKind::{Object, Refused, Socket, Tunnel};

/// What an option is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// The socket.
    Socket,
    /// The way to the pods.
    Tunnel,
    /// The whole object, and not one port.
    Object,
    /// Nothing that an annotation can set: why, and what to do instead.
    Refused(&'static str, &'static str),
}

/// An option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionRule {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// What it is about.
    pub kind: OptionKind,
    /// What its value may be, for people.
    pub value: &'static str,
}

const fn rule(name: &'static str, kind: OptionKind, value: &'static str) -> OptionRule {
    OptionRule { name, kind, value }
}

const SECRET: OptionKind = Refused(
    "everybody who may read the object could read the password",
    "protect the socket by a login: sallyport.dev/cloudauth, or by sallyport.dev/policy",
);
const POD: OptionKind = Refused(
    "the pods of the Service are the origin",
    "select pods with spec.selector, and ports with sallyport.dev/port",
);
const MACHINE: OptionKind = Refused(
    "it is about the program that holds the tunnels, and not about one socket",
    "set it for all sockets in the values of the chart",
);
const FILE: OptionKind = Refused("an annotation cannot name a file", "give the fingerprint: sallyport.dev/origin-pin");
const GLOBAL: OptionKind =
    Refused("it is about the account, and not about one socket", "set it for the program, in the values of the chart");

const PAGE: OptionKind = Refused(
    "the inspector is a page on the machine of the person who looks at it",
    "run `sallyport connect` on that machine, or read `sallyport flow log`",
);

const FLAG: &str = "true or false";
const SECONDS: &str = "whole seconds, such as 5s";
const LIST: &str = "words with commas between them, or off";
const LIMIT: &str = "a number such as 100 or 10M, or off";

/// All options of `sallyport connect`, and those of `tunnel create` and `socket create` that have a meaning here.
pub const OPTIONS: &[OptionRule] = &[
    rule("address", POD, ""),
    rule("affinity", Socket, "none, cookie or address"),
    rule("allow", Socket, "networks, country:CH, asn:64500, with commas between them, or off"),
    rule("allowed-email-addresses", Socket, LIST),
    rule("allowed-email-domains", Socket, LIST),
    rule("alpn", Socket, "protocols with commas between them, or off"),
    rule("amplification-guard", Socket, FLAG),
    rule("api", GLOBAL, ""),
    rule("bytes-per-second", Socket, LIMIT),
    rule("ca", GLOBAL, ""),
    rule("cloudauth", Socket, FLAG),
    rule("color", GLOBAL, ""),
    rule("congestion", MACHINE, ""),
    rule("connect-timeout", Tunnel, "a time, such as 10s"),
    rule("deny", Socket, "networks, country:CH, asn:64500, with commas between them, or off"),
    rule("dial", Socket, "REGION=PERCENT such as eu=20, with commas between them"),
    rule("domain", Socket, "domain names with commas between them, or off"),
    rule("health-check", Socket, "tcp, http:/PATH, http:/PATH:200-299, or off"),
    rule("health-interval", Socket, SECONDS),
    rule("health-timeout", Socket, SECONDS),
    rule("healthy-threshold", Socket, "1 to 10"),
    rule("host", POD, ""),
    rule("host-header", Socket, "a host such as localhost:3000, origin, or off"),
    rule("identity-provider", Socket, LIST),
    rule("inspect", PAGE, ""),
    rule("inspect-keep", PAGE, ""),
    rule("keepalive", MACHINE, ""),
    rule("label", Socket, "KEY=VALUE, with commas between them"),
    rule("link", MACHINE, ""),
    rule("max-connections", Socket, LIMIT),
    rule("max-legs", MACHINE, ""),
    rule("max-rps", Tunnel, "requests per second, auto, or off"),
    rule("mptcp", MACHINE, ""),
    rule("name", Socket, "one line of 1 to 100 characters"),
    rule("name-label", Socket, "a label of 1 to 63 characters"),
    rule("no-amplification-guard", Socket, FLAG),
    rule("no-cloudauth", Socket, FLAG),
    rule("no-inspect", PAGE, ""),
    rule("no-passthrough", Socket, FLAG),
    rule("not-protected", SECRET, ""),
    rule("organisation", GLOBAL, ""),
    rule("origin-ca", FILE, ""),
    rule("origin-max-connections", Tunnel, "a number of requests, or off"),
    rule("origin-pin", Tunnel, "sha256:..."),
    rule("origin-protocol", Socket, "auto, http1 or http2"),
    rule("origin-server-name", Tunnel, "a host name"),
    rule("output", GLOBAL, ""),
    rule("passthrough", Socket, FLAG),
    rule("password", SECRET, ""),
    rule("password-stdin", SECRET, ""),
    rule("path", Tunnel, "a path such as /api"),
    rule("plain", PAGE, ""),
    rule("policy", Socket, "names of policies with commas between them"),
    rule("port", Object, "names or numbers of ports with commas between them, or all"),
    rule("protected", SECRET, ""),
    rule("proxy", GLOBAL, ""),
    rule("proxy-protocol", Socket, "v1, v2 or off"),
    rule("public-port", Socket, "1 to 65535"),
    rule("queue", Socket, LIMIT),
    rule("redundancy", MACHINE, ""),
    rule("region", MACHINE, ""),
    rule("region-max-connections", Socket, "REGION=COUNT, with commas between them"),
    rule("region-max-rps", Socket, "REGION=RPS, with commas between them"),
    rule("region-shared-capacity", Socket, "REGION=NAME, with commas between them"),
    rule("remove-request-header", Socket, "names of header fields with commas between them, or off"),
    rule("remove-response-header", Socket, "names of header fields with commas between them, or off"),
    rule("request-header", Socket, "NAME: VALUE, one a line, or off"),
    rule("requests-per-second", Socket, LIMIT),
    rule("response-header", Socket, "NAME: VALUE, one a line, or off"),
    rule("rewrite-path", Tunnel, "a path such as /v2"),
    rule("session-minutes", Socket, "a number of minutes"),
    rule("shared-capacity", Tunnel, "a name of lower-case letters, digits and hyphens, or off"),
    rule("strip-path", Tunnel, FLAG),
    rule("token", SECRET, ""),
    rule("transport", MACHINE, ""),
    rule("type", Socket, "http, https, tcp, tls or udp"),
    rule("unhealthy-threshold", Socket, "1 to 10"),
    rule("username", SECRET, ""),
    rule("verbose", GLOBAL, ""),
    rule("weight", Tunnel, "0 to 1000"),
];

impl OptionRule {
    /// The option of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        OPTIONS.iter().find(|rule| rule.name == name)
    }

    /// Whether an annotation may set it.
    #[must_use]
    pub fn is_settable(&self) -> bool {
        !matches!(self.kind, Refused(..))
    }
}
