//! Schemas of the words that come from the model, which itself knows nothing of OpenAPI.

use sallyport_model::{OriginProtocol, Scope, SocketType};
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
    words(all, "What the origin speaks. Clients of `http` and `https` sockets always get HTTPS.").build()
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
