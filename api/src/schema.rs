//! Schemas of the words that come from the model, which itself knows nothing of OpenAPI.

use sallyport_model::{Affinity, OriginProtocol, ProxyProtocol, Scope, SocketType};
use utoipa::openapi::{
    RefOr, Schema,
    schema::{ArrayBuilder, Object, ObjectBuilder, Type},
};

fn words<'a>(words: impl IntoIterator<Item = &'a str>, description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).description(Some(description))
}

/// The types of sockets.
pub(crate) fn socket_type() -> Object {
    let all = SocketType::ALL.map(SocketType::as_str);
    let says = "What the socket is: `http` and `https` are what the origin speaks, their clients always get HTTPS; `tcp`, \
                `tls` and `udp` have a port of their own.";
    words(all, says).build()
}

/// The protocols for origins.
pub(crate) fn origin_protocol() -> Object {
    let all = [OriginProtocol::Auto, OriginProtocol::Http1, OriginProtocol::Http2].map(OriginProtocol::as_str);
    words(all, "Which HTTP version the origin is spoken to with; `auto` is HTTP/2 for gRPC and HTTP/1.1 otherwise.")
        .build()
}

/// A list of scopes.
pub(crate) fn scopes() -> RefOr<Schema> {
    let scope = words(Scope::ALL.map(Scope::as_str), "What a token may do.").build();
    ArrayBuilder::new().items(scope).description(Some("What the token may do; writing includes reading.")).into()
}

/// The versions of the PROXY protocol.
pub(crate) fn proxy_protocol() -> Object {
    let all = [ProxyProtocol::Off, ProxyProtocol::V1, ProxyProtocol::V2].map(ProxyProtocol::as_str);
    words(all, "Whether the origin is told the client's address by a PROXY protocol header; `off` when absent.").build()
}

/// Who ends TLS.
pub(crate) fn tls_mode() -> Object {
    let says =
        "Who ends the TLS of a `tls` socket: the edge (`terminate`, when absent), or the origin (`passthrough`).";
    words(["terminate", "passthrough"], says).build()
}

/// The affinities.
pub(crate) fn affinity() -> Object {
    let all = [Affinity::None, Affinity::Cookie, Affinity::Address].map(Affinity::as_str);
    words(all, "Whether a client comes back to the same origin, and by what it is known; `none` when absent.").build()
}

fn bound(description: &str, max: f64) -> ObjectBuilder {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1.0)).maximum(Some(max));
    number.description(Some(description))
}

/// What a socket may use.
pub(crate) fn limits() -> Object {
    let bytes = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1_024.0));
    ObjectBuilder::new()
        .description(Some("What the socket may use; an absent bound is no bound."))
        .property("max_connections", bound("Connections, requests (HTTP) or flows (UDP) at a time.", 1e6))
        .property("requests_per_second", bound("New requests, connections or flows in a second.", 1e6))
        .property("bytes_per_second", bytes.description(Some("Bytes in a second, both directions together.")))
        .property("queue", bound("How many beyond a bound wait for their turn instead of being refused.", 1e4))
        .build()
}

/// From where clients may come.
pub(crate) fn access() -> Object {
    let rules = |description: &str| {
        let rule = ObjectBuilder::new().schema_type(Type::String).examples(["192.0.2.0/24", "country:CH", "asn:64500"]);
        ArrayBuilder::new().items(rule).max_items(Some(1_000)).description(Some(description))
    };
    ObjectBuilder::new()
        .description(Some("From where clients may come: networks, countries and autonomous systems."))
        .property("allow", rules("Who may come in; everybody when empty."))
        .property("deny", rules("Who may not, whatever `allow` says."))
        .build()
}

/// Who those are that come.
pub(crate) fn identity() -> Object {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let list = |example: &str, description: &str| {
        let item = text().examples([example]);
        ArrayBuilder::new().items(item).max_items(Some(100)).description(Some(description))
    };
    let minutes = |description: &str, default: u32| {
        bound(description, f64::from(sallyport_model::MAX_SESSION_MINUTES)).default(Some(default.into()))
    };
    ObjectBuilder::new()
        .description(Some("Who those are that come: nobody enters without an identity that the socket or one of its policies lets in."))
        .property("email_addresses", list("ann@example.com", "E-mail addresses that are let in."))
        .property("email_domains", list("example.com", "Domains of e-mail addresses that are let in."))
        .property("providers", list("google", "Which providers of the organisation may vouch; all when empty."))
        .property("session_minutes", minutes("How long after a login the provider is asked again.", 720))
        .property("session_idle_minutes", minutes("How long a login may rest unused.", 60))
        .build()
}
