//! OpenAPI schemas of the model's types, since the model itself knows nothing of OpenAPI.

use sallyport_model::{Affinity, OriginProtocol, ProxyProtocol, Role, Scope, SocketType};
use utoipa::openapi::{
    RefOr, Schema,
    schema::{ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, SchemaType, Type},
};

/// The same words for fields that may be `null`: in requests the default again, in responses nothing.
pub(crate) mod or_null {
    macro_rules! or_null {
        ($($name:ident)*) => {$(
            /// The same, or `null`.
            pub(crate) fn $name() -> utoipa::openapi::schema::Object {
                super::nullable(super::$name())
            }
        )*};
    }
    or_null!(affinity origin_protocol policy_name proxy_protocol socket_type tls_mode);
}

/// Objects that are described once, under a name of their own, and referred to elsewhere: generated clients get one
/// type of each, and can say `null` where that is meant.
macro_rules! objects {
    ($($name:ident $title:literal)*) => {
        /// References to them.
        pub(crate) mod named {
            use utoipa::openapi::{Ref, RefOr, Schema};
            $(
                /// A reference to it.
                pub(crate) fn $name() -> RefOr<Schema> {
                    Ref::from_schema_name($title).into()
                }
            )*
        }

        /// References for fields that may be `null`: in requests the default again, in responses nothing.
        pub(crate) mod named_or_null {
            use utoipa::openapi::{RefOr, Schema, Type, schema::{ObjectBuilder, OneOfBuilder}};
            $(
                /// A reference to it, or `null`.
                pub(crate) fn $name() -> RefOr<Schema> {
                    let null = ObjectBuilder::new().schema_type(Type::Null);
                    RefOr::T(Schema::OneOf(OneOfBuilder::new().item(super::named::$name()).item(null).build()))
                }
            )*
        }

        /// The descriptions of objects that types refer to by these names.
        #[must_use]
        pub fn named_objects() -> Vec<(&'static str, Object)> {
            vec![$(($title, $name())),*]
        }
    };
}
objects!(
    access "Access"
    capacity "Capacity"
    header_rules "HeaderRules"
    identity "SocketIdentity"
    limits "Limits"
    origin_tls "OriginTls"
    policy_document "PolicyDocument"
    regions "Regions"
);

/// What may be `null` besides: its type says so, and its values where they are listed.
fn nullable(mut object: Object) -> Object {
    if let SchemaType::Type(kind) = object.schema_type {
        object.schema_type = SchemaType::Array(vec![kind, Type::Null]);
    }
    if let Some(values) = &mut object.enum_values {
        values.push(serde_json::Value::Null);
    }
    object
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>, description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).description(Some(description))
}

/// The types of sockets.
pub(crate) fn socket_type() -> Object {
    let all = SocketType::ALL.map(SocketType::as_str);
    let says = "The type of the socket. `http` and `https` name the origin's protocol; clients always get HTTPS. \
                `tcp`, `tls` and `udp` sockets have a port of their own.";
    words(all, says).build()
}

/// The protocols for origins.
pub(crate) fn origin_protocol() -> Object {
    let all = [OriginProtocol::Auto, OriginProtocol::Http1, OriginProtocol::Http2].map(OriginProtocol::as_str);
    words(all, "The HTTP version between edge and origin; `auto` is HTTP/2 for gRPC and HTTP/1.1 otherwise.").build()
}

/// The kinds of identity providers.
pub(crate) fn provider_kind() -> Object {
    let all = sallyport_model::ProviderKind::ALL.map(sallyport_model::ProviderKind::as_str);
    let says =
        "The kind of provider: OpenID Connect (`oidc`), a provider by name, or this installation itself (`local`).";
    words(all, says).build()
}

/// A list of scopes.
pub(crate) fn scopes() -> RefOr<Schema> {
    let scope = words(Scope::ALL.map(Scope::as_str), "A scope of a token.").build();
    ArrayBuilder::new().items(scope).description(Some("The scopes of the token; writing includes reading.")).into()
}

/// The roles.
pub(crate) fn role() -> Object {
    words(Role::ALL.map(Role::as_str), "The role of a member; each role may do what those before it may.").build()
}

/// The versions of the PROXY protocol.
pub(crate) fn proxy_protocol() -> Object {
    let all = [ProxyProtocol::Off, ProxyProtocol::V1, ProxyProtocol::V2].map(ProxyProtocol::as_str);
    words(all, "Whether the origin gets the client's address in a PROXY protocol header; `off` when absent.").build()
}

/// The end of the TLS connection: the edge or the origin.
pub(crate) fn tls_mode() -> Object {
    let says =
        "The end of the TLS of a `tls` socket: the edge (`terminate`, when absent), or the origin (`passthrough`).";
    words(["terminate", "passthrough"], says).build()
}

/// The affinities.
pub(crate) fn affinity() -> Object {
    let all = [Affinity::None, Affinity::Cookie, Affinity::Address].map(Affinity::as_str);
    words(all, "Whether a client comes back to the same origin, and what identifies the client; `none` when absent.")
        .build()
}

fn bound(description: &str, max: f64) -> ObjectBuilder {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1.0)).maximum(Some(max));
    number.description(Some(description))
}

/// What a socket may use.
pub(crate) fn limits() -> Object {
    let bytes = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1_024.0));
    ObjectBuilder::new()
        .description(Some("Limits of the socket; an absent limit does not apply."))
        .property("max_connections", bound("Connections, requests (HTTP) or flows (UDP) at a time.", 1e6))
        .property("requests_per_second", bound("New requests, connections or flows in a second.", 1e6))
        .property("bytes_per_second", bytes.description(Some("Bytes in a second, both directions together.")))
        .property(
            "queue",
            bound("The number of requests or flows beyond a limit that wait instead of being refused.", 1e4),
        )
        .build()
}

/// What an origin, or the origins of a region together, can carry.
pub(crate) fn capacity() -> Object {
    let number =
        |most: u32| ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1.0)).maximum(Some(f64::from(most)));
    let says = "The most new requests per second (for TCP, TLS and UDP: connections or flows), or `auto`: as many as it \
                is seen to answer without getting slow.";
    let auto = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["auto"]));
    let rps = OneOfBuilder::new().item(number(sallyport_model::MAX_ORIGIN_RPS)).item(auto).description(Some(says));
    let connections = number(sallyport_model::MAX_ORIGIN_CONNECTIONS)
        .description(Some("The most requests, connections or flows at once."));
    let shared = ObjectBuilder::new().schema_type(Type::String).max_length(Some(32)).description(Some(
        "All origins of the organisation with this name have these limits together. Where they differ, the lowest count.",
    ));
    ObjectBuilder::new()
        .description(Some("What an origin can carry, from all edges together."))
        .property("max_rps", rps)
        .property("max_connections", connections)
        .property("shared", shared)
        .build()
}

/// The endpoint groups of a socket, by their regions.
pub(crate) fn regions() -> Object {
    let says =
        "The share of the region's flows that the region keeps, in percent; the rest goes to the next nearest region.";
    let dial = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0.0))
        .maximum(Some(f64::from(sallyport_model::FULL_DIAL)))
        .default(Some(sallyport_model::FULL_DIAL.into()))
        .description(Some(says));
    ObjectBuilder::new()
        .description(Some("Settings of regions, by the region's name; at most 64."))
        .additional_properties(Some(
            ObjectBuilder::new().property("dial", dial).property("capacity", named::capacity()),
        ))
        .build()
}

/// Which header fields are set and removed.
pub(crate) fn header_rules() -> Object {
    let name = || ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(128));
    let value = || ObjectBuilder::new().schema_type(Type::String).max_length(Some(2_048));
    let field = || {
        let fields = ObjectBuilder::new().property("name", name()).property("value", value());
        fields.required("name").required("value").build()
    };
    let list = |item: Object, says: &str| ArrayBuilder::new().items(item).max_items(Some(32)).description(Some(says));
    let set = "Fields to set, in the place of those of the same name; a Set-Cookie is added to the present ones.";
    let changes = |says: &str| {
        ObjectBuilder::new()
            .description(Some(says))
            .property("set", list(field(), set))
            .property("remove", list(name().build(), "Names of fields to remove, before others are set."))
    };
    ObjectBuilder::new()
        .description(Some("Changes of header fields; 8,192 bytes of names and values at most."))
        .property("request", changes("In requests, before an origin gets them."))
        .property("response", changes("In the responses of origins, before a client gets them."))
        .build()
}

/// How a direct origin proves its identity.
pub(crate) fn origin_tls() -> Object {
    ObjectBuilder::new()
        .description(Some("How an origin that speaks TLS proves its identity. Edges refuse an origin that does not."))
        .property(
            "server_name",
            text("The name that the origin's certificate must have; the origin's host when absent.")
                .max_length(Some(253)),
        )
        .property(
            "ca",
            text("The trusted authorities, in PEM, instead of those of the edges' machines.").max_length(Some(8_192)),
        )
        .property(
            "pin",
            text("The SHA-256 of the certificate that the origin must show, whatever its content.")
                .pattern(Some("^sha256:[0-9a-fA-F]{64}$")),
        )
        .build()
}

/// The networks of clients.
pub(crate) fn access() -> Object {
    let rules = |description: &str| {
        let rule = ObjectBuilder::new().schema_type(Type::String).examples(["192.0.2.0/24", "country:CH", "asn:64500"]);
        ArrayBuilder::new().items(rule).max_items(Some(1_000)).description(Some(description))
    };
    ObjectBuilder::new()
        .description(Some("Networks, countries and autonomous systems of clients."))
        .property("allow", rules("The clients to admit; every client when empty."))
        .property("deny", rules("The clients to deny, whatever `allow` has."))
        .build()
}

/// Identities of clients.
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
        .description(Some(
            "Identities of clients. Only clients with an identity that the socket or one of its policies allows are \
                admitted.",
        ))
        .property("email_addresses", list("ann@example.com", "E-mail addresses to admit."))
        .property("email_domains", list("example.com", "Domains of e-mail addresses to admit."))
        .property("providers", list("google", "Accepted providers of the organisation; all when empty."))
        .property("session_minutes", minutes("Minutes from a login until the provider is asked again.", 720))
        .property("session_idle_minutes", minutes("Minutes for which a login may be unused.", 60))
        .build()
}

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn list_of(item: ObjectBuilder, description: &str) -> ArrayBuilder {
    ArrayBuilder::new().items(item).min_items(Some(1)).max_items(Some(1_000)).description(Some(description))
}

/// The name of a policy.
pub(crate) fn policy_name() -> Object {
    let name = text("1 to 64 lower-case letters, digits and hyphens, beginning with a letter.");
    name.max_length(Some(64)).pattern(Some("^[a-z][a-z0-9-]*$")).examples(["staff"]).build()
}

/// The rules of a policy.
pub(crate) fn policy_document() -> Object {
    let says = "Rules that deny access, whatever any policy allows.";
    let deny = ArrayBuilder::new().items(policy_rule()).max_items(Some(100)).description(Some(says));
    ObjectBuilder::new()
        .description(Some(
            "Rules for access. A rule matches when all its conditions hold; the entries of one list are alternatives.",
        ))
        .property(
            "allow",
            list_of(policy_rule(), "Rules that allow access; absent in a policy that only denies.")
                .max_items(Some(100)),
        )
        .property("deny", deny)
        .build()
}

fn policy_rule() -> ObjectBuilder {
    let who = ObjectBuilder::new()
        .description(Some("The identity of the client."))
        .property(
            "anyone",
            ObjectBuilder::new()
                .schema_type(Type::Boolean)
                .description(Some("Every client, without other conditions.")),
        )
        .property("emails", list_of(text("An address."), "People by their e-mail addresses."))
        .property("email_domains", list_of(text("A domain."), "People by the exact domains of their e-mail addresses."))
        .property("groups", list_of(text("A group."), "People by the groups that their provider gives."))
        .property("providers", list_of(text("A provider."), "People by the providers that authenticate them."))
        .property("service_tokens", list_of(text("A name."), "Machines by the names of their service tokens."));
    let window = ObjectBuilder::new()
        .property(
            "days",
            list_of(text("`mon` to `sun`."), "The days on which the window begins; every day when absent.")
                .max_items(Some(7)),
        )
        .property("from", text("The beginning of the window, such as `08:00`."))
        .property("to", text("The end of the window; at or before `from`: on the next day."));
    let when = ObjectBuilder::new()
        .description(Some("The times at which the rule holds."))
        .property("not_before", text("The first moment (RFC 3339)."))
        .property("not_after", text("The moment at which the rule ceases to hold (RFC 3339)."))
        .property("weekly", list_of(window, "Windows of the week.").max_items(Some(50)))
        .property("time_zone", text("The time zone of the windows: an IANA name.").examples(["Europe/Zurich"]));
    let port = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1.0)).maximum(Some(65_535.0));
    let what = ObjectBuilder::new()
        .description(Some("The request."))
        .property("methods", list_of(text("A method."), "HTTP methods; `GET` stands for `HEAD`, too."))
        .property(
            "paths",
            list_of(
                text("A path."),
                "HTTP paths, each with everything beneath it; `*` within a segment, `**` for segments.",
            ),
        )
        .property("ports", list_of(port, "Public ports of clients' connections."));
    let extensions = sallyport_policy::SshExtension::ALL.map(sallyport_policy::SshExtension::as_str);
    let ssh = ObjectBuilder::new()
        .description(Some(
            "Permissions of the ssh certificate of an admitted person; absent fields have the values of the authority.",
        ))
        .property("extensions", list_of(words(extensions, "An extension."), "The extensions; none when empty."))
        .property("force_command", text("The one command that the certificate allows.").max_length(Some(1_024)));
    let place = text("A network, country or autonomous system.").examples(["192.0.2.0/24", "country:CH", "asn:64500"]);
    ObjectBuilder::new()
        .property("name", text("The name of the rule in the explanation of a decision.").max_length(Some(64)))
        .property("who", who)
        .property("where", list_of(place, "The place of the client."))
        .property("when", when)
        .property("what", what)
        .property("ssh", ssh)
}

/// What a service token reaches at most.
pub(crate) fn service_token_scope() -> Object {
    let port = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1.0)).maximum(Some(65_535.0));
    let reads = "Whether only GET, HEAD and OPTIONS are allowed, and no WebSocket.";
    let list = |of: ObjectBuilder, says: &str| list_of(of, says).max_items(Some(50));
    ObjectBuilder::new()
        .description(Some(
            "Bounds of the token, which apply before policies: both must allow a request. All bounds must hold; an \
             absent field bounds nothing.",
        ))
        .property("read_only", ObjectBuilder::new().schema_type(Type::Boolean).description(Some(reads)))
        .property("methods", list(text("A method."), "HTTP methods; `GET` stands for `HEAD`, too."))
        .property(
            "paths",
            list(text("A path."), "HTTP paths, each with everything beneath it, as policies write them."),
        )
        .property("ports", list(port, "Public ports of clients' connections."))
        .property("types", list_of(ObjectBuilder::from(socket_type()), "Types of sockets: http, https, tls."))
        .build()
}
